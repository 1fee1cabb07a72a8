/*
 * ps_sharded.c: training with several parameter servers, each of which has a part of the parameters
 * (a shard), and a live copy of another server's. Workers send each part of their gradient to its
 * server, which adds the parts in the order of the ranks and passes the sum on to the replica. Both
 * make the same update; only when the replica has said that it did, the server gives the new
 * weights away. So whatever a worker has got, two servers have, and one of them may die.
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
 * --servers k: the last k ranks are servers and nothing else; 0: every rank is worker and server.
 * A step with n workers and P parameters takes n messages to each server and as many back, n P 4
 * bytes each way over all servers, and P 4 bytes to the replicas; where a server or replica is a
 * worker as well, its own messages fall away. Each server passes 1 / k of this.
 *
 * After a loss the shard's replica serves it, a third server becomes the replica, and the step goes
 * on where it was: shards that had their update do not get another.
 *
 * Source: M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014
 * (ranges of keys, chain replication); R. van Renesse, F. B. Schneider, Chain Replication, OSDI
 * 2004.
 */
#include "trainer/clock.h"
#include "trainer/layers/rows.h"
#include "trainer/strategies/strategies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_GRADIENT, TAG_SUM, TAG_DONE, TAG_WEIGHTS }; /* times the number of shards */
#define NOTHING UINT64_MAX

typedef struct sharded {
  size_t shards;        /* as many as there were servers at first */
  int *server, servers; /* their ranks, of those that are left; shard j is server[j % servers]'s */
  int *worker, workers; /* likewise */
  int seat;             /* this rank's number among the workers, or -1 */
  float *grads, *sum;   /* of the whole model: this worker's, and those of this server's shards */
  char *packets;        /* with --wire: this worker's, by shards, and one that comes; else NULL */
  uint64_t ready;       /* the step, as in version, whose gradients are in grads and packets */
  int ready_of;         /* ... if a batch is shared among so many workers */
  uint64_t *version;    /* updates that this rank's weights of a shard have had */
  bool *kept;           /* this rank has the velocity that belongs to them, too */
  coll_request **request; /* sends of this step */
  int started;
} sharded;

/* The parameters of shard j. */
static shard range(const worker *w, size_t j) {
  const sharded *s = w->state;
  return shard_of(w->model.params, (int)j, (int)s->shards);
}

/* Bytes of the packet of shard j. */
static size_t packet_bytes(const worker *w, size_t j) {
  return wire_bytes(&w->o->wire, range(w, j).count);
}

/* Where the packet of shard j is; that of the shard behind the last: what comes from others. */
static char *packet_of(const worker *w, size_t j) {
  char *at = ((const sharded *)w->state)->packets;
  for (size_t i = 0; i < j; i++)
    at += packet_bytes(w, i);
  return at;
}

/* The rank that serves shard j. */
static int server_of(const sharded *s, size_t j) {
  return s->server[j % (size_t)s->servers];
}

/* The rank that has the copy, or -1 if one server is left. */
static int replica_of(const sharded *s, size_t j) {
  return s->servers > 1 ? s->server[(j + 1) % (size_t)s->servers] : -1;
}

/* The number of the current step in the run, from 0. */
static uint64_t now(const worker *w) {
  return w->epochs_done * loader_steps(&w->loader) + w->step;
}

/* Servers at the start; 0 in the options stands for all ranks. */
static int servers_of(const options *o, int nranks) {
  return o->servers ? (int)o->servers : nranks;
}

static bool ps_sharded_check(const worker *w, fail *why) {
  const options *o = w->o;
  if (o->clip > 0)
    return fail_set(why,
                    "--strategy ps-sharded: no server knows all gradients, so leave out --clip");
  if (servers_of(o, w->nranks) < 2)
    return fail_set(why, "--servers 1 or a single rank: a shard's replica needs a second server");
  return (int)o->servers < w->nranks ||
         fail_set(why, "--servers %d: leaves no worker among %d ranks", (int)o->servers, w->nranks);
}

