/*
 * test_regions.c: coll_mem_alloc() memory, which peers read in place: every collective and
 * algorithm on it, mixed with ordinary memory, freed and allocated again, and with ranks that die.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "data.h"
#include "extent.h"
#include "libcoll/algo/algo.h"
#include "support_ranks.h"
#include "waits.h"

#define REGION_BYTES ((size_t)4 << 20)

/* What a tour covers. */
typedef struct tour {
  const char *algo; /* "allreduce:ring"; NULL: every collective, types and operations in turn */
  case_coll coll;
  unsigned mixed; /* bit r set: rank r works on ordinary memory */
} tour;

/* Counts of a block or vector: around a slice, a chunk and several passes. */
static size_t count_of(unsigned k, case_coll coll, coll_type type, int nranks) {
  static const size_t bytes[] = {40000, 262144 + 64, 700000, 1500000};
  bool blocks = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV ||
                (coll >= CASE_ALLGATHER && coll < CASE_BARRIER);
  size_t count = bytes[k % 4] / coll_type_bytes(type);
  return blocks ? count / (size_t)nranks + k % 3 : count;
}

static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_FLOAT64, COLL_BFLOAT16, COLL_INT64};
static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_AVG, COLL_MIN};

/* Runs one collective in every place and with changing sizes, types, roots and offsets. */
static int run_one(coll_comm *comm, int rank, int nranks, case_coll coll, char *const memory[2],
                   unsigned turns) {
  for (unsigned k = 0; k < turns; k++) {
    bool scan = coll == CASE_SCAN || coll == CASE_EXSCAN;
    coll_type type = types[k % 5];
    coll_op op = ops[k / 2 % 4];
    if ((scan && op == COLL_AVG) || coll >= CASE_BROADCAST)
      op = COLL_SUM;
    test_case c = {.coll = coll,
                   .form = (case_form)(k / 3 % CASE_FORMS),
                   .type = type,
                   .op = op,
                   .root = (int)(k % (unsigned)nranks),
                   .in_place = (int)(k % (coll == CASE_REDUCE_SCATTER ? 3 : 2)),
                   .count = count_of(k / 2, coll, type, nranks),
                   .seed = k + 1,
                   .capacity = REGION_BYTES - 4096};
    for (int i = 0; i < 2 && memory[i]; i++)
      c.memory[i] = memory[i] + 8 * (k * 5 % 100); /* anywhere in a region */
    if (case_run(comm, rank, nranks, &c, 1) != 0)
      return 1;
  }
  return 0;
}

static int go_round(coll_comm *comm, int rank, int nranks, void *arg) {
  const tour *t = arg;
  char *memory[2] = {NULL, NULL};
  for (int i = 0; i < 2 && !(t->mixed >> rank & 1); i++)
    RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&memory[i]));
  if (t->algo)
    return run_one(comm, rank, nranks, t->coll, memory, 6);
  for (int coll = 0; coll < CASE_BARRIER; coll++)
    if (run_one(comm, rank, nranks, (case_coll)coll, memory, 12) != 0)
      return 1;
  return 0; /* the memory goes with the communicator */
}

Test(regions, every_collective_on_threads, .timeout = 120) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 20000;
  for (int nranks = 1; nranks <= 8; nranks += extent((nranks + 1) / 2, 1, 2))
    cr_assert_eq(run_threads(nranks, &config, go_round, &(tour){.mixed = nranks % 3 ? 0 : 5}), 0,
                 "%d ranks", nranks);
}

Test(regions, every_collective_on_processes, .timeout = 120) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 20000;
  for (int nranks = 2; nranks <= 4; nranks++)
    for (unsigned mixed = 0; mixed < 2; mixed++)
      cr_assert_eq(run_processes(nranks, &config, go_round, &(tour){.mixed = mixed}, 60, NULL), 0,
                   "%d ranks, mixed %u", nranks, mixed);
}

