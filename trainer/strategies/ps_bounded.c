/*
 * ps_bounded.c: training with a parameter server, the last rank, and bounded staleness (stale
 * synchronous parallel). A worker's clock is the number of batches of which it has done its part.
 * A worker that is slow for a moment holds nobody up, and nobody is more than --staleness clocks
 * ahead of the slowest. With 0 all work in step, as in ps-sync.
 *
 *     clock        0    1    2    3    4
 *     worker 0     |====|====|====|          waits with --staleness 2: the slowest is at 1
 *     worker 1     |====|====|==
 *     worker 2     |====|==                  the slowest
 *
 *     server, for each gradient g that comes, from a worker whose clock is c:
 *       w = w - lr g;  sum[c] += g;  the worker's clock is c + 1
 *       if that was the last gradient of clock c:
 *         w = w + lr sum[c]                        takes the plain steps back,
 *         w = optimizer(w, sum[c])                 and makes them as one, with momentum
 *       send w to each worker that waits and is at most --staleness clocks ahead of the slowest
 *
 * So --staleness 0 makes the updates of ps-sync (rounded a little otherwise), and momentum acts
 * once for a batch. A step with n workers and P parameters takes 2 n messages of 4 P bytes and n of
 * 40: 8 n P bytes. The server has memory for --staleness + 1 sums of gradients.
 *
 * Q. Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server,
 * NIPS 2013.
 */
#include "trainer/strategies/central.h"
#include "trainer/strategies/strategy.h"

#include <string.h>

/* A worker as the server sees it. */
typedef struct seat {
  size_t clock; /* batches of which it has done its part */
  bool waits;   /* for its next task */
} seat;

/* The server's books. */
typedef struct books {
  float lr;    /* of the plain steps in this epoch */
  double lead; /* the most clocks that a worker was ahead of the slowest when it began a part */
  seat seat[];
} books;

/* Clocks of which some gradients may be in and others not. */
static size_t window(const worker *w) {
  size_t steps = loader_steps(&w->loader);
  return w->o->staleness < steps ? (size_t)w->o->staleness + 1 : steps;
}

static bool open_server(worker *w, fail *why) {
  size_t bytes = sizeof(books) + (size_t)central_workers(w) * sizeof(seat);
  return central_open(w, window(w), bytes, why);
}

/* The clock of the slowest worker. */
static size_t slowest(const worker *w) {
  const books *b = ((central *)w->state)->books;
  size_t clock = b->seat[0].clock;
  for (int r = 1; r < central_workers(w); r++)
    clock = b->seat[r].clock < clock ? b->seat[r].clock : clock;
  return clock;
}

/* A worker's part of the batch of a clock; none behind the last. */
static task part_of_batch(const worker *w, int rank, size_t clock) {
  size_t steps = loader_steps(&w->loader);
  if (clock == steps)
    return (task){.left = 0};
  shard batch = {clock * w->loader.batch, loader_batch_size(&w->loader, clock)};
  shard part = shard_part(batch, rank, central_workers(w));
  return (task){
      .first = part.first, .count = part.count, .batch = batch.count, .left = steps - clock};
}

/* Hands weights and their part of the next batch to those who wait and are not too far ahead. */
static bool release(worker *w, fail *why) {
  books *b = ((central *)w->state)->books;
  size_t steps = loader_steps(&w->loader), last = slowest(w);
  for (int r = 0; r < central_workers(w); r++) {
    seat *s = &b->seat[r];
    size_t lead = s->clock - last;
    if (!s->waits || (s->clock < steps && lead > w->o->staleness))
      continue;
    task next = part_of_batch(w, r, s->clock);
    next.done = last * w->loader.batch;
    s->waits = false;
    if (next.left && (double)lead > b->lead)
      b->lead = (double)lead;
    if (!central_answer(w, r, &next, why))
      return false;
  }
  return true;
}

/* Gradients are put into the weights before their clock is complete: plain descent alone can. */
static bool ps_bounded_check(const worker *w, fail *why) {
  if (optim_has_squares(w->o))
    return fail_set(why, "--strategy ps-bounded: works with --optimizer sgd only");
  return central_check(w, why);
}

/* The sum of the gradients of a clock. */
static float *sum_of(const worker *w, size_t clock) {
  return ((const central *)w->state)->sum + clock % window(w) * w->model.params;
}

/* A gradient has come: it acts at once, as a plain step of descent. */
static void plain_step(worker *w, float *sum) {
  const central *c = w->state;
  float lr = ((const books *)c->books)->lr;
  for (size_t i = 0; i < w->model.params; i++) {
    sum[i] += c->grads[i];
    w->params[i] -= lr * c->grads[i];
  }
}

/* All gradients of a clock have come: takes the plain steps back that were made with them, and
 * makes the optimizer's step with their sum. */
static void end_clock(worker *w, float *sum) {
  float lr = ((const books *)((const central *)w->state)->books)->lr;
  size_t count = w->model.params;
  for (size_t i = 0; i < count; i++)
    w->params[i] += lr * sum[i];
  worker_rule(w, worker_done(w));
  optim_update(&w->rule, count, w->params, w->velocity, NULL, sum);
  memset(sum, 0, count * sizeof(float));
  w->updates++;
  w->step++;
}

/* Does what is to be done with the gradient that a worker has sent. */
static void apply(worker *w, int rank) {
  double begin = clock_s();
  books *b = ((central *)w->state)->books;
  seat *s = &b->seat[rank];
  float *sum = sum_of(w, s->clock);
  plain_step(w, sum);
  s->clock++;
  s->waits = true;
  if (slowest(w) > w->step)
    end_clock(w, sum);
  w->sums.compute_s += clock_s() - begin;
}

/* The server's epoch. */
static bool serve(worker *w, fail *why) {
  central *c = w->state;
  books *b = c->books;
  size_t steps = loader_steps(&w->loader);
  memset(c->sum, 0, window(w) * w->model.params * sizeof(float));
  b->lr = w->rule.lr;
  b->lead = 0;
  for (int r = 0; r < central_workers(w); r++)
    b->seat[r] = (seat){.clock = w->step, .waits = true};
  for (;;) {
    int rank;
    if (!release(w, why))
      return false;
    if (w->step == steps)
      return true;
    if (!central_take(w, COLL_ANY_SOURCE, &rank, why))
      return false;
    apply(w, rank);
  }
}

static bool ps_bounded_epoch(worker *w, fail *why) {
  return w->keeper ? serve(w, why) : central_work(w, why);
}

/* The model is the server's; the others learn how far ahead the fastest worker was. */
static const float *ps_bounded_settle(worker *w, fail *why) {
  books *b = ((central *)w->state)->books;
  if (!central_tell(w, &b->lead, 1, why))
    return NULL;
  worker_note(w, "\"lead_max\":%.0f", b->lead);
  return central_settle(w, why);
}

const strategy strategy_ps_bounded = {
    .name = "ps-bounded",
    .about = "the last rank is a server; no worker is more than --staleness batches ahead",
    .bits = STRATEGY_ELASTIC,
    .check = ps_bounded_check,
    .bytes = sizeof(central),
    .open = open_server,
    .epoch = ps_bounded_epoch,
    .settle = ps_bounded_settle,
};