/* Whether rank r, of those that are left, was one of the dedicated servers at the start. */
static coll_status was_server(const worker *w, int r, bool *yes) {
  int all = 0, origin = -1, mine = -1;
  coll_status status = coll_comm_nranks(w->given, &all);
  *yes = false;
  if (status == COLL_OK)
    status = coll_comm_origin_rank(w->comm, r, &mine);
  for (int i = all - (int)w->o->servers; status == COLL_OK && i < all; i++) {
    status = coll_comm_origin_rank(w->given, i, &origin);
    *yes = *yes || origin == mine;
  }
  return status;
}

/* Finds out who of those that are left serves and who works; if all of one kind are lost, or none
 * are dedicated, everybody does. */
static bool assign(worker *w, fail *why) {
  sharded *s = w->state;
  coll_status status = COLL_OK;
  s->servers = s->workers = s->started = 0;
  for (int r = 0; status == COLL_OK && r < w->nranks; r++) {
    bool serves;
    status = was_server(w, r, &serves);
    if (serves)
      s->server[s->servers++] = r;
    else
      s->worker[s->workers++] = r;
  }
  for (int r = 0, none = s->servers == 0; none && r < w->nranks; r++)
    s->server[s->servers++] = r;
  for (int r = 0, none = s->workers == 0; none && r < w->nranks; r++)
    s->worker[s->workers++] = r;
  s->seat = -1;
  for (int i = 0; i < s->workers; i++)
    s->seat = s->worker[i] == w->rank ? i : s->seat;
  for (size_t j = 0; j < s->shards; j++)
    s->kept[j] = server_of(s, j) == w->rank || replica_of(s, j) == w->rank;
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "asking for the first ranks");
  return worker_fit_parts(w, s->workers, why);
}

static bool open_servers(worker *w, fail *why) {
  size_t ranks = (size_t)w->nranks, params = w->model.params;
  sharded *s = calloc(1, sizeof(*s));
  if (!s)
    return fail_memory(why, "the strategy");
  w->state = s;
  s->shards = (size_t)servers_of(w->o, w->nranks);
  s->server = calloc(ranks, sizeof(*s->server));
  s->worker = calloc(ranks, sizeof(*s->worker));
  s->version = calloc(s->shards, sizeof(*s->version));
  s->kept = calloc(s->shards, sizeof(*s->kept));
  s->request = calloc(s->shards * (ranks + 2), sizeof(coll_request *));
  s->grads = matrix_alloc(1, params);
  s->sum = matrix_alloc(2, params);
  size_t most = packet_bytes(w, 0); /* no shard is larger than the first */
  s->packets = w->pending ? malloc((s->shards + 1) * most) : NULL;
  if (!s->packets && w->pending)
    return fail_memory(why, "packets");
  if (!s->server || !s->worker || !s->version || !s->kept || !s->request || !s->grads || !s->sum)
    return fail_memory(why, "gradients and their sums");
  for (size_t j = 0; j < s->shards; j++)
    s->version[j] = now(w);
  s->ready = NOTHING;
  return assign(w, why);
}

static void close_servers(worker *w) {
  sharded *s = w->state;
  if (!s)
    return;
  free(s->server);
  free(s->worker);
  free(s->version);
  free(s->kept);
  free(s->request);
  free(s->grads);
  free(s->sum);
  free(s->packets);
  free(s);
  w->state = NULL;
}

/* Starts to send something about shard j. */
static bool send_shard(worker *w, const void *data, size_t bytes, int to, int tag, size_t j,
                       fail *why) {
  sharded *s = w->state;
  coll_status status = coll_isend(data, bytes, COLL_UINT8, to, tag * (int)s->shards + (int)j,
                                  w->comm, &s->request[s->started]);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "sending to a server");
  s->started++;
  w->sums.sent_bytes += (double)bytes;
  return true;
}

/* Receives what send_shard() sent. */
static bool receive(worker *w, void *data, size_t bytes, int from, int tag, size_t j, fail *why) {
  const sharded *s = w->state;
  double begin = clock_s();
  coll_status status =
      coll_recv(data, bytes, COLL_UINT8, from, tag * (int)s->shards + (int)j, NULL, w->comm);
  w->sums.waited_s += clock_s() - begin;
  return status == COLL_OK || fail_coll(why, w->comm, status, "receiving from a server or worker");
}

