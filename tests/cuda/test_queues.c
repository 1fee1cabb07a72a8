/*
 * test_queues.c: ranks that are threads on devices with few queues, room for few blocks, or a
 * driver that holds calls back while kernels run: calls in streams work where their mode promises
 * it; elsewhere they end by their deadline, and say so.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, LANES = 2, COUNT = 2501, CALLS = 8 };

TestSuite(queues, .timeout = 120);

/* What the mode promises. */
typedef enum promise { WORKS, ENDS, TIMES_OUT } promise;

typedef struct scene {
  promise promise;
  atomic_int worked;
} scene;

/* All-reduces that take turns in two streams. After the sums come maxima, which change nothing. */
static int use(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = COLL_OK;
  int32_t *vectors[LANES];
  colli_cu_stream lanes[LANES];
  device_may_leak();
  device_use(device_of_rank(rank));
  for (int i = 0; i < LANES; i++) {
    lanes[i] = device_stream();
    vectors[i] = device_vector(COUNT, 1);
  }
  RANK_OK(device_share(comm));
  for (int i = 0; i < CALLS && status == COLL_OK; i++) {
    int32_t *at = vectors[i % LANES];
    status = coll_allreduce_on_stream(at, at, COUNT, COLL_INT32, i < LANES ? COLL_SUM : COLL_MAX,
                                      comm, lanes[i % LANES]);
  }
  for (int i = 0; i < LANES; i++)
    device_await(lanes[i]);
  if (status == COLL_OK)
    status = coll_comm_async_error(comm);
  if (status != COLL_OK) {
    RANK_CHECK(s->promise != WORKS && status == COLL_ERR_TIMEOUT);
    RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.status == status);
    RANK_CHECK(error.message[0] && error.operation[0]);
    return 0;
  }
  for (int i = 0; i < LANES; i++)
    RANK_CHECK(device_has(vectors[i], COUNT, nranks));
  atomic_fetch_add(&s->worked, 1);
  return 0;
}

/* Devices with so many queues and blocks at a time. */
static void run(int mode, const char *queues, const char *strict, const char *resident,
                promise promised) {
  coll_config config = COLL_CONFIG_INIT;
  scene s = {.promise = promised};
  if (promised != WORKS) /* a real driver may have more queues than it says */
    DEVICE_NEEDS_FAKE("GPU_QUEUES and GPU_STRICT");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
  config.timeout_ms = slow_ms(promised == WORKS ? 30000 : 2000);
  setenv("GPU_QUEUES", queues, 1);
  setenv("GPU_STRICT", strict, 1);
  setenv("GPU_RESIDENT", resident, 1);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  if (!device_mode(mode))
    cr_skip_test("there is only one GPU");
  device_use(0);
  device_may_leak();
  cr_expect_eq(run_threads(RANKS, &config, use, &s), 0);
  const int worked = atomic_load(&s.worked);
  cr_expect(promised == ENDS || worked == (promised == WORKS ? RANKS : 0), "%d", worked);
}

/* No stream waits for what is put into a queue later. */
Test(queues, meet) {
  run(MODE_MEET, "1", "0", "64", WORKS);
}

Test(queues, meet_strict) {
  run(MODE_MEET, "1", "1", "1", WORKS);
}

Test(queues, meet_two) {
  run(MODE_MEET, "2", "1", "1", WORKS);
}

/* Each rank has its queue. */
Test(queues, spin) {
  run(MODE_SPIN, "1", "0", "64", WORKS);
}

Test(queues, spin_two) {
  run(MODE_SPIN, "2", "0", "1", WORKS);
}

/* A rank allocates while another one's kernel waits for it. */
Test(queues, spin_strict) {
  run(MODE_SPIN, "32", "1", "64", ENDS);
}

Test(queues, ordered) {
  run(MODE_ONE_GPU, "32", "0", "1", WORKS);
}

/* A rank's wait is before another one's calls in the same queue. */
Test(queues, ordered_one) {
  run(MODE_ONE_GPU, "1", "0", "64", TIMES_OUT);
}

Test(queues, ordered_shared) {
  run(MODE_ORDERED, "1", "0", "64", TIMES_OUT);
}

Test(queues, ordered_strict) {
  run(MODE_ONE_GPU, "32", "1", "64", ENDS);
}
