/* support_cases.c: goes through the cases. */
#include "support_cases.h"

#define PLACES 9 /* in place or not, and what is on the device */

static bool takes(case_coll coll, coll_type type, coll_op op) {
  const bool scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
  return case_takes(type, op) && !(scan && op == COLL_AVG) &&
         (coll < CASE_BROADCAST || op == COLL_SUM);
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

/* All collectives, forms and places with the type and operation of `c`. */
static int run_pair(coll_comm *comm, int rank, int nranks, test_case c, const cases_part *p,
                    unsigned *k) {
  for (int coll = 0; coll < CASE_COLLS; coll++)
    for (int turn = 0; turn < p->nforms * PLACES; turn++) {
      const int place = turn / p->nforms;
      const bool scatters = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV;
      c.coll = (case_coll)coll;
      c.form = (case_form)(p->first + turn % p->nforms);
      c.in_place = place % 3;
      c.in_device[0] = place / 3 != 1 || c.in_place;
      c.in_device[1] = place / 3 != 2 || c.in_place;
      c.seed = *k;
      c.root = (int)*k;
      if (!takes(c.coll, c.type, c.op) || (c.in_place == 2 && !scatters) ||
          (*k)++ % p->stride != p->offset)
        continue;
      if (run_sizes(comm, rank, nranks, c) != 0)
        return 1;
    }
  return 0;
}

int cases_run(coll_comm *comm, int rank, int nranks, void *part) {
  unsigned k = 0;
  device_use(device_of_rank(rank));
  test_case c = {.device = &device_memory, .stream = device_stream()};
  for (int type = 0; type <= COLL_TYPE_COUNT; type++)
    for (int op = 0; op <= COLL_OP_COUNT; op++) {
      c.type = type == COLL_TYPE_COUNT ? CASE_TYPE_AFFINE : (coll_type)type;
      c.op = op == COLL_OP_COUNT ? CASE_OP_AFFINE : (coll_op)op;
      if (run_pair(comm, rank, nranks, c, part, &k) != 0)
        return 1;
    }
  return 0;
}