/* Waits until everything that was sent is off. */
static bool all_sent(worker *w, fail *why) {
  sharded *s = w->state;
  for (int i = 0; i < s->started; i++)
    if (!worker_wait(w, &s->request[i], "sending to a server", why))
      return false;
  s->started = 0;
  return true;
}

/* A worker: the gradient of its samples, unless it is there from before a loss. */
static bool derive(worker *w, fail *why) {
  sharded *s = w->state;
  shard batch = worker_batch(w), part = shard_of(batch.count, s->seat, s->workers);
  if (s->ready == now(w) && s->ready_of == s->workers)
    return true;
  if (!worker_gradient(w, batch.first + part.first, part.count, 1.0f / (float)batch.count, s->grads,
                       (model_listener){.layer_done = NULL}, why))
    return false;
  double begin = clock_s();
  for (size_t j = 0; w->pending && j < s->shards; j++) {
    shard r = range(w, j);
    worker_pack(w, r.first, r.count, s->grads + r.first, packet_of(w, j));
  }
  w->sums.compute_s += clock_s() - begin;
  s->ready = now(w);
  s->ready_of = s->workers;
  return true;
}

/* A worker: its gradient, to the servers. */
static bool push(worker *w, fail *why) {
  const sharded *s = w->state;
  if (!derive(w, why))
    return false;
  for (size_t j = 0; j < s->shards; j++) {
    shard r = range(w, j);
    int to = server_of(s, j);
    const void *data = w->pending ? (const void *)packet_of(w, j) : s->grads + r.first;
    if (to != w->rank && !send_shard(w, data, packet_bytes(w, j), to, TAG_GRADIENT, j, why))
      return false;
  }
  return true;
}

/* The server of shard j: adds the workers' gradients, and tells the replica. */
static bool add_gradients(worker *w, size_t j, fail *why) {
  sharded *s = w->state;
  shard r = range(w, j);
  float *sum = s->sum + r.first, *next = s->sum + w->model.params;
  char *packet = packet_of(w, s->shards);
  memset(sum, 0, r.count * sizeof(float));
  for (int i = 0; i < s->workers; i++) {
    bool own = s->worker[i] == w->rank;
    void *comes = w->pending ? (void *)packet : next;
    if (!own && !receive(w, comes, packet_bytes(w, j), s->worker[i], TAG_GRADIENT, j, why))
      return false;
    if (w->pending)
      wire_add(&w->o->wire, r.count, own ? packet_of(w, j) : packet, sum);
    else
      rows_add(r.count, sum, own ? s->grads + r.first : next);
  }
  int replica = replica_of(s, j);
  return replica < 0 || send_shard(w, sum, r.count * sizeof(float), replica, TAG_SUM, j, why);
}

/* The update of shard j, unless it has had that of this step. */
static void update_shard(worker *w, size_t j) {
  sharded *s = w->state;
  shard r = range(w, j);
  if (s->version[j] > now(w))
    return;
  worker_update(w, r.first, r.count, s->sum + r.first);
  s->version[j] = now(w) + 1;
}

/* The replica of shard j: makes the same update, and says so. */
static bool follow(worker *w, size_t j, fail *why) {
  sharded *s = w->state;
  shard r = range(w, j);
  int from = server_of(s, j);
  if (!receive(w, s->sum + r.first, r.count * sizeof(float), from, TAG_SUM, j, why))
    return false;
  update_shard(w, j);
  return send_shard(w, NULL, 0, from, TAG_DONE, j, why);
}

