/* parts.c: all-reduces on a communicator, on some made from it, and on what is left after a shrink.
 * Exits with 1, and says where, if a result is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"

#define COUNT 300000 /* long enough for algorithms that divide work among hosts */

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

/* Sums up numbers that are small enough to be exact. */
static void reduce(coll_comm *comm, const char *what) {
  int nranks, rank, wrong = 0;
  float *in = malloc(2 * COUNT * sizeof(*in)), *out = in + COUNT;
  need(in ? COLL_OK : COLL_ERR_NO_MEMORY, what);
  need(coll_comm_nranks(comm, &nranks), what);
  need(coll_comm_rank(comm, &rank), what);
  for (int i = 0; i < COUNT; i++)
    in[i] = (float)(i % 7 + rank);
  need(coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm), what);
  for (int i = 0; i < COUNT; i++)
    wrong += out[i] != (float)(i % 7 * nranks + nranks * (nranks - 1) / 2);
  free(in);
  if (wrong == 0)
    return;
  fprintf(stderr, "%s: %d elements are wrong\n", what, wrong);
  exit(1);
}

int main(void) {
  int rank;
  coll_comm *base, *part, *twin, *rest;
  need(coll_init_from_env(&base, NULL), "creation");
  need(coll_comm_rank(base, &rank), "rank");
  reduce(base, "base");
  need(coll_comm_split(base, rank == 0, rank, NULL, &part), "split");
  reduce(part, "split");
  need(coll_comm_dup(base, NULL, &twin), "dup");
  reduce(twin, "dup");
  need(coll_comm_destroy(&part), "destroy");
  need(coll_comm_destroy(&twin), "destroy");
  need(coll_comm_shrink(base, NULL, &rest), "shrink");
  reduce(rest, "shrink");
  need(coll_comm_destroy(&rest), "destroy");
  need(coll_comm_destroy(&base), "destroy");
  return 0;
}
