/*
 * ps_sync.c: training with a synchronous parameter server, the last rank.
 *
 *     worker 0   worker 1   worker 2          gradients of one batch's parts
 *          \        |        /
 *           v       v       v
 *            server: sum, step                the model and its velocity are here
 *          /        |        \
 *         v         v         v
 *     worker 0   worker 1   worker 2          weights
 *
 *     for each batch:
 *       worker:   send the gradient of its part of the batch / samples of the whole batch
 *       server:   g = sum of the gradients, in the order of the ranks
 *                 w = optimizer(w, g)
 *       all:      w = broadcast(w of the server)
 *
 * A step with n workers and P parameters takes n messages of 4 P bytes to the server, and a
 * broadcast of 4 P bytes to n ranks: 8 n P bytes, all of which pass the server.
 *
 * M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014; J. Chen
 * et al., Revisiting Distributed Synchronous SGD, 2016.
 */
#include "trainer/strategies/central.h"
#include "trainer/strategies/strategy.h"

#include <string.h>

static bool open_server(worker *w, fail *why) {
  return central_open(w, 1, 1, why);
}

/* The server's part of a step: the gradients of all workers, one update. */
static bool serve(worker *w, fail *why) {
  const central *c = w->state;
  size_t count = w->model.params;
  for (int r = 0; r < central_workers(w); r++) {
    if (!central_take(w, r, NULL, why))
      return false;
    if (r == 0)
      memcpy(c->sum, c->grads, count * sizeof(float));
    else
      rows_add(count, c->sum, c->grads);
  }
  worker_rule(w, worker_done(w));
  worker_update_all(w, c->sum);
  return true;
}

/* A worker's part of a step: the gradient of its samples. */
static bool work(worker *w, fail *why) {
  const central *c = w->state;
  return worker_batch_gradient(w, w->rank, central_workers(w), c->grads, NO_LISTENER, why) &&
         central_push(w, why);
}

static bool ps_sync_epoch(worker *w, fail *why) {
  size_t steps = loader_steps(&w->loader), bytes = w->model.params * sizeof(float);
  while (w->step < steps) {
    shard batch = worker_batch(w);
    if (!(w->keeper ? serve(w, why) : work(w, why)))
      return false;
    if (w->keeper) {
      w->step++; /* the server is ahead from here on: recover() takes its model */
      w->sums.sent_bytes += (double)central_workers(w) * (double)bytes;
    }
    if (!worker_share(w, central_workers(w), w->params, w->model.params, why))
      return false;
    if (!w->keeper)
      w->step++;
    worker_show(w, batch.first + batch.count);
  }
  return true;
}

const strategy strategy_ps_sync = {
    .name = "ps-sync",
    .about = "the last rank is a server that waits for all gradients of a step (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .check = central_check,
    .bytes = sizeof(central),
    .open = open_server,
    .epoch = ps_sync_epoch,
    .settle = central_settle,
};
