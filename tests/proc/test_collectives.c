/*
 * test_collectives.c: every collective, type and operation against a plain reference, on threads,
 * over each transport, for 1 to 17 ranks and sizes around chunk boundaries.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "extent.h"
#include "support_ranks.h"

#define CHUNK_BYTES (128 * 1024) /* slot_bytes * slot_count / 2 */

/* Guard bytes around a result. */
#define GUARD 64

/* Sizes in bytes; each number of ranks uses a part of them, to save time. */
static const size_t sizes[] = {0,
                               1,
                               4,
                               7,
                               64,
                               1000,
                               4096,
                               4100,
                               32768,
                               65537,
                               CHUNK_BYTES - 4,
                               CHUNK_BYTES,
                               CHUNK_BYTES + 4,
                               2 * CHUNK_BYTES + 12,
                               3 * CHUNK_BYTES - 8,
                               3 * CHUNK_BYTES,
                               3 * CHUNK_BYTES + 8};
#define NSIZES (sizeof(sizes) / sizeof(*sizes))

typedef struct job {
  size_t count;
  coll_type type;
  coll_op op;
  int in_place;
  uint64_t seed;
} job;

/* A buffer of count elements with guards on both sides; free its .base. */
typedef struct guarded {
  unsigned char *base, *data;
  size_t bytes;
} guarded;

static guarded guarded_make(size_t bytes) {
  guarded g = {.base = malloc(bytes + 2 * GUARD), .bytes = bytes};
  memset(g.base, 0xa5, bytes + 2 * GUARD);
  g.data = g.base + GUARD;
  return g;
}

static int guarded_intact(const guarded *g) {
  for (int i = 0; i < GUARD; i++)
    if (g->base[i] != 0xa5 || g->data[g->bytes + (size_t)i] != 0xa5)
      return 0;
  return 1;
}

static int one_allreduce(coll_comm *comm, int rank, int nranks, const job *j) {
  size_t bytes = j->count * coll_type_bytes(j->type);
  guarded in = guarded_make(bytes), out = guarded_make(bytes);
  data_fill(j->in_place ? out.data : in.data, j->count, j->type, j->op, rank, j->seed);
  RANK_OK(
      coll_allreduce(j->in_place ? out.data : in.data, out.data, j->count, j->type, j->op, comm));
  size_t wrong = data_wrong(out.data, j->count, j->type, j->op, nranks, j->seed);
  if (wrong)
    fprintf(stderr, "rank %d of %d: %zu of %zu elements wrong: type %d op %d in place %d\n", rank,
            nranks, wrong, j->count, j->type, (int)j->op, j->in_place);
  RANK_CHECK(wrong == 0 && guarded_intact(&out) && guarded_intact(&in));
  if (!j->in_place)
    RANK_CHECK(data_wrong_copy(in.data, j->count, j->type, j->op, rank, j->seed) == 0);
  free(in.base);
  free(out.base);
  return 0;
}

static int one_broadcast(coll_comm *comm, int rank, int nranks, const job *j, int root) {
  (void)nranks;
  size_t bytes = j->count * coll_type_bytes(j->type);
  guarded in = guarded_make(bytes), out = guarded_make(bytes);
  int mine = rank == root;
  if (mine)
    data_fill(j->in_place ? out.data : in.data, j->count, j->type, COLL_SUM, root, j->seed);
  RANK_OK(coll_broadcast(!mine         ? NULL
                         : j->in_place ? out.data
                                       : in.data,
                         out.data, j->count, j->type, root, comm));
  RANK_CHECK(data_wrong_copy(out.data, j->count, j->type, COLL_SUM, root, j->seed) == 0);
  RANK_CHECK(guarded_intact(&out));
  free(in.base);
  free(out.base);
  return 0;
}

static int one_allgather(coll_comm *comm, int rank, int nranks, const job *j) {
  size_t bytes = j->count * coll_type_bytes(j->type);
  guarded in = guarded_make(bytes), out = guarded_make(bytes * (size_t)nranks);
  unsigned char *mine = j->in_place ? out.data + (size_t)rank * bytes : in.data;
  data_fill(mine, j->count, j->type, COLL_SUM, rank, j->seed);
  RANK_OK(coll_allgather(mine, out.data, j->count, j->type, comm));
  for (int r = 0; r < nranks; r++)
    RANK_CHECK(data_wrong_copy(out.data + (size_t)r * bytes, j->count, j->type, COLL_SUM, r,
                               j->seed) == 0);
  RANK_CHECK(guarded_intact(&out));
  free(in.base);
  free(out.base);
  return 0;
}

