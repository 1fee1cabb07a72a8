/*
 * test_every.c: every collective, form, type, operation and place against a plain reference, on n
 * ranks for each n of 1, 2, 3, 4, 5, 7, 8, 16 and 17. Forms are blocking, nonblocking, persistent
 * and grouped; places are out of place, in place as in NCCL, and as in MPI. Roots change with the
 * type and the size: where ranks share cores a new root costs each rank a long choice.
 *
 *   reductions  each collective, form, type, operation and place, for each n, with 0, 1, 2, n - 1,
 *               n and n + 1 elements
 *   moves       the same for the collectives that move data, with every type and others by size
 *   chunks      each collective, type and operation with a chunk of elements, one more and one
 *               less
 *   large       each collective for each n with several chunks and with several MiB, of two types
 *   hosts       the same on ranks that believe to be on several hosts
 *
 * All this over shm, half of the cases for one n on threads, the others on processes, and half
 * over tcp, on threads, for one n up to 8. With TEST_ALL=1 each case is run for one n
 * or more everywhere. Sanitizers see a tenth of the cases.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "extent.h"
#include "libcoll/comm/inspect.h"
#include "support_ranks.h"

/* The numbers of ranks, and how many of them tcp takes; a tour runs a case on one of so many of
 * them. Most time goes to 16 and 17 ranks. */
#if SANITIZED
static const int rank_counts[] = {1, 2, 3, 5, 8};
enum { TCP_COUNTS = 5 };
#else
static const int rank_counts[] = {1, 2, 3, 4, 5, 7, 8, 16, 17};
enum { TCP_COUNTS = 7 };
#endif
#define NCOUNTS      (sizeof(rank_counts) / sizeof(*rank_counts))
#define SHARE        ((unsigned)extent_seeds(19, 7, 51, 4))
#define TCP_SHARE    ((unsigned)extent_seeds(13, 5, 83, 4))
#define CHUNKS_SHARE ((unsigned)extent(19, 7, 23))
#define LARGE_SHARE  ((unsigned)extent(11, 2, 23)) /* not a divisor of the number of cases */
#define HOSTS_SHARE  ((unsigned)extent(11, 4, 59))

/* Which part of all cases a run takes: every `stride`-th, so that each case is run for some n. */
typedef struct part {
  unsigned stride;
  unsigned offset;
  size_t chunk_bytes; /* half of the capacity of a connection's slots */
} part;

/* Whether the next case is in this part; *k counts the cases. */
static bool taken(const part *p, unsigned *k) {
  return (*k)++ % p->stride == p->offset % p->stride;
}

/* Runs one case with several sizes, all in flight at once if its form allows that. */
static int run_sizes(coll_comm *comm, int rank, int nranks, test_case c, const size_t *sizes,
                     int nsizes) {
  test_case cases[CASE_MAX_AT_ONCE];
  for (int i = 0; i < nsizes; i++) {
    cases[i] = c;
    cases[i].count = sizes[i];
    cases[i].seed = c.seed * 7 + (uint64_t)i;
    cases[i].root = (c.root + i) % nranks;
  }
  return case_run(comm, rank, nranks, cases, nsizes);
}

/* The same with the small sizes, each once. */
static int run_small(coll_comm *comm, int rank, int nranks, test_case c) {
  size_t n = (size_t)nranks, sizes[6] = {0, 1, 2};
  int nsizes = 3;
  for (size_t size = n - 1; size <= n + 1; size++)
    if (size > 2)
      sizes[nsizes++] = size;
  return run_sizes(comm, rank, nranks, c, sizes, nsizes);
}

#define OPS    (COLL_OP_COUNT + 1u)
#define NPAIRS ((COLL_TYPE_COUNT + 1u) * OPS)

/* Type and operation number i of a reduction; false if there is no such pair. */
static bool pair_of(unsigned i, case_coll coll, coll_type *type, coll_op *op) {
  unsigned t = i / OPS, o = i % OPS;
  *type = t == COLL_TYPE_COUNT ? CASE_TYPE_AFFINE : (coll_type)t;
  *op = o == COLL_OP_COUNT ? CASE_OP_AFFINE : (coll_op)o;
  bool scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
  return case_takes(*type, *op) && !(scan && *op == COLL_AVG);
}

