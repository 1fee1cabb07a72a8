/*
 * ps_sharded.c: training with several parameter servers. Each has a part of the parameters (a
 * shard), and a live copy of another server's: whatever a worker has got, two servers have, and one
 * of them may die.
 *
 *     worker 0    worker 1
 *        |  \      /  |          gradients, by shards
 *        |    \  /    |
 *        v    /  \    v
 *     server A ===== server B    sums to the replica, its word back; each has A's and B's weights
 *        |    \  /    |          and velocity
 *        v    /  \    v
 *     worker 0    worker 1       weights, by shards
 *
 *     for each batch:
 *       push     worker:   send each shard's server its part of the gradient
 *       add      server:   g = sum of the gradients, in the order of the ranks; g to the replica
 *       follow   replica:  w = optimizer(w, g); tell the server
 *       publish  server:   w = optimizer(w, g); when the replica has told, send w to the workers
 *       pull     worker:   receive w of each shard
 *
 * --servers k: the last k ranks are servers and nothing else; 0: every rank is worker and server.
 * A step with n workers and P parameters takes n P 4 bytes to the servers and as many back, and P 4
 * bytes to the replicas, less what a rank would send itself. Each server passes 1 / k of this.
 *
 * Of the servers that are left, number j modulo their count serves shard j, and the next one is its
 * replica, which serves it after a loss. Shards that had their update do not get another.
 *
 * M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014 (ranges
 * of keys, chain replication); R. van Renesse, F. B. Schneider, Chain Replication, OSDI 2004.
 */
#include "trainer/ranks.h"
#include "trainer/strategies/strategy.h"

#include <inttypes.h>
#include <string.h>

enum { TAG_GRADIENT, TAG_SUM, TAG_DONE, TAG_WEIGHTS }; /* times the number of shards */

typedef struct sharded {
  size_t count;           /* of shards: as many as there were servers at first */
  int *server, servers;   /* the ranks that serve, of those that are left */
  int *worker, workers;   /* ... that work */
  bool *serves;           /* by rank: it serves and nothing else */
  int seat;               /* this rank's number among the workers, or -1 */
  uint64_t *version;      /* updates that this rank's weights of a shard have had */
  bool *kept;             /* this rank serves a shard or is its replica, and has its velocity */
  float *grads;           /* this worker's, of the whole model */
  char *packets;          /* with --wire: the same by shards, as they are sent; else NULL */
  const void **outgoing;  /* by shards: what is sent of either */
  uint64_t ready;         /* the step from 1, as in version, whose gradients these are */
  int ready_of;           /* ... if a batch is shared among so many workers */
  float *sum;             /* of this server's shards, at the places of the whole model */
  char *message;          /* what comes from a worker */
  coll_request **request; /* sends of this step */
  int started;
} sharded;

/* The number of the current step in the run, from 0. */
static uint64_t now(const worker *w) {
  return w->epochs_done * loader_steps(&w->loader) + w->step;
}

/* The parameters of shard j. */
static shard range_of(const worker *w, size_t j) {
  return shard_of(w->model.params, (int)j, (int)((const sharded *)w->state)->count);
}

/* The rank that serves shard j, and the one that has the copy, or -1 if one server is left. */
static int server_of(const sharded *s, size_t j) {
  return s->server[j % (size_t)s->servers];
}

static int replica_of(const sharded *s, size_t j) {
  return s->servers > 1 ? s->server[(j + 1) % (size_t)s->servers] : -1;
}

/* Bytes of a worker's gradients of shard j. */
static size_t gradient_bytes(const worker *w, size_t j) {
  return wire_bytes(&w->o->wire, range_of(w, j).count);
}

/* Lists those who serve, or who work: all if none are left or dedicated. Returns how many. */
static int list_ranks(const worker *w, bool serve, int *list) {
  const sharded *s = w->state;
  int count = 0;
  for (int r = 0; r < w->nranks; r++)
    if (s->serves[r] == serve)
      list[count++] = r;
  for (int r = 0; count == 0 && r < w->nranks; r++)
    list[r] = r;
  return count ? count : w->nranks;
}

/* Finds out who of those that are left serves and who works. */
static bool assign(worker *w, fail *why) {
  sharded *s = w->state;
  if (!succeeded(why, w->comm, coll_allgather(&w->serves, s->serves, 1, COLL_UINT8, w->comm),
                 "finding the servers"))
    return false;
  s->servers = list_ranks(w, true, s->server);
  s->workers = list_ranks(w, false, s->worker);
  s->seat = -1;
  s->started = 0; /* what was sent is gone with its communicator */
  for (int i = 0; i < s->workers; i++)
    s->seat = s->worker[i] == w->rank ? i : s->seat;
  for (size_t j = 0; j < s->count; j++)
    s->kept[j] = server_of(s, j) == w->rank || replica_of(s, j) == w->rank;
  return worker_fit(w, s->workers, why);
}

