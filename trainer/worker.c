/* worker.c: one rank of a run, and the functions that strategies use. */
#include "trainer/worker.h"

#include "trainer/strategies/strategy.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_ROWS 256 /* at least this many samples are tested in one pass */

size_t worker_rows(const worker *w, int workers) {
  size_t samples = w->data->train.count, batch = w->o->batch;
  return shard_of(batch < samples ? batch : samples, 0, workers).count;
}

bool worker_fit(worker *w, int workers, fail *why) {
  size_t rows = shard_of(worker_rows(w, workers), 0, (int)w->o->accumulate).count;
  rows = rows > TEST_ROWS ? rows : TEST_ROWS;
  if (w->pass.rows >= rows)
    return true;
  pass_destroy(&w->pass);
  return pass_create(&w->pass, &w->model, rows, why);
}

/* Notes memory that was taken; NULL: there was none. */
static void *hold(worker *w, void *memory, coll_comm *comm, fail *why) {
  holding *held = memory ? realloc(w->held, (w->holdings + 1) * sizeof(*held)) : NULL;
  if (!held) {
    comm ? (void)coll_mem_free(comm, memory) : free(memory);
    fail_memory(why, "the strategy");
    return NULL;
  }
  w->held = held;
  w->held[w->holdings++] = (holding){memory, comm};
  return memory;
}

void *worker_memory(worker *w, size_t bytes, fail *why) {
  return hold(w, matrix_zeroes(bytes / sizeof(float) + 1), NULL, why); /* + 1: never nothing */
}

void *worker_shared_memory(worker *w, size_t bytes, fail *why) {
  void *memory = NULL;
  coll_status status = coll_mem_alloc(w->comm, bytes, &memory);
  return succeeded(why, w->comm, status, "memory for messages") ? hold(w, memory, w->comm, why)
                                                                : NULL;
}

bool worker_open(worker *w, fail *why) {
  w->state = worker_memory(w, w->o->strategy->bytes, why);
  return w->state && w->o->strategy->open(w, why);
}

void worker_close(worker *w) {
  if (w->o->strategy->close && w->state)
    w->o->strategy->close(w);
  for (; w->holdings > 0; w->holdings--) {
    holding *last = &w->held[w->holdings - 1];
    last->comm ? (void)coll_mem_free(last->comm, last->memory) : free(last->memory);
  }
  free(w->held);
  w->held = NULL;
  w->state = NULL;
}

/* Sleeps. */
static void nap(double seconds) {
  struct timespec time = {.tv_sec = (time_t)seconds};
  time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
  while (nanosleep(&time, &time) != 0)
    ;
}

/* The gradient of samples, in one pass. */
static bool gradient(worker *w, shard samples, float scale, float *grads, model_listener listener,
                     fail *why) {
  size_t count = samples.count;
  loader_train(&w->loader, samples.first, count, w->pass.value[0], w->pass.labels);
  if (!model_forward(&w->model, w->params, &w->pass, count, why))
    return false;
  w->sums.loss += model_loss(&w->model, &w->pass, count, &w->sums.correct);
  w->sums.samples += (double)count;
  model_loss_delta(&w->model, &w->pass, count, scale);
  return model_backward(&w->model, w->params, &w->pass, count, grads, NULL, listener, why);
}

/* Where the gradients of the last part of a step go, and the strategy's listener. */
typedef struct last_part {
  worker *w;
  float *grads;
  model_listener listener;
} last_part;

/* A layer of the last part is done: adds the earlier parts, and tells the strategy. */
static bool add_layer(void *ctx, size_t l, fail *why) {
  const last_part *last = ctx;
  const layer *here = &last->w->model.layer[l];
  rows_add(here->count, last->grads + here->first, last->w->partial + here->first);
  return !last->listener.layer_done || last->listener.layer_done(last->listener.ctx, l, why);
}

/* The gradient in parts that are added up. The listener hears of the last part only. */
static bool accumulate(worker *w, shard samples, float scale, float *grads, model_listener listener,
                       fail *why) {
  int parts = (int)w->o->accumulate;
  last_part last = {w, grads, listener};
  memset(grads, 0, w->model.params * sizeof(float));
  for (int i = 0; i < parts; i++) {
    shard part = shard_part(samples, i, parts);
    model_listener add = {add_layer, &last};
    bool end = i + 1 == parts;
    if (!gradient(w, part, scale, w->partial, end ? add : NO_LISTENER, why))
      return false;
    if (!end)
      rows_add(w->model.params, grads, w->partial);
  }
  return true;
}

