/*
 * plain_worksharing.c: two ranks as threads that share work on memory of coll_mem_alloc(),
 * for ThreadSanitizer (Criterion does not run under it). Exit status 0 if all went well.
 */
#include <stdio.h>
#include <string.h>

#include "data.h"
#include "support_ranks.h"
#include "waits.h"

enum { ROUNDS = 60, MAX_COUNT = 150000 };

static int run_round(coll_comm *comm, int rank, int round, float *in, float *out) {
  size_t count = MAX_COUNT - (size_t)(round * 5077) % MAX_COUNT;
  int root = round % 2;
  uint64_t seed = (uint64_t)round;
  data_fill(in, count, COLL_FLOAT32, COLL_SUM, rank, seed);
  if (round % 3 == rank)
    be_late(round * 0.01);
  RANK_OK(coll_reduce(in, out, count, COLL_FLOAT32, COLL_SUM, root, comm));
  RANK_CHECK(rank != root || data_wrong(out, count, COLL_FLOAT32, COLL_SUM, 2, seed) == 0);
  RANK_OK(coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm));
  RANK_CHECK(data_wrong(out, count, COLL_FLOAT32, COLL_SUM, 2, seed) == 0);
  RANK_OK(coll_broadcast(in, rank == root ? in : out, count, COLL_FLOAT32, root, comm));
  RANK_CHECK(data_wrong_copy(rank == root ? in : out, count, COLL_FLOAT32, COLL_SUM, root, seed) ==
             0);
  RANK_OK(coll_gather(in, out, count / 2, COLL_FLOAT32, root, comm));
  RANK_CHECK(rank != root ||
             (data_wrong_copy(out, count / 2, COLL_FLOAT32, COLL_SUM, 0, seed) == 0 &&
              data_wrong_copy(out + count / 2, count / 2, COLL_FLOAT32, COLL_SUM, 1, seed) == 0));
  return 0;
}

/* Replaces the memory now and then, so that regions are offered and removed. */
static int run_rounds(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks, (void)arg;
  float *in = NULL, *out = NULL;
  for (int round = 0; round < ROUNDS; round++) {
    if (round % 10 == 0) {
      RANK_OK(coll_mem_free(comm, in));
      RANK_OK(coll_mem_free(comm, out));
      RANK_OK(coll_mem_alloc(comm, MAX_COUNT * sizeof(*in), (void **)&in));
      RANK_OK(coll_mem_alloc(comm, MAX_COUNT * sizeof(*out), (void **)&out));
    }
    int result = run_round(comm, rank, round, in, out);
    if (result != 0)
      return result;
  }
  return 0;
}

int main(void) {
  if (run_threads(2, NULL, run_rounds, NULL) != 0) {
    fprintf(stderr, "threads that share work: failed\n");
    return 1;
  }
  return 0;
}
