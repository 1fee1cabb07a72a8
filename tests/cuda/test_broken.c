/*
 * test_broken.c: a kernel of the program traps while calls in streams are under way, in each mode.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { COUNT = 30001 };

TestSuite(broken, .timeout = 120);

/* A kernel of the program traps: calls on the device's memory say so, others work. */
static int use_broken(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int value = 1;
  coll_comm *other = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(500);
  device_may_leak();
  device_use(device_of_rank(rank));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1);
  RANK_OK(coll_comm_dup(comm, &config, &other));
  RANK_OK(device_share(other));
  device_gate *gate = device_hold(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, other, stream));
  colli_cu_stream breaks = device_stream();
  RANK_OK(coll_barrier(comm)); /* ranks may share the device */
  if (rank == 0 || device_of_rank(rank) != device_of_rank(0))
    device_break(breaks);
  RANK_OK(coll_barrier(comm));
  device_open(gate);
  RANK_CHECK(device_refused(comm, coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm),
                            COLL_ERR_SYSTEM, "CUDA"));
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(value == nranks);
  RANK_CHECK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, other, stream) != COLL_OK);
  const double before_s = now_s();
  RANK_CHECK(coll_comm_destroy(&other) == COLL_OK);
  RANK_CHECK(now_s() - before_s < slow_s(5));
  RANK_OK(coll_barrier(comm));
  return 0;
}

/* In a mode. The process cannot use the devices after that. */
static void run_broken(int mode) {
  if (!device_mode(mode))
    cr_skip_test("there is only one GPU");
  device_use(0);
  device_may_leak();
  cr_expect_eq(run_threads(2, NULL, use_broken, NULL), 0);
}

Test(broken, staged) {
  run_broken(MODE_STAGED);
}

Test(broken, ordered) {
  run_broken(MODE_ORDERED);
}

Test(broken, spin) {
  run_broken(MODE_SPIN);
}

Test(broken, meet) {
  run_broken(MODE_MEET);
}