void worker_slow(worker *w, double spent_s) {
  w->sums.compute_s += spent_s;
  if (w->o->slow_factor <= 1.0f || w->rank != w->o->slow_rank)
    return;
  double begin = clock_s();
  nap(((double)w->o->slow_factor - 1.0) * spent_s);
  w->sums.slowed_s += clock_s() - begin;
}

bool worker_gradient(worker *w, shard samples, float scale, float *grads, model_listener listener,
                     fail *why) {
  double begin = clock_s(), waited = w->sums.waited_s;
  if (!(w->partial ? accumulate : gradient)(w, samples, scale, grads, listener, why))
    return false;
  worker_slow(w, clock_s() - begin - (w->sums.waited_s - waited));
  return true;
}

bool worker_batch_gradient(worker *w, int part, int parts, float *grads, model_listener listener,
                           fail *why) {
  shard batch = worker_batch(w);
  return worker_gradient(w, shard_part(batch, part, parts), 1.0f / (float)batch.count, grads,
                         listener, why);
}

double worker_done(const worker *w) {
  return ((double)w->step + 1) / ((double)loader_steps(&w->loader) + 1);
}

void worker_rule(worker *w, double done) {
  w->rule = optim_rule(w->o, (double)w->epochs_done + done, w->updates);
}

void worker_clip(const worker *w, float *grads) {
  double norm = w->o->clip > 0 ? optim_norm(w->model.params, grads) : 0;
  if (norm > (double)w->o->clip)
    optim_scale(w->model.params, grads, (float)((double)w->o->clip / norm));
}

void worker_update_arrays(worker *w, size_t count, float *params, float *velocity, float *squares,
                          const float *grads) {
  double begin = clock_s();
  optim_update(&w->rule, count, params, velocity, squares, grads);
  w->sums.compute_s += clock_s() - begin;
}

void worker_update(worker *w, size_t first, size_t count, const float *grads) {
  worker_update_arrays(w, count, w->params + first, w->velocity + first,
                       w->squares ? w->squares + first : NULL, grads);
}

void worker_update_all(worker *w, float *grads) {
  worker_clip(w, grads);
  worker_update(w, 0, w->model.params, grads);
  w->updates++;
}

const void *worker_pack(worker *w, size_t first, size_t count, const float *grads, void *packet) {
  if (!w->pending)
    return grads;
  rows_add(count, w->pending + first, grads);
  wire_pack(&w->o->wire, count, w->pending + first, packet);
  return packet;
}

bool worker_gather_pending(worker *w, fail *why) {
  size_t count = w->model.params, bytes = count * sizeof(float);
  float *all = w->pending && w->rank == 0 ? matrix_alloc(1, count) : NULL;
  if (!w->pending)
    return true;
  if (w->rank == 0 && !all)
    return fail_memory(why, "pending gradients");
  coll_status status = coll_reduce(w->pending, all, count, COLL_FLOAT32, COLL_SUM, 0, w->comm);
  if (status == COLL_OK && w->rank == 0)
    memcpy(w->pending, all, bytes);
  else if (status == COLL_OK)
    memset(w->pending, 0, bytes);
  free(all);
  w->sums.sent_bytes += w->rank == 0 ? 0 : (double)bytes;
  return succeeded(why, w->comm, status, "gathering pending gradients");
}

shard worker_batch(const worker *w) {
  return (shard){w->step * w->loader.batch, loader_batch_size(&w->loader, w->step)};
}

void worker_open_progress(worker *w) {
  progress_open(&w->progress, w->rank, w->o->quiet || w->o->json, w->o->epochs, w->epochs_done,
                w->data ? w->data->train.count : 0);
}

