/*
 * buckets.h: gradients that are summed over the ranks bucket by bucket, while the backward pass
 * goes on. A bucket is whole layers: the pass ends with the first layer, so the buckets of the last
 * ones are on their way long before.
 *
 * With --wire the gradients of a bucket travel in packets:
 *
 *     each rank, for each other one r:  packet of its gradients of r's part --> r
 *     each rank, for its own part:      adds the packets that came, in the order of the ranks
 *     unless it keeps the part alone:   packet of the sum --> all
 *
 * So a rank sends 2 (n - 1) packets of 1 / n of the model in a step, however many ranks there are,
 * a number is rounded twice on its way, and equal runs give equal bits. What a packet of gradients
 * lacks stays in worker.pending, and what one of sums lacks in memory of its own, for the next
 * step. H. Tang et al., DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
 *   Error-Compensated Compression, ICML 2019; H. Tang et al., 1-bit Adam, ICML 2021.
 */
#ifndef TRAINER_STRATEGIES_BUCKETS_H
#define TRAINER_STRATEGIES_BUCKETS_H

#include "trainer/worker.h"

/* Gradients that are summed together: parameters [first, first + count). */
typedef struct bucket {
  size_t first, count;
  size_t lowest_layer;   /* complete when this layer's gradients are there */
  coll_request *request; /* NULL when nothing is in flight */
  size_t out, in, rests; /* of its packets: where they lie, and what sums lack */
  int stage;             /* how far its packets are */
} bucket;

typedef struct buckets {
  worker *w;
  int rank, nranks;       /* among which the buckets were cut: this one's number, and theirs */
  bool parts;             /* each rank gets the sums of its part of each bucket; else all get all */
  float *grads;           /* of the whole model, from worker_shared_memory() */
  size_t *lengths;        /* see buckets_lengths() */
  unsigned char *packets; /* with --wire, what travels instead; else NULL */
  size_t *length, *at;    /* of the packets that go to each rank */
  size_t *same, *arrives; /* ... that come from each */
  float *rests;           /* what sums lack, bucket after bucket; NULL: none are sent */
  size_t count;
  size_t started; /* buckets [0, started) of this step were handed to the library */
  bucket item[MODEL_MAX_LAYERS];
} buckets;

/* Cuts a model, last layer first, into buckets of at most bucket_bytes, but at least one layer. */
void buckets_cut(buckets *b, const model *m, size_t bucket_bytes);

/* Makes the buckets of the worker's model; `parts` is the member above. */
bool buckets_open(buckets *b, worker *w, bool parts, fail *why);

/* For one backward pass, given to worker_gradient(): starts to sum each bucket that is complete.
 * The caller waits for every bucket before the next pass. */
model_listener buckets_listener(buckets *b);

/* Waits until bucket i has its sums; returns at once if it has. */
bool buckets_wait(buckets *b, size_t i, fail *why);

/* A rank's part of a bucket, as parameters of the model. */
static inline shard buckets_part(const buckets *b, const bucket *item, int rank) {
  return shard_part((shard){item->first, item->count}, rank, b->nranks);
}

/* The lengths of all ranks' parts, in memory of the buckets. */
const size_t *buckets_lengths(const buckets *b, const bucket *item);

/* With --wire, when the weights are settled or the strategy closes: what sums still lack goes to
 * worker.pending. */
void buckets_settle(buckets *b);

#endif
