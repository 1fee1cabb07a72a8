/*
 * test_staged.c: calls on memory of (fake) GPUs, on copies in host memory: every collective, form,
 * type, operation and place against a plain reference; the input, the result or both on a device.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(staged, .timeout = 120);

/* Which part of all cases a run takes. */
typedef struct part {
  unsigned stride, offset;
} part;

static bool takes(case_coll coll, coll_type type, coll_op op) {
  const bool scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
  return case_takes(type, op) && !(scan && op == COLL_AVG);
}

/* Runs one case with several sizes, as its form says. */
static int run_sizes(coll_comm *comm, int rank, int nranks, test_case c) {
  static const size_t sizes[] = {0, 1, 7, 300};
  test_case cases[4];
  for (int i = 0; i < 4; i++) {
    cases[i] = c;
    cases[i].count = sizes[i];
    cases[i].seed = c.seed * 7 + (uint64_t)i;
    cases[i].root = (c.root + i) % nranks;
  }
  return case_run(comm, rank, nranks, cases, 4);
}

/* All collectives with a type and an operation. */
static int run_pair(coll_comm *comm, int rank, int nranks, coll_type type, coll_op op,
                    const part *p, unsigned *k) {
  for (int coll = 0; coll < CASE_BARRIER; coll++)
    for (int turn = 0; turn < CASE_FORMS * 9; turn++) {
      test_case c = {.coll = (case_coll)coll, .type = type, .op = op, .root = (int)*k, .seed = *k};
      const bool scatters = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV;
      c.form = (case_form)(turn % CASE_FORMS);
      c.in_place = turn / CASE_FORMS % 3;
      c.device = &device_memory;
      c.in_device[0] = turn / CASE_FORMS / 3 != 1 || c.in_place;
      c.in_device[1] = turn / CASE_FORMS / 3 != 2 || c.in_place;
      if (!takes(c.coll, type, op) || (c.in_place == 2 && !scatters) ||
          (coll >= CASE_BROADCAST && op != COLL_SUM) || (*k)++ % p->stride != p->offset)
        continue;
      if (run_sizes(comm, rank, nranks, c) != 0)
        return 1;
    }
  return 0;
}

static int run_all(coll_comm *comm, int rank, int nranks, void *arg) {
  unsigned k = 0;
  device_use(rank % 2);
  for (int type = 0; type <= COLL_TYPE_COUNT; type++)
    for (int op = 0; op <= COLL_OP_COUNT; op++) {
      const coll_type t = type == COLL_TYPE_COUNT ? CASE_TYPE_AFFINE : (coll_type)type;
      const coll_op o = op == COLL_OP_COUNT ? CASE_OP_AFFINE : (coll_op)op;
      if (run_pair(comm, rank, nranks, t, o, arg, &k) != 0)
        return 1;
    }
  return 0;
}

Test(staged, threads) {
  const unsigned share = (unsigned)extent(17, 1, 61);
  device_use(0); /* before the communicator is made, as a program does */
  for (int nranks = 1; nranks <= 5; nranks++) {
    part p = {share, (unsigned)nranks % share};
    cr_assert_eq(run_threads(nranks, NULL, run_all, &p), 0, "%d ranks", nranks);
  }
}
