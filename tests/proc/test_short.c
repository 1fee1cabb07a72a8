/*
 * test_short.c: short calls one after the other. The first of a kind makes a plan; later ones find
 * it and may run without a request. Roots, places and forms change in between, and a buffer that a
 * rank neither reads nor writes is NULL.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "case.h"
#include "support_ranks.h"

static const size_t counts[] = {1, 0, 700};

/* One collective with every root, count and place, three times each in a row. */
static int run_short(coll_comm *comm, int rank, int nranks, case_coll coll) {
  uint64_t seed = 1;
  for (int i = 0; i < 3; i++)
    for (int root = 0; root < nranks; root++)
      for (int in_place = 0; in_place < 3; in_place++)
        for (int again = 0; again < 3; again++) {
          test_case c = {.coll = coll,
                         .form = again == 1 ? CASE_NONBLOCKING : CASE_BLOCKING,
                         .type = COLL_INT32,
                         .op = COLL_SUM,
                         .root = root,
                         .in_place = in_place,
                         .count = counts[i],
                         .seed = seed++};
          if (case_run(comm, rank, nranks, &c, 1) != 0)
            return 1;
        }
  return 0;
}

/* All collectives, then some that alternate. */
static int tour(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int coll = 0; coll < CASE_COLLS; coll++)
    if (run_short(comm, rank, nranks, (case_coll)coll) != 0)
      return 1;
  for (int i = 0; i < 20; i++) {
    int value = rank == i % nranks ? i : -1, sum = -1;
    RANK_OK(coll_broadcast(&value, &value, 1, COLL_INT32, i % nranks, comm));
    RANK_CHECK(value == i);
    RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(sum == i * nranks);
    RANK_OK(coll_barrier(comm));
  }
  return 0;
}

Test(short_calls, processes, .timeout = 120) {
  for (int nranks = 1; nranks <= 4; nranks++)
    cr_assert_eq(run_processes(nranks, NULL, tour, NULL, 50, NULL), 0, "%d ranks", nranks);
}

Test(short_calls, threads, .timeout = 120) {
  for (int nranks = 2; nranks <= 3; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, tour, NULL), 0, "%d ranks", nranks);
}

Test(short_calls, tcp, .timeout = 120) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "tcp";
  cr_assert_eq(run_processes(3, &config, tour, NULL, 50, NULL), 0);
}
