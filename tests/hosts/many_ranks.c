/*
 * many_ranks.c: one of the ranks of many_ranks.sh. It creates a communicator, all-reduces 1 KiB and
 * 1 MiB twice each, checks every element, and leaves. Rank 0 prints what each part took, from the
 * first rank's begin to the last one's end. Exits with 1, and says why, if a call fails or a result
 * is wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"
#include "waits.h"

#define SHORT 256          /* elements: 1 KiB */
#define LONG  (256 * 1024) /* 1 MiB */

/* The parts: times of the machine's clock, in us, when they end. The first two are the program's
 * begin, of the last and (negative) of the first rank. */
enum {
  LAST_BEGIN,
  FIRST_BEGIN,
  CREATED,
  FIRST_SHORT,
  SECOND_SHORT,
  FIRST_LONG,
  SECOND_LONG,
  PARTS
};

/* Ends the program if a call has failed. */
static void need(coll_status status, const coll_error *error, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, coll_status_name(status), error->message);
  exit(1);
}

/* The clock, which all ranks have in common. */
static int64_t now_us(void) {
  return (int64_t)(wait_clock_s() * 1e6);
}

/* Sums up numbers that are small enough to be exact; returns when it was done. */
static int64_t reduce(coll_comm *comm, int rank, int nranks, int count, const char *what) {
  static float in[LONG], out[LONG];
  coll_error error = COLL_ERROR_INIT;
  for (int i = 0; i < count; i++) {
    in[i] = (float)(i % 7 + rank);
    out[i] = -1;
  }
  const coll_status status = coll_allreduce(in, out, (size_t)count, COLL_FLOAT32, COLL_SUM, comm);
  const int64_t end_us = now_us();
  if (status != COLL_OK)
    (void)coll_last_error(comm, &error);
  need(status, &error, what);
  for (int i = 0; i < count; i++)
    if (out[i] != (float)(i % 7 * nranks + nranks * (nranks - 1) / 2)) {
      fprintf(stderr, "%s: element %d is wrong\n", what, i);
      exit(1);
    }
  return end_us;
}

int main(void) {
  coll_comm *comm;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  int nranks, rank;
  int64_t mine[PARTS] = {now_us(), -now_us()}, t[PARTS];
  config.error = &error;
  need(coll_init_from_env(&comm, &config), &error, "creation");
  mine[CREATED] = now_us();
  (void)coll_comm_nranks(comm, &nranks);
  (void)coll_comm_rank(comm, &rank);
  mine[FIRST_SHORT] = reduce(comm, rank, nranks, SHORT, "first of 1 KiB");
  mine[SECOND_SHORT] = reduce(comm, rank, nranks, SHORT, "second of 1 KiB");
  mine[FIRST_LONG] = reduce(comm, rank, nranks, LONG, "first of 1 MiB");
  mine[SECOND_LONG] = reduce(comm, rank, nranks, LONG, "second of 1 MiB");
  need(coll_reduce(mine, t, PARTS, COLL_INT64, COLL_MAX, 0, comm), &error, "times");
  need(coll_comm_destroy(&comm), &error, "destroy");
  if (rank == 0)
    printf("%d ranks: %.2f s until all have begun, %.2f s to create, %.3f and %.3f s for 1 KiB, "
           "%.2f and %.2f s for 1 MiB, %.2f s until rank 0 has left\n",
           nranks, 1e-6 * (double)(t[LAST_BEGIN] + t[FIRST_BEGIN]),
           1e-6 * (double)(t[CREATED] - t[LAST_BEGIN]),
           1e-6 * (double)(t[FIRST_SHORT] - t[CREATED]),
           1e-6 * (double)(t[SECOND_SHORT] - t[FIRST_SHORT]),
           1e-6 * (double)(t[FIRST_LONG] - t[SECOND_SHORT]),
           1e-6 * (double)(t[SECOND_LONG] - t[FIRST_LONG]),
           1e-6 * (double)(now_us() - t[SECOND_LONG]));
  return 0;
}
