/*
 * test_verbs.c: collectives of long vectors over verbs, with the fake library: buffers that are
 * registered for one operation, and messages that are written straight to their destination.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "case.h"
#include "libcoll/base/prng.h"
#include "support_fault.h"
#include "support_ranks.h"
#include "support_verbs.h"
#include "waits.h"

#define BYTES_MOST ((size_t)3 << 20)

static fake_verbs *fake;

static void load(void) {
  fake = fake_load();
  cr_assert_not_null(fake);
  if (fake->count == 0)
    fake_add(fake, "mlx5_0", 1);
}

static coll_config config_of(const char *algo) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  config.algo = algo;
  return config;
}

/* All kinds of cases, in ordinary memory. */
static int run_random(coll_comm *comm, int rank, int nranks, void *arg) {
  colli_prng prng = {*(const uint64_t *)arg};
  for (int i = 0; i < 30; i++) {
    test_case cases[2];
    case_form form = (case_form)colli_prng_below(&prng, CASE_FORMS);
    int count = form == CASE_PERSISTENT ? 1 : 1 + (int)colli_prng_below(&prng, 2);
    for (int c = 0; c < count; c++)
      cases[c] = (test_case){.coll = (case_coll)colli_prng_below(&prng, CASE_BARRIER),
                             .form = form,
                             .type = COLL_INT32,
                             .op = COLL_SUM,
                             .root = (int)colli_prng_below(&prng, (uint64_t)nranks),
                             .in_place = (int)colli_prng_below(&prng, 2),
                             .count = 1 + colli_prng_below(&prng, 1u << (4 + i % 15)),
                             .seed = 1 + colli_prng_below(&prng, 1000)};
    if (case_run(comm, rank, nranks, cases, count) != 0)
      return 1;
  }
  return 0;
}

Test(verbs, random_cases, .init = load, .timeout = 60) {
  for (uint64_t seed = 1; seed <= 4; seed++) {
    coll_config config = config_of(NULL);
    cr_assert_eq(run_threads(2 + (int)seed % 3, &config, run_random, &seed), 0, "seed %d",
                 (int)seed);
    cr_assert_eq(fake->registered, 0);
  }
}

/* A vector of one rank; the test watches the output. */
typedef struct vectors {
  char *memory; /* of all ranks: input and output of each */
  bool in_place;
  case_coll coll;
  int times;
} vectors;

static int run_watched(coll_comm *comm, int rank, int nranks, void *arg) {
  const vectors *v = arg;
  char *mine = v->memory + (size_t)rank * 2 * BYTES_MOST;
  for (int i = 0; i < v->times; i++) {
    test_case c = {.coll = v->coll,
                   .form = CASE_BLOCKING,
                   .type = COLL_INT32,
                   .op = COLL_SUM,
                   .in_place = v->in_place,
                   .count = (BYTES_MOST - 65536) / 4 - 1000 * (size_t)i - 1,
                   .seed = (uint64_t)i,
                   .memory = {mine, mine + BYTES_MOST},
                   .capacity = BYTES_MOST};
    if (v->coll == CASE_ALLGATHER)
      c.count /= (size_t)nranks;
    if (case_run(comm, rank, nranks, &c, 1) != 0)
      return 1;
  }
  return 0;
}

/* Runs a collective. Returns how many writes of peers went straight to the program's memory. */
static int count_direct(int nranks, case_coll coll, const char *algo, bool in_place) {
  size_t bytes = (size_t)nranks * 2 * BYTES_MOST;
  vectors v = {.memory =
                   mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
               .in_place = in_place,
               .coll = coll,
               .times = 3};
  cr_assert_neq(v.memory, MAP_FAILED);
  fake->watched = v.memory;
  fake->watched_bytes = bytes;
  fake->watched_writes = 0;
  fake->watched_pinned = 0;
  coll_config config = config_of(algo);
  cr_assert_eq(run_threads(nranks, &config, run_watched, &v), 0);
  munmap(v.memory, bytes);
  cr_assert_eq(fake->registered, 0);
  return fake->watched_writes;
}

