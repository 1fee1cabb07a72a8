/*
 * plain_instructions.c: 4-byte all-reduces and messages of two ranks, both served by one thread, so
 * that every run takes the same instructions; and duplicates of a communicator. instructions.sh
 * counts them; by itself the program checks results.
 */
#include <coll/coll.h>
#include <stdio.h>

#define ROUNDS 1000
#define WINDOW 16 /* messages */

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

/* A window of messages, half of which have arrived before they are received; what is counted. */
__attribute__((noinline)) static int counted_messages(coll_comm **comms, int in, int *out) {
  coll_request *send[WINDOW], *recv[WINDOW];
  const coll_type type = COLL_INT32;
  int values[WINDOW], bad = 0;
  for (int i = 0; i < WINDOW; i++) {
    values[i] = in + i;
    out[i] = -1;
  }
  for (int i = 0; i < WINDOW / 2; i++)
    bad |= coll_irecv(&out[i], 1, type, 0, 5, NULL, comms[1], &recv[i]) != COLL_OK;
  for (int i = 0; i < WINDOW; i++)
    bad |= coll_isend(&values[i], 1, type, 1, 5, comms[0], &send[i]) != COLL_OK;
  for (int i = WINDOW / 2; i < WINDOW; i++)
    bad |= coll_irecv(&out[i], 1, type, 0, 5, NULL, comms[1], &recv[i]) != COLL_OK;
  for (int i = 0; i < WINDOW; i++)
    bad |= coll_wait(&send[i], -1) != COLL_OK || coll_wait(&recv[i], -1) != COLL_OK;
  for (int i = 0; i < WINDOW; i++)
    bad |= out[i] != in + i;
  return bad;
}

/* A duplicate that is not used; what is counted. */
__attribute__((noinline)) static int counted_dup(coll_comm *comm) {
  coll_comm *dup = NULL;
  return coll_comm_dup(comm, NULL, &dup) != COLL_OK || coll_comm_destroy(&dup) != COLL_OK;
}

/* Duplicates a communicator of one rank, whose duplicates wait for nobody. */
static int run_dups(const coll_config *config) {
  coll_comm *alone = NULL;
  int failed = coll_comm_create_local(&alone, 1, config) != COLL_OK;
  failed = failed || counted_dup(alone); /* also makes what all duplicates share */
  for (int round = 0; round < ROUNDS && !failed; round++)
    failed = counted_dup(alone);
  coll_comm_destroy(&alone);
  return failed;
}

/* Makes the connection of messages. */
static int first_message(coll_comm **comms) {
  int in = 7, out = 0;
  coll_request *requests[2] = {NULL, NULL};
  int bad = coll_isend(&in, 1, COLL_INT32, 1, 5, comms[0], &requests[0]) != COLL_OK ||
            coll_irecv(&out, 1, COLL_INT32, 0, 5, NULL, comms[1], &requests[1]) != COLL_OK;
  while (!bad && (requests[0] || requests[1]))
    for (int rank = 0; rank < 2; rank++)
      if (requests[rank] && coll_test(&requests[rank]) > COLL_IN_PROGRESS)
        bad = 1;
  return bad || out != 7;
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
  failed = failed || first_message(comms);
  for (int round = 0; round < ROUNDS && !failed; round++) {
    int out[WINDOW];
    failed = counted_messages(comms, round, out);
  }
  for (int rank = 0; rank < 2; rank++)
    coll_comm_destroy(&comms[rank]);
  failed = failed || run_dups(&config);
  if (failed)
    fprintf(stderr, "an all-reduce, a message or a duplicate failed\n");
  return failed;
}