static bool ps_sharded_check(const worker *w, fail *why) {
  int servers = (int)w->o->servers;
  if (servers == 1 || w->nranks < 2)
    return fail_set(why, "--servers 1 or a single rank: a shard's replica needs a second server");
  return servers < w->nranks ||
         fail_set(why, "--servers %d: leaves no worker among %d ranks", servers, w->nranks);
}

static bool open_servers(worker *w, fail *why) {
  size_t bytes = w->model.params * sizeof(float), ranks = (size_t)w->nranks;
  sharded *s = w->state;
  size_t count = s->count = w->o->servers ? (size_t)w->o->servers : ranks;
  size_t most = gradient_bytes(w, 0); /* no shard is larger than the first */
  if (!(s->server = worker_memory(w, ranks * sizeof(*s->server), why)) ||
      !(s->worker = worker_memory(w, ranks * sizeof(*s->worker), why)) ||
      !(s->serves = worker_memory(w, ranks, why)) ||
      !(s->version = worker_memory(w, count * sizeof(*s->version), why)) ||
      !(s->kept = worker_memory(w, count * sizeof(*s->kept), why)) ||
      !(s->request = worker_memory(w, count * (ranks + 2) * sizeof(coll_request *), why)) ||
      !(s->grads = worker_memory(w, bytes, why)) || !(s->sum = worker_memory(w, bytes, why)) ||
      !(s->message = worker_memory(w, most, why)) ||
      !(s->outgoing = worker_memory(w, count * sizeof(*s->outgoing), why)) ||
      !(s->packets = worker_memory(w, w->pending ? count * most : 0, why)))
    return false;
  for (size_t j = 0; j < count; j++)
    s->version[j] = now(w);
  if (!w->ready) /* a process that joins later is a worker */
    w->serves = w->rank >= w->nranks - (int)w->o->servers;
  return assign(w, why);
}

/* Starts to send something about shard j. */
static bool send_shard(worker *w, const void *data, size_t bytes, int to, int tag, size_t j,
                       fail *why) {
  sharded *s = w->state;
  tag = tag * (int)s->count + (int)j;
  return worker_start_send(w, data, bytes, to, tag, &s->request[s->started++], why);
}

/* Receives what send_shard() sent. */
static bool receive_shard(worker *w, void *data, size_t bytes, int from, int tag, size_t j,
                          fail *why) {
  tag = tag * (int)((const sharded *)w->state)->count + (int)j;
  return worker_receive(w, data, bytes, from, tag, NULL, why);
}

/* A worker: the gradient of its samples, unless it is there from before a loss. */
static bool derive_gradients(worker *w, fail *why) {
  sharded *s = w->state;
  if (s->ready == now(w) + 1 && s->ready_of == s->workers)
    return true;
  if (!worker_batch_gradient(w, s->seat, s->workers, s->grads, NO_LISTENER, why))
    return false;
  double begin = clock_s();
  for (size_t j = 0; j < s->count; j++) {
    shard r = range_of(w, j);
    char *packet = s->packets + (w->pending ? j * gradient_bytes(w, 0) : 0);
    s->outgoing[j] = worker_pack(w, r.first, r.count, s->grads + r.first, packet);
  }
  w->sums.compute_s += clock_s() - begin;
  s->ready = now(w) + 1;
  s->ready_of = s->workers;
  return true;
}

/* A worker: its gradient, to the servers. */
static bool push_gradients(worker *w, fail *why) {
  const sharded *s = w->state;
  if (!derive_gradients(w, why))
    return false;
  for (size_t j = 0; j < s->count; j++) {
    int to = server_of(s, j);
    if (to != w->rank &&
        !send_shard(w, s->outgoing[j], gradient_bytes(w, j), to, TAG_GRADIENT, j, why))
      return false;
  }
  return true;
}

/* The server of shard j: adds the workers' gradients, and gives the replica their sum. */
static bool add_gradients(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = range_of(w, j);
  float *sum = s->sum + r.first;
  memset(sum, 0, r.count * sizeof(float));
  for (int i = 0; i < s->workers; i++) {
    int from = s->worker[i];
    bool own = from == w->rank;
    if (!own && !receive_shard(w, s->message, gradient_bytes(w, j), from, TAG_GRADIENT, j, why))
      return false;
    if (!wire_add(&w->o->wire, r.count, own ? s->outgoing[j] : s->message, sum, why))
      return false;
  }
  int replica = replica_of(s, j);
  return replica < 0 || send_shard(w, sum, r.count * sizeof(float), replica, TAG_SUM, j, why);
}

/* The update of shard j, unless it has had that of this step. */
static void update_shard(worker *w, size_t j) {
  sharded *s = w->state;
  shard r = range_of(w, j);
  if (s->version[j] > now(w))
    return;
  worker_update(w, r.first, r.count, s->sum + r.first);
  s->version[j] = now(w) + 1;
}

/* The replica of shard j: makes the same update, and says so. */
static bool follow_update(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = range_of(w, j);
  size_t bytes = r.count * sizeof(float);
  if (!receive_shard(w, s->sum + r.first, bytes, server_of(s, j), TAG_SUM, j, why))
    return false;
  update_shard(w, j);
  return send_shard(w, NULL, 0, server_of(s, j), TAG_DONE, j, why);
}

