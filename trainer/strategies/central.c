/* central.c: what strategies with one parameter server have in common. */
#include "trainer/strategies/central.h"

#include <string.h>

enum { TAG_GRADIENT, TAG_TASK, TAG_WEIGHTS };

int central_workers(const worker *w) {
  return w->nranks - 1;
}

bool central_check(const worker *w, fail *why) {
  return w->nranks > 1 ||
         fail_set(why, "a parameter server needs at least one worker beside it: start 2 ranks or "
                       "more, as in collrun -n 2");
}

bool central_open(worker *w, size_t slots, size_t bytes, fail *why) {
  size_t params = w->model.params;
  central *c = w->state;
  w->keeper = w->rank == central_workers(w);
  return (c->books = worker_memory(w, bytes, why)) &&
         (!w->keeper || (c->sum = worker_memory(w, slots * params * sizeof(float), why))) &&
         (c->grads = worker_shared_memory(w, params * sizeof(float), why)) &&
         (!w->pending ||
          (c->packet = worker_shared_memory(w, wire_bytes(&w->o->wire, params), why))) &&
         worker_fit(w, central_workers(w), why);
}

/* The model is the server's. */
const float *central_settle(worker *w, fail *why) {
  return worker_share_model(w, central_workers(w), why) ? w->params : NULL;
}

bool central_tell(worker *w, double *numbers, size_t count, fail *why) {
  coll_status status =
      coll_broadcast(numbers, numbers, count, COLL_FLOAT64, central_workers(w), w->comm);
  return succeeded(why, w->comm, status, "sharing the server's books");
}

bool central_push(worker *w, fail *why) {
  const central *c = w->state;
  size_t count = w->model.params;
  double begin = clock_s();
  const void *message = worker_pack(w, 0, count, c->grads, c->packet);
  w->sums.compute_s += clock_s() - begin;
  return worker_send(w, message, wire_bytes(&w->o->wire, count), central_workers(w), TAG_GRADIENT,
                     why);
}

bool central_take(worker *w, int from, int *source, fail *why) {
  const central *c = w->state;
  size_t count = w->model.params;
  void *message = w->pending ? c->packet : c->grads;
  if (!worker_receive(w, message, wire_bytes(&w->o->wire, count), from, TAG_GRADIENT, source, why))
    return false;
  if (!w->pending)
    return true;
  double begin = clock_s();
  memset(c->grads, 0, count * sizeof(float));
  bool added = wire_add(&w->o->wire, count, c->packet, c->grads, why);
  w->sums.compute_s += clock_s() - begin;
  return added;
}

/* Bytes of all weights. */
static size_t weight_bytes(const worker *w) {
  return w->model.params * sizeof(float);
}

bool central_answer(worker *w, int rank, const task *next, fail *why) {
  return worker_send(w, next, sizeof(*next), rank, TAG_TASK, why) &&
         (!next->left || worker_send(w, w->params, weight_bytes(w), rank, TAG_WEIGHTS, why));
}

/* A worker: waits for its next task, and for the weights that it begins with. */
static bool ask(worker *w, task *next, fail *why) {
  int server = central_workers(w);
  return worker_receive(w, next, sizeof(*next), server, TAG_TASK, NULL, why) &&
         (!next->left ||
          worker_receive(w, w->params, weight_bytes(w), server, TAG_WEIGHTS, NULL, why));
}

bool central_work(worker *w, fail *why) {
  const central *c = w->state;
  task now;
  while (ask(w, &now, why)) {
    shard mine = {(size_t)now.first, (size_t)now.count};
    w->step = (size_t)now.done / w->loader.batch;
    worker_show(w, (size_t)now.done);
    if (!now.left)
      return true;
    if (!worker_gradient(w, mine, 1.0f / (float)now.batch, c->grads, NO_LISTENER, why) ||
        !central_push(w, why))
      return false;
  }
  return false;
}
