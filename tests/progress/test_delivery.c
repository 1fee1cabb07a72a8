/*
 * test_delivery.c: a message that coll_send() has taken arrives, whatever its sender does next: it
 * computes, waits in another communicator, makes one, or destroys this one. All waits are for
 * events: a rank that "computes" is in no call until another rank says that it has the message.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

#define LIMIT_S 20 /* for an event; correct ranks take milliseconds */

enum { RANKS = 4, TAG = 7 };

/* What the ranks of a scene share. */
typedef struct stage {
  atomic_int arrived; /* messages */
  callers callers;
} stage;

static const char *const transports[] = {"shm", "tcp"};

/* Settings with which nothing that hangs takes long. */
static coll_config short_limits(const char *transport) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = config.create_timeout_ms = slow_ms(10000);
  return config;
}

/* Runs a scene with forked ranks over each transport. */
static void play(rank_fn scene, int nranks) {
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = short_limits(transports[t]);
    stage *shared = shared_memory(sizeof(*shared));
    cr_expect_eq(run_processes(nranks, &config, scene, shared, 60, NULL), 0, "%s", transports[t]);
  }
}

static coll_status send_word(coll_comm *comm, int peer, int word) {
  return coll_send(&word, 1, COLL_INT32, peer, TAG, comm);
}

/* Receives the word that is expected, or fails. */
static coll_status recv_word(coll_comm *comm, int peer, int word) {
  int got = -1;
  coll_status status = coll_recv(&got, 1, COLL_INT32, peer, TAG, NULL, comm);
  return status == COLL_OK && got != word ? COLL_ERR_INTERNAL : status;
}

/* One rank makes an id, which all get by messages. */
static coll_status make_another(coll_comm *comm, int rank, int nranks, coll_comm **other) {
  coll_id id;
  coll_config config = short_limits(NULL);
  coll_status status = rank == 0 ? coll_unique_id(&id, NULL) : COLL_OK;
  for (int peer = 1; rank == 0 && peer < nranks && status == COLL_OK; peer++)
    status = coll_send(&id, sizeof(id), COLL_UINT8, peer, TAG, comm);
  if (rank > 0)
    status = coll_recv(&id, sizeof(id), COLL_UINT8, 0, TAG, NULL, comm);
  return status == COLL_OK ? coll_comm_create(other, &id, nranks, rank, &config) : status;
}

/* ---- the sender computes --------------------------------------------------------------------- */

/* Each rank sends to the next one and computes until the message is there. */
static int compute(coll_comm *comm, int rank, int nranks, void *arg) {
  stage *shared = arg;
  for (int sender = 0; sender < nranks; sender++) {
    int receiver = (sender + 1) % nranks;
    if (rank == sender) {
      RANK_OK(send_word(comm, receiver, sender));
      RANK_CHECK(WAIT_UNTIL(atomic_load(&shared->arrived) > sender, LIMIT_S));
    } else if (rank == receiver) {
      RANK_OK(recv_word(comm, sender, sender));
      atomic_fetch_add(&shared->arrived, 1);
    }
  }
  return 0;
}

Test(delivery, sender_computes) {
  play(compute, 2);
  play(compute, RANKS);
}

/* The same while the receiver is in a collective when the message is sent. */
static int compute_after_collective(coll_comm *comm, int rank, int nranks, void *arg) {
  stage *shared = arg;
  int last = nranks - 1;
  if (rank == last) {
    RANK_CHECK(WAIT_UNTIL(all_wait_in_call(&shared->callers, nranks, last), LIMIT_S));
    RANK_OK(send_word(comm, 0, 1));
  }
  enters_call(&shared->callers, rank);
  RANK_OK(coll_barrier(comm));
  if (rank == last)
    RANK_CHECK(WAIT_UNTIL(atomic_load(&shared->arrived) == 1, LIMIT_S));
  if (rank == 0) {
    RANK_OK(recv_word(comm, last, 1));
    atomic_store(&shared->arrived, 1);
  }
  return 0;
}

Test(delivery, receiver_in_collective) {
  play(compute_after_collective, 2);
  play(compute_after_collective, RANKS);
}

/* More messages than a connection holds. */
static int compute_after_many(coll_comm *comm, int rank, int nranks, void *arg) {
  stage *shared = arg;
  enum { MANY = 60 };
  (void)nranks;
  for (int i = 0; i < MANY; i++) {
    if (rank == 0)
      RANK_OK(send_word(comm, 1, i));
    if (rank == 1)
      RANK_OK(recv_word(comm, 0, i));
  }
  if (rank == 1)
    atomic_store(&shared->arrived, 1);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&shared->arrived) == 1, LIMIT_S));
  return 0;
}

Test(delivery, many_messages) {
  play(compute_after_many, 2);
}

/* ---- the sender waits elsewhere -------------------------------------------------------------- */

/* An id goes by message, and both ranks create a communicator with it. */
static int create(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL;
  (void)arg;
  RANK_OK(make_another(comm, rank, nranks, &other));
  RANK_OK(coll_barrier(other));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, creation) {
  play(create, 2);
  play(create, RANKS);
}

