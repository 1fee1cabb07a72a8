/*
 * test_blame.c: a rank is killed or freezes while all are in operations of communicators that are
 * split from each other at random. Whoever gets an error, on any of them, names that rank: also
 * where it is no member, and ranks only wait for others that wait for it. After their first error
 * ranks stop, leave, or go on with the other communicators.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/progress/enter.h"
#include "support_seeds.h"

#define LIMIT_NS  (60 * COLLI_NS_PER_S)
#define FAULT_NS  (20 * COLLI_NS_PER_S)
#define MAX_COMMS 6
#define MAX_RANKS 9
#define STEPS     8 /* in a round */
#define ROUNDS    12
#define MAX_COUNT 200

/* What a rank does after its first error. */
typedef enum manner { STOP, LEAVE, GO_ON, MANNERS } manner;

typedef enum step_kind { ALLREDUCE, BARRIER, BROADCAST, RING, STARTED, KINDS } step_kind;

/* One operation on a communicator. A STARTED all-reduce is waited for later. */
typedef struct step {
  int node;
  step_kind kind;
  int count;
  int root;
} step;

/* A communicator of the script; the base is number 0. */
typedef struct node {
  int parent;
  int color[MAX_RANKS];
} node;

/* One rank. */
typedef struct actor {
  coll_comm *comms[MAX_COMMS];
  coll_request *started[MAX_COMMS];
  int32_t in[MAX_COMMS][MAX_COUNT], out[MAX_COMMS][MAX_COUNT];
  manner manner;
  bool over;
} actor;

typedef struct script {
  world *world;
  uint64_t seed;
  sim_fault fault;
  node nodes[MAX_COMMS];
  int nnodes;
  step steps[STEPS];
  actor actors[MAX_RANKS];
  int errors, innocents;
} script;

/* Draws communicators, two or three deep, and the steps of a round. */
static void make_script(script *s, world *w, uint64_t seed) {
  colli_prng prng = {seed ^ 0xb1a};
  *s = (script){.world = w, .seed = seed};
  s->nnodes = 2 + (int)colli_prng_below(&prng, MAX_COMMS - 1);
  for (int n = 1; n < s->nnodes; n++) {
    s->nodes[n].parent = (int)colli_prng_below(&prng, (uint64_t)n);
    for (int r = 0; r < MAX_RANKS; r++)
      s->nodes[n].color[r] = (int)colli_prng_below(&prng, 3) - 1; /* -1: no color */
  }
  for (int i = 0; i < STEPS; i++)
    s->steps[i] = (step){.node = (int)colli_prng_below(&prng, (uint64_t)s->nnodes),
                         .kind = (step_kind)colli_prng_below(&prng, KINDS),
                         .count = (int)colli_prng_below(&prng, MAX_COUNT),
                         .root = (int)colli_prng_below(&prng, MAX_RANKS)};
  for (int r = 0; r < w->nranks; r++) {
    s->actors[r].comms[0] = w->comms[r];
    s->actors[r].manner = (manner)colli_prng_below(&prng, MANNERS);
  }
}

/* Splits all communicators; a program for fibers. */
static int make_comms(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)comm, (void)nranks;
  script *s = arg;
  actor *a = &s->actors[rank];
  for (int n = 1; n < s->nnodes; n++)
    if (a->comms[s->nodes[n].parent] &&
        coll_comm_split(a->comms[s->nodes[n].parent], s->nodes[n].color[rank], 0, NULL,
                        &a->comms[n]) != COLL_OK)
      return 1;
  return 0;
}

/* Whether an error names the struck rank. */
static bool names_struck(const script *s, const coll_comm *comm, const coll_error *error) {
  coll_status status = s->fault.kind == SIM_KILL ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT;
  return error->status == status && comm->failure.root == s->fault.rank &&
         error->peer == colli_comm_rank_of(comm, s->fault.rank);
}

