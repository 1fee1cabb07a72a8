/*
 * test_every.c: every collective, form, type, operation and place against a plain reference, on
 * threads and on processes, over shm and tcp.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "support_ranks.h"

#define CHUNK_BYTES ((size_t)128 * 1024) /* slot_bytes * slot_count / 2 */

static const int rank_counts[] = {1, 2, 3, 4, 5, 7, 8, 13, 16};
#define NCOUNTS (sizeof(rank_counts) / sizeof(*rank_counts))

/* Which part of all cases a run takes. */
typedef struct part {
  unsigned stride; /* every so many-th case */
  unsigned offset;
} part;

static const coll_type moved_types[] = {COLL_INT8,         COLL_UINT16,        COLL_FLOAT32,
                                        COLL_FLOAT64_LOC,  COLL_TYPE_USER(12), COLL_TYPE_USER(1),
                                        COLL_TYPE_USER(37)};
#define NMOVED (sizeof(moved_types) / sizeof(*moved_types))

/* The small size number k of n ranks. */
static size_t small_size(unsigned k, int nranks) {
  size_t n = (size_t)nranks;
  const size_t sizes[] = {0, 1, 2, n - 1, n, n + 1, 33};
  return sizes[k % 7];
}

/* A case that the number k alone determines, apart from what is being gone through. */
static test_case case_of(unsigned k, int nranks, case_coll coll, coll_type type, coll_op op) {
  return (test_case){.coll = coll,
                     .form = (case_form)(k % CASE_FORMS),
                     .type = type,
                     .op = op,
                     .root = (int)(k / 5 % (unsigned)nranks),
                     .in_place = (int)(k / 3 % 3),
                     .count = small_size(k / 2, nranks),
                     .seed = k};
}

/* Every type and operation of each reduction, in every form and place. */
static int all_reductions(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  coll_op affine;
  unsigned k = 0;
  RANK_OK(case_affine_create(comm, &affine));
  for (int coll = CASE_ALLREDUCE; coll < CASE_BROADCAST; coll++)
    for (int type = 0; type <= COLL_TYPE_COUNT; type++)
      for (int op = -1; op < COLL_OP_COUNT; op++)
        for (int turn = 0; turn < CASE_FORMS * 3; turn++) {
          coll_type t = type == COLL_TYPE_COUNT ? CASE_TYPE_AFFINE : (coll_type)type;
          coll_op o = op < 0 ? CASE_OP_AFFINE : (coll_op)op;
          int scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
          if (!case_takes(t, o) || (scan && o == COLL_AVG) || (k++ + p->offset) % p->stride)
            continue;
          test_case c = case_of(k, nranks, (case_coll)coll, t, o);
          c.form = (case_form)(turn % CASE_FORMS);
          c.in_place = turn / CASE_FORMS;
          if (case_run(comm, rank, nranks, &c, affine) != 0)
            return 1;
        }
  return 0;
}

/* Every collective that moves data, with types of several sizes, forms, places and roots. */
static int all_moves(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  unsigned k = 0;
  for (int coll = CASE_BROADCAST; coll < CASE_COLLS; coll++)
    for (size_t type = 0; type < NMOVED; type++)
      for (int turn = 0; turn < 24; turn++) {
        if ((k++ + p->offset) % p->stride)
          continue;
        test_case c = case_of(k, nranks, (case_coll)coll, moved_types[type], COLL_SUM);
        c.form = (case_form)(turn % CASE_FORMS);
        c.in_place = turn / CASE_FORMS % 2;
        if (case_run(comm, rank, nranks, &c, 0) != 0)
          return 1;
      }
  return 0;
}

/* Sizes around the borders of chunks, and large ones. */
static int all_sizes(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  const size_t bytes[] = {CHUNK_BYTES - 4, CHUNK_BYTES, CHUNK_BYTES + 4, 3 * CHUNK_BYTES + 8,
                          (size_t)3 << 20};
  unsigned k = 0;
  for (int coll = 0; coll < CASE_BARRIER; coll++)
    for (size_t size = 0; size < sizeof(bytes) / sizeof(*bytes); size++) {
      if ((k++ + p->offset) % p->stride)
        continue;
      coll_type type = k % 2 ? COLL_FLOAT32 : COLL_UINT8;
      test_case c = case_of(k, nranks, (case_coll)coll, type, k % 4 ? COLL_SUM : COLL_MAX);
      c.count = bytes[size] / coll_type_bytes(type);
      if (coll != CASE_ALLREDUCE && coll != CASE_REDUCE && coll != CASE_BROADCAST)
        c.count = c.count / (size_t)nranks + k % 3;
      if (case_run(comm, rank, nranks, &c, 0) != 0)
        return 1;
    }
  return 0;
}

/* Runs a tour for every number of ranks. */
static void tour(const char *transport, rank_fn fn, unsigned stride) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 30000;
  for (size_t i = 0; i < NCOUNTS; i++) {
    part p = {stride, (unsigned)i};
    cr_assert_eq(run_threads(rank_counts[i], &config, fn, &p), 0, "%d ranks over %s",
                 rank_counts[i], transport);
  }
}

Test(every, reductions_shm, .timeout = 250) {
  tour("shm", all_reductions, 3); /* each third of the numbers of ranks has all cases */
}
Test(every, reductions_tcp, .timeout = 250) {
  tour("tcp", all_reductions, 31);
}
Test(every, moves_shm, .timeout = 250) {
  tour("shm", all_moves, 1);
}
Test(every, moves_tcp, .timeout = 250) {
  tour("tcp", all_moves, 7);
}
Test(every, sizes_shm, .timeout = 250) {
  tour("shm", all_sizes, 5);
}
Test(every, sizes_tcp, .timeout = 250) {
  tour("tcp", all_sizes, 11);
}

/* The same on processes. */
static void tour_processes(rank_fn fn, unsigned stride) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 30000;
  for (size_t i = 0; i < NCOUNTS; i++) {
    part p = {stride, (unsigned)i + 1};
    cr_assert_eq(run_processes(rank_counts[i], &config, fn, &p, 120, NULL), 0, "%d processes",
                 rank_counts[i]);
  }
}

Test(every, reductions_processes, .timeout = 250) {
  tour_processes(all_reductions, 37);
}
Test(every, moves_processes, .timeout = 250) {
  tour_processes(all_moves, 11);
}
Test(every, sizes_processes, .timeout = 250) {
  tour_processes(all_sizes, 13);
}

/* Ranks that believe to be on several hosts, with every algorithm for that. */
Test(every, hosts, .timeout = 250) {
  static const int counts[][2] = {{4, 2}, {7, 3}, {8, 4}, {5, 5}};
  static const char *const algorithms[] = {
      "allreduce:hier,reduce:hier,broadcast:hier",
      "allreduce:hier_ring,reduce:hier_chain,broadcast:hier_chain", "allreduce:hier_split", NULL};
  for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(*algorithms); a++) {
      coll_config config = COLL_CONFIG_INIT;
      config.timeout_ms = 30000;
      config.algo = algorithms[a];
      part p = {3, (unsigned)(a + i)};
      char hosts[8];
      snprintf(hosts, sizeof(hosts), "%d", counts[i][1]);
      setenv("TEST_HOSTS", hosts, 1);
      cr_assert_eq(run_processes(counts[i][0], &config, all_sizes, &p, 120, NULL), 0,
                   "%d processes on %s hosts, %s", counts[i][0], hosts,
                   algorithms[a] ? algorithms[a] : "free choice");
    }
  unsetenv("TEST_HOSTS");
}
