/* support_world.c: makes communicators in a simulated world and drives them. */
#include "support_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/create/assemble.h"
#include "libcoll/progress/wait.h"

#define POLL_ALL_NS 1000000ull /* how often every rank polls its watchdog and control links */
#define TICK_NS     5000000ull /* how far time advances when no event is left */
#define MAX_STEPS   200000000ull

/* Sets a number among the settings, as a user does. */
static void set_number(colli_params *params, colli_param_id id, long long value) {
  params->number[id] = value;
  params->from_env[id] = true;
}

/* The settings of all ranks. */
static bool make_params(const world_config *config, colli_params *params) {
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(params, &error) != COLL_OK) {
    fprintf(stderr, "settings: %s\n", error.message);
    return false;
  }
  set_number(params, COLLI_PARAM_SLOT_BYTES, (long long)config->slot_bytes);
  set_number(params, COLLI_PARAM_SLOT_COUNT, config->slot_count);
  set_number(params, COLLI_PARAM_TIMEOUT_MS, config->timeout_ms);
  set_number(params, COLLI_PARAM_DATA_CHECK, (long long)config->check);
  return colli_params_set_text(params, COLLI_PARAM_LOG, "none") &&
         colli_params_set_text(params, COLLI_PARAM_ALGO, config->algo ? config->algo : "") &&
         colli_params_set_text(params, COLLI_PARAM_FAULT, config->fault ? config->fault : "");
}

static uint8_t secret_bytes[COLL_SECRET_BYTES] = "all ranks of all worlds know it";
static colli_secret secret = {.refs = 1, .bytes = secret_bytes};

/* Virtual time, for communicators. */
static uint64_t now_of(void *ctx) {
  return sim_world_now(((world *)ctx)->sim);
}

/* First half of every communicator; false after printing why. */
static bool open_all(world *w, const world_config *config, const colli_params *params,
                     colli_rank_info *table) {
  const coll_transport_ops *const transports[] = {config->transport, NULL};
  coll_error error = COLL_ERROR_INIT;
  for (int rank = 0; rank < w->nranks; rank++) {
    colli_assembly assembly = {
        .rank = rank,
        .nranks = w->nranks,
        .comm_id = config->sim.seed,
        .secret = &secret,
        .params = params,
        .world = {.ctx = w, .now_ns = now_of, .device = w->sim, .pause = world_pause},
        .transports = transports,
    };
    if (colli_comm_open(&assembly, &w->comms[rank], &table[rank], &error) != COLL_OK) {
      fprintf(stderr, "open: rank %d: %s\n", rank, error.message);
      return false;
    }
  }
  return true;
}

/* Second half. */
static bool join_all(world *w, const colli_rank_info *all) {
  coll_error error = COLL_ERROR_INIT;
  colli_ctrl **ctrls = calloc((size_t)w->nranks, sizeof(colli_ctrl *));
  bool ok = ctrls && colli_ctrl_create_local(ctrls, w->nranks, false, &error) == COLL_OK;
  for (int rank = 0; ok && rank < w->nranks; rank++) {
    colli_ctrl *ctrl = ctrls[rank];
    ctrls[rank] = NULL;
    ok = colli_comm_join(&w->comms[rank], colli_rank_table_create(all, w->nranks), ctrl, &error) ==
         COLL_OK;
  }
  if (!ok)
    fprintf(stderr, "join: %s\n", error.message);
  for (int rank = 0; ctrls && rank < w->nranks; rank++)
    if (ctrls[rank])
      colli_ctrl_close(ctrls[rank], 0);
  free(ctrls);
  return ok;
}

bool world_open(world *w, const world_config *config) {
  *w = (world){.nranks = config->sim.nranks, .prng = {config->sim.seed ^ 0x77}};
  size_t n = (size_t)w->nranks;
  w->sim = sim_world_create(&config->sim);
  w->comms = calloc(n, sizeof(coll_comm *));
  w->buried = calloc(n, sizeof(bool));
  w->doomed = calloc(n, sizeof(bool));
  for (int i = 0; w->doomed && i < config->sim.nfaults; i++)
    if (config->sim.faults[i].kind == SIM_KILL || config->sim.faults[i].kind == SIM_FREEZE)
      w->doomed[config->sim.faults[i].rank] = true;
  colli_rank_info *table = calloc(n, sizeof(*table));
  colli_params *params = calloc(1, sizeof(*params));
  bool ok = w->sim && w->comms && w->buried && w->doomed && table && params &&
            make_params(config, params) && open_all(w, config, params, table) && join_all(w, table);
  free(table);
  free(params);
  if (!ok)
    world_close(w);
  return ok;
}

