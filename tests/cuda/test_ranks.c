/*
 * test_ranks.c: ranks that are processes, in all modes, over both transports: calls with and
 * without streams, of several MiB, at odd addresses; queues that streams share; drivers that hold
 * calls back while kernels run; devices that run one block at a time.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, LIMIT_S = 100 };

TestSuite(ranks, .timeout = 240);

/* What a run goes through. */
typedef struct plan {
  int mode;
  unsigned stride, offset; /* which part of the cases */
  bool large;
} plan;

/* A case of any collective and form, with buffers where `k` says. */
static test_case make_case(case_coll coll, int form, unsigned k) {
  test_case c = {.coll = coll,
                 .form = (case_form)form,
                 .type = COLL_FLOAT32,
                 .op = COLL_SUM,
                 .root = (int)k % RANKS,
                 .seed = k,
                 .device = k % 2 ? &device_odd_memory : &device_memory,
                 .in_device = {k % 5 != 0, k % 5 != 1}};
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_FLOAT64, COLL_BFLOAT16};
  c.type = types[k / 2 % 4];
  return c;
}

/* Collectives in all forms, with short and long vectors. */
static int run_cases(coll_comm *comm, int rank, int nranks, const plan *p) {
  static const size_t sizes[] = {1, 1003, 40001};
  colli_cu_stream stream = device_stream();
  unsigned k = 0;
  for (int coll = 0; coll < CASE_COLLS; coll++)
    for (int form = 0; form <= CASE_STREAMED_GROUP; form++, k++) {
      if (k % p->stride != p->offset % p->stride)
        continue;
      test_case cases[3];
      for (unsigned i = 0; i < 3; i++) {
        cases[i] = make_case((case_coll)coll, form, k + i);
        cases[i].count = sizes[i];
        cases[i].stream = stream;
      }
      RANK_CHECK(case_run(comm, rank, nranks, cases, 3) == 0);
    }
  return 0;
}

/* Some of them with several MiB. */
static int run_large(coll_comm *comm, int rank, int nranks) {
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_BROADCAST, CASE_ALLTOALLV};
  static const case_form forms[] = {CASE_BLOCKING, CASE_NONBLOCKING, CASE_STREAMED,
                                    CASE_STREAMED_GROUP};
  colli_cu_stream stream = device_stream();
  for (unsigned i = 0; i < 12; i++) {
    test_case c = make_case(colls[i % 3], forms[i % 4], i);
    c.count = ((size_t)1 << 20) + 3;
    c.stream = stream;
    RANK_CHECK(case_run(comm, rank, nranks, &c, 1) == 0);
  }
  return 0;
}

static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  alarm(LIMIT_S);
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  RANK_CHECK((comm->direct != NULL) == (p->mode != MODE_STAGED));
  const int result = run_cases(comm, rank, nranks, p);
  return result || !p->large ? result : run_large(comm, rank, nranks);
}

/* Runs a part of the cases over a transport. */
static void run_over(const char *transport, const plan *p) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  plan copy = *p;
  if (device_mode(p->mode))
    cr_expect_eq(run_processes(RANKS, &config, run_rank, &copy, LIMIT_S, NULL), 0, "%s, mode %d",
                 transport, p->mode);
}

Test(ranks, processes) {
  const unsigned share = (unsigned)extent(61, 7, 61);
  device_load(); /* each rank initialises it itself, before its communicator is made */
  for (int mode = 0; mode <= MODE_SPIN; mode++) {
    run_over("shm", &(plan){mode, share, (unsigned)mode, mode % 2});
    run_over("tcp", &(plan){mode, share, (unsigned)mode + 5, mode == MODE_STAGED});
  }
}

/* Streams that share queues wait for each other; ranks must not. */
static void run_queues(const char *queues, const char *strict) {
  DEVICE_NEEDS_FAKE("GPU_QUEUES");
  static const int modes[] = {MODE_STAGED, MODE_ONE_GPU, MODE_SPIN};
  const unsigned share = (unsigned)extent(121, 23, 121);
  setenv("GPU_QUEUES", queues, 1);
  setenv("GPU_STRICT", strict, 1);
  device_load();
  for (int i = 0; i < 3; i++)
    run_over("shm", &(plan){modes[i], share, (unsigned)(atoi(queues) + 7 * i), false});
}

Test(ranks, queues) {
  run_queues("1", "0");
  run_queues("2", "0");
  run_queues("4", "0");
  run_queues("32", "0");
}

Test(ranks, strict) {
  run_queues("1", "1");
  run_queues("32", "1");
}

Test(ranks, one_block) {
  setenv("GPU_RESIDENT", "1", 1);
  run_queues("1", "0");
  run_queues("32", "1");
}
