/* packets.h: buckets whose gradients travel in packets, as --wire says. */
#ifndef TRAINER_STRATEGIES_PACKETS_H
#define TRAINER_STRATEGIES_PACKETS_H

#include "trainer/strategies/buckets.h"
#include "trainer/worker.h"

/* Where a bucket's packets lie in packets.memory, and this rank's part of it in packets.later; and
 * what is under way. */
typedef struct packets_place {
  size_t out, in, later;
  bool gradients, sums;
} packets_place;

/*
 * A bucket is cut into n parts. Each rank sends each other one a packet of that one's part, and
 * adds what it gets for its own part, in the order of the ranks (so equal runs give equal bits):
 * that is a reduce-scatter. For an all-reduce it then makes one packet of its sum and sends it to
 * all. What a packet of gradients lacks stays in worker.pending, what one of sums lacks in `later`.
 * So a rank sends 2 (n - 1) packets of 1 / n of the model in a step, however many ranks there are,
 * and a number is rounded twice on its way.
 *   H. Tang et al., DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
 *   Error-Compensated Compression, ICML 2019; H. Tang et al., 1-bit Adam, ICML 2021.
 */
typedef struct packets {
  worker *w;
  buckets *b;
  int rank, nranks;        /* when the buckets were cut */
  unsigned char *memory;   /* from coll_mem_alloc() */
  size_t *bytes, *at;      /* of the packets that go to each rank: lengths and places */
  size_t *same, *received; /* the same of those that come */
  float *later; /* of this rank's parts, bucket after bucket; NULL: nothing is sent back */
  packets_place place[MODEL_MAX_LAYERS];
} packets;

/* Lets packets do the sending of buckets; `back`: for an all-reduce. */
bool packets_open(packets *p, worker *w, buckets *b, bool back, fail *why);
void packets_close(packets *p);

/* Waits for the gradients of bucket i, if that was not done yet; this rank's part of it then has
 * their sum. */
bool packets_sum(packets *p, size_t i, fail *why);

/* After packets_sum(): starts to send this rank's sum to all. */
bool packets_share(packets *p, size_t i, fail *why);

/* Waits for the sums of bucket i, if that was not done yet: they are in place of all gradients. */
bool packets_take(packets *p, size_t i, fail *why);

/* Moves what this rank's sums lack to worker.pending. */
void packets_settle(packets *p);

/* A rank's part of a bucket, as parameters of the model. */
shard packets_part(const packets *p, const bucket *item, int rank);

#endif
