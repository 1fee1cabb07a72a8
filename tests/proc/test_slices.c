/*
 * test_slices.c: blocks of one to five slices among many ranks: blocking calls run a script of
 * their first slices, which ends somewhere in the middle of the operation.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "extent.h"
#include "support_ranks.h"

/* Runs a collective with blocks of many sizes, twice each: ranks that come late find all messages
 * there. */
static int run_sizes(coll_comm *comm, int rank, int nranks, void *arg) {
  for (size_t bytes = 3000; bytes <= 42000; bytes += 3900)
    for (int again = 0; again < 2; again++) {
      test_case c = {.coll = *(const case_coll *)arg,
                     .form = CASE_BLOCKING,
                     .type = COLL_FLOAT32,
                     .op = COLL_SUM,
                     .count = bytes / sizeof(float),
                     .seed = (unsigned)bytes + 1};
      if (case_run(comm, rank, nranks, &c, 1) != 0)
        return 1;
    }
  return 0;
}

/* Runs a collective by an algorithm in which every rank talks to every other, and by the free
 * choice. */
static void check(case_coll coll, const char *algo) {
  for (int nranks = 5; nranks <= 11; nranks += extent(6, 3, 6))
    for (int forced = 0; forced < 2; forced++) {
      coll_config config = COLL_CONFIG_INIT;
      config.algo = forced ? algo : NULL;
      cr_assert_eq(run_processes(nranks, &config, run_sizes, &coll, 50, NULL), 0, "%d ranks, %s",
                   nranks, forced ? algo : "free choice");
    }
}

Test(slices, allreduce, .timeout = 200) {
  check(CASE_ALLREDUCE, "allreduce:rsag");
}

Test(slices, allgather, .timeout = 200) {
  check(CASE_ALLGATHER, "allgather:direct");
}

Test(slices, reduce_scatter, .timeout = 200) {
  check(CASE_REDUCE_SCATTER, "reduce_scatter:direct");
}

Test(slices, alltoall, .timeout = 200) {
  check(CASE_ALLTOALL, "alltoall:direct");
}

Test(slices, gather, .timeout = 200) {
  check(CASE_GATHER, "gather:direct");
}

Test(slices, scatter, .timeout = 200) {
  check(CASE_SCATTER, "scatter:direct");
}
