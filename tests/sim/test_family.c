/*
 * test_family.c: communicators that are split from each other at random, with operations in flight
 * on all of them, in a different order on each rank. All results are right and all operations end.
 * When a rank is killed, its communicators fail, and the others still work.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/create/split.h"
#include "libcoll/progress/wait.h"
#include "support_seeds.h"

#define LIMIT_NS  (60 * COLLI_NS_PER_S)
#define MAX_COMMS 9
#define MAX_RANKS 9
#define OPS       4 /* on each communicator, in each of two acts */
#define KILL_NS   (20 * COLLI_NS_PER_S)
#define MAX_COUNT 300

/* A communicator of the script; the base is number 0. */
typedef struct node {
  int parent;
  int before;             /* operations on the parent that come before its split */
  int members[MAX_RANKS]; /* for each rank of the base: its rank, or -1 */
  int color[MAX_RANKS];   /* of the split that makes it, and its siblings, by base rank */
  int key[MAX_RANKS];
  int nranks;
} node;

/* One rank's part in one operation. */
typedef struct part {
  coll_request *request; /* NULL: not even started */
  coll_status status;
  int32_t in[MAX_COUNT], out[MAX_COUNT];
} part;

/* The state of one rank. */
typedef struct actor {
  coll_comm *comms[MAX_COMMS];
  int made; /* communicators whose split it has made, member or not */
  colli_split *split;
  part parts[MAX_COMMS][2 * OPS];
  int started[MAX_COMMS], ended[MAX_COMMS];
  int wrong;
} actor;

typedef struct script {
  world *world;
  node nodes[MAX_COMMS];
  int nnodes;
  int target; /* operations on each communicator */
  int dead;   /* the rank that is killed, or -1 */
  uint64_t seed;
  colli_prng prng;
  actor *actors;
} script;

/* The ranks of the parent with color 0 become node `n`, ordered by key, then by rank there. */
static void make_node(script *s, int n) {
  node *child = &s->nodes[n];
  child->parent = (int)colli_prng_below(&s->prng, (uint64_t)n);
  for (int i = 1; i < n; i++)
    if (s->nodes[i].parent == child->parent)
      child->before = s->nodes[i].before; /* splits of one parent come in order */
  child->before += (int)colli_prng_below(&s->prng, (uint64_t)(OPS + 1 - child->before));
  const node *parent = &s->nodes[child->parent];
  for (int r = 0; r < MAX_RANKS; r++) {
    child->members[r] = -1;
    child->color[r] = (int)colli_prng_below(&s->prng, 4) == 0 ? COLL_NO_COLOR : 0;
    child->key[r] = (int)colli_prng_below(&s->prng, 4);
  }
  child->nranks = 0;
  for (int key = 0; key < 4; key++)
    for (int p = 0; p < parent->nranks; p++)
      for (int r = 0; r < MAX_RANKS; r++)
        if (parent->members[r] == p && child->color[r] == 0 && child->key[r] == key)
          child->members[r] = child->nranks++;
}

static int count_of(const script *s, int n, int op) {
  colli_prng prng = {s->seed * 1000 + (uint64_t)(n * 2 * OPS + op)};
  return (int)colli_prng_below(&prng, MAX_COUNT);
}

static int32_t element(int n, int op, int base_rank, int i) {
  return (n * 7 + op * 3 + 1) * (base_rank + 1) + i;
}

/* Starts the next operation on a communicator. */
static void start_op(script *s, actor *a, int base_rank, int n) {
  int op = a->started[n]++, count = count_of(s, n, op);
  part *p = &a->parts[n][op];
  for (int i = 0; i < count; i++)
    p->in[i] = element(n, op, base_rank, i);
  p->status =
      coll_iallreduce(p->in, p->out, (size_t)count, COLL_INT32, COLL_SUM, a->comms[n], &p->request);
}

/* Whether an operation may end with this status. */
static bool may_end(const script *s, const actor *a, int n, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  if (status == COLL_OK || s->dead < 0 || s->nodes[n].members[s->dead] < 0)
    return status == COLL_OK;
  coll_last_error(a->comms[n], &error);
  return status == COLL_ERR_PEER_LOST && error.peer == s->nodes[n].members[s->dead];
}

/* Looks at the oldest open operation of a communicator; true if it ended. */
static bool end_op(script *s, actor *a, int n) {
  int op = a->ended[n], count = count_of(s, n, op);
  part *p = &a->parts[n][op];
  coll_status status = p->request ? coll_test(&p->request) : p->status;
  if (status == COLL_IN_PROGRESS)
    return false;
  a->ended[n]++;
  a->wrong += !may_end(s, a, n, status);
  for (int i = 0; i < count && status == COLL_OK; i++) {
    int32_t sum = 0;
    for (int r = 0; r < MAX_RANKS; r++)
      sum += s->nodes[n].members[r] >= 0 ? element(n, op, r, i) : 0;
    a->wrong += p->out[i] != sum;
  }
  return true;
}

