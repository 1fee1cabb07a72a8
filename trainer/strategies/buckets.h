/*
 * buckets.h: gradients that are summed over the ranks bucket by bucket, while the backward pass
 * goes on. A bucket is whole layers: the pass ends with the first layer, so the buckets of the last
 * ones are on their way long before.
 */
#ifndef TRAINER_STRATEGIES_BUCKETS_H
#define TRAINER_STRATEGIES_BUCKETS_H

#include "trainer/worker.h"

/* Gradients that are summed together: parameters [first, first + count). */
typedef struct bucket {
  size_t first, count;
  size_t lowest_layer;   /* complete when this layer's gradients are there */
  coll_request *request; /* NULL when nothing is in flight */
} bucket;

typedef struct buckets {
  worker *w;
  int rank, nranks; /* among which the buckets were cut: this one's number, and theirs */
  bool parts;       /* each rank gets the sums of its part of each bucket; else all get all */
  float *grads;     /* of the whole model, from worker_shared_memory() */
  size_t *lengths;  /* see buckets_lengths() */
  struct packets *packets; /* with --wire, what travels instead; else NULL */
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

/* ---- packets.c: sums of gradients that travel in packets ------------------------------------- */

/* Makes b->packets of buckets that are cut. */
bool packets_open(buckets *b, fail *why);

/* The gradients of a bucket are there: starts to send their packets. */
bool packets_send(buckets *b, bucket *item, fail *why);

/* Waits until a bucket has its sums; returns at once if it has. */
bool packets_wait(buckets *b, bucket *item, fail *why);

/* Moves what packets of sums lacked to worker.pending; no harm where there are none. */
void packets_settle(buckets *b);

#endif
