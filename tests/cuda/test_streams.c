/*
 * test_streams.c: stream-ordered calls on (fake) GPUs: every collective, type and operation, one by
 * one and in groups, with buffers on a device and on the host, against a plain reference.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(streams, .timeout = 240);

/* Which part of all cases a run takes. */
typedef struct part {
  unsigned stride, offset;
} part;

static bool takes(case_coll coll, coll_type type, coll_op op) {
  const bool scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
  return case_takes(type, op) && !(scan && op == COLL_AVG);
}

/* Runs one case with several sizes, all in the stream at once. */
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

static int run_all(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  unsigned k = 0;
  device_use(rank % 2);
  test_case c = {.device = &device_memory, .stream = device_stream()};
  for (int pair = 0; pair < (COLL_TYPE_COUNT + 1) * (COLL_OP_COUNT + 1); pair++)
    for (int coll = 0; coll < CASE_COLLS; coll++)
      for (int turn = 0; turn < 18; turn++) {
        const int type = pair / (COLL_OP_COUNT + 1), op = pair % (COLL_OP_COUNT + 1);
        const bool scatters = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV;
        c.coll = (case_coll)coll;
        c.type = type == COLL_TYPE_COUNT ? CASE_TYPE_AFFINE : (coll_type)type;
        c.op = op == COLL_OP_COUNT ? CASE_OP_AFFINE : (coll_op)op;
        c.form = turn % 2 ? CASE_STREAMED_GROUP : CASE_STREAMED;
        c.in_place = turn / 2 % 3;
        c.in_device[0] = turn / 6 != 1 || c.in_place;
        c.in_device[1] = turn / 6 != 2 || c.in_place;
        c.seed = k;
        c.root = (int)k;
        if (!takes(c.coll, c.type, c.op) || (c.in_place == 2 && !scatters) ||
            (coll >= CASE_BROADCAST && c.op != COLL_SUM) || k++ % p->stride != p->offset)
          continue;
        if (run_sizes(comm, rank, nranks, c) != 0)
          return 1;
      }
  return 0;
}

Test(streams, threads) {
  const unsigned share = (unsigned)extent(19, 3, 61);
  device_use(0); /* before the communicator is made, as a program does */
  for (int nranks = 1; nranks <= 5; nranks++) {
    part p = {share, (unsigned)nranks % share};
    cr_assert_eq(run_threads(nranks, NULL, run_all, &p), 0, "%d ranks", nranks);
  }
}
