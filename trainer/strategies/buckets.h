/* buckets.h: gradients that are summed over the ranks in parts, while the backward pass goes on. */
#ifndef TRAINER_STRATEGIES_BUCKETS_H
#define TRAINER_STRATEGIES_BUCKETS_H

#include "trainer/model.h"

#include <coll/coll.h>

/* Gradients that are reduced together: parameters [first, first + count). */
typedef struct bucket {
  size_t first, count;
  size_t lowest_layer;   /* complete when this layer's gradients are there */
  coll_request *request; /* NULL when nothing is in flight */
} bucket;

typedef struct buckets {
  coll_comm *comm;
  /* Starts to share a bucket whose gradients are complete: a sum over the ranks, on all of them,
   * unless the owner has set something else. */
  coll_status (*start)(struct buckets *b, bucket *item);
  void *owner;  /* for start() */
  float *grads; /* of the whole model, from coll_mem_alloc() */
  size_t count;
  size_t started; /* buckets [0, started) of this step were handed to the library */
  bucket item[MODEL_MAX_LAYERS];
} buckets;

/*
 * Cuts the model, last layer first, into buckets of at most bucket_bytes, but at least one layer.
 * All ranks must pass the same sizes. Release with buckets_destroy() before the communicator.
 */
bool buckets_create(buckets *b, coll_comm *comm, const model *m, size_t bucket_bytes, fail *why);
void buckets_destroy(buckets *b);

/* For one backward pass, given to model_backward(): starts what is complete, and moves on what was
 * started. The caller waits for every bucket before the next pass. */
model_listener buckets_listener(buckets *b);

/* Moves on what is in flight, without waiting. */
bool buckets_poll(buckets *b, fail *why);

#endif
