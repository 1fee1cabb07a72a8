/* test_deadlock.c: a stream waits in a call that has to begin after one whose stream does not come:
 * after the timeout it goes on, and the error names both calls. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(deadlock, .timeout = 60);

enum { COUNT = 100 };

static int wait_for_each_other(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *other;
  (void)nranks, (void)arg;
  device_use(device_of_rank(rank));
  colli_cu_stream missing = device_stream(), waiting = device_stream();
  int32_t *a = device_memory.take(COUNT * sizeof(*a)), *b = device_memory.take(COUNT * sizeof(*b));
  config.timeout_ms = slow_ms(300);
  RANK_OK(coll_comm_dup(comm, &config, &other));
  RANK_OK(device_share(other));
  device_gate *gate = device_stop(missing);
  RANK_OK(coll_broadcast_on_stream(a, a, COUNT, COLL_INT32, 0, other, missing));
  RANK_OK(coll_allreduce_on_stream(b, b, COUNT, COLL_INT32, COLL_SUM, other, waiting));
  device_await(waiting); /* it goes on because the communicator fails */
  RANK_CHECK(coll_comm_async_error(other) == COLL_ERR_TIMEOUT);
  RANK_OK(coll_last_error(other, &error));
  RANK_CHECK(strcmp(error.operation, "broadcast") == 0);
  RANK_CHECK(strstr(error.message, "has come to allreduce") || error.rank != rank);
  device_open(gate);
  device_await(missing);
  RANK_OK(coll_comm_destroy(&other));
  RANK_OK(coll_barrier(comm));
  device_memory.give(a);
  device_memory.give(b);
  return 0;
}

Test(deadlock, streams_wait_for_each_other) {
  device_use(0);
  /* With MEET the host does not know whether streams come: this would be an error of the program.
   */
  EACH_MODE(i, 0, MODE_MEET - 1)
    cr_assert_eq(run_threads(2, NULL, wait_for_each_other, NULL), 0, "%s", device_mode(i));
}
