/* test_plans.c: the cache of plans: which calls share a plan, and which plans stay. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "libcoll/comm/comm.h"

/* A communicator with one rank. */
static coll_comm *alone(void) {
  coll_comm *comm = NULL;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  return comm;
}

/* An all-reduce of `count` floats; the plans made so far. */
static uint64_t made_after(coll_comm *comm, size_t count) {
  static float in[4096], out[4096];
  cr_assert_leq(count, 4096);
  cr_assert_eq(coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm), COLL_OK);
  return comm->calls.plans.made;
}

Test(plans, equal_calls_have_one_plan) {
  coll_comm *comm = alone();
  uint64_t before = comm->calls.plans.made;
  for (int i = 0; i < 5; i++)
    cr_assert_eq(made_after(comm, 7), before + 1);
  cr_assert_eq(made_after(comm, 8), before + 2);
  coll_comm_destroy(&comm);
}

/* Any ten shapes that a program uses repeatedly: series of counts, with gaps of many sizes. */
Test(plans, ten_live_shapes_do_not_evict_each_other) {
  for (size_t gap = 1; gap <= 400; gap += 7) {
    coll_comm *comm = alone();
    uint64_t before = comm->calls.plans.made;
    for (int round = 0; round < 3; round++)
      for (size_t shape = 1; shape <= 10; shape++)
        made_after(comm, shape * gap);
    cr_assert_eq(comm->calls.plans.made, before + 10, "gap %zu: %llu plans", gap,
                 (unsigned long long)(comm->calls.plans.made - before));
    coll_comm_destroy(&comm);
  }
}

/* As many plans as fit stay; beyond that, the least recently used one is evicted. */
Test(plans, a_plan_in_use_outlives_those_that_are_not) {
  coll_comm *comm = alone();
  for (size_t count = 1; count <= COLLI_PLANS; count++)
    made_after(comm, count);
  uint64_t full = comm->calls.plans.made;
  for (size_t count = 1; count <= COLLI_PLANS; count++)
    cr_assert_eq(made_after(comm, count), full, "count %zu", count);
  for (size_t other = 0; other < 2 * COLLI_PLANS; other++) {
    cr_assert_eq(made_after(comm, 1000 + other), full + other + 1);
    cr_assert_eq(made_after(comm, 5), full + other + 1, "after %zu others", other + 1);
  }
  coll_comm_destroy(&comm);
}

/* Operations that give their context. */
static void give(const void *left, const void *right, void *result, size_t count, coll_type type,
                 void *context) {
  (void)left, (void)right, (void)type;
  for (size_t i = 0; i < count; i++)
    ((int *)result)[i] = *(const int *)context;
}

/* One all-reduce of two ranks, both served by this thread. */
static void reduce_with(coll_comm **comms, coll_op op, int want) {
  int in[2] = {1, 2}, out[2] = {0, 0};
  coll_request *requests[2];
  for (int rank = 0; rank < 2; rank++)
    cr_assert_eq(
        coll_iallreduce(&in[rank], &out[rank], 1, COLL_INT32, op, comms[rank], &requests[rank]),
        COLL_OK);
  while (requests[0] || requests[1])
    for (int rank = 0; rank < 2; rank++)
      if (requests[rank])
        cr_assert_leq(coll_test(&requests[rank]), COLL_IN_PROGRESS);
  cr_assert(out[0] == want && out[1] == want, "%d, %d, not %d", out[0], out[1], want);
}

/* A new operation never meets the plans of a freed one, however its memory is used again. */
Test(plans, a_new_operation_has_plans_of_its_own) {
  coll_comm *comms[2];
  cr_assert_eq(coll_comm_create_local(comms, 2, NULL), COLL_OK);
  for (int i = 1; i <= 3 * COLLI_PLANS; i++) {
    coll_op op;
    cr_assert_eq(coll_op_create("give", give, &i, 1, &op), COLL_OK);
    reduce_with(comms, op, i);
    cr_assert_eq(coll_op_free(&op), COLL_OK);
  }
  for (int rank = 0; rank < 2; rank++)
    coll_comm_destroy(&comms[rank]);
}

/* Whether all-reduces over a transport run on the fast path, according to the first one. */
static bool uses_fastpath(const char *transport) {
  coll_comm *comms[2];
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  cr_assert_eq(coll_comm_create_local(comms, 2, &config), COLL_OK);
  bool runs[2];
  for (int round = 0; round < 3; round++) {
    reduce_with(comms, COLL_SUM, 3);
    for (int rank = 0; rank < 2; rank++) {
      const colli_plan *plan = &comms[rank]->calls.plans.plan[0];
      cr_assert(plan->sched && plan->connected && plan->has_fastpath);
      cr_assert(round == 0 || plan->runs_fastpath == runs[rank]);
      runs[rank] = plan->runs_fastpath;
    }
  }
  cr_assert_eq(runs[0], runs[1]);
  for (int rank = 0; rank < 2; rank++)
    cr_assert_eq(coll_comm_destroy(&comms[rank]), COLL_OK);
  return runs[0];
}

Test(plans, connections_decide_for_the_fast_path_once) {
  cr_assert(uses_fastpath("shm"));
  cr_assert_not(uses_fastpath("tcp")); /* each message is a system call */
}