void worker_show(worker *w, size_t samples) {
  double seconds = clock_s() - w->begin_s, n = w->sums.samples > 0 ? w->sums.samples : 1.0;
  progress_state state = {.epoch = w->epochs_done + 1,
                          .samples = samples,
                          .loss = w->sums.loss / n,
                          .accuracy = w->sums.correct / n,
                          .wait_share = seconds > 0 ? w->sums.waited_s / seconds : 0.0};
  progress_step(&w->progress, &state);
}

bool worker_each_step(worker *w, bool (*step)(worker *w, fail *why), fail *why) {
  size_t steps = loader_steps(&w->loader);
  while (w->step < steps) {
    shard batch = worker_batch(w);
    worker_rule(w, worker_done(w));
    if (!step(w, why))
      return false;
    w->step++;
    worker_show(w, batch.first + batch.count);
    if (w->step < steps && !w->step_done(w, why))
      return false;
  }
  return true;
}

void worker_note(worker *w, const char *format, ...) {
  size_t used = strlen(w->notes);
  va_list args;
  va_start(args, format);
  vsnprintf(w->notes + used, sizeof(w->notes) - used, format, args);
  va_end(args);
}

/* ---- what ranks exchange --------------------------------------------------------------------- */

bool worker_finish(worker *w, coll_status status, coll_request **request, const char *doing,
                   fail *why) {
  double begin = clock_s();
  if (status == COLL_OK && *request)
    status = coll_wait(request, -1);
  w->sums.waited_s += clock_s() - begin;
  return succeeded(why, w->comm, status, doing);
}

bool worker_wait(worker *w, coll_request **request, const char *doing, fail *why) {
  return worker_finish(w, COLL_OK, request, doing, why);
}

bool worker_share(worker *w, int from, float *data, size_t count, fail *why) {
  double begin = clock_s();
  coll_status status = coll_broadcast(data, data, count, COLL_FLOAT32, from, w->comm);
  w->sums.waited_s += clock_s() - begin;
  return succeeded(why, w->comm, status, "sharing the weights");
}

bool worker_share_part(worker *w, int from, size_t first, size_t count, fail *why) {
  float *arrays[] = {w->params, w->velocity, w->squares};
  for (int i = 0; i < 3; i++)
    if (arrays[i] && !worker_share(w, from, arrays[i] + first, count, why))
      return false;
  return true;
}

bool worker_share_model(worker *w, int from, fail *why) {
  coll_status status = coll_broadcast(&w->updates, &w->updates, 1, COLL_UINT64, from, w->comm);
  return succeeded(why, w->comm, status, "sharing the weights") &&
         worker_share_part(w, from, 0, w->model.params, why);
}

double allreduce_bytes(int nranks, size_t bytes) {
  return 2.0 * (double)(nranks - 1) / (double)nranks * (double)bytes;
}

bool worker_allreduce(worker *w, coll_comm *comm, const float *in, float *out, size_t count,
                      coll_op op, const char *doing, fail *why) {
  int n = 1;
  coll_request *request = NULL;
  coll_comm_nranks(comm, &n);
  w->sums.sent_bytes += allreduce_bytes(n, count * sizeof(float));
  coll_status status = coll_iallreduce(in, out, count, COLL_FLOAT32, op, comm, &request);
  return worker_finish(w, status, &request, doing, why);
}

bool worker_start_send(worker *w, const void *data, size_t bytes, int to, int tag,
                       coll_request **request, fail *why) {
  coll_status status = coll_isend(data, bytes, COLL_UINT8, to, tag, w->comm, request);
  w->sums.sent_bytes += (double)bytes;
  return succeeded(why, w->comm, status, "sending to another rank");
}

bool worker_send(worker *w, const void *data, size_t bytes, int to, int tag, fail *why) {
  coll_request *request = NULL;
  return worker_start_send(w, data, bytes, to, tag, &request, why) &&
         worker_wait(w, &request, "sending to another rank", why);
}

bool worker_receive(worker *w, void *data, size_t bytes, int from, int tag, int *source,
                    fail *why) {
  coll_request *request = NULL;
  coll_message got = {.source = from};
  coll_status status = coll_irecv(data, bytes, COLL_UINT8, from, tag, &got, w->comm, &request);
  bool ok = worker_finish(w, status, &request, "receiving from another rank", why);
  if (source)
    *source = got.source;
  return ok;
}
