/* sim_world.c: virtual time, the queue of events, chance, and the plan of faults. */
#include <stdlib.h>
#include <string.h>

#include "transports/sim/sim_internal.h"

/* Whether event a comes before b. */
static bool before(const sim_event *a, const sim_event *b) {
  return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

/* Puts an event into the heap; false without memory. */
static bool heap_push(sim_world *world, sim_event event) {
  if (world->nevents == world->room) {
    size_t room = world->room ? 2 * world->room : 64;
    sim_event *grown = realloc(world->heap, room * sizeof(*grown));
    if (!grown)
      return false;
    world->heap = grown;
    world->room = room;
  }
  size_t at = world->nevents++;
  while (at > 0 && before(&event, &world->heap[(at - 1) / 2])) {
    world->heap[at] = world->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  world->heap[at] = event;
  return true;
}

/* Takes the earliest event out of the heap, which is not empty. */
static sim_event heap_pop(sim_world *world) {
  sim_event first = world->heap[0];
  sim_event last = world->heap[--world->nevents];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= world->nevents)
      break;
    if (child + 1 < world->nevents && before(&world->heap[child + 1], &world->heap[child]))
      child++;
    if (!before(&world->heap[child], &last))
      break;
    world->heap[at] = world->heap[child];
    at = child;
  }
  world->heap[at] = last;
  return first;
}

/* Plans an event. */
void sim_plan(sim_world *world, uint64_t at_ns, sim_event_kind kind, sim_pair *pair, int side) {
  sim_event event = {at_ns < world->now_ns ? world->now_ns : at_ns, world->order++, pair,
                     (int16_t)kind, (int16_t)side};
  if (!heap_push(world, event))
    world->out_of_memory = true;
  else if (pair)
    pair->refs++;
}

/* Notes that something happened to a rank. */
void sim_touch(sim_world *world, int rank) {
  if (world->endpoints[rank])
    world->endpoints[rank]->news = true;
  if (world->is_touched[rank])
    return;
  world->is_touched[rank] = true;
  int at = (world->touched_first + world->touched_count++) % world->config.nranks;
  world->touched[at] = rank;
}

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

/* True with the given probability. */
bool sim_chance(sim_world *world, unsigned percent) {
  return percent && colli_prng_below(&world->network, 100) < percent;
}

/* How long a message is under way. */
uint64_t sim_latency(sim_world *world, int from, int to) {
  const sim_config *config = &world->config;
  uint64_t ns = config->alpha_ns + colli_prng_below(&world->network, config->jitter_ns + 1);
  uint64_t now = world->now_ns - SIM_START_NS;
  for (int i = 0; i < config->nfaults; i++) {
    const sim_fault *fault = &world->faults[i];
    if (now < fault->at_ns || now - fault->at_ns >= fault->for_ns)
      continue;
    if (fault->kind == SIM_SLOW && (fault->rank == from || fault->rank == to))
      ns += fault->extra_ns;
    else if (fault->kind == SIM_DELAY)
      ns += colli_prng_below(&world->network, fault->extra_ns + 1);
  }
  return ns;
}

/* Damages a message if the plan says so. */
void sim_corrupt(sim_world *world, int from, sim_msg *msg) {
  for (int i = 0; i < world->config.nfaults; i++) {
    const sim_fault *fault = &world->faults[i];
    if (fault->kind != SIM_CORRUPT || fault->rank != from || world->spent[i] ||
        world->now_ns - SIM_START_NS < fault->at_ns)
      continue;
    world->spent[i] = true;
    uint64_t bit = colli_prng_below(&world->network, 256);
    if (bit < 192)
      msg->tag.word[bit / 64] ^= 1ull << (bit % 64);
    else
      msg->bytes -= msg->bytes > 0;
  }
}

/* Lets a fault of the plan happen. */
static void strike(sim_world *world, const sim_fault *fault) {
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
    sim_event event = heap_pop(world);
    if (event.kind == SIM_EV_FAULT) {
      strike(world, &world->faults[event.side]);
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

uint64_t sim_world_now(void *world) {
  return ((sim_world *)world)->now_ns;
}

sim_fate sim_world_fate(const sim_world *world, int rank) {
  return world->fate[rank];
}

uint64_t sim_world_messages(const sim_world *world) {
  return world->delivered;
}

/* Takes the memory of a world; false if there is too little. */
static bool allocate(sim_world *world, const sim_config *config) {
  size_t n = (size_t)config->nranks, nfaults = (size_t)config->nfaults;
  world->faults = calloc(nfaults + 1, sizeof(*world->faults));
  world->spent = calloc(nfaults + 1, sizeof(*world->spent));
  world->endpoints = calloc(n, sizeof(coll_endpoint *));
  world->fate = calloc(n, sizeof(*world->fate));
  world->left = calloc(n, sizeof(*world->left));
  world->touched = calloc(n, sizeof(*world->touched));
  world->is_touched = calloc(n, sizeof(*world->is_touched));
  return world->faults && world->spent && world->endpoints && world->fate && world->left &&
         world->touched && world->is_touched;
}

sim_world *sim_world_create(const sim_config *config) {
  sim_world *world = calloc(1, sizeof(*world));
  if (!world)
    return NULL;
  if (!allocate(world, config)) {
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

void sim_world_destroy(sim_world *world) {
  if (!world)
    return;
  while (world->nevents > 0) {
    sim_event event = heap_pop(world);
    if (event.pair)
      sim_pair_put(world, event.pair);
  }
  free(world->heap);
  free(world->faults);
  free(world->spent);
  free(world->endpoints);
  free(world->fate);
  free(world->left);
  free(world->touched);
  free(world->is_touched);
  free(world);
}