/* Looks at the error that a call gave. */
static void judge(script *s, int rank, int n) {
  const coll_comm *comm = s->actors[rank].comms[n];
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  s->errors++;
  if (names_struck(s, comm, &error))
    return;
  s->innocents++;
  fprintf(stderr,
          "seed %llu: rank %d of the base on communicator %d, where the struck rank is %d: %s: "
          "peer %d: %s\n",
          (unsigned long long)s->seed, rank, n, colli_comm_rank_of(comm, s->fault.rank),
          coll_status_name(error.status), error.peer, error.message);
}

/* Waits for what was started on a communicator. */
static coll_status finish(actor *a, int n) {
  return a->started[n] ? coll_wait(&a->started[n], -1) : COLL_OK;
}

/* Makes one call. */
static coll_status run_step(actor *a, const step *st) {
  coll_comm *comm = a->comms[st->node];
  int32_t *in = a->in[st->node], *out = a->out[st->node];
  size_t count = (size_t)st->count;
  int next = (comm->rank + 1) % comm->nranks, previous = comm->rank + comm->nranks - 1;
  coll_status status = finish(a, st->node);
  if (status != COLL_OK)
    return status;
  switch (st->kind) {
  case BARRIER:
    return coll_barrier(comm);
  case BROADCAST:
    return coll_broadcast(in, in, count, COLL_INT32, st->root % comm->nranks, comm);
  case RING:
    return coll_sendrecv(in, count, next, 0, out, count, previous % comm->nranks, 0, COLL_INT32,
                         NULL, comm);
  case STARTED:
    return coll_iallreduce(in, out, count, COLL_INT32, COLL_SUM, comm, &a->started[st->node]);
  default:
    return coll_allreduce(in, out, count, COLL_INT32, COLL_SUM, comm);
  }
}

/* A rank's behaviour after its last call. */
static void end_rank(script *s, int rank, bool failed) {
  actor *a = &s->actors[rank];
  for (int n = s->nnodes - 1; failed && a->manner == LEAVE && n >= 0; n--)
    coll_comm_destroy(&a->comms[n]);
  a->over = true;
  if (failed)
    s->world->comms[rank] = NULL; /* it does not even listen any more */
}

/* Makes the calls; a program for fibers. */
static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)comm, (void)nranks;
  script *s = arg;
  actor *a = &s->actors[rank];
  bool failed[MAX_COMMS] = {false}, any = false;
  for (int i = 0; i < ROUNDS * STEPS + s->nnodes; i++) {
    const step *st = &s->steps[i % STEPS];
    int n = i < ROUNDS * STEPS ? st->node : i - ROUNDS * STEPS;
    if (!a->comms[n] || failed[n])
      continue;
    if ((i < ROUNDS * STEPS ? run_step(a, st) : finish(a, n)) == COLL_OK)
      continue;
    failed[n] = any = true;
    judge(s, rank, n);
    if (a->manner != GO_ON)
      break;
  }
  end_rank(s, rank, any);
  return 0;
}