static int all_reductions(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  unsigned k = 0;
  for (int coll = CASE_ALLREDUCE; coll < CASE_BROADCAST; coll++)
    for (unsigned pair = 0; pair < NPAIRS; pair++)
      for (int turn = 0; turn < CASE_FORMS * 3; turn++) {
        test_case c = {.coll = (case_coll)coll, .root = (int)(pair / OPS), .seed = k};
        c.form = (case_form)(turn % CASE_FORMS);
        c.in_place = turn / CASE_FORMS;
        bool scatters = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV;
        if (!pair_of(pair, c.coll, &c.type, &c.op) || (c.in_place == 2 && !scatters) ||
            !taken(p, &k))
          continue;
        if (run_small(comm, rank, nranks, c) != 0)
          return 1;
      }
  return 0;
}

static int all_moves(coll_comm *comm, int rank, int nranks, void *arg) {
  static const unsigned bytes[] = {1, 12, 37};
  const part *p = arg;
  unsigned k = 0;
  for (int coll = CASE_BROADCAST; coll < CASE_COLLS; coll++)
    for (int type = 0; type < COLL_TYPE_COUNT + 3; type++)
      for (int turn = 0; turn < CASE_FORMS * 2; turn++) {
        test_case c = {.coll = (case_coll)coll, .op = COLL_SUM, .root = type, .seed = k};
        c.form = (case_form)(turn % CASE_FORMS);
        c.in_place = turn / CASE_FORMS;
        c.type = type < COLL_TYPE_COUNT ? (coll_type)type
                                        : COLL_TYPE_USER((int)bytes[type - COLL_TYPE_COUNT]);
        if (coll == CASE_BARRIER && (type > 0 || c.in_place))
          continue;
        if (taken(p, &k) && run_small(comm, rank, nranks, c) != 0)
          return 1;
      }
  return 0;
}

/* Whether the count of a collective is that of the whole vector, not of one rank's block. */
static bool whole_vector(int coll) {
  return coll == CASE_ALLREDUCE || coll == CASE_REDUCE || coll == CASE_SCAN ||
         coll == CASE_EXSCAN || coll == CASE_BROADCAST;
}

static int all_chunks(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  unsigned k = 0;
  for (int coll = CASE_ALLREDUCE; coll < CASE_BARRIER; coll++)
    for (unsigned pair = 0; pair < NPAIRS; pair++) {
      test_case c = {.coll = (case_coll)coll, .root = (int)(pair / OPS), .seed = k};
      bool reduces = coll < CASE_BROADCAST;
      if (!pair_of(pair, c.coll, &c.type, &c.op) ||
          (!reduces && c.op != COLL_SUM && c.op != COLL_MINLOC && c.op != CASE_OP_AFFINE) ||
          !taken(p, &k))
        continue;
      c.form = (case_form)(k / NCOUNTS % CASE_FORMS);
      c.in_place = (int)(k / NCOUNTS / CASE_FORMS % (reduces ? 3 : 2));
      size_t chunk = p->chunk_bytes / coll_type_bytes(c.type);
      chunk = whole_vector(coll) ? chunk : chunk / (size_t)nranks;
      const size_t sizes[] = {chunk - 1, chunk, chunk + 1};
      if (run_sizes(comm, rank, nranks, c, sizes, 3) != 0)
        return 1;
    }
  return 0;
}

static int all_large(coll_comm *comm, int rank, int nranks, void *arg) {
  const part *p = arg;
  const size_t bytes[] = {3 * p->chunk_bytes + 8, (size_t)3 << 20};
  unsigned k = 0;
  for (int coll = 0; coll < CASE_BARRIER; coll++)
    for (int turn = 0; turn < 4; turn++) {
      test_case c = {.coll = (case_coll)coll, .root = (int)k, .seed = k};
      c.form = (case_form)(k % CASE_FORMS);
      c.in_place = (int)(k / 2 % 3);
      c.type = turn % 2 ? COLL_FLOAT32 : COLL_UINT8;
      c.op = turn % 2 ? COLL_SUM : COLL_MAX;
      size_t size = bytes[turn / 2] / coll_type_bytes(c.type);
      size = whole_vector(coll) ? size : size / (size_t)nranks + k % 3;
      if (taken(p, &k) && run_sizes(comm, rank, nranks, c, &size, 1) != 0)
        return 1;
    }
  return 0;
}

/* Runs a tour for every number of ranks, of each a part of the cases; processes take others of the
 * cases than threads do. */
