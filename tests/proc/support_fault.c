/* support_fault.c: programs under the fault decorator. */
#include "support_fault.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "libcoll/base/prng.h"
#include "support_ranks.h"

#define REGION_BYTES ((size_t)1 << 20)

/* One or two random cases that fit into the region. */
static int run_some(coll_comm *comm, int rank, int nranks, colli_prng *prng,
                    char *const memory[2]) {
  test_case cases[2];
  case_form form = (case_form)colli_prng_below(prng, CASE_FORMS);
  bool shared = colli_prng_below(prng, 2);
  int count = form == CASE_PERSISTENT || shared ? 1 : 2;
  unsigned size = 4 + (unsigned)colli_prng_below(prng, 12);
  for (int c = 0; c < count; c++) {
    cases[c] = (test_case){.coll = (case_coll)colli_prng_below(prng, CASE_BARRIER),
                           .form = form,
                           .type = COLL_INT32,
                           .op = COLL_SUM,
                           .root = (int)colli_prng_below(prng, (uint64_t)nranks),
                           .in_place = (int)colli_prng_below(prng, 2),
                           .count = 1 + colli_prng_below(prng, 1u << size),
                           .seed = 1 + colli_prng_below(prng, 1000),
                           .capacity = REGION_BYTES};
    for (int i = 0; i < 2 && shared; i++)
      cases[c].memory[i] = memory[i];
  }
  return case_run(comm, rank, nranks, cases, count);
}

static int run_random(coll_comm *comm, int rank, int nranks, void *arg) {
  colli_prng prng = {*(const uint64_t *)arg};
  char *memory[2];
  for (int i = 0; i < 2; i++)
    RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&memory[i]));
  for (int i = 0; i < 60; i++)
    if (run_some(comm, rank, nranks, &prng, memory) != 0)
      return 1;
  return 0;
}

int fault_play(const char *transport) {
  static const char *const faults[] = {"seed=1,again=20,pending=20", "seed=2,again=5,refuse=30",
                                       "seed=3,pending=40,refuse=10,delay_us=500",
                                       "seed=4,again=30,pending=10,refuse=60"};
  for (uint64_t seed = 0; seed < 4; seed++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transport;
    config.timeout_ms = slow_ms(20000);
    setenv("COLL_FAULT", faults[seed], 1);
    int result = run_threads(2 + (int)seed % 3, &config, run_random, &seed);
    if (result != 0) {
      fprintf(stderr, "%s, COLL_FAULT=%s: %d\n", transport, faults[seed], result);
      return result;
    }
  }
  return 0;
}

/* All-reduces long vectors until the connections of ranks 0 and 1 break; both errors must name the
 * peer. */
static int run_until_cut(coll_comm *comm, int rank, int nranks, void *arg) {
  size_t count = REGION_BYTES / sizeof(int);
  int *memory[2];
  coll_status status = COLL_OK;
  coll_error error = COLL_ERROR_INIT;
  (void)nranks;
  for (int i = 0; i < 2; i++) {
    memory[i] = *(const bool *)arg ? NULL : calloc(count, sizeof(int));
    if (!memory[i])
      RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&memory[i]));
  }
  for (int i = 0; i < 300 && status == COLL_OK; i++)
    status = coll_allreduce(memory[0], memory[1], count, COLL_INT32, COLL_SUM, comm);
  coll_last_error(comm, &error);
  RANK_CHECK(status == COLL_ERR_PEER_LOST && (error.peer == 1 - rank || error.peer == rank));
  for (int i = 0; i < 2 && !*(const bool *)arg; i++)
    free(memory[i]);
  return 0;
}

int fault_cut(const char *transport) {
  for (int i = 0; i < 2; i++) {
    bool shared = i;
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transport;
    config.timeout_ms = slow_ms(20000);
    setenv("COLL_FAULT", "seed=5,again=10,pending=20,refuse=10,cut=0-1@200", 1);
    int result = run_threads(2, &config, run_until_cut, &shared);
    if (result != 0)
      return result;
  }
  return 0;
}

int fault_checked(const char *transport, const char *check) {
  setenv("COLL_DATA_CHECK", check, 1);
  int result = fault_play(transport);
  unsetenv("COLL_DATA_CHECK");
  return result;
}

/* What a tampered run is made of. */
typedef struct tampering {
  const char *transport, *check;
  size_t count; /* elements of each all-reduce */
  coll_status status;
} tampering;

/* All-reduces until that fails. Rank 1 received what was wrong, and tells rank 0. */
static int run_until_noticed(coll_comm *comm, int rank, int nranks, void *arg) {
  const tampering *t = arg;
  int *memory = calloc(2 * t->count, sizeof(int));
  coll_status status = COLL_OK;
  coll_error error = COLL_ERROR_INIT;
  bool right = true;
  (void)nranks;
  RANK_CHECK(memory);
  for (int i = 0; i < 100 && status == COLL_OK; i++) {
    for (size_t k = 0; k < t->count; k++)
      memory[k] = rank + i;
    status = coll_allreduce(memory, memory + t->count, t->count, COLL_INT32, COLL_SUM, comm);
    for (size_t k = 0; k < t->count && status == COLL_OK; k++)
      right &= memory[t->count + k] == 2 * i + 1;
  }
  free(memory);
  coll_last_error(comm, &error);
  const char *wanted[] = {strcmp(t->check, "mac") == 0 ? "MAC check" : "CRC32C check",
                          "from rank 0 to rank 1", t->transport, "allreduce"};
  for (int i = 0; i < 4; i++)
    right &= strstr(error.message, wanted[i]) != NULL;
  right &= status == t->status && error.peer == 0 && error.rank == 1;
  if (!right)
    fprintf(stderr, "rank %d: %s: %s\n", rank, coll_status_name(status), error.message);
  return !right;
}

int fault_tampered(const char *transport, const char *check, coll_status status) {
  static const char *const kinds[] = {"flip", "lose", "replay", "swap"};
  int result = 0;
  setenv("COLL_DATA_CHECK", check, 1);
  for (int i = 0; i < 24 && result == 0; i++) {
    tampering t = {transport, check, i % 2 ? 3 : 100000, status};
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transport;
    config.timeout_ms = slow_ms(20000);
    char fault[64];
    snprintf(fault, sizeof(fault), "seed=%d,again=10,%s=0-1@%d", i, kinds[i / 2 % 4], i / 8 * 5);
    setenv("COLL_FAULT", fault, 1);
    result = run_threads(2, &config, run_until_noticed, &t);
    if (result != 0)
      fprintf(stderr, "%s, COLL_DATA_CHECK=%s, COLL_FAULT=%s\n", transport, check, fault);
  }
  unsetenv("COLL_DATA_CHECK");
  return result;
}