/* Messages that are received only after the next communicator has been made. */
static int create_first(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL;
  coll_id id;
  coll_config config = short_limits(NULL);
  (void)arg;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  for (int peer = 0; peer < nranks; peer++)
    if (peer != rank && (rank % 2 == 0 || peer < rank))
      for (int i = 0; i < 20; i++)
        RANK_OK(send_word(comm, peer, rank + i));
  RANK_OK(coll_comm_create(&other, &id, nranks, rank, &config));
  for (int peer = 0; peer < nranks; peer++)
    if (peer != rank && (peer % 2 == 0 || rank < peer))
      for (int i = 0; i < 20; i++)
        RANK_OK(recv_word(comm, peer, peer + i));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, before_creation) {
  play(create_first, 2);
  play(create_first, RANKS);
}

/* The receiver waits in a communicator that was created separately. */
static int cross(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL;
  (void)arg;
  RANK_OK(make_another(comm, rank, nranks, &other));
  if (rank == nranks - 1) {
    RANK_OK(send_word(comm, 0, 1));
    RANK_OK(send_word(other, 0, 2));
  } else if (rank == 0) {
    RANK_OK(recv_word(other, nranks - 1, 2));
    RANK_OK(recv_word(comm, nranks - 1, 1));
  }
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, two_communicators) {
  play(cross, 2);
  play(cross, RANKS);
}

/* A message on one, while a collective of the other waits; a long one needs an answer of the
 * receiver, too. */
static int collective_elsewhere(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL, *child = NULL;
  static char sent[1 << 20], got[1 << 20];
  coll_request *request = NULL;
  (void)arg;
  RANK_OK(make_another(comm, rank, nranks, &other));
  memset(sent, rank + 1, sizeof(sent));
  if (rank == 0)
    RANK_OK(coll_isend(sent, sizeof(sent), COLL_UINT8, nranks - 1, TAG, comm, &request));
  if (rank == nranks - 1) {
    RANK_OK(coll_recv(got, sizeof(got), COLL_UINT8, 0, TAG, NULL, comm));
    RANK_CHECK(got[0] == 1 && got[sizeof(got) - 1] == 1);
  }
  RANK_OK(coll_comm_split(other, 0, rank, NULL, &child));
  if (rank == 0)
    RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_comm_destroy(&child));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, split_elsewhere) {
  play(collective_elsewhere, 2);
  play(collective_elsewhere, RANKS);
}

/* The same with a shrink. */
static int shrink_elsewhere(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL, *child = NULL;
  static char sent[1 << 20], got[1 << 20];
  coll_request *request = NULL;
  uint64_t word = 1;
  (void)arg;
  RANK_OK(make_another(comm, rank, nranks, &other));
  for (int round = 0; round < 2; round++) {
    if (rank == 0)
      RANK_OK(coll_isend(sent, sizeof(sent), COLL_UINT8, nranks - 1, TAG, comm, &request));
    if (rank == nranks - 1)
      RANK_OK(coll_recv(got, sizeof(got), COLL_UINT8, 0, TAG, NULL, comm));
    if (round == 0)
      RANK_OK(coll_comm_agree(other, &word, NULL, NULL));
    else
      RANK_OK(coll_comm_shrink(other, NULL, &child));
    if (rank == 0)
      RANK_OK(coll_wait(&request, -1));
  }
  RANK_OK(coll_comm_destroy(&child));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, shrink_elsewhere) {
  play(shrink_elsewhere, 2);
  play(shrink_elsewhere, RANKS);
}

/* Both ranks wait in one communicator, in different calls. */
static int agree_first(coll_comm *comm, int rank, int nranks, void *arg) {
  uint64_t word = 1;
  (void)arg;
  if (rank == 0)
    RANK_OK(send_word(comm, nranks - 1, 3));
  RANK_OK(coll_comm_agree(comm, &word, NULL, NULL));
  if (rank == nranks - 1)
    RANK_OK(recv_word(comm, 0, 3));
  return 0;
}

Test(delivery, agreement) {
  coll_config config = short_limits("shm");
  play(agree_first, 2);
  play(agree_first, RANKS);
  cr_expect_eq(run_threads(RANKS, &config, agree_first, NULL), 0);
}

/* The receiver has a progress thread, which does nothing while no operation is open, and waits in
 * another communicator. */
static int cross_with_thread(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *other = NULL;
  stage *shared = arg;
  coll_id id;
  coll_config config = short_limits(NULL);
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&other, &id, nranks, rank, &config));
  if (rank == 0) {
    RANK_CHECK(WAIT_UNTIL(waits_in_call(&shared->callers, 1), LIMIT_S));
    for (int i = 0; i < 40; i++) /* more than the connection holds */
      RANK_OK(send_word(comm, 1, i));
    RANK_OK(send_word(other, 1, 2));
  } else {
    enters_call(&shared->callers, rank);
    RANK_OK(recv_word(other, 0, 2));
    for (int i = 0; i < 40; i++)
      RANK_OK(recv_word(comm, 0, i));
  }
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, progress_thread) {
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = short_limits(transports[t]);
    config.progress = COLL_PROGRESS_ON;
    config.timeout_ms = slow_ms(120000); /* the other communicator times out long before */
    stage *shared = shared_memory(sizeof(*shared));
    cr_expect_eq(run_processes(2, &config, cross_with_thread, shared, 60, NULL), 0, "%s",
                 transports[t]);
  }
}

