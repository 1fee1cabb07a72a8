/*
 * ps_async.c: training with an asynchronous parameter server, the last rank. Nobody waits for
 * anybody, and a slow worker does fewer pieces of the epoch's samples.
 *
 *     worker 0 --gradient--> server --weights, next piece--> worker 0
 *     worker 1 ------gradient-----> server --weights, next piece--> worker 1
 *     worker 0          --gradient--> ...
 *
 *     server, for each gradient that comes, from any worker:
 *       w = optimizer(w, g)                        at lr / (staleness + 1) with --staleness-lr
 *       send that worker w and its next piece of the epoch: batch / n samples
 *     worker, for each piece that it gets:
 *       send the gradient of the piece at these weights / samples of a whole batch
 *
 * A gradient is stale: it belongs to weights to which the server has made other updates meanwhile.
 * Their number is the staleness, about n - 1 with n workers of one speed. Momentum is the server's,
 * over all updates as they come. A piece takes two messages of 4 P bytes (P parameters), and one of
 * 40: 8 n P bytes for each batch.
 *
 * J. Dean et al., Large Scale Distributed Deep Networks (Downpour SGD), NIPS 2012; W. Zhang, S.
 * Gupta, X. Lian, J. Liu, Staleness-aware Async-SGD for Distributed Deep Learning, IJCAI 2016.
 */
#include "trainer/strategies/central.h"
#include "trainer/strategies/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STALE 31 /* the histogram's last column counts all from here on */

/* What a worker has in hand. */
typedef struct hand {
  uint64_t count, version; /* samples of its piece; updates that its weights have */
} hand;

/* The server's books. */
typedef struct books {
  uint64_t version; /* updates made */
  uint64_t next;    /* the first sample that nobody has yet */
  uint64_t done;    /* samples whose gradients were applied */
  double stale[MOST_STALE + 1], stale_sum, stale_most;
  hand hand[];
} books;

#define STATISTICS (MOST_STALE + 3) /* doubles from stale[] on */

static bool open_server(worker *w, fail *why) {
  return central_open(w, 0, sizeof(books) + (size_t)central_workers(w) * sizeof(hand), why);
}

/* Hands a worker the weights and the next piece; false in *left: there was none. */
static bool hand_out(worker *w, int rank, bool *left, fail *why) {
  books *b = ((central *)w->state)->books;
  uint64_t workers = (uint64_t)central_workers(w), total = w->data->train.count;
  uint64_t piece = (w->o->batch + workers - 1) / workers;
  task next = {.first = b->next, .batch = w->o->batch, .done = b->done, .left = total - b->next};
  next.count = piece < next.left ? piece : next.left;
  b->next += next.count;
  b->hand[rank] = (hand){next.count, b->version};
  *left = next.left > 0;
  return central_answer(w, rank, &next, why);
}

/* Applies the gradient that a worker has sent. */
static void apply(worker *w, int rank) {
  central *c = w->state;
  books *b = c->books;
  uint64_t stale = b->version - b->hand[rank].version;
  b->stale[stale < MOST_STALE ? stale : MOST_STALE]++;
  b->stale_sum += (double)stale;
  b->stale_most = (double)stale > b->stale_most ? (double)stale : b->stale_most;
  worker_rule(w, (double)b->done / (double)w->data->train.count);
  if (w->o->staleness_lr)
    w->rule.lr /= (float)(stale + 1);
  worker_update_all(w, c->grads);
  b->version++;
  b->done += b->hand[rank].count;
  w->step = (size_t)b->done / w->loader.batch;
}

/* The server's epoch. */
static bool serve(worker *w, fail *why) {
  books *b = ((central *)w->state)->books;
  int busy = 0;
  bool left;
  memset(b->stale, 0, STATISTICS * sizeof(double));
  b->next = b->done = w->step * w->loader.batch;
  for (int r = 0; r < central_workers(w); r++, busy += left)
    if (!hand_out(w, r, &left, why))
      return false;
  while (busy > 0) {
    int rank;
    if (!central_take(w, COLL_ANY_SOURCE, &rank, why))
      return false;
    apply(w, rank);
    if (!hand_out(w, rank, &left, why))
      return false;
    busy -= !left;
  }
  return true;
}

static bool ps_async_epoch(worker *w, fail *why) {
  return w->keeper ? serve(w, why) : central_work(w, why);
}

/* The model is the server's; the others learn how stale the gradients were. */
static const float *ps_async_settle(worker *w, fail *why) {
  books *b = ((central *)w->state)->books;
  double updates = 0;
  int last = 0;
  if (!central_tell(w, b->stale, STATISTICS, why))
    return NULL;
  for (int i = 0; i <= MOST_STALE; i++) {
    updates += b->stale[i];
    last = b->stale[i] > 0 ? i : last;
  }
  worker_note(w, "\"updates\":%.0f,\"staleness_mean\":%.4g,\"staleness_max\":%.0f,\"staleness\":[",
              updates, updates > 0 ? b->stale_sum / updates : 0.0, b->stale_most);
  for (int i = 0; i <= last; i++)
    worker_note(w, "%s%.0f", i ? "," : "", b->stale[i]);
  worker_note(w, "]");
  return central_settle(w, why);
}

const strategy strategy_ps_async = {
    .name = "ps-async",
    .about = "the last rank is a server that applies each gradient as it comes (asynchronous)",
    .bits = STRATEGY_ELASTIC,
    .check = central_check,
    .bytes = sizeof(central),
    .open = open_server,
    .epoch = ps_async_epoch,
    .settle = ps_async_settle,
};