static void tour(const char *transport, bool processes, rank_fn fn, unsigned stride) {
  bool tcp = strcmp(transport, "tcp") == 0;
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 30000;
  for (size_t i = 0; i < (tcp ? TCP_COUNTS : NCOUNTS); i++) {
    int n = rank_counts[i];
    /* slot_bytes * slot_count / 2 */
    part p = {stride, (unsigned)i + (processes ? NCOUNTS : 0), (size_t)(tcp ? 512 : 128) * 1024};
    int result =
        processes ? run_processes(n, &config, fn, &p, 120, NULL) : run_threads(n, &config, fn, &p);
    cr_assert_eq(result, 0, "%d %s over %s", n, processes ? "processes" : "threads", transport);
  }
}

Test(every, reductions_shm, .timeout = 250) {
  tour("shm", false, all_reductions, SHARE);
}
Test(every, reductions_processes, .timeout = 250) {
  tour("shm", true, all_reductions, SHARE);
}
Test(every, reductions_tcp, .timeout = 250) {
  tour("tcp", false, all_reductions, TCP_SHARE);
}
Test(every, moves_shm, .timeout = 250) {
  tour("shm", false, all_moves, SHARE);
}
Test(every, moves_processes, .timeout = 250) {
  tour("shm", true, all_moves, SHARE);
}
Test(every, moves_tcp, .timeout = 250) {
  tour("tcp", false, all_moves, TCP_SHARE);
}
Test(every, chunks_shm, .timeout = 250) {
  tour("shm", false, all_chunks, CHUNKS_SHARE);
}
Test(every, chunks_processes, .timeout = 250) {
  tour("shm", true, all_chunks, CHUNKS_SHARE);
}
Test(every, chunks_tcp, .timeout = 250) {
  tour("tcp", false, all_chunks, CHUNKS_SHARE);
}
Test(every, large_shm, .timeout = 250) {
  tour("shm", false, all_large, LARGE_SHARE);
}
Test(every, large_processes, .timeout = 250) {
  tour("shm", true, all_large, LARGE_SHARE);
}
Test(every, large_tcp, .timeout = 250) {
  tour("tcp", false, all_large, TCP_SHARE);
}

/* Runs everything on ranks that believe they are on several hosts, with every algorithm for several
 * hosts. */
static void visit_hosts(int nranks, const char *hosts, rank_fn fn, unsigned turn) {
  static const char *const algorithms[] = {
      "allreduce:hier,reduce:hier,broadcast:hier,allgather:hier,reduce_scatter:hier",
      "allreduce:hier_ring,reduce:hier_chain,broadcast:hier_chain,allgather:hier_ring",
      "allreduce:hier_split",
      "allreduce:hier_trees",
      "allreduce:hier_lanes",
      "allreduce:hier_sites,allgather:hier_sites,reduce_scatter:hier_sites,alltoall:direct_sites",
      "allreduce:hier_levels",
      "allreduce:hier_levels_split",
      NULL};
  setenv("TEST_HOSTS", hosts, 1);
  for (unsigned a = 0; a < sizeof(algorithms) / sizeof(*algorithms); a++) {
    coll_config config = COLL_CONFIG_INIT;
    config.timeout_ms = 30000;
    config.algo = algorithms[a];
    part p = {HOSTS_SHARE, a + turn, (size_t)512 * 1024};
    cr_assert_eq(run_processes(nranks, &config, fn, &p, 120, NULL), 0,
                 "%d processes on %s hosts, %s", nranks, hosts,
                 algorithms[a] ? algorithms[a] : "free choice");
  }
  unsetenv("TEST_HOSTS");
}

/* The same for several numbers of them. */
static void tour_hosts(void) {
  visit_hosts(4, "2", all_large, 0);
  visit_hosts(7, "3", all_large, 1);
  visit_hosts(8, "4", all_large, 2);
  visit_hosts(5, "5", all_large, 3);
  visit_hosts(16, "8", all_large, 4);
}

Test(every, hosts, .timeout = 250) {
  tour_hosts();
}

/* The same where hosts are in racks, and racks at sites. */
Test(every, levels, .timeout = 250) {
  setenv("TEST_LEVELS", "1", 1);
  tour_hosts();
}

/* The same where hosts, of one or two ranks, are in groups at five levels. */
static int all_large_deep(coll_comm *comm, int rank, int nranks, void *arg) {
  const colli_shape shape = colli_comm_shape(comm, COLLI_ALLREDUCE);
  if (shape.ninner != 5)
    return 1;
  return all_large(comm, rank, nranks, arg);
}
Test(every, five_levels, .timeout = 250) {
  setenv("TEST_LEVELS", "5", 1);
  visit_hosts(14, "8", all_large_deep, 0);
}
