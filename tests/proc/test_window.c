/*
 * test_window.c: one-sided puts and signals: random ones against a shadow copy, order, bounds,
 * side by side with collectives on one communicator, and the end of windows.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "support_ranks.h"
#include "waits.h"

enum { ROUNDS = 12, PUTS = 30, PART = 70000 };

/* Bytes of memory that rank `rank` contributes in round `round`; may be 0. */
static size_t window_bytes(int rank, int nranks, int round) {
  return rank == (round % 5) ? 0 : (size_t)nranks * PART;
}

/* Fills rank `from`'s part of a peer's memory by puts, and the shadow as it must come out. */
static int put_all(coll_comm *comm, coll_window *window, colli_prng *prng, int rank, int nranks,
                   int round, char *shadow, char *source) {
  for (int peer = 0; peer < nranks; peer++) {
    coll_request *requests[PUTS];
    char *part = shadow + (size_t)peer * PART;
    memset(part, 0, PART);
    int started = 0;
    size_t used = 0;
    for (int i = 0; i < PUTS && window_bytes(peer, nranks, round) > 0; i++) {
      size_t at = colli_prng_below(prng, PART);
      size_t most = colli_prng_below(prng, 4) ? 300 : PART;
      size_t bytes = colli_prng_below(prng, most < PART - at ? most + 1 : PART - at + 1);
      if (used + bytes > (size_t)4 * PART)
        bytes = 0;
      for (size_t b = 0; b < bytes; b++)
        source[used + b] = (char)colli_prng_next(prng);
      memcpy(part + at, source + used, bytes);
      size_t offset = (size_t)rank * PART + at;
      if (colli_prng_below(prng, 2))
        RANK_OK(coll_put(source + used, bytes, COLL_UINT8, peer, offset, window, comm));
      else
        RANK_OK(coll_iput(source + used, bytes, COLL_UINT8, peer, offset, window, comm,
                          &requests[started++]));
      used += bytes;
    }
    RANK_OK(coll_signal(peer, window, comm));
    for (int i = 0; i < started; i++)
      RANK_OK(coll_wait(&requests[i], -1));
  }
  return 0;
}

/* Every rank puts into its part of every rank's memory; the put_and_compare travel by all-to-all.
 */
static int put_and_compare(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  size_t all = (size_t)nranks * PART;
  char *memory = malloc(all), *shadow = malloc(all), *wanted = malloc(all);
  char *source = malloc((size_t)4 * PART);
  colli_prng prng = {(uint64_t)rank + 99};
  for (int round = 0; round < ROUNDS; round++) {
    coll_window *window;
    size_t bytes = window_bytes(rank, nranks, round);
    memset(memory, 0, all);
    RANK_OK(coll_window_create(comm, bytes ? memory : NULL, bytes, &window));
    RANK_CHECK(put_all(comm, window, &prng, rank, nranks, round, shadow, source) == 0);
    for (int peer = 0; peer < nranks; peer++)
      RANK_OK(coll_wait_signal(peer, 1, window, comm));
    RANK_OK(coll_alltoall(shadow, wanted, PART, COLL_UINT8, comm));
    RANK_CHECK(bytes == 0 || memcmp(memory, wanted, all) == 0);
    RANK_OK(coll_window_destroy(&window));
    RANK_CHECK(!window);
  }
  free(memory);
  free(shadow);
  free(wanted);
  free(source);
  return 0;
}

/* Runs on threads over both transports. */
static void over_both(int nranks, rank_fn fn) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    config.timeout_ms = 20000;
    cr_assert_eq(run_threads(nranks, &config, fn, NULL), 0, "over %s", transports[t]);
  }
}

Test(window, random_puts, .timeout = 120) {
  for (int nranks = 1; nranks <= 5; nranks += 2)
    over_both(nranks, put_and_compare);
}

Test(window, random_puts_of_processes, .timeout = 60) {
  cr_assert_eq(run_processes(3, NULL, put_and_compare, NULL, 50, NULL), 0);
}

