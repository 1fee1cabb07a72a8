/* support_program.c: random programs of calls in streams. */
#include "support_program.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "support_levels.h"
#include "support_site.h"
#include "tests/proc/support_ranks.h"

enum { GRAPHS = 3, CALLS = 4, STEPS = 24, REGISTERED_BYTES = 120 << 10 };

/* New data for a call. */
typedef struct turn {
  struct worker *w;
  site *site;
  uint64_t salt;
  bool once; /* the site ends with it */
  struct turn *next;
} turn;

/* A graph. */
typedef struct graph {
  device_graph it;
  site *sites[CALLS];
  int count;  /* of them; 0: there is no graph */
  int lane;   /* where it was captured, or launched last */
  bool meets; /* when it has ended on one rank, all have come to its end */
} graph;

/* A rank. */
typedef struct worker {
  program *p;
  coll_comm *comm;
  int rank, nranks, step;
  colli_prng common, own;
  arena registered;
  colli_cu_stream lanes[PROGRAM_LANES];
  graph graphs[GRAPHS];
  int last;      /* the lane of the last calls; -1: whatever comes next need not follow them */
  bool launched; /* they were in graphs */
  uint64_t salt;
  turn *turns;       /* to be checked at the end, or by a stream */
  device_gate *gate; /* that stops a lane, or NULL */
  int gate_steps;    /* until it is opened */
  atomic_int wrong;
} worker;

/* ---- chance ---------------------------------------------------------------------------------- */

/* A number below a bound: the same on all ranks, or this rank's own. */
static int any(worker *w, int bound) {
  return (int)colli_prng_below(&w->common, (uint64_t)bound);
}

static int own(worker *w, int bound) {
  return (int)colli_prng_below(&w->own, (uint64_t)bound);
}

/* Elements of a call: mostly few, sometimes of several rounds. */
static size_t any_count(worker *w, size_t elem) {
  const int kind = any(w, 10);
  const size_t bytes = (size_t)any(w, kind < 6 ? 100 : kind < 9 ? 1500 : 10000);
  return bytes / elem;
}

static site_plan any_plan(worker *w) {
  site_plan plan;
  bool taken;
  do {
    plan = (site_plan){.coll = (case_coll)any(w, CASE_COLLS),
                       .type = (coll_type)any(w, COLL_TYPE_COUNT),
                       .op = (coll_op)any(w, COLL_OP_COUNT)};
    const bool scan = plan.coll == CASE_SCAN || plan.coll == CASE_EXSCAN;
    taken = plan.coll >= CASE_BROADCAST ||
            (case_takes(plan.type, plan.op) && !(scan && plan.op == COLL_AVG));
  } while (!taken);
  plan.root = any(w, w->nranks);
  plan.in_place = any(w, 4) == 0;
  plan.shape = colli_prng_next(&w->common);
  plan.count = any_count(w, coll_type_bytes(plan.type));
  const int kind = any(w, 6);
  plan.registered[0] = kind == 0 || kind == 2 || kind == 3;
  plan.registered[1] = kind == 1 || kind == 2 || kind == 3;
  if (kind < 4 && any(w, 2)) /* so many that it takes several rounds */
    plan.count = (size_t)(5000 + any(w, 8000)) / coll_type_bytes(plan.type);
  if (w->p->ngroups && any(w, 3) == 0) { /* long enough to be divided */
    static const case_coll colls[] = {CASE_ALLREDUCE, CASE_REDUCE,    CASE_REDUCE_SCATTER,
                                      CASE_BROADCAST, CASE_ALLGATHER, CASE_REDUCE_SCATTERV};
    plan.coll = colls[any(w, 6)];
    plan.type = COLL_FLOAT32;
    plan.op = COLL_SUM;
    plan.count = 768 + (size_t)any(w, 2000);
  }
  if (w->p->long_bytes && any(w, 6) == 0) {
    plan.coll = CASE_ALLREDUCE;
    plan.type = COLL_FLOAT32;
    plan.op = COLL_SUM;
    plan.count = w->p->long_bytes / sizeof(float) - (size_t)any(w, 100);
  }
  return plan;
}