void world_close(world *w) {
  for (int rank = 0; w->comms && rank < w->nranks; rank++)
    coll_comm_destroy(&w->comms[rank]);
  sim_world_destroy(w->sim);
  free(w->comms);
  free(w->buried);
  free(w->doomed);
  *w = (world){0};
}

uint64_t world_now(const world *w) {
  return sim_world_now(w->sim) - SIM_START_NS;
}

/* A killed rank's control links close as the kernel would close its sockets. */
static void bury_rank(world *w, int rank) {
  if (w->buried[rank] || !w->comms[rank])
    return;
  w->buried[rank] = true;
  colli_ctrl_close(w->comms[rank]->family->ctrl, 0);
  w->comms[rank]->family->ctrl = NULL;
}

/* Ranks that may be able to make progress, in no particular order. */
typedef struct hot_set {
  int *ranks;
  bool *in;
  int count;
} hot_set;

static void hot_add(hot_set *hot, int rank) {
  if (hot->in[rank])
    return;
  hot->in[rank] = true;
  hot->ranks[hot->count++] = rank;
}

static void hot_add_all(hot_set *hot, int nranks) {
  for (int rank = 0; rank < nranks; rank++)
    hot_add(hot, rank);
}

/* Takes one at random. */
static int hot_take(hot_set *hot, colli_prng *prng) {
  int at = (int)colli_prng_below(prng, (uint64_t)hot->count);
  int rank = hot->ranks[at];
  hot->ranks[at] = hot->ranks[--hot->count];
  hot->in[rank] = false;
  return rank;
}

/* Whether all living ranks are done; also cleans up killed ones. */
static bool all_done(world *w, world_done done, void *ctx) {
  bool all = true;
  for (int rank = 0; rank < w->nranks; rank++) {
    sim_fate fate = sim_world_fate(w->sim, rank);
    if (fate == SIM_KILLED)
      bury_rank(w, rank);
    all &= fate != SIM_ALIVE || done(ctx, rank);
  }
  return all;
}

/* Advances time, and finds the ranks that can make progress then. */
static void let_time_pass(world *w, hot_set *hot, uint64_t *polled_ns) {
  if (!sim_world_advance(w->sim))
    sim_world_pass(w->sim, TICK_NS);
  for (int rank = sim_world_touched(w->sim); rank >= 0; rank = sim_world_touched(w->sim))
    hot_add(hot, rank);
  if (world_now(w) - *polled_ns >= POLL_ALL_NS) {
    *polled_ns = world_now(w);
    hot_add_all(hot, w->nranks);
  }
}

/* The loop of world_run(). */
static bool run_until_done(world *w, hot_set *hot, world_act act, world_done done, void *ctx,
                           uint64_t limit_ns) {
  uint64_t until = world_now(w) + limit_ns, polled_ns = world_now(w);
  int since_check = 0;
  hot_add_all(hot, w->nranks);
  while (w->steps++ < MAX_STEPS) {
    if (hot->count == 0) {
      if (world_now(w) >= until)
        return all_done(w, done, ctx);
      let_time_pass(w, hot, &polled_ns);
      if (hot->count > 0 && ++since_check < w->nranks)
        continue;
      since_check = 0;
      if (all_done(w, done, ctx))
        return true;
      continue;
    }
    int rank = hot_take(hot, &w->prng);
    if (sim_world_fate(w->sim, rank) != SIM_ALIVE || !w->comms[rank])
      continue;
    bool moved = act(ctx, rank);
    if (w->comms[rank] && colli_comm_progress(w->comms[rank]))
      moved = true;
    if (moved)
      hot_add(hot, rank);
  }
  return false;
}

bool world_run(world *w, world_act act, world_done done, void *ctx, uint64_t limit_ns) {
  hot_set hot = {calloc((size_t)w->nranks, sizeof(int)), calloc((size_t)w->nranks, sizeof(bool)),
                 0};
  bool ok = hot.ranks && hot.in && run_until_done(w, &hot, act, done, ctx, limit_ns);
  free(hot.ranks);
  free(hot.in);
  return ok;
}