/* Continues with the next split, if the rank is in its parent; true if it made progress. */
static bool go_on_splitting(script *s, actor *a, int base_rank) {
  const node *next = &s->nodes[a->made];
  if (a->made == s->nnodes)
    return false;
  if (!a->comms[next->parent]) {
    a->made++;
    return true;
  }
  if (!a->split && a->started[next->parent] < next->before)
    return false;
  if (!a->split) {
    colli_split_call call = {.color = next->color[base_rank], .key = next->key[base_rank]};
    a->wrong += colli_split_start(a->comms[next->parent], &call, &a->split) != COLL_OK;
    return true;
  }
  if (!colli_split_done(a->split))
    return false;
  a->wrong += colli_split_finish(a->split, &a->comms[a->made]) != COLL_OK;
  a->split = NULL;
  const coll_comm *comm = a->comms[a->made];
  a->wrong += (comm ? comm->rank : -1) != next->members[base_rank];
  a->wrong += comm && comm->nranks != next->nranks;
  a->made++;
  return true;
}

/* Whether the next operation on a communicator may start: not before a split of it. */
static bool may_start(const script *s, const actor *a, int n) {
  if (a->started[n] == s->target)
    return false;
  for (int i = a->made + (a->split != NULL); i < s->nnodes; i++)
    if (s->nodes[i].parent == n && s->nodes[i].before <= a->started[n])
      return false;
  return true;
}

/* A rank's turn. It reports progress as long as it may have made some, so that virtual time does
 * not advance too early. */
static bool act(void *ctx, int rank) {
  script *s = ctx;
  actor *a = &s->actors[rank];
  bool moved = false;
  if (a->wrong)
    return false;
  bool skip = colli_prng_below(&s->prng, 2);
  moved = skip ? a->made < s->nnodes && (!a->split || colli_split_done(a->split))
               : go_on_splitting(s, a, rank);
  if (skip && !a->split && a->made < s->nnodes && a->comms[s->nodes[a->made].parent])
    moved = a->started[s->nodes[a->made].parent] >= s->nodes[a->made].before;
  int first = (int)colli_prng_below(&s->prng, (uint64_t)a->made);
  for (int i = 0; i < a->made; i++) {
    int n = (first + i) % a->made;
    if (!a->comms[n])
      continue;
    moved |= colli_comm_progress(a->comms[n]);
    if (may_start(s, a, n)) {
      if (colli_prng_below(&s->prng, 2))
        start_op(s, a, rank, n);
      moved = true;
    }
    if (a->ended[n] < a->started[n])
      moved |= end_op(s, a, n);
  }
  return moved;
}

static bool done(void *ctx, int rank) {
  script *s = ctx;
  actor *a = &s->actors[rank];
  bool all = a->made == s->nnodes;
  for (int n = 0; n < s->nnodes; n++)
    all &= !a->comms[n] || a->ended[n] == s->target;
  return all || a->wrong;
}

/* Destroys a rank's communicators, the base (which is the world's) somewhere among them. */
static void end_actor(script *s, int rank) {
  actor *a = &s->actors[rank];
  if (a->split) {
    a->split = NULL; /* not restored after a failed seed */
    return;
  }
  int first = (int)colli_prng_below(&s->prng, (uint64_t)s->nnodes);
  for (int i = 0; i < s->nnodes; i++) {
    int n = (first + i) % s->nnodes;
    coll_comm_destroy(n == 0 ? &s->world->comms[rank] : &a->comms[n]);
  }
}

/* Draws the communicators of a world. */
static bool make_script(script *s, world *w, uint64_t seed) {
  *s = (script){.world = w, .seed = seed, .dead = -1, .target = OPS, .prng = {seed + 5}};
  s->nnodes = 2 + (int)colli_prng_below(&s->prng, MAX_COMMS - 1);
  s->nodes[0].nranks = w->nranks;
  for (int r = 0; r < MAX_RANKS; r++)
    s->nodes[0].members[r] = r < w->nranks ? r : -1;
  for (int n = 1; n < s->nnodes; n++)
    make_node(s, n);
  s->actors = calloc((size_t)w->nranks, sizeof(*s->actors));
  for (int r = 0; s->actors && r < w->nranks; r++) {
    s->actors[r].comms[0] = w->comms[r];
    s->actors[r].made = 1;
  }
  return s->actors != NULL;
}