/* Signals are counted, arrive after earlier puts, and are consumed by waits in order. */
static int signals(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  enum { STEPS = 300 };
  static int64_t memory[8][2];
  int64_t *mine = memory[rank], value;
  int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  coll_window *window, *other;
  memset(mine, 0, sizeof(memory[rank]));
  RANK_OK(coll_window_create(comm, mine, sizeof(memory[rank]), &window));
  RANK_OK(coll_window_create(comm, NULL, 0, &other));
  RANK_OK(coll_wait_signal(before, 0, window, comm));
  for (int i = 1; i <= STEPS; i++) {
    value = i;
    RANK_OK(coll_put(&value, 1, COLL_INT64, next, 8, window, comm));
    RANK_OK(coll_signal(next, window, comm));
    RANK_OK(coll_wait_signal(before, 1, window, comm));
    RANK_CHECK(mine[1] >= i); /* it may be ahead by what comes after its signal */
  }
  coll_request *waits[3];
  RANK_OK(coll_iwait_signal(before, 3, window, comm, &waits[0]));
  RANK_OK(coll_iwait_signal(before, 1, window, comm, &waits[1]));
  RANK_OK(coll_iwait_signal(before, 1, other, comm, &waits[2]));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_signal(next, window, comm));
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(coll_wait(&waits[0], 20) == COLL_IN_PROGRESS);
  RANK_CHECK(coll_wait(&waits[1], 0) == COLL_IN_PROGRESS);
  RANK_OK(coll_barrier(comm));
  for (int i = 0; i < 3; i++)
    RANK_OK(coll_signal(next, window, comm));
  RANK_OK(coll_wait(&waits[1], -1));
  RANK_OK(coll_wait(&waits[0], -1));
  RANK_CHECK(coll_window_destroy(&other) == COLL_ERR_INVALID_USAGE); /* a wait is in flight */
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_signal(next, other, comm));
  RANK_OK(coll_wait(&waits[2], -1));
  RANK_OK(coll_window_destroy(&other));
  RANK_OK(coll_window_destroy(&window));
  return 0;
}

Test(window, signals, .timeout = 60) {
  over_both(1, signals);
  over_both(4, signals);
}

/* Puts arrive while the target is in a collective, and destroy waits for all of them. */
static int put_passively(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  const size_t bytes = (size_t)3 << 20;
  char *memory = calloc(bytes, 1), *source = malloc(bytes);
  memset(source, rank + 1, bytes);
  for (int round = 0; round < 2; round++) {
    coll_window *window;
    RANK_OK(coll_window_create(comm, memory, bytes, &window));
    if (rank == 0)
      RANK_OK(coll_put(source, bytes, COLL_UINT8, nranks - 1, 0, window, comm));
    if (round == 0)
      RANK_OK(coll_barrier(comm));
    RANK_OK(coll_window_destroy(&window));
    if (rank == nranks - 1)
      for (size_t i = 0; i < bytes; i++)
        RANK_CHECK(memory[i] == 1);
    memset(memory, 0, bytes);
  }
  free(memory);
  free(source);
  return 0;
}

Test(window, puts_arrive_in_any_call, .timeout = 60) {
  over_both(2, put_passively);
  over_both(3, put_passively);
}

#define EXPECT(call, word)                                                                         \
  do {                                                                                             \
    coll_error error_ = COLL_ERROR_INIT;                                                           \
    RANK_CHECK((call) == COLL_ERR_INVALID_ARGUMENT);                                               \
    coll_last_error(comm, &error_);                                                                \
    RANK_CHECK(strstr(error_.message, word) != NULL);                                              \
  } while (0)

