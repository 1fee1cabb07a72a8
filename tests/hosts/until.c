/*
 * until.c: all-reduces, whose results it checks, as long as a file is there: what happens meanwhile
 * decides when a test is over. Exits with 1, and says why, if one fails or is wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coll/coll.h"

#define COUNT (1 << 20)

/* Ends the program if a call has failed. */
static void need(coll_status status, const coll_error *error) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", coll_status_name(status), error->message);
  exit(1);
}

int main(int argc, char **argv) {
  coll_comm *comm;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  int nranks, rank;
  float *in = malloc(2 * COUNT * sizeof(*in)), *out = in + COUNT;
  if (argc != 2 || !in)
    return 1;
  config.error = &error;
  need(coll_init_from_env(&comm, &config), &error);
  (void)coll_comm_nranks(comm, &nranks);
  (void)coll_comm_rank(comm, &rank);
  for (int i = 1; i < COUNT; i++)
    in[i] = (float)(i % 7 + rank);
  for (int goes_on = 1; goes_on;) {
    in[0] = access(argv[1], F_OK) == 0; /* ranks may see it go at different times */
    const coll_status status = coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm);
    if (status != COLL_OK)
      (void)coll_last_error(comm, &error);
    need(status, &error);
    goes_on = out[0] == (float)nranks;
    for (int i = 1; i < COUNT; i++)
      if (out[i] != (float)(i % 7 * nranks + nranks * (nranks - 1) / 2)) {
        fprintf(stderr, "element %d is wrong\n", i);
        return 1;
      }
  }
  free(in);
  return coll_comm_destroy(&comm) != COLL_OK;
}