/* The cases' name of a collective, or -1. */
static int case_of(colli_coll coll) {
  static const struct {
    colli_coll coll;
    case_coll as;
  } names[] = {{COLLI_ALLREDUCE, CASE_ALLREDUCE},
               {COLLI_BROADCAST, CASE_BROADCAST},
               {COLLI_ALLGATHER, CASE_ALLGATHER},
               {COLLI_REDUCE, CASE_REDUCE},
               {COLLI_REDUCE_SCATTER, CASE_REDUCE_SCATTER},
               {COLLI_ALLTOALL, CASE_ALLTOALL},
               {COLLI_GATHER, CASE_GATHER},
               {COLLI_SCATTER, CASE_SCATTER},
               {COLLI_SCAN, CASE_SCAN},
               {COLLI_EXSCAN, CASE_EXSCAN}};
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    if (names[i].coll == coll)
      return (int)names[i].as;
  return -1;
}

/* Every algorithm ends, whatever is sent by reference. */
Test(regions, every_algorithm, .timeout = 120) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    int coll = case_of((*algo)->coll);
    if (coll < 0 || (*algo)->groups)
      continue;
    char text[64];
    snprintf(text, sizeof(text), "%s:%s", colli_coll_name((*algo)->coll), (*algo)->name);
    coll_config config = COLL_CONFIG_INIT;
    config.timeout_ms = 10000;
    config.algo = text;
    for (int nranks = 2; nranks <= 8; nranks += nranks < 5 ? extent((nranks + 1) / 2, 1, 2) : 3)
      cr_assert_eq(
          run_threads(nranks, &config, go_round, &(tour){.algo = text, .coll = (case_coll)coll}), 0,
          "%s, %d ranks", text, nranks);
  }
}

/* The number of libcoll's mappings of that length. */
static int count_mappings(size_t bytes) {
  char line[512];
  int count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof(line), maps)) {
    unsigned long begin, end;
    if (strstr(line, "memfd:libcoll") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
      count += end - begin == bytes;
  }
  if (maps)
    fclose(maps);
  return count;
}

#define ODD_BYTES ((size_t)1234 * 4096) /* a length that no other memory here has */

/* All-reduces on fresh memory until the peers have mapped it; returned while it is mapped. */
static int taken_again(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  size_t count = ODD_BYTES / sizeof(float);
  for (int round = 0; round < 6; round++) {
    float *buf = NULL, *other = NULL;
    RANK_OK(coll_mem_alloc(comm, ODD_BYTES, (void **)&buf));
    RANK_OK(coll_mem_alloc(comm, ODD_BYTES, (void **)&other));
    RANK_CHECK(buf[count - 1] == 0);
    for (int i = 0; i < 4; i++) {
      data_fill(buf, count, COLL_FLOAT32, COLL_SUM, rank, (uint64_t)i);
      RANK_OK(coll_allreduce(buf, other, count, COLL_FLOAT32, COLL_SUM, comm));
      RANK_CHECK(data_wrong(other, count, COLL_FLOAT32, COLL_SUM, nranks, (uint64_t)i) == 0);
    }
    /* Two of its own; of each peer at least one, and at most those in use and one old one. */
    int mapped = count_mappings(ODD_BYTES);
    RANK_CHECK(mapped > 2 && mapped <= 2 + 4 * (nranks - 1));
    RANK_OK(coll_barrier(comm));
    RANK_OK(coll_mem_free(comm, buf));
    RANK_OK(coll_mem_free(comm, other));
    RANK_CHECK(coll_mem_free(comm, buf) == COLL_ERR_INVALID_ARGUMENT);
  }
  return 0;
}

Test(regions, taken_again, .timeout = 60) {
  for (int nranks = 2; nranks <= 4; nranks++)
    cr_assert_eq(run_processes(nranks, NULL, taken_again, NULL, 40, NULL), 0, "%d ranks", nranks);
}