/* Destroys what ranks have left. The calls of the struck rank never ended. */
static void end_script(script *s) {
  for (int r = 0; r < s->world->nranks; r++) {
    coll_comm **comms = s->actors[r].comms;
    s->world->comms[r] = NULL;
    for (int n = 0; n < s->nnodes; n++)
      if (comms[n] && atomic_load(&comms[n]->entry.guard.inside))
        colli_call_leave(comms[n]);
    for (int n = s->nnodes - 1; n >= 0; n--)
      coll_comm_destroy(&comms[n]);
  }
  world_close(s->world);
  free(s);
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  world w;
  colli_prng prng = {seed ^ 0xfa17};
  seeded_world_make(&sw, seed, 2, MAX_RANKS);
  sim_fault fault = {.kind = colli_prng_below(&prng, 2) ? SIM_KILL : SIM_FREEZE,
                     .rank = (int)colli_prng_below(&prng, (uint64_t)sw.config.sim.nranks),
                     .at_ns = FAULT_NS};
  sw.config.sim.faults = &fault;
  sw.config.sim.nfaults = 1;
  sw.config.sim.again = 0; /* a rank that gets AGAIN may think that it waits for the wrong rank */
  sw.fault[0] = 0;
  script *s = malloc(sizeof(*s));
  if (!s || !world_open(&w, &sw.config))
    return false;
  make_script(s, &w, seed);
  s->fault = fault;
  bool ok = world_run_fibers(&w, make_comms, s, FAULT_NS / 2);
  uint64_t before = colli_prng_below(&prng, 1024ull << colli_prng_below(&prng, 12));
  if (ok)
    sim_world_pass(w.sim, FAULT_NS - before - world_now(&w));
  if (ok)
    world_run_fibers(&w, run_rank, s, LIMIT_NS); /* the struck rank does not come to its end */
  for (int r = 0; r < w.nranks; r++)
    ok &= s->actors[r].over || sim_world_fate(w.sim, r) != SIM_ALIVE;
  ok &= s->innocents == 0;
  if (!ok || verbose)
    fprintf(stderr, "seed %llu: %s: %s of rank %d of %d, %d communicators, %d errors\n",
            (unsigned long long)seed, ok ? "right" : "wrong",
            fault.kind == SIM_KILL ? "kill" : "freeze", fault.rank, w.nranks, s->nnodes, s->errors);
  end_script(s);
  return ok;
}

Test(blame, a_rank_is_struck, .timeout = 400) {
  cr_assert_eq(seeds_run("build/tests/sim_test_blame", run_seed, 1, extent(250, 3000, 200)), 0);
}

/* ---- a report just before the others ask -------------------------------------------------------
 */

#define LATE_RANKS 7

/* Rank 1, through which reports reach 3 and 4 first, is frozen; rank 0 begins to wait for it when
 * the others have waited for rank 0 for long, but do not ask yet. */
typedef struct latecomer {
  world *world;
  uint64_t begin_ns, late_ns;
  int right;
} latecomer;

static int wait_late(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  latecomer *l = arg;
  int32_t word;
  coll_error error = COLL_ERROR_INIT;
  while (world_now(l->world) < l->begin_ns + (rank == 0 ? l->late_ns : 0))
    if (!comm->world.pause(comm->world.ctx, false))
      return 1;
  coll_recv(&word, 1, COLL_INT32, rank == 0 ? 1 : 0, 0, NULL, comm);
  coll_last_error(comm, &error);
  l->right += error.status == COLL_ERR_TIMEOUT && error.peer == 1;
  if (error.peer != 1)
    fprintf(stderr, "rank 0 is %.0f ms late: rank %d: %s: %s\n", (double)l->late_ns / 1e6, rank,
            coll_status_name(error.status), error.message);
  return 0;
}

Test(blame, a_rank_waits_since_just_before, .timeout = 60) {
  for (uint64_t late_ms = 0; late_ms < 750; late_ms += 10) {
    world w;
    sim_fault fault = {.kind = SIM_FREEZE, .rank = 1, .at_ns = COLLI_NS_PER_S};
    world_config config = {.sim = {.nranks = LATE_RANKS,
                                   .seed = late_ms,
                                   .alpha_ns = 1000,
                                   .ns_per_byte = 1,
                                   .faults = &fault,
                                   .nfaults = 1},
                           .transport = &sim_transport,
                           .slot_bytes = 256,
                           .slot_count = 4,
                           .timeout_ms = 1000};
    cr_assert(world_open(&w, &config));
    latecomer l = {&w, 2 * COLLI_NS_PER_S, late_ms * COLLI_NS_PER_MS, 0};
    world_run_fibers(&w, wait_late, &l, LIMIT_NS);
    cr_expect_eq(l.right, LATE_RANKS - 1, "%d ms: %d", (int)late_ms, l.right);
    for (int r = 0; r < LATE_RANKS; r++) /* the call of the frozen rank never ended */
      if (atomic_load(&w.comms[r]->entry.guard.inside))
        colli_call_leave(w.comms[r]);
    world_close(&w);
  }
}
