/*
 * test_turns.c: pairs of ranks that share a core. In their all-reduce the two lead alternately,
 * however calls are made and whatever comes between them.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "libcoll/comm/comm.h"
#include "support_ranks.h"

#define SERIES 60
#define MOST   4 /* cases at once */

/* What the ranks do. */
typedef struct pairs_task {
  const char *algo;
  coll_determinism deterministic;
  bool is_chosen; /* whether short all-reduces must alternate by default */
  bool takes_turns;
} pairs_task;

/* Binds ranks 2i and 2i + 1 to the i-th processor that this process may use; false if there is
 * none. */
static bool bind_pair(int rank) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(all), &all) != 0)
    return false;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank / 2) {
      CPU_SET(cpu, &one);
      return sched_setaffinity(0, sizeof(one), &one) == 0;
    }
  return false;
}

/* Makes a communicator of the same ranks, which says where they are bound now. */
static coll_status make_bound(coll_comm *base, int rank, int nranks, const pairs_task *task,
                              coll_comm **comm) {
  coll_config config = COLL_CONFIG_INIT;
  coll_id id = {{0}};
  config.transport = "shm";
  config.algo = task->algo;
  config.deterministic = task->deterministic;
  if (rank == 0 && coll_unique_id(&id, &config) != COLL_OK)
    return COLL_ERR_SYSTEM;
  coll_status status = coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, base);
  return status == COLL_OK ? coll_comm_create(comm, &id, nranks, rank, &config) : status;
}

/* The same numbers on all ranks. */
static unsigned draw(uint64_t *state, unsigned below) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(*state >> 33) % below;
}

/* Cases in every form, most of them all-reduces, checked against the reference. */
static int run_series(coll_comm *comm, int rank, int nranks) {
  static const size_t counts[] = {0, 1, 7, 1000, 4099, 70001};
  uint64_t state = 5;
  for (int i = 0; i < SERIES; i++) {
    test_case cases[MOST];
    case_form form = (case_form)draw(&state, CASE_FORMS);
    int count = 1 + (int)draw(&state, MOST), in_place = (int)draw(&state, 2);
    for (int k = 0; k < count; k++)
      cases[k] = (test_case){.coll = draw(&state, 4) ? CASE_ALLREDUCE
                                                     : (case_coll)draw(&state, CASE_COLLS),
                             .form = form,
                             .type = COLL_FLOAT32,
                             .op = draw(&state, 2) ? COLL_SUM : COLL_AVG,
                             .root = (int)draw(&state, (unsigned)nranks),
                             .in_place = in_place,
                             .count = counts[draw(&state, 6)],
                             .seed = (uint64_t)(i * MOST + k)};
    if (case_run(comm, rank, nranks, cases, count) != 0)
      return 1;
  }
  return 0;
}

/* The roots of the schedules that all-reduces of `count` floats have used, as bits. */
static unsigned roots_used(const coll_comm *comm, size_t count) {
  unsigned roots = 0;
  for (int i = 0; i < COLLI_PLANS; i++) {
    const colli_plan *plan = &comm->calls.plans.plan[i];
    if (plan->sched && plan->key.coll == COLLI_ALLREDUCE && plan->key.count == count)
      roots |= 1u << plan->sched->shape.root;
  }
  return roots;
}

/* Either each all-reduce has a different root than the one before, or all have the same. Sums that
 * depend on the order are the same whoever leads. */
static int check_turns(coll_comm *comm, int rank, bool takes_turns) {
  float in[999], first[999], next[999];
  for (int i = 0; i < 999; i++)
    in[i] = 1.0f / (float)(1 + i * 7 + rank * 13);
  RANK_OK(coll_allreduce(in, first, 999, COLL_FLOAT32, COLL_SUM, comm));
  for (int i = 0; i < 3; i++) {
    int turn = comm->calls.turn;
    RANK_OK(coll_allreduce(in, next, 999, COLL_FLOAT32, COLL_SUM, comm));
    RANK_CHECK(comm->calls.turn == (takes_turns ? 1 - turn : turn));
    RANK_CHECK(memcmp(first, next, sizeof(first)) == 0);
  }
  RANK_CHECK(roots_used(comm, 999) == (takes_turns ? 3u : 1u));
  return 0;
}

/* Whether the all-reduce of one float is "pairs". */
static int check_chosen(coll_comm *comm, int rank) {
  coll_candidate list[48];
  int found = 0;
  RANK_OK(coll_candidates(comm, "allreduce", 1, COLL_FLOAT32, COLL_SUM, 0, list, 48, &found));
  for (int i = 0; i < found; i++)
    RANK_CHECK(list[i].chosen == (strcmp(list[i].name, "pairs") == 0));
  return 0;
}

static int tour(coll_comm *base, int rank, int nranks, void *arg) {
  const pairs_task *task = arg;
  coll_comm *comm = NULL;
  RANK_CHECK(bind_pair(rank));
  RANK_CHECK(make_bound(base, rank, nranks, task, &comm) == COLL_OK);
  int failed = (task->is_chosen && check_chosen(comm, rank)) ||
               check_turns(comm, rank, task->takes_turns) || run_series(comm, rank, nranks) ||
               check_turns(comm, rank, task->takes_turns);
  RANK_OK(coll_comm_destroy(&comm));
  return failed;
}

/* As many pairs as processors, up to three. */
static int pairs_here(void) {
  cpu_set_t all;
  cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
  return CPU_COUNT(&all) < 3 ? CPU_COUNT(&all) : 3;
}

Test(turns, free_choice, .timeout = 200) {
  for (int pairs = 1; pairs <= pairs_here(); pairs++) {
    pairs_task task = {.is_chosen = pairs > 1, .takes_turns = pairs > 1};
    cr_assert_eq(run_processes(2 * pairs, NULL, tour, &task, 60, NULL), 0, "%d pairs", pairs);
  }
}

Test(turns, forced, .timeout = 200) {
  for (int pairs = 1; pairs <= pairs_here(); pairs++) {
    pairs_task task = {
        .algo = "allreduce:pairs", .deterministic = COLL_DETERMINISTIC_ON, .takes_turns = true};
    cr_assert_eq(run_processes(2 * pairs, NULL, tour, &task, 60, NULL), 0, "%d pairs", pairs);
  }
}

/* Other algorithms do not alternate, even if neighbours share cores. */
Test(turns, of_others, .timeout = 200) {
  pairs_task task = {.algo = "allreduce:knomial2"};
  cr_assert_eq(run_processes(2 * pairs_here(), NULL, tour, &task, 60, NULL), 0);
}