/* Arguments that are refused. */
static int check_bounds(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  char memory[64] = {0}, data[80] = {1};
  coll_window *window, *gone;
  coll_comm *copy;
  EXPECT(coll_window_create(comm, NULL, 4, &window), "base");
  EXPECT(coll_window_create(comm, memory, 4, NULL), "window");
  RANK_CHECK(coll_window_destroy(NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_window_create(comm, memory, rank == 0 ? 64 : 16, &window));
  RANK_OK(coll_comm_dup(comm, NULL, &copy));
  gone = window;
  EXPECT(coll_put(data, 65, COLL_UINT8, 0, 0, window, comm), "fit");
  EXPECT(coll_put(data, 1, COLL_UINT8, 0, 64, window, comm), "fit");
  EXPECT(coll_put(data, 2, COLL_INT32, 1, 9, window, comm), "fit");
  EXPECT(coll_put(data, 1, COLL_UINT8, 0, SIZE_MAX, window, comm), "fit");
  EXPECT(coll_put(data, SIZE_MAX / 2, COLL_INT64, 0, 0, window, comm), "memory");
  EXPECT(coll_put(NULL, 1, COLL_UINT8, 0, 0, window, comm), "sendbuf");
  EXPECT(coll_put(data, 1, COLL_UINT8, nranks, 0, window, comm), "peer");
  EXPECT(coll_put(data, 1, (coll_type)77, 0, 0, window, comm), "77");
  EXPECT(coll_signal(-1, window, comm), "peer");
  EXPECT(coll_wait_signal(nranks, 1, window, comm), "peer");
  EXPECT(coll_signal(0, NULL, comm), "window");
  RANK_CHECK(coll_signal(0, window, copy) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_put(data, 0, COLL_UINT8, 0, 64, window, comm));
  coll_request *persistent;
  RANK_OK(coll_signal_init(rank, window, comm, &persistent));
  RANK_OK(coll_start(persistent));
  RANK_OK(coll_wait(&persistent, -1));
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_put(data, 1, COLL_UINT8, 1 - rank, 3, window, comm));
  RANK_OK(coll_signal(1 - rank, window, comm));
  RANK_CHECK(coll_window_destroy(&window) == COLL_ERR_INVALID_USAGE && window);
  RANK_OK(coll_wait_signal(1 - rank, 1, window, comm));
  RANK_OK(coll_group_end(comm));
  RANK_CHECK(memory[3] == 1);
  RANK_OK(coll_window_destroy(&window));
  EXPECT(coll_start(persistent), "window");
  RANK_OK(coll_request_free(&persistent));
  EXPECT(coll_signal(0, gone, comm), "window");
  RANK_CHECK(coll_comm_destroy(&copy) == COLL_OK);
  return 0;
}

Test(window, bounds, .timeout = 60) {
  over_both(2, check_bounds);
}

/* A rank dies while others wait for its signals; windows end with the communicator. */
static int lose_target(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  char memory[16];
  coll_window *window, *left;
  coll_error error = COLL_ERROR_INIT;
  RANK_OK(coll_window_create(comm, memory, sizeof(memory), &window));
  RANK_OK(coll_window_create(comm, memory, sizeof(memory), &left));
  if (rank == 1) { /* once both others have finished, too */
    RANK_OK(coll_wait_signal(0, 1, window, comm));
    RANK_OK(coll_wait_signal(2, 1, window, comm));
    _exit(3);
  }
  RANK_OK(coll_signal(1, window, comm));
  RANK_CHECK(coll_wait_signal(1, 1, window, comm) == COLL_ERR_PEER_LOST);
  coll_last_error(comm, &error);
  RANK_CHECK(error.peer == 1);
  RANK_CHECK(coll_put(memory, 1, COLL_UINT8, 0, 0, window, comm) == COLL_ERR_PEER_LOST);
  RANK_CHECK(coll_window_destroy(&window) == COLL_ERR_PEER_LOST && !window);
  return 0;
}

Test(window, deserted, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    int results[3];
    run_processes(3, &config, lose_target, NULL, 30, results);
    cr_assert(results[0] == 0 && results[1] == 3 && results[2] == 0, "over %s: %d %d %d",
              transports[t], results[0], results[1], results[2]);
  }
}

/* Nobody signals: the wait's deadline names the peer. */
static int wait_in_vain(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  atomic_bool *over = arg;
  coll_window *window;
  coll_error error = COLL_ERROR_INIT;
  RANK_OK(coll_window_create(comm, NULL, 0, &window));
  if (rank != 0) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(over), slow_s(20)));
    coll_window_destroy(&window);
    return 0;
  }
  RANK_CHECK(coll_wait_signal(2, 5, window, comm) == COLL_ERR_TIMEOUT);
  coll_last_error(comm, &error);
  RANK_CHECK(error.peer == 2 && strcmp(error.operation, "wait_signal") == 0);
  RANK_CHECK(strstr(error.message, "wait_signal for 5 of rank 2"));
  RANK_CHECK(coll_window_destroy(&window) == COLL_ERR_TIMEOUT && !window);
  atomic_store(over, true);
  return 0;
}

Test(window, unanswered, .timeout = 60) {
  atomic_bool over = false;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(300);
  cr_assert_eq(run_threads(3, &config, wait_in_vain, &over), 0);
}

/* One rank creates a window, the others do something else: the error names both. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_window *window;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = rank == 1 ? coll_window_create(comm, NULL, 0, &window) : coll_barrier(comm);
  coll_last_error(comm, &error);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  RANK_CHECK(strstr(error.message, "coll_window_create()") && strstr(error.message, "barrier()"));
  return 0;
}

Test(window, disagreement, .timeout = 60) {
  over_both(3, disagree);
}
