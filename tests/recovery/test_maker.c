/*
 * test_maker.c: ids that other ranks than 0 have made: each rank in turn, as processes and as
 * threads, over both transports, with TLS, several at once, and used wrongly.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

#define MOST 8

/* An all-reduce and a shrink without losses; what follows works, too. */
static int use(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int64_t value = rank + 1, sum = 0;
  int own = -1;
  coll_comm *next = NULL;
  RANK_OK(coll_comm_rank(comm, &own));
  RANK_CHECK(own == rank);
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT64, COLL_SUM, comm));
  RANK_CHECK(sum == nranks * (nranks + 1) / 2);
  RANK_OK(coll_comm_shrink(comm, NULL, &next));
  sum = 0;
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT64, COLL_SUM, next));
  RANK_CHECK(sum == nranks * (nranks + 1) / 2);
  RANK_OK(coll_comm_destroy(&next));
  return 0;
}

/* Each of 1 .. MOST ranks in turn makes the id of as many processes. */
static void use_all(const char *transport) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  for (int nranks = 1; nranks <= MOST; nranks += extent(3, 1, 4))
    for (int maker = 0; maker < nranks; maker += extent(2, 1, 3)) {
      char text[16];
      snprintf(text, sizeof(text), "%d", maker);
      setenv("TEST_MAKER", text, 1);
      cr_assert_eq(run_processes(nranks, &config, use, NULL, 60, NULL), 0, "%s: rank %d of %d",
                   transport, maker, nranks);
    }
}

Test(maker, each_rank_over_shared_memory, .timeout = 300) {
  use_all("shm");
}

Test(maker, each_rank_over_tcp, .timeout = 300) {
  use_all("tcp");
}

Test(maker, each_rank_with_tls, .timeout = 300) {
  setenv("COLL_TLS", "1", 1);
  use_all("tcp");
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A rank that is a thread. */
typedef struct thread {
  pthread_t thread;
  coll_id id;
  int rank, nranks;
  int create_timeout_ms; /* 0: the usual one */
  coll_status status;
  coll_error error;
} thread;

static void *take_part(void *arg) {
  thread *t = arg;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comm = NULL;
  int64_t value = t->rank + 1, sum = 0;
  t->error = (coll_error)COLL_ERROR_INIT;
  config.error = &t->error;
  config.create_timeout_ms = t->create_timeout_ms;
  t->status = coll_comm_create(&comm, &t->id, t->nranks, t->rank, &config);
  if (t->status == COLL_OK)
    t->status = coll_allreduce(&value, &sum, 1, COLL_INT64, COLL_SUM, comm);
  if (t->status == COLL_OK && sum != t->nranks * (t->nranks + 1) / 2)
    t->status = COLL_ERR_INTERNAL;
  coll_comm_destroy(&comm);
  return NULL;
}

/* Threads of one process, of which any may come first: exactly one serves. */
Test(maker, threads_of_one_process, .timeout = 120) {
  for (int nranks = 1; nranks <= MOST; nranks++) {
    thread threads[MOST];
    coll_id id;
    const int before = count_fds();
    cr_assert_eq(coll_unique_id(&id, NULL), COLL_OK);
    for (int i = 0; i < nranks; i++) {
      threads[i] = (thread){.id = id, .rank = nranks - 1 - i, .nranks = nranks};
      cr_assert_eq(pthread_create(&threads[i].thread, NULL, take_part, &threads[i]), 0);
    }
    for (int i = 0; i < nranks; i++) {
      pthread_join(threads[i].thread, NULL);
      cr_expect_eq(threads[i].status, COLL_OK, "%d of %d: %s", i, nranks, threads[i].error.message);
    }
    cr_assert_eq(count_fds(), before, "%d ranks left descriptors open", nranks);
  }
}

/* ---- several at once ------------------------------------------------------------------------- */

#define RANKS 4

/* Memory of forked ranks. */
typedef struct ids {
  atomic_int ready;
  coll_id id[2];
} ids;

/* Ranks 1 and 3 each make an id, before either is used; threads of each rank use both. */
static int use_two(ids *shared, int rank) {
  thread threads[2];
  if (rank % 2 == 1) {
    RANK_CHECK(coll_unique_id(&shared->id[rank / 2], NULL) == COLL_OK);
    atomic_fetch_add(&shared->ready, 1);
  }
  RANK_CHECK(WAIT_UNTIL(atomic_load(&shared->ready) == 2, 60));
  for (int i = 0; i < 2; i++) {
    threads[i] = (thread){.id = shared->id[i], .rank = rank, .nranks = RANKS};
    RANK_CHECK(pthread_create(&threads[i].thread, NULL, take_part, &threads[i]) == 0);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i].thread, NULL);
    RANK_CHECK(threads[i].status == COLL_OK);
  }
  return 0;
}

Test(maker, two_communicators_of_two_makers_at_once, .timeout = 120) {
  ids *shared = shared_memory(sizeof(*shared));
  pid_t pids[RANKS];
  fflush(NULL);
  for (int rank = 0; rank < RANKS; rank++)
    if ((pids[rank] = fork()) == 0)
      _exit(use_two(shared, rank));
  for (int rank = 0; rank < RANKS; rank++) {
    int status = -1;
    waitpid(pids[rank], &status, 0);
    cr_expect_eq(status, 0, "rank %d", rank);
  }
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* A second communicator from an id: the process that made it knows at once, unless another program
 * has got the port meanwhile, which is asked instead. */
Test(maker, an_id_serves_one_communicator, .timeout = 60) {
  thread again = {.status = COLL_OK};
  for (int i = 0; i < 3 && again.status != COLL_ERR_INVALID_USAGE; i++) {
    thread first = {.rank = 0, .nranks = 1};
    cr_assert_eq(coll_unique_id(&first.id, NULL), COLL_OK);
    take_part(&first);
    cr_assert_eq(first.status, COLL_OK, "%s", first.error.message);
    again = (thread){.id = first.id, .rank = 1, .nranks = 2, .create_timeout_ms = 10000};
    take_part(&again);
  }
  cr_expect_eq(again.status, COLL_ERR_INVALID_USAGE, "%s", again.error.message);
  cr_expect(strstr(again.error.message, "serves one communicator"), "%s", again.error.message);
}

/* The process that made an id becomes no rank: the others name it when their time is over. */
Test(maker, who_does_not_come_is_named, .timeout = 60) {
  coll_id id;
  cr_assert_eq(coll_unique_id(&id, NULL), COLL_OK);
  coll_error *error = shared_memory(sizeof(*error));
  *error = (coll_error)COLL_ERROR_INIT;
  const pid_t pid = fork();
  if (pid == 0) {
    coll_config config = COLL_CONFIG_INIT;
    coll_comm *comm = NULL;
    config.error = error;
    config.create_timeout_ms = 500;
    _exit(coll_comm_create(&comm, &id, 2, 0, &config) != COLL_ERR_TIMEOUT);
  }
  int status = -1;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  char wanted[64];
  snprintf(wanted, sizeof(wanted), "the process that made the id (pid %d)", (int)getpid());
  cr_expect_eq(status, 0, "%s", error->message);
  cr_expect(strstr(error->message, wanted), "%s", error->message);
  cr_expect_eq(error->peer, -1);
  cr_expect_eq(coll_unique_id_release(&id), COLL_OK);
}
