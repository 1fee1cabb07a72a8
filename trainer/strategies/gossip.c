/*
 * gossip.c: decentralised and asynchronous. Every rank trains by itself and now and then averages
 * its weights with one other rank that it picks at random; there is no centre and no barrier.
 *
 *     rank 0  x0 --- steps --- steps - x0 + d --- steps ---
 *                  \ offer x0          ^ answer d
 *                   v                 /
 *     rank 2  x2 --- steps --- d = (x2 - x0) / 2, x2 - d --- steps ---
 *
 *     every rank, until the ranks together have done an epoch's samples:
 *       x = optimizer(x, gradient of the next samples of its own shuffle)
 *       for each offer y that has come:   d = (x - y) / 2;  x = x - d;  answer d
 *       if an answer d has come:          x = x + d
 *       every H steps (--local-steps):    offer x to a random rank, unless an offer is open
 *
 * What one rank loses the other gains: the mean over all ranks never changes by it. If two ranks
 * offer to each other at once they would trade places instead of meeting in the middle, so the one
 * with the lower number then refuses. Offers are served whatever a rank waits for, so nobody can
 * wait in a circle.
 *
 * Nobody counts all samples: every message begins with a vector of the samples that each rank is
 * known to have done, and its receiver keeps the larger number of each (a grow-only counter). The
 * first one to find that it is enough tells everybody. So an epoch has a few steps more than its
 * samples, but a slow rank does not hold up the others.
 *
 * An exchange sends the model there and a change of its size back. After an epoch the mean of all
 * ranks' weights is tested and saved; training goes on from each rank's own.
 *
 * X. Lian, W. Zhang, C. Zhang, J. Liu, Asynchronous Decentralized Parallel Stochastic Gradient
 * Descent (AD-PSGD), ICML 2018.
 */
#include "trainer/strategies/strategy.h"

#include <string.h>

enum { TAG_OFFER, TAG_ANSWER };

/* The messages that can be under way at a rank at once. */
enum { OFFER_OUT, OFFER_IN, ANSWER_OUT, ANSWER_IN, MESSAGES };

typedef struct gossip {
  uint8_t *message[MESSAGES]; /* counters, then weights or a change */
  coll_request *request[MESSAGES];
  size_t head, whole;  /* bytes of the counters, and of a message with weights */
  coll_message offer;  /* what came to OFFER_IN */
  coll_message answer; /* ... and ANSWER_IN */
  bool listens;        /* for offers: something came, or will come, to OFFER_IN */
  int partner;         /* to which an offer is open, or -1 */
  int ended;           /* others that have ended the epoch */
  uint64_t *done;      /* samples of the epoch by rank, as far as known */
  uint64_t before;     /* samples of the epoch before a rank was lost */
  size_t rows;         /* samples of a step */
  uint64_t steps;      /* since the last offer */
  float *grads;
  rng dice;
} gossip;

/* What a message carries behind its counters. */
static float *weights_in(const gossip *g, int which) {
  return (float *)(void *)(g->message[which] + g->head);
}

static bool open_gossip(worker *w, fail *why) {
  gossip *g = w->state;
  g->rows = worker_rows(w, w->nranks);
  g->head = ((size_t)w->nranks * sizeof(uint64_t) + 63) / 64 * 64; /* weights lie aligned */
  g->whole = g->head + w->model.params * sizeof(float);
  for (int i = 0; i < MESSAGES; i++)
    if (!(g->message[i] = worker_shared_memory(w, g->whole, why)))
      return false;
  return (g->done = worker_memory(w, g->head, why)) &&
         (g->grads = worker_memory(w, w->model.params * sizeof(float), why));
}

/* Starts to send a message, with the counters as they are now. */
static bool start_send(worker *w, int which, size_t bytes, int peer, int tag, fail *why) {
  gossip *g = w->state;
  memcpy(g->message[which], g->done, g->head);
  return worker_start_send(w, g->message[which], bytes, peer, tag, &g->request[which], why);
}

