/*
 * ps_sync.c: training with a synchronous parameter server. The workers share each batch and send
 * their gradients to the server; when all are in, it adds them, makes the update, and broadcasts
 * the new weights, with which all begin the next step.
 *
 *     worker 0   worker 1   worker 2          gradients of one batch's parts
 *          \        |        /
 *           v       v       v
 *            server: sum, step                the model and its velocity are here
 *          /        |        \
 *         v         v         v
 *     worker 0   worker 1   worker 2          weights
 *
 * A step with n workers and P parameters takes n messages of 4 P bytes to the server, and a
 * broadcast of 4 P bytes to n ranks: 8 n P bytes, all of which pass the server. Sums are formed in
 * the order of the ranks, so equal runs give equal bits.
 *
 * Source: M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014;
 * J. Chen et al., Revisiting Distributed Synchronous SGD, 2016.
 */
#include "trainer/strategies/central.h"
#include "trainer/strategies/strategies.h"

#include <string.h>

static bool open_server(worker *w, fail *why) {
  return central_open(w, 1, 1, why);
}

/* The server's part of a step: the gradients of all workers, one update. */
static bool serve(worker *w, fail *why) {
  central *c = w->state;
  float *sum = c->sum;
  size_t count = w->model.params;
  for (int r = 0; r < central_workers(w); r++) {
    int source;
    if (!central_take(w, r, &source, why))
      return false;
    if (r == 0)
      memcpy(sum, c->grads, count * sizeof(float));
    for (size_t i = 0; r > 0 && i < count; i++)
      sum[i] += c->grads[i];
  }
  worker_rule(w, worker_done(w));
  worker_update_all(w, sum);
  w->step++; /* from here on the server is ahead: recover() takes its model */
  return true;
}

/* A worker's part of a step: its samples' gradient. */
static bool work(worker *w, shard batch, fail *why) {
  central *c = w->state;
  shard part = shard_of(batch.count, w->rank, central_workers(w));
  return worker_gradient(w, batch.first + part.first, part.count, 1.0f / (float)batch.count,
                         c->grads, (model_listener){.layer_done = NULL}, why) &&
         central_push(w, c->grads, why);
}

static bool ps_sync_epoch(worker *w, fail *why) {
  size_t steps = loader_steps(&w->loader), bytes = w->model.params * sizeof(float);
  while (w->step < steps) {
    shard batch = worker_batch(w);
    if (!(w->keeper ? serve(w, why) : work(w, batch, why)) ||
        !worker_share(w, central_server(w), w->params, w->model.params, why))
      return false;
    if (w->keeper)
      w->sums.sent_bytes += (double)central_workers(w) * (double)bytes;
    else
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
    .open = open_server,
    .close = central_close,
    .epoch = ps_sync_epoch,
    .settle = central_settle,
};
