/*
 * mean.c: the mean and the maximum of numbers that are spread over all ranks, in two all-reduces.
 *
 *   collrun -n 4 ./mean
 */
#include <stdio.h>

#include "coll/coll.h"

#define COUNT 1000 /* numbers of each rank */

int main(void) {
  coll_comm *comm;
  int rank, nranks;
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 1; /* libcoll has printed why on standard error */
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);

  /* Together the ranks have the numbers from 1 to nranks * COUNT. */
  double sum = 0, largest = 0;
  for (int i = 1; i <= COUNT; i++) {
    double number = rank * COUNT + i;
    sum += number;
    largest = number > largest ? number : largest;
  }
  /* In place: the send buffer is the receive buffer. */
  if (coll_allreduce(&sum, &sum, 1, COLL_FLOAT64, COLL_SUM, comm) != COLL_OK ||
      coll_allreduce(&largest, &largest, 1, COLL_FLOAT64, COLL_MAX, comm) != COLL_OK) {
    coll_error error = COLL_ERROR_INIT;
    coll_last_error(comm, &error);
    fprintf(stderr, "rank %d: %s\n", rank, error.message);
    return 1;
  }
  if (rank == 0)
    printf("%d ranks: the mean is %g, the maximum %g\n", nranks, sum / nranks / COUNT, largest);
  return coll_comm_destroy(&comm) != COLL_OK;
}