/* Destroys everything; true if all results were right, otherwise it has printed why not. */
static bool end_script(script *s, bool ok, bool verbose) {
  world *w = s->world;
  for (int r = 0; r < w->nranks; r++)
    ok &= s->actors[r].wrong == 0;
  if (!ok || verbose)
    fprintf(stderr, "seed %llu: %s: %d ranks, %d communicators, after %.3f ms of virtual time\n",
            (unsigned long long)s->seed, ok ? "right" : "wrong", w->nranks, s->nnodes,
            (double)world_now(w) / 1e6);
  for (int r = 0; r < w->nranks; r++) {
    coll_error error = COLL_ERROR_INIT;
    for (int n = 0; !ok && n < s->nnodes; n++)
      if (s->actors[r].comms[n] && coll_last_error(s->actors[r].comms[n], &error) == COLL_OK)
        fprintf(stderr, "  rank %d, communicator %d: started %d, ended %d, %s\n", r, n,
                s->actors[r].started[n], s->actors[r].ended[n], error.message);
  }
  for (int r = 0; r < w->nranks; r++)
    end_actor(s, r);
  world_close(w);
  free(s->actors);
  return ok;
}

/* One seed in which nothing breaks. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  world w;
  script s;
  seeded_world_make(&sw, seed, 1, MAX_RANKS);
  if (!world_open(&w, &sw.config) || !make_script(&s, &w, seed))
    return false;
  bool ok = world_run(&w, act, done, &s, LIMIT_NS);
  return end_script(&s, ok, verbose);
}

Test(family, random_splits, .timeout = 200) {
  cr_assert_eq(seeds_run("build/tests/sim_test_family", run_seed, 1, extent(150, 300, 150)), 0);
}

/* ---- a rank is killed ------------------------------------------------------------------------ */

/* Lets all communicators of a rank make progress. */
static bool act_only_move(void *ctx, int rank) {
  script *s = ctx;
  bool moved = false;
  for (int n = 0; n < s->nnodes; n++)
    if (s->actors[rank].comms[n])
      moved |= colli_comm_progress(s->actors[rank].comms[n]);
  return moved;
}

/* Whether a rank knows of all communicators that the death has broken. */
static bool knows_all(void *ctx, int rank) {
  script *s = ctx;
  bool all = true;
  for (int n = 0; n < s->nnodes; n++)
    if (s->actors[rank].comms[n] && s->nodes[n].members[s->dead] >= 0)
      all &= s->actors[rank].comms[n]->failure.status == COLL_ERR_PEER_LOST;
  return all;
}

/* One seed: when all communicators exist, a rank is killed while operations are in flight. */
static bool run_killing_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  world w;
  script s;
  seeded_world_make(&sw, seed, 2, MAX_RANKS);
  int dead = (int)(seed % (uint64_t)sw.config.sim.nranks);
  sim_fault fault = {.kind = SIM_KILL, .rank = dead, .at_ns = KILL_NS};
  sw.config.sim.faults = &fault;
  sw.config.sim.nfaults = 1;
  sw.fault[0] = 0; /* otherwise virtual time would advance to the kill while ranks wait here */
  if (!world_open(&w, &sw.config) || !make_script(&s, &w, seed))
    return false;
  bool ok = world_run(&w, act, done, &s, KILL_NS / 2);
  s.target = 2 * OPS;
  s.dead = dead;
  uint64_t before = colli_prng_below(&s.prng, 1024ull << colli_prng_below(&s.prng, 12));
  if (ok)
    sim_world_pass(w.sim, KILL_NS - before - world_now(&w));
  ok = ok && world_run(&w, act, done, &s, LIMIT_NS);
  if (ok && world_now(&w) < KILL_NS)
    sim_world_pass(w.sim, KILL_NS - world_now(&w) + 1);
  ok = ok && world_run(&w, act_only_move, knows_all, &s, LIMIT_NS);
  return end_script(&s, ok, verbose);
}

Test(family, a_rank_is_killed, .timeout = 200) {
  cr_assert_eq(seeds_run("build/tests/sim_test_family", run_killing_seed, 1, extent(150, 300, 150)),
               0);
}

/* ---- settings -------------------------------------------------------------------------------- */

/* One split of a communicator of all ranks. */
typedef struct one_split {
  coll_comm **parents;
  colli_split **splits;
} one_split;

static bool act_split(void *ctx, int rank) {
  return colli_comm_progress(((one_split *)ctx)->parents[rank]);
}

