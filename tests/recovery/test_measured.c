/*
 * test_measured.c: a rank dies or stops while creation measures links between hosts: all others
 * have a communicator in time, and their first call names that rank.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

#include "libcoll/create/measure_levels.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 4 };

/* What each rank saw. */
typedef struct scene {
  bool created[RANKS];
  coll_status first[RANKS]; /* of its first call */
  int peer[RANKS];
} scene;

static int victim, its_signal;

coll_status __real_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error);
coll_status __wrap_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error);

coll_status __wrap_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error) {
  int rank = -1;
  coll_comm_rank(comm, &rank);
  if (rank == victim)
    raise(its_signal);
  return __real_colli_measure_find_levels(comm, all, until_ns, out, error);
}

static int make_first_call(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error = COLL_ERROR_INIT;
  (void)nranks;
  s->created[rank] = true;
  s->first[rank] = coll_barrier(comm);
  coll_last_error(comm, &error);
  s->peer[rank] = error.peer;
  return 0;
}

/* Runs ranks of which one gets a signal; all others' first call ends with `expected`. */
static void strike(int rank, int signal_number, coll_status expected) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(3000);
  config.timeout_ms = 3600000;
  scene *s = shared_memory(sizeof(*s));
  int results[RANKS];
  victim = rank;
  its_signal = signal_number;
  setenv("TEST_HOSTS", "2", 1);
  setenv("COLL_LINK_SPEED", "measure", 1);
  run_processes(RANKS, &config, make_first_call, s, 60, results);
  for (int r = 0; r < RANKS; r++) {
    cr_expect_eq(s->created[r], r != rank, "rank %d", r);
    if (r == rank)
      continue;
    cr_expect_eq(results[r], 0, "rank %d ended with %d", r, results[r]);
    cr_expect_eq(s->first[r], expected, "rank %d has %s", r, coll_status_name(s->first[r]));
    if (expected == COLL_ERR_PEER_LOST) /* else who waits for anybody cannot know whom to blame */
      cr_expect_eq(s->peer[r], rank, "rank %d blames rank %d", r, s->peer[r]);
  }
}

Test(measured, a_rank_dies, .timeout = 200) {
  strike(0, SIGKILL, COLL_ERR_PEER_LOST);
  strike(3, SIGKILL, COLL_ERR_PEER_LOST);
}

/* Creation's deadline counts, and not the longer one of calls. */
Test(measured, a_rank_stops, .timeout = 200) {
  strike(2, SIGSTOP, COLL_ERR_TIMEOUT);
}
