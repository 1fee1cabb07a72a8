/* buckets.c: gradients that are summed over the ranks in parts, while the backward pass goes on. */
#include "trainer/strategies/buckets.h"

#include <string.h>

static const char *const doing = "summing gradients";

/* Cuts the layers into buckets; see buckets_create(). */
static void cut(buckets *b, const model *m, size_t bucket_bytes) {
  size_t end = m->params;
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

/* Sums the gradients of a bucket on all ranks. */
static coll_status sum_everywhere(buckets *b, bucket *item) {
  float *grads = b->grads + item->first;
  return coll_iallreduce(grads, grads, item->count, COLL_FLOAT32, COLL_SUM, b->comm,
                         &item->request);
}

bool buckets_create(buckets *b, coll_comm *comm, const model *m, size_t bucket_bytes, fail *why) {
  void *memory = NULL;
  memset(b, 0, sizeof(*b));
  coll_status status = coll_mem_alloc(comm, m->params * sizeof(float), &memory);
  if (status != COLL_OK)
    return fail_coll(why, comm, status, "memory for the gradients");
  b->comm = comm;
  b->start = sum_everywhere;
  b->grads = memory;
  cut(b, m, bucket_bytes);
  return true;
}

void buckets_destroy(buckets *b) {
  if (b->grads)
    coll_mem_free(b->comm, b->grads);
  memset(b, 0, sizeof(*b));
}

bool buckets_poll(buckets *b, fail *why) {
  for (size_t i = 0; i < b->started; i++) {
    if (!b->item[i].request)
      continue;
    coll_status status = coll_test(&b->item[i].request);
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
    coll_status status = b->start(b, next);
    if (status != COLL_OK)
      return fail_coll(why, b->comm, status, doing);
    b->started++;
  }
  return buckets_poll(b, why);
}

model_listener buckets_listener(buckets *b) {
  b->started = 0;
  return (model_listener){.layer_done = layer_done, .ctx = b};
}
