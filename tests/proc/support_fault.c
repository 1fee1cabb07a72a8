/* support_fault.c: programs under the fault decorator. */
#include "support_fault.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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
  return case_run(comm, rank, nranks, cases, count, 0);
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