/* Every type and operation at one small size, then a tour of sizes. */
static int tour(coll_comm *comm, int rank, int nranks, void *arg) {
  uint64_t seed = *(const uint64_t *)arg;
  for (int type = 0; type <= COLL_FLOAT64; type++)
    for (int op = 0; op <= COLL_AVG; op++) {
      job j = {257, (coll_type)type, (coll_op)op, (type + op) % 2, seed++};
      if (one_allreduce(comm, rank, nranks, &j) != 0)
        return 1;
    }
  for (size_t s = (size_t)nranks % 2; s<NSIZES; s += nranks> 8 ? 3 : 2) {
    coll_type type = (coll_type)(seed % (COLL_FLOAT64 + 1));
    job j = {sizes[s] / coll_type_bytes(type), type, (coll_op)(seed % (COLL_AVG + 1)),
             (int)(seed / 2 % 2), seed};
    if (one_allreduce(comm, rank, nranks, &j) != 0 ||
        one_broadcast(comm, rank, nranks, &j, (int)(seed % (uint64_t)nranks)) != 0)
      return 1;
    j.count /= (size_t)nranks;
    if (one_allgather(comm, rank, nranks, &j) != 0)
      return 1;
    seed++;
    RANK_OK(coll_barrier(comm));
  }
  return 0;
}

/* Runs the tour for each fifth number of ranks, 1 to 17, or with TEST_ALL=1 each second; `number`
 * is another one for each pair of arguments, and so are the fifth ones. */
static void tour_all(int number, const char *transport, const char *algo) {
  if (algo)
    setenv("COLL_ALGO", algo, 1);
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 30000;
  int every = extent(5, 2, 6);
  for (int nranks = 1 + number % every; nranks <= 17; nranks += every) {
    uint64_t seed = (uint64_t)nranks * 1000;
    cr_assert_eq(run_threads(nranks, &config, tour, &seed), 0, "%d ranks over %s, %s", nranks,
                 transport, algo ? algo : "free choice");
  }
}

Test(collectives, shm_free_choice, .timeout = 200) {
  tour_all(0, "shm", NULL);
}
Test(collectives, shm_ring_chain, .timeout = 200) {
  tour_all(1, "shm", "allreduce:ring,broadcast:chain");
}
Test(collectives, shm_dbtree_binomial, .timeout = 200) {
  tour_all(2, "shm", "allreduce:dbtree,broadcast:binomial");
}
Test(collectives, shm_recdbl, .timeout = 200) {
  tour_all(3, "shm", "allreduce:recdbl");
}
Test(collectives, tcp_free_choice, .timeout = 200) {
  tour_all(4, "tcp", NULL);
}
Test(collectives, tcp_ring_chain, .timeout = 200) {
  tour_all(5, "tcp", "allreduce:ring,broadcast:chain");
}
Test(collectives, tcp_dbtree_binomial, .timeout = 200) {
  tour_all(6, "tcp", "allreduce:dbtree,broadcast:binomial");
}
Test(collectives, tcp_recdbl, .timeout = 200) {
  tour_all(7, "tcp", "allreduce:recdbl");
}

/* A 1 MiB all-reduce on 64 ranks. */
static int one_mib(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  job j = {1 << 18, COLL_FLOAT32, COLL_SUM, 0, 5};
  return one_allreduce(comm, rank, nranks, &j);
}

Test(collectives, sixty_four_threads, .timeout = 120) {
  cr_assert_eq(run_threads(64, NULL, one_mib, NULL), 0);
}

Test(collectives, sixty_four_processes, .timeout = 120) {
  cr_assert_eq(run_processes(64, NULL, one_mib, NULL, 60, NULL), 0);
}

/* No rank leaves a barrier before the last one has entered. */
typedef struct barrier_arg {
  int arrived;
} barrier_arg;

static int barrier_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  barrier_arg *shared = arg;
  for (int round = 1; round <= 200; round++) {
    __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    RANK_OK(coll_barrier(comm));
    RANK_CHECK(__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) >= round * nranks);
  }
  return 0;
}

Test(collectives, barrier_holds, .timeout = 60) {
  for (int nranks = 1; nranks <= 9; nranks++) {
    barrier_arg shared = {0};
    cr_assert_eq(run_threads(nranks, NULL, barrier_rank, &shared), 0, "%d ranks", nranks);
  }
}