/* Memory that an operation in flight uses is not freed. */
static int in_flight(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  atomic_bool *tried = arg;
  float *buf, *spare;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&buf));
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&spare));
  if (rank == 1) /* without it, rank 0's stays in flight */
    RANK_CHECK(WAIT_UNTIL(atomic_load(tried), 15));
  RANK_OK(coll_iallreduce(buf + 100, buf + 100, 1 << 18, COLL_FLOAT32, COLL_SUM, comm, &request));
  if (rank == 0) {
    RANK_CHECK(coll_mem_free(comm, buf) == COLL_ERR_INVALID_USAGE);
    coll_last_error(comm, &error);
    RANK_CHECK(strstr(error.message, "in flight"));
    RANK_OK(coll_mem_free(comm, spare));
    atomic_store(tried, true);
  }
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_mem_free(comm, buf));
  return 0;
}

Test(regions, not_while_in_flight, .timeout = 20) {
  atomic_bool tried = false;
  cr_assert_eq(run_threads(2, NULL, in_flight, &tried), 0);
}

/* The same with messages: the first of an exchange is over, the second is not. */
static int message_in_flight(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  atomic_bool *tried = arg;
  const size_t count = REGION_BYTES / 2;
  char *sent, *received, *spare;
  coll_request *request = NULL;
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&sent));
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&received));
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&spare));
  if (rank == 1)
    RANK_CHECK(WAIT_UNTIL(atomic_load(tried), 15));
  RANK_OK(coll_isendrecv(sent, rank == 0 ? 0 : count, 1 - rank, 1, received, rank == 0 ? count : 0,
                         1 - rank, 1, COLL_UINT8, NULL, comm, &request));
  if (rank == 0) {
    RANK_CHECK(coll_mem_free(comm, received) == COLL_ERR_INVALID_USAGE);
    RANK_OK(coll_mem_free(comm, spare));
    atomic_store(tried, true);
  }
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_barrier(comm)); /* nobody leaves while the other still sends */
  RANK_OK(coll_mem_free(comm, received));
  RANK_OK(coll_mem_free(comm, sent));
  return 0;
}

Test(regions, not_while_a_message_is_in_flight, .timeout = 20) {
  atomic_bool tried = false;
  cr_assert_eq(run_threads(2, NULL, message_in_flight, &tried), 0);
}

/* Memory of one communicator on others that share its connections. */
static int on_a_child(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  size_t count = 300000;
  coll_comm *child = NULL;
  float *buf, *other;
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&buf));
  RANK_OK(coll_mem_alloc(child, REGION_BYTES, (void **)&other));
  for (int i = 0; i < 4; i++) {
    coll_comm *on = i % 2 ? comm : child;
    data_fill(buf, count, COLL_FLOAT32, COLL_SUM, rank, (uint64_t)i);
    RANK_OK(coll_allreduce(buf, other, count, COLL_FLOAT32, COLL_SUM, on));
    RANK_CHECK(data_wrong(other, count, COLL_FLOAT32, COLL_SUM, nranks, (uint64_t)i) == 0);
  }
  RANK_CHECK(coll_mem_free(child, buf) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_mem_free(child, other));
  RANK_OK(coll_mem_free(comm, buf));
  RANK_OK(coll_comm_destroy(&child));
  return 0;
}

Test(regions, on_a_child, .timeout = 30) {
  cr_assert_eq(run_threads(3, NULL, on_a_child, NULL), 0);
}

/* One rank's operations are ahead of the others': memory that it has sent by reference stays until
 * they have read it. */
