/*
 * test_wait_any.c: coll_wait_any() over requests of several communicators: of separate ones, and of
 * one that was split from another.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/proc/support_ranks.h"

enum { COMMS = 3, ROUNDS = 12, TAG = 3, ACK = 4 };

/* Rank 1 sends on the communicators in some order, each time after an answer on the first. */
static int send_in_turn(coll_comm **comms, int rank) {
  coll_comm *comm = comms[0];
  int answer = -1;
  for (int i = 0; i < ROUNDS * COMMS; i++) {
    RANK_OK(coll_send(&i, 1, COLL_INT32, 0, TAG, comms[(i * 2 + i / COMMS) % COMMS]));
    RANK_OK(coll_recv(&answer, 1, COLL_INT32, 0, ACK, NULL, comm));
    RANK_CHECK(answer == i);
  }
  return 0;
}

/* Rank 0 waits for whichever comes. */
static int take_in_turn(coll_comm **comms, int rank) {
  coll_comm *comm = comms[0];
  for (int round = 0; round < ROUNDS; round++) {
    coll_request *requests[COMMS + 1] = {NULL};
    int got[COMMS] = {-1, -1, -1}, index = 0;
    for (int c = 0; c < COMMS; c++)
      RANK_OK(coll_irecv(&got[c], 1, COLL_INT32, 1, TAG, NULL, comms[c], &requests[c + 1]));
    for (int n = 0; n < COMMS; n++) {
      int i = round * COMMS + n, expected = (i * 2 + i / COMMS) % COMMS;
      RANK_OK(coll_wait_any(requests, COMMS + 1, &index, -1));
      RANK_CHECK(index == expected + 1 && got[expected] == i && !requests[index]);
      if (n + 2 == COMMS) /* the rest does not come before the answer */
        RANK_CHECK(coll_wait_any(requests, COMMS + 1, &index, 5) == COLL_IN_PROGRESS &&
                   index == -1);
      RANK_OK(coll_send(&i, 1, COLL_INT32, 1, ACK, comm));
    }
    RANK_CHECK(coll_wait_any(requests, COMMS + 1, &index, 0) == COLL_OK && index == -1);
  }
  return 0;
}

static int wait_for_several(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *comms[COMMS] = {comm, NULL, NULL};
  coll_id id;
  (void)arg;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&comms[1], &id, nranks, rank, NULL));
  RANK_OK(coll_comm_split(comms[1], 0, rank, NULL, &comms[2]));
  int failed = rank == 0 ? take_in_turn(comms, rank) : send_in_turn(comms, rank);
  RANK_OK(coll_comm_destroy(&comms[2]));
  RANK_OK(coll_comm_destroy(&comms[1]));
  return failed;
}

Test(wait_any, several_communicators, .timeout = 120) {
  static const char *const transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_expect_eq(run_processes(2, &config, wait_for_several, NULL, 50, NULL), 0, "%s",
                 transports[t]);
    cr_expect_eq(run_threads(2, &config, wait_for_several, NULL), 0, "%s", transports[t]);
  }
}
