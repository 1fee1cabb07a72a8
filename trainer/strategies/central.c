/* central.c: what strategies with one parameter server have in common. */
#include "trainer/strategies/central.h"

#include "trainer/clock.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_GRADIENT, TAG_TASK, TAG_WEIGHTS };
#define TASK_WORDS (sizeof(task) / sizeof(uint64_t))

int central_server(const worker *w) {
  return w->nranks - 1;
}

int central_workers(const worker *w) {
  return w->nranks - 1;
}

bool central_check(const worker *w, fail *why) {
  return w->nranks > 1 ||
         fail_set(why, "a parameter server needs at least one worker beside it: start 2 ranks or "
                       "more, as in collrun -n 2");
}

bool central_open(worker *w, size_t slots, size_t bytes, fail *why) {
  void *memory = NULL;
  size_t params = w->model.params;
  central *c = calloc(1, sizeof(*c));
  if (!c)
    return fail_memory(why, "the strategy");
  w->state = c;
  c->comm = w->comm;
  w->keeper = w->rank == central_server(w);
  c->sum = w->keeper && slots > 0 ? matrix_alloc(slots, params) : NULL;
  c->books = calloc(1, bytes);
  if (!c->books || (w->keeper && slots > 0 && !c->sum))
    return fail_memory(why, "the server's sums of gradients");
  coll_status status = coll_mem_alloc(w->comm, params * sizeof(float), &memory);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "memory for the gradients");
  c->grads = memory;
  if (w->pending) {
    status = coll_mem_alloc(w->comm, wire_bytes(&w->o->wire, params), &c->packet);
    if (status != COLL_OK)
      return fail_coll(why, w->comm, status, "memory for a packet");
  }
  return worker_fit_parts(w, central_workers(w), why);
}

void central_close(worker *w) {
  central *c = w->state;
  if (!c)
    return;
  if (c->grads)
    coll_mem_free(c->comm, c->grads);
  if (c->packet)
    coll_mem_free(c->comm, c->packet);
  free(c->sum);
  free(c->books);
  free(c);
  w->state = NULL;
}

/* The model is the server's. */
const float *central_settle(worker *w, fail *why) {
  return worker_share_model(w, central_server(w), why) ? w->params : NULL;
}

bool central_tell(worker *w, double *numbers, size_t count, fail *why) {
  coll_status status =
      coll_broadcast(numbers, numbers, count, COLL_FLOAT64, central_server(w), w->comm);
  return status == COLL_OK || fail_coll(why, w->comm, status, "sharing the server's books");
}

/* Counts the time of an exchange, and says what went wrong. */
static bool ended(worker *w, double begin, coll_status status, const char *doing, fail *why) {
  w->sums.waited_s += clock_s() - begin;
  return status == COLL_OK || fail_coll(why, w->comm, status, doing);
}

bool central_push(worker *w, const float *grads, fail *why) {
  const central *c = w->state;
  double begin = clock_s();
  size_t count = w->model.params, bytes = wire_bytes(&w->o->wire, count);
  if (w->pending)
    worker_pack(w, 0, count, grads, c->packet);
  w->sums.compute_s += clock_s() - begin;
  begin = clock_s();
  coll_status status = coll_send(w->pending ? c->packet : grads, bytes, COLL_UINT8,
                                 central_server(w), TAG_GRADIENT, w->comm);
  w->sums.sent_bytes += (double)bytes;
  return ended(w, begin, status, "sending gradients", why);
}

bool central_take(worker *w, int from, int *source, fail *why) {
  double begin = clock_s();
  central *c = w->state;
  coll_message got = {.source = from};
  size_t count = w->model.params, bytes = wire_bytes(&w->o->wire, count);
  coll_status status = coll_recv(w->pending ? c->packet : c->grads, bytes, COLL_UINT8, from,
                                 TAG_GRADIENT, &got, w->comm);
  *source = got.source;
  if (!ended(w, begin, status, "receiving gradients", why))
    return false;
  begin = clock_s();
  if (w->pending) {
    memset(c->grads, 0, count * sizeof(float));
    wire_add(&w->o->wire, count, c->packet, c->grads);
  }
  w->sums.compute_s += clock_s() - begin;
  return true;
}

bool central_answer(worker *w, int rank, const task *next, fail *why) {
  double begin = clock_s();
  size_t count = next->left ? w->model.params : 0;
  coll_status status = coll_send(next, TASK_WORDS, COLL_UINT64, rank, TAG_TASK, w->comm);
  if (status == COLL_OK && count > 0)
    status = coll_send(w->params, count, COLL_FLOAT32, rank, TAG_WEIGHTS, w->comm);
  w->sums.sent_bytes += (double)(sizeof(*next) + count * sizeof(float));
  return ended(w, begin, status, "sending weights", why);
}

/* A worker: waits for its next task, and for the weights that it begins with. */
static bool ask(worker *w, task *next, fail *why) {
  double begin = clock_s();
  int server = central_server(w);
  coll_status status = coll_recv(next, TASK_WORDS, COLL_UINT64, server, TAG_TASK, NULL, w->comm);
  if (status == COLL_OK && next->left)
    status =
        coll_recv(w->params, w->model.params, COLL_FLOAT32, server, TAG_WEIGHTS, NULL, w->comm);
  return ended(w, begin, status, "receiving weights", why);
}

bool central_work(worker *w, fail *why) {
  central *c = w->state;
  for (;;) {
    task now;
    if (!ask(w, &now, why))
      return false;
    w->step = (size_t)now.done / w->loader.batch;
    worker_show(w, (size_t)now.done);
    if (!now.left)
      return true;
    if (!worker_gradient(w, (size_t)now.first, (size_t)now.count, 1.0f / (float)now.batch, c->grads,
                         (model_listener){.layer_done = NULL}, why) ||
        !central_push(w, c->grads, why))
      return false;
  }
}
