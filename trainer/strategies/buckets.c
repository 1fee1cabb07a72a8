/* buckets.c: gradients that are summed over the ranks bucket by bucket. */
#include "trainer/strategies/buckets.h"

#include "trainer/strategies/message.h"
#include "trainer/strategies/packets.h"

#include <stdlib.h>
#include <string.h>

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
  *b = (buckets){.w = w, .comm = w->comm, .rank = w->rank, .nranks = w->nranks, .parts = parts};
  b->lengths = calloc((size_t)w->nranks, sizeof(*b->lengths));
  if (!b->lengths)
    return fail_memory(why, "the buckets");
  b->grads = message_memory(w, w->model.params * sizeof(float), "memory for the gradients", why);
  if (!b->grads)
    return false;
  buckets_cut(b, &w->model, w->o->bucket_bytes);
  return !w->pending || packets_open(b, why);
}

void buckets_close(buckets *b) {
  packets_close(b);
  if (b->grads)
    coll_mem_free(b->comm, b->grads);
  free(b->lengths);
  *b = (buckets){.w = NULL};
}

const size_t *buckets_lengths(const buckets *b, const bucket *item) {
  for (int r = 0; r < b->nranks; r++)
    b->lengths[r] = buckets_part(b, item, r).count;
  return b->lengths;
}

/* The gradients of a bucket are there: starts to sum them. */
static bool start(buckets *b, bucket *item, fail *why) {
  float *grads = b->grads + item->first;
  double whole = worker_allreduce_bytes(b->w, item->count * sizeof(float));
  coll_status status;
  if (b->packets)
    return packets_send(b, item, why);
  if (b->parts)
    status = coll_ireduce_scatterv(grads, b->grads + buckets_part(b, item, b->rank).first,
                                   buckets_lengths(b, item), COLL_FLOAT32, COLL_SUM, b->comm,
                                   &item->request);
  else
    status =
        coll_iallreduce(grads, grads, item->count, COLL_FLOAT32, COLL_SUM, b->comm, &item->request);
  b->w->sums.sent_bytes += b->parts ? whole / 2 : whole;
  return status == COLL_OK || fail_coll(why, b->comm, status, doing);
}

/* Moves on what is in flight, without waiting. */
static bool poll(buckets *b, fail *why) {
  for (size_t i = 0; i < b->started; i++) {
    coll_status status = b->item[i].request ? coll_test(&b->item[i].request) : COLL_OK;
    if (status != COLL_OK && status != COLL_IN_PROGRESS)
      return fail_coll(why, b->comm, status, doing);
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

void buckets_settle(buckets *b) {
  packets_settle(b);
}
