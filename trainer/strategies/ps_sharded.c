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
 * A step with n workers and P parameters takes n messages to each server and as many back, n P 4
 * bytes each way over all servers, and P 4 bytes to the replicas; where a server or replica is a
 * worker as well, its own messages fall away. Each server passes 1 / k of this.
 *
 * After a loss the shard's replica serves it, a third server becomes the replica, and the step goes
 * on where it was: shards that had their update do not get another.
 *
 * M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014 (ranges
 * of keys, chain replication); R. van Renesse, F. B. Schneider, Chain Replication, OSDI 2004.
 */
#include "trainer/base.h"
#include "trainer/strategies/shards.h"
#include "trainer/strategies/strategy.h"

#include <inttypes.h>
#include <string.h>

enum { TAG_GRADIENT, TAG_SUM, TAG_DONE, TAG_WEIGHTS }; /* times the number of shards */
#define NOTHING UINT64_MAX

typedef struct sharded {
  shards shards;
  float *grads;           /* this worker's, of the whole model */
  char *packets;          /* with --wire: the same by shards, as they are sent; else NULL */
  uint64_t ready;         /* the step, as in version, whose gradients these are */
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

/* Bytes of a worker's gradients of shard j. */
static size_t gradient_bytes(const worker *w, size_t j) {
  const sharded *s = w->state;
  return wire_bytes(&w->o->wire, shards_range(&s->shards, w, j).count);
}

/* Where the packet of shard j is; NULL without --wire. */
static char *packet_of(const worker *w, size_t j) {
  const sharded *s = w->state;
  size_t most = gradient_bytes(w, 0); /* no shard is larger than the first */
  return s->packets ? s->packets + j * most : NULL;
}

/* What this worker sends of its gradients of shard j. */
static const void *gradient_of(const worker *w, size_t j) {
  const sharded *s = w->state;
  return w->pending ? (const void *)packet_of(w, j)
                    : s->grads + shards_range(&s->shards, w, j).first;
}

static bool ps_sharded_check(const worker *w, fail *why) {
  const options *o = w->o;
  if (shards_servers(o, w->nranks) < 2)
    return fail_set(why, "--servers 1 or a single rank: a shard's replica needs a second server");
  return (int)o->servers < w->nranks ||
         fail_set(why, "--servers %d: leaves no worker among %d ranks", (int)o->servers, w->nranks);
}

static bool open_servers(worker *w, fail *why) {
  size_t bytes = w->model.params * sizeof(float);
  sharded *s = w->state = worker_memory(w, sizeof(*s), why);
  if (!s || !shards_open(&s->shards, w, why))
    return false;
  size_t count = s->shards.count, most = gradient_bytes(w, 0),
         sends = count * (size_t)(w->nranks + 2);
  for (size_t j = 0; j < count; j++)
    s->shards.version[j] = now(w);
  s->ready = NOTHING;
  return (s->request = worker_memory(w, sends * sizeof(coll_request *), why)) &&
         (s->grads = worker_memory(w, bytes, why)) && (s->sum = worker_memory(w, bytes, why)) &&
         (s->message = worker_memory(w, most, why)) &&
         (!w->pending || (s->packets = worker_memory(w, count * most, why)));
}

/* The tag of a message about shard j. */
static int tag_of(const sharded *s, int tag, size_t j) {
  return tag * (int)s->shards.count + (int)j;
}

/* Starts to send something about shard j. */
static bool send_shard(worker *w, const void *data, size_t bytes, int to, int tag, size_t j,
                       fail *why) {
  sharded *s = w->state;
  return worker_start_send(w, data, bytes, to, tag_of(s, tag, j), &s->request[s->started++], why);
}

/* Receives what send_shard() sent. */
static bool receive_shard(worker *w, void *data, size_t bytes, int from, int tag, size_t j,
                          fail *why) {
  return worker_receive(w, data, bytes, from, tag_of(w->state, tag, j), NULL, why);
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
static bool derive_gradients(worker *w, fail *why) {
  sharded *s = w->state;
  if (s->ready == now(w) && s->ready_of == s->shards.workers)
    return true;
  if (!worker_batch_gradient(w, s->shards.seat, s->shards.workers, s->grads, NO_LISTENER, why))
    return false;
  double begin = clock_s();
  for (size_t j = 0; j < s->shards.count; j++) {
    shard r = shards_range(&s->shards, w, j);
    worker_pack(w, r.first, r.count, s->grads + r.first, packet_of(w, j));
  }
  w->sums.compute_s += clock_s() - begin;
  s->ready = now(w);
  s->ready_of = s->shards.workers;
  return true;
}

/* A worker: its gradient, to the servers. */
static bool push_gradients(worker *w, fail *why) {
  const sharded *s = w->state;
  if (!derive_gradients(w, why))
    return false;
  for (size_t j = 0; j < s->shards.count; j++) {
    int to = shards_server(&s->shards, j);
    if (to != w->rank &&
        !send_shard(w, gradient_of(w, j), gradient_bytes(w, j), to, TAG_GRADIENT, j, why))
      return false;
  }
  return true;
}

/* The server of shard j: adds the workers' gradients, and gives the replica their sum. */
static bool add_gradients(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = shards_range(&s->shards, w, j);
  float *sum = s->sum + r.first;
  memset(sum, 0, r.count * sizeof(float));
  for (int i = 0; i < s->shards.workers; i++) {
    int from = s->shards.worker[i];
    bool own = from == w->rank;
    if (!own && !receive_shard(w, s->message, gradient_bytes(w, j), from, TAG_GRADIENT, j, why))
      return false;
    wire_add(&w->o->wire, r.count, own ? gradient_of(w, j) : s->message, sum);
  }
  int replica = shards_replica(&s->shards, j);
  return replica < 0 || send_shard(w, sum, r.count * sizeof(float), replica, TAG_SUM, j, why);
}

/* The update of shard j, unless it has had that of this step. */
static void update_shard(worker *w, size_t j) {
  sharded *s = w->state;
  shard r = shards_range(&s->shards, w, j);
  if (s->shards.version[j] > now(w))
    return;
  worker_update(w, r.first, r.count, s->sum + r.first);
  s->shards.version[j] = now(w) + 1;
}

/* The replica of shard j: makes the same update, and says so. */
static bool follow_update(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = shards_range(&s->shards, w, j);
  int from = shards_server(&s->shards, j);
  if (!receive_shard(w, s->sum + r.first, r.count * sizeof(float), from, TAG_SUM, j, why))
    return false;
  update_shard(w, j);
  return send_shard(w, NULL, 0, from, TAG_DONE, j, why);
}

/* The server of shard j: when the replica has the update, the workers get the weights. */
static bool publish_weights(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = shards_range(&s->shards, w, j);
  int replica = shards_replica(&s->shards, j);
  update_shard(w, j);
  if (replica >= 0 && !receive_shard(w, NULL, 0, replica, TAG_DONE, j, why))
    return false;
  for (int i = 0; i < s->shards.workers; i++) {
    int to = s->shards.worker[i];
    if (to != w->rank && to != replica &&
        !send_shard(w, w->params + r.first, r.count * sizeof(float), to, TAG_WEIGHTS, j, why))
      return false;
  }
  return true;
}

/* A worker: shard j as its server has it now. */
static bool pull_weights(worker *w, size_t j, fail *why) {
  const sharded *s = w->state;
  shard r = shards_range(&s->shards, w, j);
  if (!receive_shard(w, w->params + r.first, r.count * sizeof(float), shards_server(&s->shards, j),
                     TAG_WEIGHTS, j, why))
    return false;
  s->shards.version[j] = now(w) + 1;
  return true;
}

/* Each phase waits only for earlier ones of other ranks, so a rank may have several parts. */
static bool ps_sharded_step(worker *w, fail *why) {
  const shards *s = &((const sharded *)w->state)->shards;
  bool works = s->seat >= 0;
  if (works && !push_gradients(w, why))
    return false;
  for (size_t j = 0; j < s->count; j++)
    if (shards_server(s, j) == w->rank && !add_gradients(w, j, why))
      return false;
  for (size_t j = 0; j < s->count; j++)
    if (shards_replica(s, j) == w->rank && !follow_update(w, j, why))
      return false;
  for (size_t j = 0; j < s->count; j++)
    if (shards_server(s, j) == w->rank && !publish_weights(w, j, why))
      return false;
  for (size_t j = 0; j < s->count; j++)
    if (works && !s->kept[j] && !pull_weights(w, j, why))
      return false;
  if (!all_sent(w, why))
    return false;
  w->updates++;
  return true;
}

/* Every shard with its velocity from its server; and what was counted of the updates. */
static const float *ps_sharded_settle(worker *w, fail *why) {
  const shards *s = &((const sharded *)w->state)->shards;
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t j = 0; j < s->count; j++) {
    shard r = shards_range(s, w, j);
    if (!worker_share_part(w, shards_server(s, j), r.first, r.count, why))
      return NULL;
    least = s->version[j] < least ? s->version[j] : least;
    most = s->version[j] > most ? s->version[j] : most;
  }
  worker_note(w, "\"servers\":%d,\"updates_min\":%" PRIu64 ",\"updates_max\":%" PRIu64, s->servers,
              least, most);
  return w->params;
}

/* The step goes on with the newest copy of each shard, which is a server's or its replica's. */
static bool recover_servers(worker *w, fail *why) {
  sharded *s = w->state;
  s->started = 0; /* what was sent is gone with its communicator */
  return shards_share_newest(&s->shards, w, why) && shards_assign(&s->shards, w, why);
}

const strategy strategy_ps_sharded = {
    .name = "ps-sharded",
    .about = "parameters split over several servers, each with a live replica (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .check = ps_sharded_check,
    .open = open_servers,
    .step = ps_sharded_step,
    .settle = ps_sharded_settle,
    .recover = recover_servers,
};
