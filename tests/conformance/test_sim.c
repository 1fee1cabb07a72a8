/* test_sim.c: the simulator keeps the contract of transports, in a calm world and in a rough one.
 */
#include "support_conformance.h"
#include "transports/sim/sim.h"

static void *calm_world(int nranks) {
  return sim_world_create(
      &(sim_config){.seed = 1, .nranks = nranks, .alpha_ns = 1000, .ns_per_byte = 0.1});
}

/* Late, out of order between connections, AGAIN for no reason, buffers read late. */
static void *rough_world(int nranks) {
  return sim_world_create(&(sim_config){.seed = 2,
                                        .nranks = nranks,
                                        .alpha_ns = 1000,
                                        .jitter_ns = 20000,
                                        .ns_per_byte = 1,
                                        .again = 20,
                                        .pending = 50,
                                        .scribble = 30});
}

static void destroy(void *device) {
  sim_world_destroy(device);
}

static void advance(void *device) {
  if (!sim_world_advance(device))
    sim_world_pass(device, 1000000);
}

static const conf_transport calm = {
    .ops = &sim_transport, .setup = calm_world, .teardown = destroy, .advance = advance};
static const conf_transport rough = {
    .ops = &sim_transport, .setup = rough_world, .teardown = destroy, .advance = advance};
static const conf_transport slots = {
    .ops = &sim_slot_transport, .setup = rough_world, .teardown = destroy, .advance = advance};

CONFORMANCE(sim, &calm)
CONFORMANCE(sim_rough, &rough)
CONFORMANCE(sim_slots, &slots)
