/*
 * plain_no_allocation.c: running an operation again, with the same shape, allocates nothing.
 * Replaces malloc() and its relatives to count the calls; skipped under sanitizers, which do the
 * same. A TCP connection allocates each buffer on first use, which may be late, so a few
 * allocations are allowed, far fewer than the 850 operations.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "sanitized.h"
#include "support_ranks.h"

#if SANITIZED

int main(void) {
  puts("skipped: the sanitizer stands in for malloc itself");
  return 77;
}

#else

enum { RANKS = 3, ROUNDS = 50, COUNT = 100000, SIZES = 3 };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *ptr, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_int counting, allocations;

static void count(void) {
  if (atomic_load(&counting))
    atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
  count();
  return __libc_calloc(n, bytes);
}

void *realloc(void *ptr, size_t bytes) {
  count();
  return __libc_realloc(ptr, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

static const size_t counts[SIZES] = {1, 1000, COUNT};
static float input[RANKS][COUNT], output[RANKS][RANKS * COUNT];

/* Runs each operation once. */
static int round_of_all(coll_comm *comm, int rank) {
  for (int i = 0; i < SIZES; i++) {
    coll_request *request;
    RANK_OK(coll_allreduce(input[rank], output[rank], counts[i], COLL_FLOAT32, COLL_SUM, comm));
    RANK_OK(coll_broadcast(input[rank], output[rank], counts[i], COLL_FLOAT32, 1, comm));
    RANK_OK(coll_allgather(input[rank], output[rank], counts[i], COLL_FLOAT32, comm));
    RANK_OK(coll_iallreduce(input[rank], output[rank], counts[i], COLL_FLOAT32, COLL_AVG, comm,
                            &request));
    RANK_OK(coll_wait(&request, -1));
    if (rank == 0)
      RANK_OK(coll_send(input[rank], counts[i], COLL_FLOAT32, 2, 0, comm));
    if (rank == 2)
      RANK_OK(coll_recv(output[rank], counts[i], COLL_FLOAT32, 0, 0, NULL, comm));
  }
  RANK_OK(coll_barrier(comm));
  return 0;
}

/* Each message comes before its receive, as it may in any round: the first one of a size gets
 * memory. */
static int receive_late(coll_comm *comm, int rank) {
  for (int i = 0; i < SIZES; i++) {
    coll_request *request;
    if (rank == 0)
      RANK_OK(coll_isend(input[rank], counts[i], COLL_FLOAT32, 2, 0, comm, &request));
    if (rank == 2) {
      coll_message message;
      RANK_OK(coll_probe(comm, 0, 0, &message, NULL, -1));
      RANK_OK(coll_recv(output[rank], counts[i], COLL_FLOAT32, 0, 0, NULL, comm));
    }
    if (rank == 0)
      RANK_OK(coll_wait(&request, -1));
  }
  return 0;
}

static int rank_main(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  for (int i = 0; i < 3; i++)
    RANK_CHECK(round_of_all(comm, rank) == 0);
  RANK_CHECK(receive_late(comm, rank) == 0);
  if (rank == 0)
    atomic_store(&counting, 1);
  RANK_OK(coll_barrier(comm));
  for (int i = 0; i < ROUNDS; i++)
    RANK_CHECK(round_of_all(comm, rank) == 0);
  RANK_OK(coll_barrier(comm));
  if (rank == 0)
    atomic_store(&counting, 0);
  RANK_OK(coll_barrier(comm));
  return 0;
}

int main(void) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < 2; t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    atomic_store(&allocations, 0);
    if (run_threads(RANKS, &config, rank_main, NULL) != 0)
      return 1;
    printf("%s: %d allocations in %d rounds\n", transports[t], atomic_load(&allocations), ROUNDS);
    if (atomic_load(&allocations) > (t == 0 ? 0 : 24))
      return 1;
  }
  return 0;
}

#endif