/* Starts to receive a message. */
static bool start_receive(worker *w, int which, int peer, int tag, coll_message *what, fail *why) {
  gossip *g = w->state;
  coll_status status = coll_irecv(g->message[which], g->whole, COLL_UINT8, peer, tag, what, w->comm,
                                  &g->request[which]);
  return succeeded(why, w->comm, status, "gossiping");
}

/* Keeps the larger of each number of samples. */
static void merge(gossip *g, int which, int nranks) {
  const uint64_t *theirs = (const uint64_t *)(const void *)g->message[which];
  for (int r = 0; r < nranks; r++)
    g->done[r] = theirs[r] > g->done[r] ? theirs[r] : g->done[r];
}

/* Samples of this epoch, over all ranks, that this rank knows of. */
static uint64_t known(const worker *w) {
  const gossip *g = w->state;
  uint64_t sum = g->before;
  for (int r = 0; r < w->nranks; r++)
    sum += g->done[r];
  return sum;
}

/* Offers this rank's weights to another rank, if it is time. */
static bool offer(worker *w, fail *why) {
  gossip *g = w->state;
  if (++g->steps < w->o->local_steps || w->nranks == 1 || g->partner >= 0 || g->request[OFFER_OUT])
    return true;
  g->steps = 0;
  int other = (int)rng_below(&g->dice, (uint64_t)w->nranks - 1);
  g->partner = other + (other >= w->rank);
  memcpy(weights_in(g, OFFER_OUT), w->params, w->model.params * sizeof(float));
  return start_receive(w, ANSWER_IN, g->partner, TAG_ANSWER, &g->answer, why) &&
         start_send(w, OFFER_OUT, g->whole, g->partner, TAG_OFFER, why);
}

/* What came to an offer. */
static void take_answer(worker *w) {
  gossip *g = w->state;
  const float *change = weights_in(g, ANSWER_IN);
  merge(g, ANSWER_IN, w->nranks);
  g->partner = -1;
  if (g->answer.count == g->whole) /* not refused */
    rows_add(w->model.params, w->params, change);
}

/* Meets what was offered half-way, and answers with the change; or refuses. */
static bool answer(worker *w, bool refuse, fail *why) {
  gossip *g = w->state;
  const float *offered = weights_in(g, OFFER_IN);
  float *change = weights_in(g, ANSWER_OUT);
  if (refuse)
    return start_send(w, ANSWER_OUT, g->head, g->offer.source, TAG_ANSWER, why);
  for (size_t i = 0; i < w->model.params; i++) {
    change[i] = 0.5f * (w->params[i] - offered[i]);
    w->params[i] -= change[i];
  }
  return start_send(w, ANSWER_OUT, g->whole, g->offer.source, TAG_ANSWER, why);
}

/* Does what came to OFFER_IN: an offer, or the news that another rank has ended the epoch. */
static bool take_offer(worker *w, fail *why) {
  gossip *g = w->state;
  int from = g->offer.source;
  merge(g, OFFER_IN, w->nranks);
  if (g->offer.count == g->head)
    g->ended++;
  else if (!answer(w, g->partner == from && w->rank < from, why))
    return false;
  g->listens = g->ended < w->nranks - 1;
  return !g->listens || start_receive(w, OFFER_IN, COLL_ANY_SOURCE, TAG_OFFER, &g->offer, why);
}

/* Does what the messages that have come ask for. */
static bool act(worker *w, fail *why) {
  gossip *g = w->state;
  if (g->partner >= 0 && !g->request[ANSWER_IN])
    take_answer(w);
  /* The last answer's memory is needed for the next. */
  return !g->listens || g->request[OFFER_IN] || g->request[ANSWER_OUT] || take_offer(w, why);
}

/* Moves messages on, without waiting. */
static bool poll(worker *w, fail *why) {
  gossip *g = w->state;
  for (int i = 0; i < MESSAGES; i++) {
    coll_status status = g->request[i] ? coll_test(&g->request[i]) : COLL_OK;
    if (status != COLL_IN_PROGRESS && !succeeded(why, w->comm, status, "gossiping"))
      return false;
  }
  return true;
}

