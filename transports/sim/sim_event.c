/* sim_event.c: the queue of events, chance, and what faults do to a message on its way. */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "transports/sim/sim_internal.h"

/* Whether event a comes before b. */
static bool is_earlier(const sim_event *a, const sim_event *b) {
  return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

/* Puts an event into the heap; false: out of memory. */
static bool heap_push(sim_world *world, sim_event event) {
  if (world->nevents == world->capacity) {
    size_t capacity = world->capacity ? 2 * world->capacity : 64;
    sim_event *grown = realloc(world->heap, capacity * sizeof(*grown));
    if (!grown)
      return false;
    world->heap = grown;
    world->capacity = capacity;
  }
  size_t at = world->nevents++;
  while (at > 0 && is_earlier(&event, &world->heap[(at - 1) / 2])) {
    world->heap[at] = world->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  world->heap[at] = event;
  return true;
}

/* Takes the earliest event out of the queue, which is not empty. */
sim_event sim_event_take(sim_world *world) {
  COLLI_ASSERT(world->nevents > 0 && world->heap[0].at_ns >= world->now_ns);
  sim_event first = world->heap[0];
  sim_event last = world->heap[--world->nevents];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= world->nevents)
      break;
    if (child + 1 < world->nevents && is_earlier(&world->heap[child + 1], &world->heap[child]))
      child++;
    if (!is_earlier(&world->heap[child], &last))
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
    world->endpoints[rank]->touched = true;
  if (world->is_touched[rank])
    return;
  world->is_touched[rank] = true;
  COLLI_ASSERT(world->touched_count < world->config.nranks);
  int at = (world->touched_first + world->touched_count++) % world->config.nranks;
  world->touched[at] = rank;
}

/* True with the given probability. */
bool sim_chance(sim_world *world, unsigned percent) {
  return percent && colli_prng_below(&world->network, 100) < percent;
}

/* What the way between two ranks costs. */
sim_link sim_link_of(const sim_world *world, int from, int to) {
  const sim_config *config = &world->config;
  return config->link ? config->link(config->link_ctx, from, to)
                      : (sim_link){(double)config->alpha_ns, config->ns_per_byte};
}

/* How long a message is under way. */
uint64_t sim_latency(sim_world *world, int from, int to) {
  const sim_config *config = &world->config;
  uint64_t ns = (uint64_t)sim_link_of(world, from, to).alpha_ns +
                colli_prng_below(&world->network, config->jitter_ns + 1);
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