static int ahead(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  enum { OPS = 6 };
  size_t count = 120000;
  float *in[OPS], *out[OPS];
  coll_request *requests[OPS];
  for (int i = 0; i < OPS; i++) {
    RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&in[i]));
    RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&out[i]));
  }
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < OPS; i++) {
      data_fill(in[i], count, COLL_FLOAT32, COLL_SUM, rank, (uint64_t)(round + i));
      if (i % 2)
        RANK_OK(coll_iallreduce(in[i], out[i], count, COLL_FLOAT32, COLL_SUM, comm, &requests[i]));
      else
        RANK_OK(coll_ibroadcast(in[i], out[i], count, COLL_FLOAT32, round % nranks, comm,
                                &requests[i]));
    }
    if (rank == round % nranks)
      be_late(2);
    for (int i = OPS - 1; i >= 0; i--)
      RANK_OK(coll_wait(&requests[i], -1));
    for (int i = 0; i < OPS; i++) {
      uint64_t seed = (uint64_t)(round + i);
      size_t wrong =
          i % 2 ? data_wrong(out[i], count, COLL_FLOAT32, COLL_SUM, nranks, seed)
                : data_wrong_copy(out[i], count, COLL_FLOAT32, COLL_SUM, round % nranks, seed);
      RANK_CHECK(wrong == 0);
    }
  }
  return 0;
}

Test(regions, several_operations, .timeout = 60) {
  for (int nranks = 2; nranks <= 5; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, ahead, NULL), 0, "%d ranks", nranks);
  cr_assert_eq(run_processes(2, NULL, ahead, NULL, 30, NULL), 0);
}

/* Long messages to oneself and others, and puts, from memory that peers can read. */
static int messages(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  size_t count = 200001;
  int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  float *in, *out, *target;
  coll_window *window;
  RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&in));
  RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&out));
  RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&target));
  RANK_OK(coll_window_create(comm, target, count * sizeof(float), &window));
  for (uint64_t i = 0; i < 12; i++) {
    size_t some = count - i * 7919;
    data_fill(in, some, COLL_FLOAT32, COLL_SUM, rank, i);
    RANK_OK(coll_sendrecv(in, some, next, 0, out, some, before, 0, COLL_FLOAT32, NULL, comm));
    RANK_CHECK(data_wrong_copy(out, some, COLL_FLOAT32, COLL_SUM, before, i) == 0);
    RANK_OK(coll_put(in, some, COLL_FLOAT32, next, 0, window, comm));
    data_fill(in, some, COLL_FLOAT32, COLL_SUM, rank, i + 1); /* the put no longer uses it */
    RANK_OK(coll_signal(next, window, comm));
    RANK_OK(coll_wait_signal(before, 1, window, comm));
    RANK_CHECK(data_wrong_copy(target, some, COLL_FLOAT32, COLL_SUM, before, i) == 0);
    RANK_OK(coll_barrier(comm));
  }
  RANK_OK(coll_window_destroy(&window));
  return 0;
}

Test(regions, messages, .timeout = 60) {
  for (int nranks = 1; nranks <= 4; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, messages, NULL), 0, "%d ranks", nranks);
  cr_assert_eq(run_processes(3, NULL, messages, NULL, 30, NULL), 0);
}

enum { NAPS = 8 };

/* Comes once the root sleeps: whoever waits for a reference to be read wakes. */
static int asleep(coll_comm *comm, int rank, int nranks, void *arg) {
  callers *round = arg; /* one for each */
  size_t count = 300000;
  float *in, *out;
  RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&in));
  RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&out));
  for (int i = 0; i < NAPS; i++) {
    int root = i % nranks;
    data_fill(in, count, COLL_FLOAT32, COLL_SUM, rank, (uint64_t)i);
    if (rank != root)
      RANK_CHECK(WAIT_UNTIL(waits_in_call(&round[i], root), 5));
    enters_call(&round[i], rank);
    double before = now_s();
    RANK_OK(coll_broadcast(in, out, count, COLL_FLOAT32, root, comm));
    RANK_CHECK(now_s() - before < 5);
    RANK_CHECK(data_wrong_copy(out, count, COLL_FLOAT32, COLL_SUM, root, (uint64_t)i) == 0);
  }
  return 0;
}

Test(regions, sleepers_wake, .timeout = 60) {
  callers *rounds = shared_memory(NAPS * sizeof(*rounds));
  cr_assert_eq(run_processes(3, NULL, asleep, rounds, 30, NULL), 0);
}
