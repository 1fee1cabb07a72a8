/* sim_world.c: makes worlds, moves virtual time, and lets planned faults happen. */
#include <stdlib.h>
#include <string.h>

#include "transports/sim/sim_internal.h"

/* The next rank to which something has happened. */
int sim_world_touched(sim_world *world) {
  if (world->touched_count == 0)
    return -1;
  int rank = world->touched[world->touched_first];
  world->touched_first = (world->touched_first + 1) % world->config.nranks;
  world->touched_count--;
  world->is_touched[rank] = false;
  return rank;
}

/* Lets a fault of the plan happen. */
static void apply_fault(sim_world *world, const sim_fault *fault) {
  sim_fate *fate = &world->fate[fault->rank];
  if (fault->kind == SIM_CUT || fault->kind == SIM_STALL) {
    sim_link_break(world, fault);
  } else if (fault->kind == SIM_KILL && *fate == SIM_ALIVE) {
    *fate = SIM_KILLED;
    sim_rank_die(world, fault->rank);
  } else if (fault->kind == SIM_FREEZE && *fate == SIM_ALIVE) {
    *fate = SIM_FROZEN;
  }
}

/* Moves the time to the next event and lets it happen. */
bool sim_world_advance(sim_world *world) {
  if (world->nevents == 0)
    return false;
  world->now_ns = world->heap[0].at_ns;
  while (world->nevents > 0 && world->heap[0].at_ns == world->now_ns) {
    sim_event event = sim_event_take(world);
    if (event.kind == SIM_EV_FAULT) {
      apply_fault(world, &world->faults[event.side]);
      continue;
    }
    sim_side_event(world, event.pair, event.side, (sim_event_kind)event.kind);
    sim_pair_put(world, event.pair);
  }
  return true;
}

/* Lets virtual time pass. */
void sim_world_pass(sim_world *world, uint64_t ns) {
  uint64_t until = world->now_ns + ns;
  while (world->nevents > 0 && world->heap[0].at_ns <= until)
    sim_world_advance(world);
  world->now_ns = until;
}

/* Virtual time. */
uint64_t sim_world_now(void *world) {
  return ((sim_world *)world)->now_ns;
}

/* The state of a rank. */
sim_fate sim_world_fate(const sim_world *world, int rank) {
  return world->fate[rank];
}

/* Messages delivered so far. */
uint64_t sim_world_messages(const sim_world *world) {
  return world->delivered;
}

/* Takes the memory of a world; false if there is too little. */
static bool allocate_world(sim_world *world, const sim_config *config) {
  size_t n = (size_t)config->nranks, nfaults = (size_t)config->nfaults;
  world->faults = calloc(nfaults + 1, sizeof(*world->faults));
  world->spent = calloc(nfaults + 1, sizeof(*world->spent));
  world->endpoints = calloc(n, sizeof(coll_endpoint *));
  world->port_ns = calloc(n, sizeof(*world->port_ns));
  world->fate = calloc(n, sizeof(*world->fate));
  world->left = calloc(n, sizeof(*world->left));
  world->touched = calloc(n, sizeof(*world->touched));
  world->is_touched = calloc(n, sizeof(*world->is_touched));
  return world->faults && world->spent && world->endpoints && world->port_ns && world->fate &&
         world->left && world->touched && world->is_touched;
}

/* Makes a world and plans its faults. */
sim_world *sim_world_create(const sim_config *config) {
  sim_world *world = calloc(1, sizeof(*world));
  if (!world)
    return NULL;
  if (!allocate_world(world, config)) {
    sim_world_destroy(world);
    return NULL;
  }
  if (config->nfaults > 0)
    memcpy(world->faults, config->faults, (size_t)config->nfaults * sizeof(*world->faults));
  world->config = *config;
  world->config.faults = world->faults;
  world->now_ns = SIM_START_NS;
  world->network.state = config->seed;
  for (int i = 0; i < config->nfaults; i++)
    sim_plan(world, SIM_START_NS + world->faults[i].at_ns, SIM_EV_FAULT, NULL, i);
  if (world->out_of_memory) {
    sim_world_destroy(world);
    return NULL;
  }
  return world;
}

/* Frees a world. */
void sim_world_destroy(sim_world *world) {
  if (!world)
    return;
  while (world->nevents > 0) {
    sim_event event = sim_event_take(world);
    if (event.pair)
      sim_pair_put(world, event.pair);
  }
  free(world->heap);
  free(world->faults);
  free(world->spent);
  free(world->endpoints);
  free(world->port_ns);
  free(world->fate);
  free(world->left);
  free(world->touched);
  free(world->is_touched);
  free(world);
}
