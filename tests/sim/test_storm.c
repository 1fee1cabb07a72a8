/*
 * test_storm.c: random programs of everything while several things break at random moments: ranks
 * are killed or freeze, links are cut, go silent, or are slow. Every live rank finishes; no result
 * that is COLL_OK is wrong; errors name ranks that were struck.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/progress/enter.h"
#include "support_mixed.h"
#include "support_seeds.h"

#define LIMIT_NS   (120 * COLLI_NS_PER_S)
#define MAX_FAULTS 4

/* What a rank does after its first failure. */
typedef enum manner { STOP, LEAVE, GO_ON, MANNERS } manner;

static const char *const kind_names[] = {"kill", "freeze", "cut", "stall", "slow", "delay"};

typedef struct storm {
  mixed_plan plan;
  world world;
  manner manner[MIXED_RANKS];
  sim_fault faults[MAX_FAULTS];
  int nfaults;
  int errors, innocents, wrong;
} storm;

/* Whether one of the faults is of this kind. */
static bool has(const storm *s, sim_fault_kind kind) {
  for (int i = 0; i < s->nfaults; i++)
    if (s->faults[i].kind == kind)
      return true;
  return false;
}

/* Faults at random moments of a program that takes microseconds to some milliseconds. */
static void draw_faults(storm *s, colli_prng *prng, int nranks) {
  s->nfaults = 1 + (int)colli_prng_below(prng, MAX_FAULTS);
  for (int i = 0; i < s->nfaults; i++) {
    int rank = (int)colli_prng_below(prng, (uint64_t)nranks);
    s->faults[i] =
        (sim_fault){.kind = (sim_fault_kind)colli_prng_below(prng, SIM_CORRUPT),
                    .rank = rank,
                    .peer = (rank + 1 + (int)colli_prng_below(prng, (uint64_t)nranks - 1)) % nranks,
                    .at_ns = colli_prng_below(prng, 1024ull << colli_prng_below(prng, 16)),
                    .for_ns = colli_prng_below(prng, 50 * COLLI_NS_PER_MS),
                    .extra_ns = colli_prng_below(prng, 20 * COLLI_NS_PER_MS)};
  }
}

/* Whether a fault may lead to this error. */
static bool explains(const sim_fault *fault, const coll_comm *comm, const coll_error *error) {
  bool first = comm->failure.root == fault->rank &&
               (error->peer == colli_comm_rank_of(comm, fault->rank) || error->peer < 0);
  bool either = first || (comm->failure.root == fault->peer &&
                          error->peer == colli_comm_rank_of(comm, fault->peer));
  switch (fault->kind) {
  case SIM_KILL:
    return error->status == COLL_ERR_PEER_LOST && first;
  case SIM_FREEZE:
    return error->status == COLL_ERR_TIMEOUT && first;
  case SIM_CUT: /* TIMEOUT: of ranks that wait for one of the two in another communicator */
    return (error->status == COLL_ERR_PEER_LOST || error->status == COLL_ERR_TIMEOUT) && either;
  case SIM_STALL: /* all are alive and wait in a ring: no rank can tell which link is silent */
    return error->status == COLL_ERR_TIMEOUT || error->status == COLL_ERR_PEER_LOST;
  default:
    return false; /* late messages are not an error */
  }
}

/* Looks at the error that a call gave. */
static void judge(void *ctx, int rank, const coll_comm *comm, coll_status status) {
  storm *s = ctx;
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  s->errors++;
  for (int i = 0; i < s->nfaults; i++)
    if (error.status == status && explains(&s->faults[i], comm, &error))
      return;
  s->innocents++;
  fprintf(stderr, "seed %llu: rank %d of the base got %s: %s, root %d, rank %d, peer %d: %s\n",
          (unsigned long long)s->plan.seed, rank, coll_status_name(status),
          coll_status_name(error.status), comm->failure.root, error.rank, error.peer,
          error.message);
}

