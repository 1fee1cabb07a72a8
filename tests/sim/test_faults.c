/*
 * test_faults.c: random programs on worlds in which something breaks at a random moment. On every
 * living rank, each operation ends in time, with the right result or with an error that names the
 * rank to blame.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "support_program.h"
#include "support_seeds.h"

#define LIMIT_NS (20 * COLLI_NS_PER_S)
#define SOON_NS  COLLI_NS_PER_S /* a death or a cut is reported within this */

static const char *const kind_names[] = {"kill", "freeze", "cut",    "stall",
                                         "slow", "delay",  "corrupt"};

/* A fault at a random moment of a program that takes microseconds to a few milliseconds. */
static sim_fault pick_fault(colli_prng *prng, int nranks) {
  sim_fault fault = {.kind = (sim_fault_kind)colli_prng_below(prng, SIM_CORRUPT + 1)};
  fault.rank = (int)colli_prng_below(prng, (uint64_t)nranks);
  fault.peer = (fault.rank + 1 + (int)colli_prng_below(prng, (uint64_t)nranks - 1)) % nranks;
  fault.at_ns = colli_prng_below(prng, 1024ull << colli_prng_below(prng, 14));
  fault.for_ns = colli_prng_below(prng, 50 * COLLI_NS_PER_MS);
  fault.extra_ns = colli_prng_below(prng, 20 * COLLI_NS_PER_MS);
  return fault;
}

/* Whether a fault may lead to this error. */
static bool blames(const sim_fault *fault, const coll_error *error) {
  bool either = error->peer == fault->rank || error->peer == fault->peer;
  switch (fault->kind) {
  case SIM_KILL:
    return error->status == COLL_ERR_PEER_LOST && error->peer == fault->rank;
  case SIM_FREEZE:
    return error->status == COLL_ERR_TIMEOUT && error->peer == fault->rank;
  case SIM_CUT:
    return error->status == COLL_ERR_PEER_LOST && either;
  case SIM_STALL: /* all are alive and wait in a ring: no rank can tell which link is silent */
    return error->status == COLL_ERR_TIMEOUT && error->peer >= 0;
  case SIM_CORRUPT:
    return (error->status == COLL_ERR_MISMATCH || error->status == COLL_ERR_PROTOCOL) &&
           (error->peer == fault->rank || error->rank == fault->rank);
  default:
    return false; /* late messages are not an error */
  }
}

/* Checks how one rank ended. */
static bool judge_rank(const program *p, const sim_fault *fault, int rank) {
  const program_rank *pr = &p->ranks[rank];
  const char *wrong = NULL;
  if (!pr->done)
    wrong = "never ended";
  else if (pr->status == COLL_OK)
    return true;
  else if (pr->status != pr->error.status)
    wrong = "returned one status and recorded another";
  else if (!blames(fault, &pr->error))
    wrong = "blames somebody else";
  else if ((fault->kind == SIM_KILL || fault->kind == SIM_CUT) &&
           pr->done_ns > fault->at_ns + SOON_NS)
    wrong = "learned of it late";
  if (wrong)
    fprintf(stderr, "seed %llu: rank %d %s: %s at %.3f ms: rank %d peer %d: %s\n",
            (unsigned long long)p->seed, rank, wrong, coll_status_name(pr->status),
            (double)pr->done_ns / 1e6, pr->error.rank, pr->error.peer, pr->error.message);
  return !wrong;
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 2, 12);
  colli_prng prng = {seed ^ 0xfa};
  sim_fault fault = pick_fault(&prng, sw.config.sim.nranks);
  sw.config.sim.faults = &fault;
  sw.config.sim.nfaults = 1;
  if (fault.kind == SIM_FREEZE) {
    /* A rank that gets AGAIN for no reason may think that it waits for the wrong rank. */
    sw.config.sim.again = 0;
    sw.fault[0] = 0;
  }
  world w;
  if (!world_open(&w, &sw.config))
    return false;
  program p;
  program_make(&p, &w, &sw.config, seed);
  p.leave_early = colli_prng_below(&prng, 3) == 0;
  bool ended = program_run(&p, LIMIT_NS), ok = ended && p.wrong == 0;
  for (int rank = 0; rank < p.nranks; rank++)
    if (sim_world_fate(w.sim, rank) == SIM_ALIVE)
      ok &= judge_rank(&p, &fault, rank);
  if (!ok || verbose) {
    fprintf(stderr, "seed %llu: %s: %s of rank %d (peer %d) at %.3f ms%s, '%s' '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", kind_names[fault.kind], fault.rank,
            fault.peer, (double)fault.at_ns / 1e6, p.leave_early ? ", ranks leave at once" : "",
            sw.algo, sw.fault);
    program_print(&p);
  }
  world_close(&w);
  program_free(&p);
  return ok;
}

Test(faults, programs, .timeout = 280) {
  cr_assert_eq(seeds_run("build/tests/sim_test_faults", run_seed, 1, extent(400, 1000, 400)), 0);
}
