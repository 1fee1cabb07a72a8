/*
 * plain_instructions.c: 4-byte all-reduces and messages of two ranks, both served by one thread, so
 * that every run takes the same instructions; and duplicates of a communicator. instructions.sh
 * counts them; by itself the program checks results.
 */
#include <coll/coll.h>
#include <stdio.h>

#define ROUNDS 1000
#define WINDOW 64 /* messages */
#define BURST  16 /* of them on their way at a time */

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

/* Sends a burst, for which there is room; what is counted. */
__attribute__((noinline)) static int counted_isend(coll_comm *comm, const int *in) {
  coll_request *requests[BURST];
  int bad = 0;
  for (int i = 0; i < BURST; i++)
    bad |= coll_isend(&in[i], 1, COLL_INT32, 1, 5, comm, &requests[i]) != COLL_OK;
  for (int i = 0; i < BURST; i++)
    bad |= coll_wait(&requests[i], -1) != COLL_OK;
  return bad;
}

/* Receives a burst that has arrived; what is counted. */
__attribute__((noinline)) static int counted_irecv(coll_comm *comm, int *out) {
  coll_request *requests[BURST];
  int bad = 0;
  for (int i = 0; i < BURST; i++)
    bad |= coll_irecv(&out[i], 1, COLL_INT32, 0, 5, NULL, comm, &requests[i]) != COLL_OK;
  for (int i = 0; i < BURST; i++)
    bad |= coll_wait(&requests[i], -1) != COLL_OK;
  return bad;
}

/* Posts receives of which nothing has arrived, and waits for a burst of them that has; counted as
 * one. */
__attribute__((noinline)) static int counted_post(coll_comm *comm, int *out,
                                                  coll_request **requests) {
  int bad = 0;
  for (int i = 0; i < WINDOW; i++)
    bad |= coll_irecv(&out[i], 1, COLL_INT32, 0, 5, NULL, comm, &requests[i]) != COLL_OK;
  return bad;
}

__attribute__((noinline)) static int counted_post_wait(coll_request **requests) {
  int bad = 0;
  for (int i = 0; i < BURST; i++)
    bad |= coll_wait(&requests[i], -1) != COLL_OK;
  return bad;
}

/* A window of messages that arrive before they are received, and one of others. */
static int run_window(coll_comm **comms, const int *in, int *out) {
  coll_request *requests[WINDOW];
  int bad = 0;
  for (int i = 0; i < WINDOW && !bad; i += BURST)
    bad = counted_isend(comms[0], &in[i]) || counted_irecv(comms[1], &out[i]);
  for (int i = 0; i < WINDOW; i++)
    bad |= out[i] != in[i];
  bad = bad || counted_post(comms[1], &out[WINDOW], requests);
  for (int i = 0; i < WINDOW && !bad; i += BURST)
    bad = counted_isend(comms[0], &in[i]) || counted_post_wait(&requests[i]);
  for (int i = 0; i < WINDOW; i++)
    bad |= out[WINDOW + i] != in[i];
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
    int in[WINDOW], out[2 * WINDOW];
    for (int i = 0; i < WINDOW; i++)
      in[i] = round + i;
    failed = run_window(comms, in, out);
  }
  for (int rank = 0; rank < 2; rank++)
    coll_comm_destroy(&comms[rank]);
  failed = failed || run_dups(&config);
  if (failed)
    fprintf(stderr, "an all-reduce, a message or a duplicate failed\n");
  return failed;
}
