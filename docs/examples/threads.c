/*
 * threads.c: the ranks are threads of one process, without a launcher. Rank 0 scatters rows of a
 * table, and each thread adds up its own.
 *
 *   ./threads
 */
#include <pthread.h>
#include <stdio.h>

#include "coll/coll.h"

enum { RANKS = 4, ROW = 5 };

/* One rank; returns "" or the name of the error. */
static void *run(void *argument) {
  coll_comm *comm = argument;
  int rank, table[RANKS * ROW], row[ROW], sum = 0, sums[RANKS];
  coll_comm_rank(comm, &rank);
  for (int i = 0; i < RANKS * ROW; i++)
    table[i] = i; /* only rank 0's counts */

  coll_status status = coll_scatter(table, row, ROW, COLL_INT32, 0, comm);
  for (int i = 0; status == COLL_OK && i < ROW; i++)
    sum += row[i];
  if (status == COLL_OK)
    status = coll_gather(&sum, sums, 1, COLL_INT32, 0, comm);
  if (status == COLL_OK && rank == 0)
    for (int r = 0; r < RANKS; r++)
      printf("row %d: %d\n", r, sums[r]);
  coll_comm_destroy(&comm);
  return (void *)(status == COLL_OK ? "" : coll_status_name(status));
}

int main(void) {
  coll_comm *comms[RANKS];
  pthread_t threads[RANKS];
  if (coll_comm_create_local(comms, RANKS, NULL) != COLL_OK)
    return 1; /* libcoll has printed why on standard error */
  int started = 0, failed = 0;
  while (started < RANKS && pthread_create(&threads[started], NULL, run, comms[started]) == 0)
    started++;
  if (started < RANKS)
    coll_comm_abort(comms[started]); /* so that the others do not wait for it */
  for (int r = 0; r < started; r++) {
    void *why = NULL;
    pthread_join(threads[r], &why);
    if (*(const char *)why) {
      fprintf(stderr, "rank %d: %s\n", r, (const char *)why);
      failed = 1;
    }
  }
  return failed || started < RANKS;
}
