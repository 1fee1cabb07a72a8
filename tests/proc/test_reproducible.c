/*
 * test_reproducible.c: with `deterministic` the result of a float reduction has the same bits
 * whatever the algorithm, the transport, the sizes of slots and chunks, and the position of the
 * vector in a longer one: those of order.h's tree, or of the sum from left to right. Without it,
 * all ranks still get the same bits.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/algo/algo.h"
#include "libcoll/exec/reduce.h"
#include "libcoll/sched/order.h"
#include "number.h"
#include "support_ranks.h"

#define MAX_RANKS 16

/* A reduction whose result depends on the order, because of rounding. */
typedef struct job {
  size_t count;
  coll_type type;
  coll_op op;
  coll_determinism level;
  uint64_t seed;
} job;

/* An element of a rank's input. Magnitudes vary, so that nearly every sum is rounded. */
static void input(void *at, coll_type type, int rank, size_t i, uint64_t seed) {
  uint64_t h = number_hash(seed, (uint64_t)rank, i % 4099, 1);
  double number = ldexp((double)(int64_t)h, -63 + (int)(h % 9) - 4);
  float single = (float)number;
  uint16_t half = colli_float_to_half(single);
  if (type == COLL_FLOAT64)
    memcpy(at, &number, 8);
  else if (type == COLL_FLOAT32)
    memcpy(at, &single, 4);
  else
    memcpy(at, &half, 2);
}

/* The reference: elements on a stack, combined by the kernel for one element. */
typedef struct reference {
  const job *j;
  size_t i;
  char value[2 * MAX_RANKS][8];
  int used;
} reference;

static int leaf(void *ctx, int rank) {
  reference *r = ctx;
  input(r->value[r->used], r->j->type, rank, r->i, r->j->seed);
  return r->used++;
}

static int combine(void *ctx, int left, int right) {
  reference *r = ctx;
  const colli_kernels *k = colli_kernels_for(COLLI_ISA_PORTABLE);
  k->reduce[r->j->type][r->j->op](r->value[left], NULL, r->value[left], r->value[right], 1);
  return left;
}

/* The expected element i. */
static void expect(const job *j, size_t i, int nranks, void *out) {
  static const colli_order orders[] = {
      [COLL_DETERMINISTIC_ON] = COLLI_ORDER_TREE, [COLL_DETERMINISTIC_ORDERED] = COLLI_ORDER_LEFT};
  reference r = {.j = j, .i = i};
  colli_combiner combiner = {leaf, combine, &r};
  int at = colli_order_fold(orders[j->level], nranks, &combiner);
  if (j->op == COLL_AVG)
    colli_kernels_for(COLLI_ISA_PORTABLE)->average[j->type](r.value[at], 1, nranks);
  memcpy(out, r.value[at], coll_type_bytes(j->type));
}

/* The number of elements, counted from element `first` of the vector, that are not as expected. */
static size_t count_wrong(const job *j, const char *buf, size_t first, size_t count, int nranks) {
  size_t bytes = coll_type_bytes(j->type), wrong = 0;
  char want[8];
  for (size_t i = 0; i < count; i += 1 + count / 3000) {
    expect(j, first + i, nranks, want);
    wrong += memcmp(buf + i * bytes, want, bytes) != 0;
  }
  return wrong;
}

/* All-reduce, reduce and reduce-scatter of one vector give the expected bits. */
static int check_reductions(coll_comm *comm, int rank, int nranks, void *arg) {
  const job *j = arg;
  size_t bytes = coll_type_bytes(j->type), block = j->count / (size_t)nranks;
  char *in = malloc(j->count * bytes + 1), *out = malloc(j->count * bytes + 1);
  for (size_t i = 0; i < j->count; i++)
    input(in + i * bytes, j->type, rank, i, j->seed);
  RANK_OK(coll_allreduce(in, out, j->count, j->type, j->op, comm));
  RANK_CHECK(count_wrong(j, out, 0, j->count, nranks) == 0);
  int root = nranks - 1;
  RANK_OK(coll_reduce(in, out, j->count, j->type, j->op, root, comm));
  RANK_CHECK(rank != root || count_wrong(j, out, 0, j->count, nranks) == 0);
  RANK_OK(coll_reduce_scatter(in, out, block, j->type, j->op, comm));
  RANK_CHECK(count_wrong(j, out, (size_t)rank * block, block, nranks) == 0);
  free(in);
  free(out);
  return 0;
}

/* Runs a job with settings that must not change the result. */
static void run(const job *j, int nranks, const char *transport, const char *algo,
                const char *slots) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 30000;
  config.deterministic = j->level;
  config.algo = algo;
  if (slots)
    setenv("COLL_SLOT_BYTES", slots, 1);
  else
    unsetenv("COLL_SLOT_BYTES");
  job copy = *j;
  cr_assert_eq(run_threads(nranks, &config, check_reductions, &copy), 0,
               "%d ranks over %s, algorithm %s, slots %s, level %d, count %zu", nranks, transport,
               algo ? algo : "free", slots ? slots : "default", (int)j->level, j->count);
}

