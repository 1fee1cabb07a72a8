/* test_fault.c: under the fault decorator every transport still keeps the contract. */
#include <string.h>

#include "support_conformance.h"
#include "transports/hook/fault.h"
#include "transports/shm/shm.h"
#include "transports/sim/sim.h"
#include "transports/tcp/tcp.h"

/* Faults that a caller must bear without noticing. */
static const char *param(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,delay_us=300" : NULL;
}

/*
 * With sends that are read later as well. They wait for the sender's next call, and the suite's
 * threads that send once and end, to see whether that wakes somebody, make none: so not in real
 * time.
 */
static const char *param_pending(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,pending=25,delay_us=300" : NULL;
}

/* And with much that is refused. */
static const char *param_refuse(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,pending=25,refuse=20,delay_us=300"
                                         : NULL;
}

static void *world(int nranks) {
  return sim_world_create(&(sim_config){.seed = 3, .nranks = nranks, .alpha_ns = 1000});
}

static void destroy(void *device) {
  sim_world_destroy(device);
}

static void advance(void *device) {
  if (!sim_world_advance(device))
    sim_world_pass(device, 1000000);
}

/* The decorated version of a transport, as the suite takes it. */
static const conf_transport *over(conf_transport *decorated, const coll_transport_ops *inner) {
  static fault_table table;
  decorated->ops = colli_fault_over(inner, &table);
  if (!decorated->param)
    decorated->param = param;
  return decorated;
}

static conf_transport sim = {
    .setup = world, .teardown = destroy, .advance = advance, .param = param_pending};
static conf_transport shm, tcp;

CONFORMANCE(fault_sim, over(&sim, &sim_transport))
CONFORMANCE(fault_shm, over(&shm, &shm_transport))
CONFORMANCE(fault_tcp, over(&tcp, &tcp_transport))

/* It holds copies back, so it must not say that none needs a further call. */
Test(fault_shm, copies_are_held_back, .timeout = 60) {
  conf_transport transport = {.param = param_pending};
  conf_send_copies(over(&transport, &shm_transport));
}

/* Messages that are long enough to be referred to. */
Test(fault_shm, long_messages, .timeout = 60) {
  conf_transport transport = {.slot_bytes = 65536, .param = param_pending};
  conf_memory_traffic(over(&transport, &shm_transport));
  transport.param = param_refuse;
  conf_memory_traffic(&transport);
}