Test(verbs, written_to_where_they_belong, .init = load, .timeout = 60) {
  const struct {
    int nranks;
    case_coll coll;
    const char *algo;
  } cases[] = {{2, CASE_ALLREDUCE, "allreduce:ring"},
               {3, CASE_ALLREDUCE, "allreduce:ring"},
               {4, CASE_ALLREDUCE, "allreduce:rabenseifner"},
               {3, CASE_BROADCAST, "broadcast:chain"},
               {3, CASE_ALLGATHER, "allgather:ring"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    for (int in_place = 0; in_place < 2; in_place++) {
      int count = count_direct(cases[i].nranks, cases[i].coll, cases[i].algo, in_place);
      cr_expect_gt(count, 0, "%s, %d ranks, in place %d", cases[i].algo, cases[i].nranks, in_place);
    }
}

/* Only the part of the input that is sent from there: in a ring of four ranks a quarter. */
Test(verbs, only_what_is_sent_is_registered, .init = load, .timeout = 60) {
  enum { RANKS = 4, CALLS = 3 };
  const double vector = BYTES_MOST - 65536;
  cr_assert_gt(count_direct(RANKS, CASE_ALLREDUCE, "allreduce:ring", false), 0);
  double vectors_each = (double)fake->watched_pinned / vector / RANKS / CALLS;
  cr_expect(vectors_each > 1.2 && vectors_each < 1.3, "%.3f", vectors_each);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Once the ranks are connected nothing more can be registered: messages are copied. */
static int run_refused(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  RANK_OK(coll_barrier(comm));
  fake->reg_errno = ENOMEM;
  test_case c = {.coll = CASE_ALLREDUCE,
                 .form = CASE_BLOCKING,
                 .type = COLL_INT32,
                 .op = COLL_SUM,
                 .count = 300000,
                 .seed = 5};
  return case_run(comm, rank, nranks, &c, 1);
}

Test(verbs, registration_refused, .init = load, .timeout = 30) {
  coll_config config = config_of("allreduce:ring");
  cr_assert_eq(run_threads(2, &config, run_refused, NULL), 0);
  cr_assert_gt(fake->registrations, 0);
}

/* Ranks that disagree notice it before they use any data, and once the call has failed nobody
 * writes to its memory. */
static int run_misfit(coll_comm *comm, int rank, int nranks, void *arg) {
  size_t count = 200000 + (size_t)rank * 40000;
  int *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
  int *copy = malloc(count * sizeof(*copy));
  (void)nranks;
  (void)arg;
  RANK_CHECK(in && out && copy);
  RANK_OK(coll_barrier(comm));
  coll_status status = coll_allreduce(in, out, count, COLL_INT32, COLL_SUM, comm);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  memcpy(copy, out, count * sizeof(*copy));
  watch_for(20);
  RANK_CHECK(memcmp(copy, out, count * sizeof(*copy)) == 0);
  free(in);
  free(out);
  free(copy);
  return 0;
}

Test(verbs, ranks_disagree, .init = load, .timeout = 30) {
  coll_config config = config_of("allreduce:ring");
  cr_assert_eq(run_threads(2, &config, run_misfit, NULL), 0);
  cr_assert_eq(fake->registered, 0);
}

/* ---- under the fault decorator --------------------------------------------------------------- */

Test(verbs, random_programs_with_faults, .init = load, .timeout = 100) {
  cr_assert_eq(fault_play("verbs"), 0);
  cr_assert_eq(fake->registered, 0);
}

Test(verbs, cut_in_the_middle, .init = load, .timeout = 60) {
  cr_assert_eq(fault_cut("verbs"), 0);
  cr_assert_eq(fake->registered, 0);
}

Test(verbs, checked, .init = load, .timeout = 100) {
  cr_assert_eq(fault_checked("verbs", "crc32c"), 0);
}

Test(verbs, damaged, .init = load, .timeout = 100) {
  cr_assert_eq(fault_tampered("verbs", "crc32c", COLL_ERR_PROTOCOL), 0);
  cr_assert_eq(fault_tampered("verbs", "mac", COLL_ERR_AUTH), 0);
}