/* The receiver has a window, and waits in a communicator of the same family. */
static int behind_window(coll_comm *comm, int rank, int nranks, void *arg) {
  enum { MANY = 60 }; /* more than the connection holds, and fewer than the receiver keeps */
  static char memory[MANY];
  coll_comm *other = NULL;
  coll_window *window = NULL;
  (void)arg;
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &other));
  RANK_OK(coll_window_create(other, memory, sizeof(memory), &window));
  for (int i = 0; i < MANY && rank == 0; i++) {
    RANK_OK(send_word(other, 1, i));
    RANK_OK(coll_put(&rank, 1, COLL_INT8, 1, (size_t)i, window, other));
  }
  RANK_OK(coll_barrier(comm));
  for (int i = 0; i < MANY && rank == 1; i++)
    RANK_OK(recv_word(other, 0, i));
  RANK_OK(coll_window_destroy(&window));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

Test(delivery, window_elsewhere) {
  play(behind_window, 2);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Ranks exchange one message and leave. */
static int exchange_and_leave(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) {
    coll_comm *other = NULL;
    RANK_OK(make_another(comm, rank, nranks, &other));
    int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    if (i % 2 == 0)
      RANK_OK(send_word(other, next, i));
    int got = -1, mine = i;
    if (i % 2 == 0) {
      RANK_OK(recv_word(other, before, i));
    } else {
      RANK_OK(coll_sendrecv(&mine, 1, next, TAG, &got, 1, before, TAG, COLL_INT32, NULL, other));
      RANK_CHECK(got == i);
    }
    RANK_OK(coll_comm_destroy(&other));
  }
  return 0;
}

Test(delivery, leave_after_exchange) {
  play(exchange_and_leave, 2);
  play(exchange_and_leave, RANKS);
}

/* A nonblocking send is complete, because its message was copied. */
static int complete_copy(coll_comm *comm, int rank, int *word) {
  coll_request *request = NULL;
  coll_status status;
  RANK_OK(coll_isend(word, 1, COLL_INT32, 1, TAG, comm, &request));
  while ((status = coll_test(&request)) == COLL_IN_PROGRESS)
    ;
  *word = -1;
  RANK_OK(status);
  return 0;
}

/* A rank sends and leaves before its peer looks. */
static int send_and_leave(coll_comm *comm, int rank, int nranks, void *arg) {
  stage *shared = arg;
  coll_comm *other = NULL;
  int word = 5;
  RANK_OK(make_another(comm, rank, nranks, &other));
  if (rank == 0) {
    RANK_CHECK(complete_copy(other, rank, &word) == 0);
    enters_call(&shared->callers, rank);
    RANK_OK(coll_comm_destroy(&other));
  } else {
    RANK_CHECK(WAIT_UNTIL(waits_in_call(&shared->callers, 0), LIMIT_S));
    RANK_OK(recv_word(other, 0, word));
    RANK_OK(coll_comm_destroy(&other));
  }
  return 0;
}

Test(delivery, leave_with_copy) {
  play(send_and_leave, 2);
}

/* The same with a peer that is in no call: the sender learns that its message is lost. */
static int leave_too_early(coll_comm *comm, int rank, int nranks, void *arg) {
  stage *shared = arg;
  int word = 5;
  (void)nranks;
  if (rank == 0) {
    RANK_CHECK(complete_copy(comm, rank, &word) == 0);
    RANK_CHECK(coll_comm_destroy(&comm) == COLL_ERR_TIMEOUT && comm == NULL);
    atomic_store(&shared->arrived, 1);
    _exit(0); /* the communicator is gone already */
  }
  RANK_CHECK(WAIT_UNTIL(atomic_load(&shared->arrived) == 1, LIMIT_S));
  return 0;
}

Test(delivery, leave_too_early) {
  coll_config config = short_limits("shm");
  config.timeout_ms = slow_ms(400);
  stage *shared = shared_memory(sizeof(*shared));
  cr_expect_eq(run_processes(2, &config, leave_too_early, shared, 60, NULL), 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* One thread has both ends. */
Test(delivery, both_ends) {
  coll_comm *comms[2] = {NULL, NULL};
  coll_config config = short_limits("shm");
  cr_assert_eq(coll_comm_create_local(comms, 2, &config), COLL_OK);
  for (int i = 0; i < 3; i++) {
    cr_expect_eq(send_word(comms[i % 2], 1 - i % 2, i), COLL_OK);
    cr_expect_eq(recv_word(comms[1 - i % 2], i % 2, i), COLL_OK);
  }
  coll_comm_destroy(&comms[0]);
  coll_comm_destroy(&comms[1]);
}