/* One rank; a program for fibers. */
static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  storm *s = arg;
  mixed_rank *in = &s->plan.ranks[rank];
  s->wrong += mixed_run(comm, rank, nranks, &s->plan);
  bool failed = false;
  for (int i = 0; i < in->nmembers; i++)
    failed |= in->members[i].failed;
  if (failed && s->manner[rank] == LEAVE) {
    mixed_leave(in);
    coll_comm_destroy(&in->members[0].comm);
  }
  if (failed)
    s->world.comms[rank] = NULL; /* and stops listening */
  return 0;
}

/* Destroys what ranks have left. The calls of those who were struck never ended. */
static void end_storm(storm *s) {
  int nranks = s->world.nranks;
  for (int r = 0; r < nranks; r++) {
    mixed_rank *in = &s->plan.ranks[r];
    s->world.comms[r] = NULL;
    for (int i = 0; i < in->nmembers; i++)
      if (in->members[i].comm && atomic_load(&in->members[i].comm->entry.guard.inside))
        colli_call_leave(in->members[i].comm);
    mixed_leave(in);
    coll_comm_destroy(&in->members[0].comm);
  }
  world_close(&s->world);
  for (int r = 0; r < nranks; r++)
    mixed_free(&s->plan.ranks[r]);
}

/* Prints what happened in a storm. */
static void describe(const storm *s, bool ok) {
  fprintf(stderr, "seed %llu: %s: %d ranks, %d errors, %d of them about innocents, %d wrong:",
          (unsigned long long)s->plan.seed, ok ? "right" : "wrong", s->world.nranks, s->errors,
          s->innocents, s->wrong);
  for (int i = 0; i < s->nfaults; i++)
    fprintf(stderr, " %s of rank %d (peer %d) at %.3f ms", kind_names[s->faults[i].kind],
            s->faults[i].rank, s->faults[i].peer, (double)s->faults[i].at_ns / 1e6);
  fprintf(stderr, "\n");
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  colli_prng prng = {seed ^ 0x570};
  storm *s = calloc(1, sizeof(*s));
  seeded_world_make(&sw, seed, 2, MIXED_RANKS);
  cr_assert(s);
  draw_faults(s, &prng, sw.config.sim.nranks);
  sw.config.sim.faults = s->faults;
  sw.config.sim.nfaults = s->nfaults;
  if (has(s, SIM_FREEZE)) { /* a rank that gets AGAIN may think that it waits for the wrong rank */
    sw.config.sim.again = 0;
    sw.fault[0] = 0;
  }
  /* A receive from any rank cannot tell which rank is late or dead. */
  s->plan.names_sources =
      has(s, SIM_KILL) || has(s, SIM_FREEZE) || has(s, SIM_CUT) || has(s, SIM_STALL);
  s->plan.seed = seed;
  s->plan.config = sw.config;
  s->plan.failed = judge;
  s->plan.ctx = s;
  for (int r = 0; r < sw.config.sim.nranks; r++) {
    s->manner[r] = (manner)colli_prng_below(&prng, MANNERS);
    s->plan.goes_on[r] = s->manner[r] == GO_ON;
  }
  bool ok = world_open(&s->world, &sw.config);
  cr_assert(ok);
  world_run_fibers(&s->world, run_rank, s, LIMIT_NS); /* struck ranks do not finish */
  for (int r = 0; r < s->world.nranks; r++)
    if (!s->plan.ranks[r].over && sim_world_fate(s->world.sim, r) == SIM_ALIVE) {
      fprintf(stderr, "seed %llu: rank %d never ended\n", (unsigned long long)seed, r);
      ok = false;
    }
  ok &= s->innocents == 0 && s->wrong == 0;
  if (!ok || verbose)
    describe(s, ok);
  end_storm(s);
  free(s);
  return ok;
}

Test(storm, programs, .timeout = 400) {
  cr_assert_eq(seeds_run("build/tests/sim_test_storm", run_seed, 1, extent(300, 3000, 200)), 0);
}