/* Every algorithm that claims an order gives it, over both transports and slot sizes. */
static void all_algorithms(coll_determinism level, colli_order order) {
  static const int rank_counts[] = {2, 3, 4, 6, 7, 8, 13};
  static const coll_type types[] = {COLL_FLOAT32, COLL_FLOAT64, COLL_FLOAT16};
  static const size_t counts[] = {1, 100, 30011};
  uint64_t seed = 1;
  int tried = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    colli_shape shape = {.coll = (*algo)->coll, .nranks = 4, .order = order};
    bool wanted = shape.coll == COLLI_ALLREDUCE || shape.coll == COLLI_REDUCE ||
                  shape.coll == COLLI_REDUCE_SCATTER;
    if (!wanted || !colli_algo_can(*algo, &shape))
      continue;
    char force[64];
    snprintf(force, sizeof(force), "%s:%s", colli_coll_name(shape.coll), (*algo)->name);
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(*rank_counts);
         i += (size_t)extent(1, 1, 2), seed++, tried++) {
      job j = {counts[seed % 3], types[seed / 3 % 3], seed % 4 ? COLL_SUM : COLL_AVG, level, seed};
      run(&j, rank_counts[i], seed % 3 ? "shm" : "tcp", force, seed % 2 ? NULL : "4K");
    }
  }
  cr_assert_gt(tried, extent(20, 20, 10));
}

Test(reproducible, tree_by_every_algorithm, .timeout = 250) {
  all_algorithms(COLL_DETERMINISTIC_ON, COLLI_ORDER_TREE);
}

Test(reproducible, left_to_right_by_every_algorithm, .timeout = 250) {
  all_algorithms(COLL_DETERMINISTIC_ORDERED, COLLI_ORDER_LEFT);
}

Test(reproducible, free_choice, .timeout = 250) {
  for (int nranks = 1; nranks <= MAX_RANKS; nranks += extent(1, 1, 3))
    for (int level = COLL_DETERMINISTIC_ON; level <= COLL_DETERMINISTIC_ORDERED; level++)
      for (size_t count = 1; count < 1000000; count *= 37) {
        job j = {count, COLL_FLOAT32, COLL_SUM, (coll_determinism)level, count};
        run(&j, nranks, nranks % 4 ? "shm" : "tcp", NULL, NULL);
      }
}

/* Prefixes are left to right at both levels. */
static int check_scans(coll_comm *comm, int rank, int nranks, void *arg) {
  job j = *(const job *)arg;
  (void)nranks;
  float *in = malloc(j.count * 4 + 1), *out = malloc(j.count * 4 + 1);
  for (size_t i = 0; i < j.count; i++)
    input(&in[i], j.type, rank, i, j.seed);
  RANK_OK(coll_scan(in, out, j.count, j.type, j.op, comm));
  j.level = COLL_DETERMINISTIC_ORDERED;
  RANK_CHECK(count_wrong(&j, (char *)out, 0, j.count, rank + 1) == 0);
  RANK_OK(coll_exscan(in, out, j.count, j.type, j.op, comm));
  RANK_CHECK(rank == 0 || count_wrong(&j, (char *)out, 0, j.count, rank) == 0);
  free(in);
  free(out);
  return 0;
}

Test(reproducible, prefixes, .timeout = 120) {
  for (int nranks = 2; nranks <= 9; nranks++)
    for (int level = COLL_DETERMINISTIC_ON; level <= COLL_DETERMINISTIC_ORDERED; level++) {
      coll_config config = COLL_CONFIG_INIT;
      config.deterministic = (coll_determinism)level;
      job j = {20011, COLL_FLOAT32, COLL_SUM, (coll_determinism)level, (uint64_t)nranks};
      cr_assert_eq(run_threads(nranks, &config, check_scans, &j), 0, "%d ranks", nranks);
    }
}

/* Without the setting the ranks of an all-reduce still agree, bit by bit. */
static int ranks_agree(coll_comm *comm, int rank, int nranks, void *arg) {
  const job *j = arg;
  size_t bytes = j->count * 4;
  float *in = malloc(bytes), *out = malloc(bytes), *all = malloc(bytes * (size_t)nranks);
  for (size_t i = 0; i < j->count; i++)
    input(&in[i], COLL_FLOAT32, rank, i, j->seed);
  RANK_OK(coll_allreduce(in, out, j->count, COLL_FLOAT32, COLL_SUM, comm));
  RANK_OK(coll_allgather(out, all, j->count, COLL_FLOAT32, comm));
  for (int r = 0; r < nranks; r++)
    RANK_CHECK(memcmp(all + (size_t)r * j->count, out, bytes) == 0);
  free(in);
  free(out);
  free(all);
  return 0;
}

Test(reproducible, ranks_agree_without_it, .timeout = 250) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    char force[64];
    if ((*algo)->coll != COLLI_ALLREDUCE || (*algo)->groups)
      continue;
    snprintf(force, sizeof(force), "allreduce:%s", (*algo)->name);
    for (int nranks = 2; nranks <= 11; nranks += 3) {
      coll_config config = COLL_CONFIG_INIT;
      config.algo = force;
      job j = {.count = 10007, .seed = (uint64_t)nranks};
      cr_assert_eq(run_threads(nranks, &config, ranks_agree, &j), 0, "%s, %d ranks", force, nranks);
    }
  }
}
