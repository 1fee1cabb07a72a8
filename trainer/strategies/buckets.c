/* buckets.c: gradients that are summed over the ranks bucket by bucket. */
#include "trainer/strategies/buckets.h"

static const char *const doing = "summing gradients";

void buckets_cut(buckets *b, const model *m, size_t bucket_bytes) {
  size_t end = m->params;
  b->count = 0;
  for (size_t l = m->layers; l-- > 0;) {
    size_t first = m->layer[l].first;
    bool last = l == 0;
    size_t with_next = last ? 0 : (end - m->layer[l - 1].first) * sizeof(float);
    if ((!last && with_next <= bucket_bytes) || first == end)
      continue;
    b->item[b->count++] = (bucket){.first = first, .count = end - first, .lowest_layer = l};
    end = first;
  }
}

bool buckets_open(buckets *b, worker *w, bool parts, fail *why) {
  *b = (buckets){.w = w, .rank = w->rank, .nranks = w->nranks, .parts = parts};
  buckets_cut(b, &w->model, w->o->bucket_bytes);
  return (b->lengths = worker_memory(w, (size_t)w->nranks * sizeof(*b->lengths), why)) &&
         (b->grads = worker_shared_memory(w, w->model.params * sizeof(float), why)) &&
         (!w->pending || packets_open(b, why));
}

const size_t *buckets_lengths(const buckets *b, const bucket *item) {
  for (int r = 0; r < b->nranks; r++)
    b->lengths[r] = buckets_part(b, item, r).count;
  return b->lengths;
}

/* The gradients of a bucket are there: starts to sum them. */
static bool start(buckets *b, bucket *item, fail *why) {
  float *grads = b->grads + item->first;
  double whole = allreduce_bytes(b->nranks, item->count * sizeof(float));
  coll_status status;
  if (b->packets)
    return packets_send(b, item, why);
  if (b->parts)
    status = coll_ireduce_scatterv(grads, b->grads + buckets_part(b, item, b->rank).first,
                                   buckets_lengths(b, item), COLL_FLOAT32, COLL_SUM, b->w->comm,
                                   &item->request);
  else
    status = coll_iallreduce(grads, grads, item->count, COLL_FLOAT32, COLL_SUM, b->w->comm,
                             &item->request);
  b->w->sums.sent_bytes += b->parts ? whole / 2 : whole;
  return succeeded(why, b->w->comm, status, doing);
}

/* Moves on what is in flight, without waiting. */
static bool poll(buckets *b, fail *why) {
  for (size_t i = 0; i < b->started; i++) {
    coll_status status = b->item[i].request ? coll_test(&b->item[i].request) : COLL_OK;
    if (status != COLL_IN_PROGRESS && !succeeded(why, b->w->comm, status, doing))
      return false;
  }
  return true;
}

/* A layer's gradients are final: starts its bucket if it was the last one missing. */
static bool layer_done(void *ctx, size_t l, fail *why) {
  buckets *b = ctx;
  bucket *next = &b->item[b->started];
  if (b->started < b->count && next->lowest_layer == l) {
    if (!start(b, next, why))
      return false;
    b->started++;
  }
  return poll(b, why);
}

model_listener buckets_listener(buckets *b) {
  b->started = 0;
  return (model_listener){.layer_done = layer_done, .ctx = b};
}

bool buckets_wait(buckets *b, size_t i, fail *why) {
  if (!poll(b, why))
    return false;
  return b->packets ? packets_wait(b, &b->item[i], why)
                    : worker_wait(b->w, &b->item[i].request, doing, why);
}
