/*
 * overlap.c: a sum of many numbers is computed in pieces, and while a piece travels, the next one
 * is computed. Each piece has a persistent request, which every round starts again.
 *
 *   collrun -n 2 ./overlap
 */
#include <stdio.h>

#include "coll/coll.h"

enum { PIECES = 4, COUNT = 100000, ROUNDS = 3 };

static float numbers[PIECES][COUNT], sums[PIECES][COUNT];

/* Stands for what a real program computes. */
static void compute(float *piece, int rank, int round) {
  for (int i = 0; i < COUNT; i++)
    piece[i] = (float)(rank + round);
}

/* All rounds. */
static coll_status run(coll_request **requests, int rank) {
  coll_status status = COLL_OK;
  for (int round = 0; round < ROUNDS && status == COLL_OK; round++) {
    for (int p = 0; p < PIECES && status == COLL_OK; p++) {
      compute(numbers[p], rank, round);
      status = coll_start(requests[p]);
      if (p > 0 && status == COLL_OK) { /* the earlier pieces make progress in here */
        coll_status polled = coll_test(&requests[p - 1]);
        status = polled == COLL_IN_PROGRESS ? COLL_OK : polled;
      }
    }
    if (status == COLL_OK)
      status = coll_wait_all(requests, PIECES, NULL, -1);
  }
  return status;
}

int main(void) {
  coll_comm *comm;
  coll_request *requests[PIECES] = {NULL};
  int rank, nranks;
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 1; /* libcoll has printed why on standard error */
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);

  coll_status status = COLL_OK;
  for (int p = 0; p < PIECES && status == COLL_OK; p++)
    status =
        coll_allreduce_init(numbers[p], sums[p], COUNT, COLL_FLOAT32, COLL_SUM, comm, &requests[p]);
  if (status == COLL_OK)
    status = run(requests, rank);
  for (int p = 0; p < PIECES; p++)
    if (status == COLL_OK)
      status = coll_request_free(&requests[p]);
  if (status != COLL_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, coll_status_name(status));
    return 1;
  }
  if (rank == 0)
    printf("%d ranks: each of %d sums is %g\n", nranks, PIECES * COUNT, (double)sums[0][0]);
  return coll_comm_destroy(&comm) != COLL_OK;
}