static bool split_done(void *ctx, int rank) {
  return colli_split_done(((one_split *)ctx)->splits[rank]);
}

/* Splits all ranks of `parents` off, with a configuration. */
static void split_all(world *w, coll_comm **parents, const coll_config *config,
                      coll_comm **children) {
  colli_split *splits[2];
  one_split ctx = {parents, splits};
  colli_split_call call = {.config = config};
  for (int r = 0; r < 2; r++)
    cr_assert_eq(colli_split_start(parents[r], &call, &splits[r]), COLL_OK);
  cr_assert(world_run(w, act_split, split_done, &ctx, LIMIT_NS));
  for (int r = 0; r < 2; r++)
    cr_assert_eq(colli_split_finish(splits[r], &children[r]), COLL_OK);
}

Test(family, settings_are_inherited, .timeout = 20) {
  world_config config = {.sim = {.seed = 1, .nranks = 2, .alpha_ns = 1000, .ns_per_byte = 1},
                         .transport = &sim_transport,
                         .slot_bytes = 1024,
                         .slot_count = 4,
                         .timeout_ms = 1000,
                         .algo = "allreduce:ring"};
  world w;
  coll_comm *children[2], *grandchildren[2];
  coll_config own = COLL_CONFIG_INIT;
  own.timeout_ms = 77;
  own.algo = "barrier:direct";
  own.deterministic = COLL_DETERMINISTIC_ORDERED;
  cr_assert(world_open(&w, &config));
  split_all(&w, w.comms, NULL, children);
  cr_assert_eq(children[1]->watch.timeout_ns, 1000 * COLLI_NS_PER_MS);
  cr_assert_str_eq(children[1]->params.text[COLLI_PARAM_ALGO], "allreduce:ring");
  cr_assert_eq(children[1]->calls.deterministic, w.comms[1]->calls.deterministic);
  for (int r = 0; r < 2; r++)
    coll_comm_destroy(&children[r]);
  split_all(&w, w.comms, &own, children);
  split_all(&w, children, NULL, grandchildren);
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(grandchildren[r]->watch.timeout_ns, 77 * COLLI_NS_PER_MS);
    cr_assert_str_eq(grandchildren[r]->params.text[COLLI_PARAM_ALGO], "barrier:direct");
    cr_assert_eq(grandchildren[r]->calls.deterministic, COLL_DETERMINISTIC_ORDERED);
    coll_comm_destroy(&grandchildren[r]);
    coll_comm_destroy(&children[r]);
  }
  world_close(&w);
}

/* A broadcast over a network that is slow for a while; its root destroys the communicator at once.
 * Time passes in steps, because ranks 2 and 3 talk. */
static int leave_at_once(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm **child = (coll_comm **)arg + rank;
  int32_t value = 7 * rank;
  (void)nranks;
  if (!*child)
    return coll_comm_split(comm, rank / 2, 0, NULL, child) != COLL_OK ||
           coll_barrier(*child) != COLL_OK;
  int failed = 0;
  for (int i = 0; rank >= 2 && i < 1000; i++)
    failed |= coll_barrier(*child) != COLL_OK;
  if (rank < 2)
    failed = coll_broadcast(&value, &value, 1, COLL_INT32, 1, *child) != COLL_OK || value != 7;
  coll_comm_destroy(child);
  return failed || coll_barrier(comm) != COLL_OK;
}

/* What a rank has sent before it left counts, even if it arrives late. */
Test(family, last_message_is_late, .timeout = 20) {
  sim_fault slow = {.kind = SIM_SLOW,
                    .rank = 1,
                    .at_ns = COLLI_NS_PER_S,
                    .for_ns = COLLI_NS_PER_S,
                    .extra_ns = 700 * COLLI_NS_PER_MS};
  world_config config = {.sim = {.seed = 1,
                                 .nranks = 4,
                                 .alpha_ns = COLLI_NS_PER_MS,
                                 .ns_per_byte = 1,
                                 .faults = &slow,
                                 .nfaults = 1},
                         .transport = &sim_transport,
                         .slot_bytes = 1024,
                         .slot_count = 4,
                         .timeout_ms = 10000};
  world w;
  coll_comm *children[4] = {NULL, NULL, NULL, NULL};
  cr_assert(world_open(&w, &config));
  cr_assert(world_run_fibers(&w, leave_at_once, children, COLLI_NS_PER_S / 2));
  sim_world_pass(w.sim, COLLI_NS_PER_S + COLLI_NS_PER_MS - world_now(&w));
  cr_assert(world_run_fibers(&w, leave_at_once, children, LIMIT_NS));
  world_close(&w);
}
