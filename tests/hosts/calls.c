/* calls.c: COUNT CALLS: so many all-reduces of so many float32, whose results it checks. Exits with
 * 1, and says why, if one fails or is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

int main(int argc, char **argv) {
  coll_comm *comm;
  int nranks, rank;
  if (argc != 3)
    return 2;
  const size_t count = strtoul(argv[1], NULL, 10);
  float *in = malloc(2 * count * sizeof(*in)), *out = in + count;
  need(in ? COLL_OK : COLL_ERR_NO_MEMORY, "memory");
  need(coll_init_from_env(&comm, NULL), "creation");
  need(coll_comm_nranks(comm, &nranks), "ranks");
  need(coll_comm_rank(comm, &rank), "rank");
  for (size_t i = 0; i < count; i++)
    in[i] = (float)(i % 7 + (size_t)rank);
  for (int call = 0; call < atoi(argv[2]); call++) {
    need(coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm), "all-reduce");
    for (size_t i = 0; i < count; i++)
      if (out[i] != (float)((int)(i % 7) * nranks + nranks * (nranks - 1) / 2)) {
        fprintf(stderr, "call %d: element %zu is wrong\n", call, i);
        return 1;
      }
  }
  free(in);
  return coll_comm_destroy(&comm) != COLL_OK;
}
