/*
 * test_mux.c: virtual channels keep the contract of transports, over shared memory, TCP and the
 * simulator. Left out are the checks of how an endpoint is found and trusted, which concern
 * the transport below, and those of a single connection that ends: a virtual channel ends
 * with its communicator.
 */
#include "support_conformance.h"
#include "tests/conformance/support_mux.h"
#include "transports/shm/shm.h"
#include "transports/sim/sim.h"
#include "transports/tcp/tcp.h"

#define MUX_CHECKS(X, suite, transport)                                                            \
  X(open_close, suite, transport)                                                                  \
  X(no_leaks, suite, transport)                                                                    \
  X(describe_reach, suite, transport)                                                              \
  X(connect_lower_first, suite, transport)                                                         \
  X(connect_higher_first, suite, transport)                                                        \
  X(disconnect_before_established, suite, transport)                                               \
  X(pairings, suite, transport)                                                                    \
  X(peek_is_stable, suite, transport)                                                              \
  X(slots_without_receiver, suite, transport)                                                      \
  X(sent_without_receive, suite, transport)                                                        \
  X(flow_control, suite, transport)                                                                \
  X(buffer_in_use, suite, transport)                                                               \
  X(channels_and_peers, suite, transport)                                                          \
  X(mismatch_tag, suite, transport)                                                                \
  X(mismatch_size, suite, transport)                                                               \
  X(peer_close, suite, transport)                                                                  \
  X(peer_close_send, suite, transport)                                                             \
  X(wait_fd_quiet, suite, transport)                                                               \
  X(wake, suite, transport)                                                                        \
  X(random_traffic, suite, transport)                                                              \
  X(memory_traffic, suite, transport)

static void *rough_world(int nranks) {
  return sim_world_create(&(sim_config){.seed = 5,
                                        .nranks = nranks,
                                        .alpha_ns = 1000,
                                        .jitter_ns = 20000,
                                        .ns_per_byte = 1,
                                        .again = 20,
                                        .pending = 50,
                                        .scribble = 30});
}

static void destroy_world(void *device) {
  sim_world_destroy(device);
}

static void advance_world(void *device) {
  if (!sim_world_advance(device))
    sim_world_pass(device, 1000000);
}

/* The transport with the mux over `below`. */
static const conf_transport *over(conf_transport *transport, const coll_transport_ops *below) {
  transport->ops = mux_over(below);
  return transport;
}

static conf_transport shm, tcp;
static conf_transport sim = {
    .setup = rough_world, .teardown = destroy_world, .advance = advance_world};

#define STAMP(suite, transport)                                                                    \
  TestSuite(suite, .timeout = 300);                                                                \
  MUX_CHECKS(CONF_TEST, suite, transport)

STAMP(mux_shm, over(&shm, &shm_transport))
STAMP(mux_tcp, over(&tcp, &tcp_transport))
STAMP(mux_sim, over(&sim, &sim_transport))

/* Polling is as cheap as that of the transport below. */
Test(mux_shm, spins) {
  cr_assert_eq(mux_over(&shm_transport)->caps, COLL_CAP_SPIN);
}

Test(mux_tcp, does_not_spin) {
  cr_assert_eq(mux_over(&tcp_transport)->caps, 0);
}