/* A call with buffers, where this rank wants them. */
static site *any_site(worker *w, const site_plan *plan) {
  site_place places[2];
  for (int i = 0; i < 2; i++) {
    const int kind = own(w, 8);
    places[i] = kind < SITE_PLACES ? (site_place)kind : SITE_NEAR;
    if (places[i] == SITE_FAR && w->p->devices == 1)
      places[i] = SITE_NEAR;
  }
  return site_make(plan, w->rank, w->nranks, places, &w->registered);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Opens the gate, before this rank waits for anything. */
static void open_gate(worker *w) {
  if (w->gate)
    device_open(w->gate);
  w->gate = NULL;
}

static void await_lane(worker *w, int lane) {
  open_gate(w);
  device_await(w->lanes[lane]);
}

static void await_all(worker *w) {
  for (int i = 0; i < w->p->lanes; i++)
    await_lane(w, i);
}

/* Each rank is late or early in its own way. */
static void be_unlike_others(worker *w) {
  if (w->gate && --w->gate_steps < 0)
    open_gate(w);
  switch (own(w, 6)) {
  case 0:
    await_lane(w, own(w, w->p->lanes));
    break;
  case 1:
    for (int i = own(w, 2000); i > 0; i--)
      sched_yield();
    break;
  case 2:
    if (w->gate || !w->p->gates)
      break;
    w->gate = device_stop(w->lanes[own(w, w->p->lanes)]);
    w->gate_steps = own(w, 4);
    break;
  }
}

/* ---- data ------------------------------------------------------------------------------------ */

static void fill(void *arg) {
  const turn *u = arg;
  site_fill(u->site, u->salt);
}

static void check(void *arg) {
  const turn *u = arg;
  if (!site_check(u->site, u->salt))
    atomic_fetch_add(&u->w->wrong, 1);
}

/* Both at once. */
static void fill_now(const turn *u) {
  fill((void *)(uintptr_t)u);
  site_push(u->site, NULL);
}

static void check_now(const turn *u) {
  site_pull(u->site, NULL);
  check((void *)(uintptr_t)u);
}

/* In a stream. */
static void fill_in(const worker *w, int lane, turn *u) {
  device_call(w->lanes[lane], fill, u);
  site_push(u->site, w->lanes[lane]);
}

static void check_in(const worker *w, int lane, turn *u) {
  site_pull(u->site, w->lanes[lane]);
  device_call(w->lanes[lane], check, u);
}

/* Gives a call new data. */
static turn *new_turn(worker *w, site *s, bool once) {
  turn *u = malloc(sizeof(*u));
  *u = (turn){w, s, w->p->seed << 20 | ++w->salt, once, w->turns};
  return w->turns = u;
}

/* Forgets the calls so far, whose streams have ended; checks those that no stream has checked. */
static void forget(worker *w) {
  for (turn *u = w->turns, *next; u; u = next) {
    next = u->next;
    if (u->once) {
      check_now(u);
      site_free(u->site);
    }
    free(u);
  }
  w->turns = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Lets a lane come after the last calls where their order would be left to chance. */
static void follow(worker *w, int lane, bool launches) {
  if (w->last >= 0 && w->last != lane && (launches || w->launched))
    device_follow(w->lanes[lane], w->lanes[w->last]);
  w->last = lane;
  w->launched = launches;
}

/* Makes calls that have data, as a group if there are several. */
static int call_all(worker *w, turn *const *turns, int count, case_form form, void *stream) {
  coll_comm *comm = w->comm;
  const int rank = w->rank;
  coll_request *request;
  if (count > 1)
    RANK_OK(coll_group_start(comm));
  for (int i = 0; i < count; i++)
    RANK_OK(site_call(turns[i]->site, form, comm, stream, &request));
  if (count > 1)
    RANK_OK(coll_group_end(comm));
  if (form == CASE_NONBLOCKING)
    RANK_OK(coll_wait(&request, -1));
  return 0;
}

/* Calls in a stream. */
static int step_stream(worker *w) {
  const int lane = any(w, w->p->lanes), count = any(w, 3) ? 1 : 2 + any(w, CALLS - 1);
  turn *turns[CALLS];
  follow(w, lane, false);
  for (int i = 0; i < count; i++) {
    const site_plan plan = any_plan(w);
    turns[i] = new_turn(w, any_site(w, &plan), true);
    if (own(w, 2))
      fill_now(turns[i]);
    else
      fill_in(w, lane, turns[i]);
  }
  return call_all(w, turns, count, CASE_STREAMED, w->lanes[lane]);
}

/* Calls without a stream. They come after those in streams by themselves, but not after graphs. */
static int step_host(worker *w) {
  static const case_form forms[] = {CASE_BLOCKING, CASE_NONBLOCKING, CASE_GROUPED};
  const case_form form = forms[any(w, 3)];
  const int count = form == CASE_GROUPED ? 2 + any(w, CALLS - 1) : 1;
  turn *turns[CALLS];
  if (w->launched)
    await_lane(w, w->last);
  open_gate(w);
  w->last = -1;
  w->launched = false;
  for (int i = 0; i < count; i++) {
    const site_plan plan = any_plan(w);
    fill_now(turns[i] = new_turn(w, any_site(w, &plan), true));
  }
  return call_all(w, turns, count, form, NULL);
}

/* Whether all ranks come to the end of a call before one has ended it. A staged reduce, which short
 * ones of groups are, ends on a rank that has sent its part. */
static bool meets(const worker *w, const site_plan *plan) {
  return w->p->direct &&
         (plan->coll == CASE_ALLREDUCE || plan->coll == CASE_BARRIER ||
          plan->coll == CASE_ALLGATHER || (plan->coll == CASE_REDUCE && !w->p->ngroups));
}

/* Captures calls: one after the other, in one lane or two. */
static int capture(worker *w, graph *g) {
  coll_comm *comm = w->comm;
  const int rank = w->rank, home = any(w, w->p->lanes);
  int lane = home;
  device_capture(w->lanes[home]);
  for (int i = 0; i < g->count; i++) {
    const int to = any(w, w->p->lanes);
    if (to != lane)
      device_follow(w->lanes[to], w->lanes[lane]);
    lane = to;
    RANK_OK(site_call(g->sites[i], CASE_STREAMED, comm, w->lanes[lane], NULL));
  }
  if (lane != home)
    device_follow(w->lanes[home], w->lanes[lane]);
  g->it = device_capture_end(w->lanes[home]);
  g->lane = home;
  return 0;
}

static void free_graph(graph *g) {
  if (g->count > 0)
    device_graph_free(&g->it);
  for (int i = 0; i < g->count; i++)
    site_free(g->sites[i]);
  g->count = 0;
}

/* Makes a graph, perhaps instead of another. */
static int step_capture(worker *w) {
  graph *g = &w->graphs[any(w, GRAPHS)];
  await_all(w);
  forget(w);
  free_graph(g);
  const int count = 1 + any(w, CALLS);
  for (int i = 0; i < count; i++) {
    const site_plan plan = any_plan(w);
    g->sites[i] = any_site(w, &plan);
    g->meets = meets(w, &plan);
  }
  g->count = count;
  return capture(w, g);
}

/* Lets the next calls follow graphs that one rank has seen end: there only the others' streams are
 * still at their ends. */
static void leap(worker *w) {
  if (w->rank == any(w, w->nranks)) {
    await_all(w);
    atomic_store(&w->p->passed, w->step);
  }
  open_gate(w);
  while (atomic_load(&w->p->passed) < w->step && atomic_load(&w->p->passed) >= 0)
    sched_yield();
  w->last = -1;
  w->launched = false;
}

/* New data for a graph, and the lane of its launch. */
static void ready_graph(worker *w, graph *g, turn **turns) {
  const int lane = any(w, w->p->lanes);
  if (lane != g->lane)
    device_follow(w->lanes[lane], w->lanes[g->lane]);
  g->lane = lane;
  for (int i = 0; i < g->count; i++)
    fill_in(w, lane, turns[i] = new_turn(w, g->sites[i], false));
}

/* Launches some graphs, one directly after the other. */
static int step_launch(worker *w) {
  turn *turns[GRAPHS][CALLS];
  graph *last = NULL;
  const int first = any(w, GRAPHS), count = 1 + any(w, GRAPHS);
  for (int i = 0; i < count; i++)
    ready_graph(w, &w->graphs[(first + i) % GRAPHS], turns[i]);
  for (int i = 0; i < count; i++) {
    graph *g = &w->graphs[(first + i) % GRAPHS];
    if (g->count == 0)
      continue;
    follow(w, g->lane, true);
    device_launch(&g->it, w->lanes[g->lane]);
    last = g;
  }
  for (int i = 0; i < count; i++) {
    const graph *g = &w->graphs[(first + i) % GRAPHS];
    for (int k = 0; k < g->count; k++)
      check_in(w, g->lane, turns[i][k]);
  }
  if (last && last->meets && any(w, 2))
    leap(w);
  return 0;
}

/* ---- a program ------------------------------------------------------------------------------- */

static int go_on(worker *w) {
  static int (*const steps[])(worker *) = {step_stream, step_stream, step_stream, step_capture,
                                           step_launch, step_launch, step_launch, step_host};
  static const char *const names[] = {"stream", "capture", "launch", "host"};
  static const int without[] = {0, 0, 0, 0, 0, 0, 7, 7};
  const int random = any(w, 8), with = w->step <= 2 ? 3 : random; /* first some graphs */
  const int kind = w->p->graphs ? with : without[random];
  be_unlike_others(w);
  if (w->p->verbose)
    fprintf(stderr, "rank %d: step %d, %s\n", w->rank, w->step,
            names[kind < 3    ? 0
                  : kind == 3 ? 1
                  : kind < 7  ? 2
                              : 3]);
  return steps[kind](w);
}

int program_run(coll_comm *comm, int rank, int nranks, void *arg) {
  program *p = arg;
  worker *w = calloc(1, sizeof(*w));
  *w = (worker){.p = p, .comm = comm, .rank = rank, .nranks = nranks, .last = -1};
  w->common = (colli_prng){p->seed};
  w->own = (colli_prng){p->seed * 64 + 1 + (uint64_t)rank};
  const levels_shape shape = {p->ngroups, p->ngroups ? nranks / p->ngroups : 0, p->seed % 2};
  device_use(p->ngroups ? levels_device(&shape, rank, p->mode_number) : rank % p->devices);
  RANK_OK(device_share(comm));
  RANK_CHECK(!p->ngroups == !comm->levels);
  RANK_OK(arena_make(comm, &w->registered, REGISTERED_BYTES, p->seed % 2));
  for (int i = 0; i < p->lanes; i++)
    w->lanes[i] = device_stream();
  int failed = 0;
  for (w->step = 1; w->step <= STEPS && !failed; w->step++)
    failed = go_on(w);
  if (failed)
    atomic_store(&p->passed, -1);
  await_all(w);
  RANK_CHECK(!failed);
  RANK_OK(coll_comm_async_error(comm));
  forget(w);
  for (int i = 0; i < GRAPHS; i++)
    free_graph(&w->graphs[i]);
  RANK_OK(arena_free(comm, &w->registered));
  RANK_CHECK(atomic_load(&w->wrong) == 0);
  free(w);
  return 0;
}