/* Between layers messages move on, but the weights stay as they are within a step. */
static bool layer_done(void *ctx, size_t l, fail *why) {
  (void)l;
  return poll(ctx, why);
}

/* Waits for the next message, and does what it asks for. */
static bool wait_and_act(worker *w, fail *why) {
  gossip *g = w->state;
  int index;
  double begin = clock_s();
  coll_status status = coll_wait_any(g->request, MESSAGES, &index, -1);
  w->sums.waited_s += clock_s() - begin;
  return succeeded(why, w->comm, status, "gossiping") && act(w, why);
}

/* Whether one of this rank's messages is still under way. */
static bool busy(const gossip *g) {
  return g->partner >= 0 || g->request[OFFER_OUT] || g->request[ANSWER_OUT];
}

/* Tells the others that this rank has ended the epoch, and serves them until all have. */
static bool end_epoch(worker *w, fail *why) {
  gossip *g = w->state;
  while (busy(g))
    if (!wait_and_act(w, why))
      return false;
  for (int r = 0; r < w->nranks; r++) {
    if (r == w->rank)
      continue;
    if (!start_send(w, OFFER_OUT, g->head, r, TAG_OFFER, why) ||
        !worker_wait(w, &g->request[OFFER_OUT], "gossiping", why))
      return false;
  }
  while (g->listens || busy(g))
    if (!wait_and_act(w, why))
      return false;
  return true;
}

/* One step of this rank, on the next samples of its own shuffle. */
static bool gossip_step(worker *w, fail *why) {
  gossip *g = w->state;
  size_t total = w->data->train.count, first = (g->before + g->done[w->rank]) % total;
  shard next = {first, total - first < g->rows ? total - first : g->rows};
  model_listener listener = {.layer_done = layer_done, .ctx = w};
  if (!worker_gradient(w, next, 1.0f / (float)next.count, g->grads, listener, why))
    return false;
  worker_rule(w, (double)known(w) / (double)total);
  worker_update_all(w, g->grads);
  g->done[w->rank] += next.count;
  return true;
}

/* Forgets the epoch before, and draws this rank's own shuffle and its own choice of partners. */
static bool begin_epoch(worker *w, fail *why) {
  gossip *g = w->state;
  size_t total = w->data->train.count, begun = w->step * w->o->batch;
  uint64_t mine = ((uint64_t)w->rank + 1) << 32 | w->epochs_done; /* nobody else's numbers */
  loader_epoch(&w->loader, mine);
  g->dice = rng_make(w->o->seed, RNG_PARTNERS, mine);
  memset(g->done, 0, g->head);
  g->before = begun < total ? begun : total;
  g->steps = 0;
  g->partner = -1;
  g->ended = 0;
  g->listens = w->nranks > 1;
  return !g->listens || start_receive(w, OFFER_IN, COLL_ANY_SOURCE, TAG_OFFER, &g->offer, why);
}

static bool gossip_epoch(worker *w, fail *why) {
  size_t total = w->data->train.count;
  if (!begin_epoch(w, why))
    return false;
  while (known(w) < total) {
    if (!gossip_step(w, why) || !poll(w, why) || !act(w, why) || !offer(w, why))
      return false;
    uint64_t samples = known(w);
    w->step = samples / w->o->batch;
    worker_show(w, samples < total ? samples : total);
  }
  return end_epoch(w, why);
}

/* The mean of all ranks' weights, in memory of a message, as none is under way. */
static const float *gossip_settle(worker *w, fail *why) {
  const gossip *g = w->state;
  float *mean = weights_in(g, OFFER_OUT);
  return worker_allreduce(w, w->comm, w->params, mean, w->model.params, COLL_AVG,
                          "averaging weights", why)
             ? mean
             : NULL;
}

const strategy strategy_gossip = {
    .name = "gossip",
    .about = "weights averaged with one other rank now and then (asynchronous, no centre)",
    .bits = STRATEGY_ELASTIC,
    .bytes = sizeof(gossip),
    .open = open_gossip,
    .epoch = gossip_epoch,
    .settle = gossip_settle,
};
