/* calls.c: COUNT CALLS [FILE]: so many all-reduces of so many float32, whose results it checks;
 * then, once there is such a file, as many more on a new communicator of the same ranks. Exits with
 * 1, and says why, if one fails or is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"
#include "waits.h"

#define WAIT_S 120

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

/* The all-reduces on one communicator. */
static void reduce(coll_comm *comm, size_t count, int calls) {
  int nranks, rank;
  float *in = malloc(2 * count * sizeof(*in)), *out = in + count;
  need(in ? COLL_OK : COLL_ERR_NO_MEMORY, "memory");
  need(coll_comm_nranks(comm, &nranks), "ranks");
  need(coll_comm_rank(comm, &rank), "rank");
  for (size_t i = 0; i < count; i++)
    in[i] = (float)(i % 7 + (size_t)rank);
  for (int call = 0; call < calls; call++) {
    need(coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm), "all-reduce");
    for (size_t i = 0; i < count; i++)
      if (out[i] != (float)((int)(i % 7) * nranks + nranks * (nranks - 1) / 2)) {
        fprintf(stderr, "call %d: element %zu is wrong\n", call, i);
        exit(1);
      }
  }
  free(in);
}

int main(int argc, char **argv) {
  coll_comm *comm, *next;
  if (argc < 3)
    return 2;
  const size_t count = strtoul(argv[1], NULL, 10);
  const int calls = atoi(argv[2]);
  need(coll_init_from_env(&comm, NULL), "creation");
  reduce(comm, count, calls);
  if (argc > 3) {
    need(WAIT_UNTIL(access(argv[3], F_OK) == 0, WAIT_S) ? COLL_OK : COLL_ERR_TIMEOUT, "the file");
    need(coll_comm_shrink(comm, NULL, &next), "shrink");
    reduce(next, count, calls);
    need(coll_comm_destroy(&next), "destroy");
  }
  return coll_comm_destroy(&comm) != COLL_OK;
}