/* The server of shard j: when the replica has the update, the workers get the weights. */
static bool publish_weights(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = range_of(w, j);
  int replica = replica_of(s, j);
  update_shard(w, j);
  if (replica >= 0 && !receive_shard(w, NULL, 0, replica, TAG_DONE, j, why))
    return false;
  for (int i = 0; i < s->workers; i++) {
    int to = s->worker[i];
    if (to != w->rank && to != replica &&
        !send_shard(w, w->params + r.first, r.count * sizeof(float), to, TAG_WEIGHTS, j, why))
      return false;
  }
  return true;
}

/* A worker: shard j as its server has it now. */
static bool pull_weights(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = range_of(w, j);
  if (!receive_shard(w, w->params + r.first, r.count * sizeof(float), server_of(s, j), TAG_WEIGHTS,
                     j, why))
    return false;
  s->version[j] = now(w) + 1;
  return true;
}

/* Each phase waits only for earlier ones of other ranks, so a rank may have several parts. */
static bool ps_sharded_step(worker *w, fail *why) {
  sharded *s = w->state;
  bool ok = s->seat < 0 || push_gradients(w, why);
  for (size_t j = 0; j < s->count; j++)
    ok = ok && (server_of(s, j) != w->rank || add_gradients(w, j, why));
  for (size_t j = 0; j < s->count; j++)
    ok = ok && (replica_of(s, j) != w->rank || follow_update(w, j, why));
  for (size_t j = 0; j < s->count; j++)
    ok = ok && (server_of(s, j) != w->rank || publish_weights(w, j, why));
  for (size_t j = 0; j < s->count; j++)
    ok = ok && (s->seat < 0 || s->kept[j] || pull_weights(w, j, why));
  for (int i = 0; i < s->started; i++)
    ok = ok && worker_wait(w, &s->request[i], "sending to a server", why);
  s->started = 0;
  w->updates += ok;
  return ok;
}

/* Every shard with its velocity from its server; and what was counted of the updates. */
static const float *ps_sharded_settle(worker *w, fail *why) {
  const sharded *s = w->state;
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t j = 0; j < s->count; j++) {
    shard r = range_of(w, j);
    if (!worker_share_part(w, server_of(s, j), r.first, r.count, why))
      return NULL;
    least = s->version[j] < least ? s->version[j] : least;
    most = s->version[j] > most ? s->version[j] : most;
  }
  worker_note(w, "\"servers\":%d,\"updates_min\":%" PRIu64 ",\"updates_max\":%" PRIu64, s->servers,
              least, most);
  return w->params;
}

/*
 * The step continues with the newest copy of each shard, a server's or its replica's; of equally
 * new ones, one that has the velocity, too, and of those, the first rank's. Newcomers have none.
 */
static bool merge_shards(worker *w, size_t count, fail *why) {
  sharded *s = w->state;
  uint64_t ranks = (uint64_t)w->nranks, behind = ranks - 1 - (uint64_t)w->rank, oldest = UINT64_MAX;
  uint64_t *news = worker_memory(w, (count + 1) * sizeof(*news), why);
  if (!news)
    return false;
  for (size_t j = 0; s && j < count; j++)
    news[j] = (2 * s->version[j] + s->kept[j]) * ranks + behind;
  news[count] = w->epochs_done;
  coll_status status = coll_allreduce(news, news, count + 1, COLL_UINT64, COLL_MAX, w->comm);
  if (!succeeded(why, w->comm, status, "comparing the shards"))
    return false;
  for (size_t j = 0; j < count; j++) {
    shard r = shard_of(w->model.params, (int)j, (int)count);
    if (!worker_share_part(w, (int)(ranks - 1 - news[j] % ranks), r.first, r.count, why))
      return false;
    news[j] = news[j] / ranks / 2;
    oldest = news[j] < oldest ? news[j] : oldest;
    if (s)
      s->version[j] = news[j], s->kept[j] = true;
  }
  w->epochs_done = news[count];
  w->step = (size_t)(oldest - w->epochs_done * loader_steps(&w->loader));
  w->updates = oldest;
  return true;
}

/* With a rank that has no shards yet, they are made anew: as many as servers now. */
static bool recover_servers(worker *w, fail *why) {
  const sharded *s = w->state;
  uint64_t shards[] = {s ? s->count : 0, !s}; /* how many; whether a rank has none */
  return succeeded(why, w->comm, coll_allreduce(shards, shards, 2, COLL_UINT64, COLL_MAX, w->comm),
                   "comparing the shards") &&
         (shards[0] == 0 || merge_shards(w, (size_t)shards[0], why)) &&
         (shards[1] ? recover_restart(w, why) : assign(w, why));
}

const strategy strategy_ps_sharded = {
    .name = "ps-sharded",
    .about = "parameters split over several servers, each with a live replica (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .check = ps_sharded_check,
    .bytes = sizeof(sharded),
    .open = open_servers,
    .step = ps_sharded_step,
    .settle = ps_sharded_settle,
    .recover = recover_servers,
};
