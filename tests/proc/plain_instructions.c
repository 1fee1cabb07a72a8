/*
 * plain_instructions.c: 4-byte all-reduces of two ranks, both served by one thread, so that every
 * run takes the same instructions. instructions.sh counts them; by itself the program checks
 * results.
 */
#include <coll/coll.h>
#include <stdio.h>

#define ROUNDS 1000

/* One all-reduce on both ranks; what is counted. */
__attribute__((noinline)) static int counted_allreduce(coll_comm **comms, int in[2], int out[2]) {
  coll_request *requests[2] = {NULL, NULL};
  for (int rank = 0; rank < 2; rank++)
    if (coll_iallreduce(&in[rank], &out[rank], 1, COLL_INT32, COLL_SUM, comms[rank],
                        &requests[rank]) != COLL_OK)
      return 1;
  for (int rank = 0; rank < 2; rank++)
    if (coll_wait(&requests[rank], -1) != COLL_OK)
      return 1;
  return out[0] != in[0] + in[1] || out[1] != out[0];
}

/* Runs one uncounted round, which makes connections and plans and allocates memory. */
static int warm_up(coll_comm **comms) {
  int in[2] = {1, 2}, out[2];
  coll_request *requests[2] = {NULL, NULL};
  for (int rank = 0; rank < 2; rank++)
    if (coll_iallreduce(&in[rank], &out[rank], 1, COLL_INT32, COLL_SUM, comms[rank],
                        &requests[rank]) != COLL_OK)
      return 1;
  while (requests[0] || requests[1])
    for (int rank = 0; rank < 2; rank++)
      if (requests[rank] && coll_test(&requests[rank]) > COLL_IN_PROGRESS)
        return 1;
  return out[0] != 3 || out[1] != 3;
}

int main(void) {
  coll_comm *comms[2];
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "shm";
  int failed = coll_comm_create_local(comms, 2, &config) != COLL_OK || warm_up(comms);
  for (int round = 0; round < ROUNDS && !failed; round++) {
    int in[2] = {round, 3 * round}, out[2];
    failed = counted_allreduce(comms, in, out);
  }
  for (int rank = 0; rank < 2; rank++)
    coll_comm_destroy(&comms[rank]);
  if (failed)
    fprintf(stderr, "an all-reduce failed\n");
  return failed;
}