/* The server of shard j: when the replica has the update, the workers get the weights. */
static bool publish(worker *w, size_t j, fail *why) {
  sharded *s = w->state;
  shard r = range(w, j);
  int replica = replica_of(s, j);
  update_shard(w, j);
  if (replica >= 0 && !receive(w, NULL, 0, replica, TAG_DONE, j, why))
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
static bool pull(worker *w, size_t j, fail *why) {
  sharded *s = w->state;
  shard r = range(w, j);
  if (!receive(w, w->params + r.first, r.count * sizeof(float), server_of(s, j), TAG_WEIGHTS, j,
               why))
    return false;
  s->version[j] = now(w) + 1;
  return true;
}

/* Each phase waits only for earlier ones of other ranks, so a rank may have several parts. */
static bool ps_sharded_step(worker *w, fail *why) {
  const sharded *s = w->state;
  if (s->seat >= 0 && !push(w, why))
    return false;
  for (size_t j = 0; j < s->shards; j++)
    if (server_of(s, j) == w->rank && !add_gradients(w, j, why))
      return false;
  for (size_t j = 0; j < s->shards; j++)
    if (replica_of(s, j) == w->rank && !follow(w, j, why))
      return false;
  for (size_t j = 0; j < s->shards; j++)
    if (server_of(s, j) == w->rank && !publish(w, j, why))
      return false;
  for (size_t j = 0; s->seat >= 0 && j < s->shards; j++)
    if (!s->kept[j] && !pull(w, j, why))
      return false;
  if (!all_sent(w, why))
    return false;
  w->updates++;
  return true;
}

static bool ps_sharded_epoch(worker *w, fail *why) {
  return worker_each_step(w, ps_sharded_step, why);
}

/* Every shard with its velocity from its server; and what was counted of the updates. */
static const float *ps_sharded_settle(worker *w, fail *why) {
  const sharded *s = w->state;
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t j = 0; j < s->shards; j++) {
    shard r = range(w, j);
    if (!worker_share_part(w, server_of(s, j), r.first, r.count, why))
      return NULL;
    least = s->version[j] < least ? s->version[j] : least;
    most = s->version[j] > most ? s->version[j] : most;
  }
  worker_note(w, "\"servers\":%d,\"updates_min\":%" PRIu64 ",\"updates_max\":%" PRIu64, s->servers,
              least, most);
  return w->params;
}

/* Gives all ranks the newest copy of shard j; column j of `table` says how new everybody's is. */
static bool share_newest(worker *w, size_t j, const uint64_t *table, fail *why) {
  sharded *s = w->state;
  shard r = range(w, j);
  size_t columns = s->shards + 1;
  int best = 0;
  for (int k = 1; k < w->nranks; k++)
    if (table[(size_t)k * columns + j] > table[(size_t)best * columns + j])
      best = k;
  if (!worker_share_part(w, best, r.first, r.count, why))
    return false;
  s->version[j] = table[(size_t)best * columns + j] / 2;
  s->kept[j] = true;
  return true;
}

/* The step goes on with the newest copy of each shard, which is a server's or its replica's. */
static bool recover_servers(worker *w, fail *why) {
  sharded *s = w->state;
  size_t columns = s->shards + 1;
  uint64_t *table = calloc((size_t)w->nranks + 1, columns * sizeof(*table));
  if (!table)
    return fail_memory(why, "the versions of the shards");
  uint64_t *mine = table + (size_t)w->nranks * columns, epochs = 0, oldest = UINT64_MAX;
  for (size_t j = 0; j < s->shards; j++)
    mine[j] = 2 * s->version[j] + s->kept[j]; /* of equally new ones, that with the velocity */
  mine[s->shards] = w->epochs_done;
  coll_status status = coll_allgather(mine, table, columns, COLL_UINT64, w->comm);
  bool ok = status == COLL_OK || fail_coll(why, w->comm, status, "comparing the shards");
  for (size_t j = 0; ok && j < s->shards; j++) {
    ok = share_newest(w, j, table, why);
    oldest = s->version[j] < oldest ? s->version[j] : oldest;
  }
  for (int r = 0; r < w->nranks; r++)
    epochs = table[(size_t)r * columns + s->shards] > epochs
                 ? table[(size_t)r * columns + s->shards]
                 : epochs;
  free(table);
  if (!ok)
    return false;
  w->epochs_done = epochs;
  w->step = (size_t)(oldest - epochs * loader_steps(&w->loader));
  w->updates = oldest;
  return assign(w, why);
}

const strategy strategy_ps_sharded = {
    .name = "ps-sharded",
    .about = "parameters split over several servers, each with a live replica (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .check = ps_sharded_check,
    .open = open_servers,
    .close = close_servers,
    .epoch = ps_sharded_epoch,
    .settle = ps_sharded_settle,
    .recover = recover_servers,
};
