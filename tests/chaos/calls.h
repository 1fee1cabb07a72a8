/* calls.h: the collectives of a worker, drawn from a seed, and what they should give. */
#ifndef TESTS_CHAOS_CALLS_H
#define TESTS_CHAOS_CALLS_H

#include <stdint.h>

#include "coll/coll.h"

enum { MOST_RANKS = 16 };

enum kind {
  ALLREDUCE,
  REDUCE,
  REDUCE_SCATTER,
  REDUCE_SCATTERV,
  SCAN,
  EXSCAN,
  BROADCAST,
  ALLGATHER,
  ALLGATHERV,
  GATHER,
  GATHERV,
  SCATTER,
  SCATTERV,
  ALLTOALL,
  ALLTOALLV,
  BARRIER,
  SPLIT,
  HALF,
  KINDS = HALF
};

/* One collective. counts: of each rank, in v-forms. */
struct call {
  uint64_t seed;
  enum kind kind;
  coll_type type;
  coll_op op;
  size_t count;
  int root, rank, nranks;
  size_t counts[MOST_RANKS], displs[MOST_RANKS];
};

extern const char *const kind_names[];

/* A number drawn from two. */
uint64_t mix(uint64_t a, uint64_t b);

void draw(struct call *call, uint64_t seed, int rank, int nranks);

/* Makes the call. */
coll_status run(const struct call *c, const void *send, void *receive, coll_comm *comm);

/* Element i of what a rank sends. Sums of all ranks are exact in all types but uint8, which wraps.
 */
int64_t element(const struct call *call, int rank, size_t i);

void store(coll_type type, void *buffer, size_t i, int64_t value);
int64_t load(coll_type type, const void *buffer, size_t i);

/* The reduction over ranks first .. last of element i. */
int64_t reduced(const struct call *call, int first, int last, size_t i);

/* How many elements a reduction leaves here, with which element it begins, and its last rank. */
size_t reduced_here(const struct call *c, size_t *begin, int *last);

/* Where the block that rank s sends begins there, and how long it is; 0 if it sends none here. */
size_t block_from(const struct call *c, int s, size_t *begin);

#endif
