/* test_check.c: with its messages checked every transport still keeps the contract. */
#include <string.h>

#include "support_conformance.h"
#include "transports/check/check.h"
#include "transports/hook/fault.h"
#include "transports/shm/shm.h"
#include "transports/sim/sim.h"
#include "transports/tcp/tcp.h"

/* What the ranks drew. */
static void read_nonce(void *ctx, int rank, uint8_t nonce[COLLI_NONCE_BYTES]) {
  static const uint8_t drawn[4][COLLI_NONCE_BYTES] = {{1, 7}, {2, 8}, {3, 9}, {4, 10}};
  (void)ctx;
  memcpy(nonce, drawn[rank], COLLI_NONCE_BYTES);
}

/* Late, AGAIN for no reason, buffers read late. */
static void *world(int nranks) {
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

static const char *faults(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,delay_us=300" : NULL;
}

static conf_transport sim = {.setup = world, .teardown = destroy, .advance = advance};
static conf_transport sim_mac = {.setup = world, .teardown = destroy, .advance = advance};
static const char *with_tls(const char *name) {
  return strcmp(name, "COLL_TLS") == 0 ? "1" : NULL;
}

static conf_transport tls = {.param = with_tls};
static conf_transport shm, tcp, tcp_mac, faulty = {.param = faults};
static check_table sim_table, sim_mac_table, shm_table, tcp_table, tcp_mac_table, tls_table,
    faulty_table;

/* The checked version of a transport, as the suite takes it. */
static const conf_transport *over(conf_transport *checked, const coll_transport_ops *inner,
                                  colli_data_check kind, check_table *table) {
  checked->ops = colli_check_over(inner, kind, read_nonce, table);
  cr_assert_neq(checked->ops, inner);
  return checked;
}

/* Checks over faults, as in a communicator. */
static const conf_transport *over_faults(void) {
  static fault_table table;
  return over(&faulty, colli_fault_over(&tcp_transport, &table), COLLI_DATA_CHECK_MAC,
              &faulty_table);
}

CONFORMANCE(check_sim, over(&sim, &sim_transport, COLLI_DATA_CHECK_CRC32C, &sim_table))
CONFORMANCE(check_sim_mac, over(&sim_mac, &sim_transport, COLLI_DATA_CHECK_MAC, &sim_mac_table))
CONFORMANCE(check_shm, over(&shm, &shm_transport, COLLI_DATA_CHECK_CRC32C, &shm_table))
CONFORMANCE(check_tcp, over(&tcp, &tcp_transport, COLLI_DATA_CHECK_CRC32C, &tcp_table))
CONFORMANCE(check_tcp_mac, over(&tcp_mac, &tcp_transport, COLLI_DATA_CHECK_MAC, &tcp_mac_table))
CONFORMANCE(check_tls_mac, over(&tls, &tcp_transport, COLLI_DATA_CHECK_MAC, &tls_table))
CONFORMANCE(check_fault, over_faults())

/* Memory that ranks share needs no codes, and nothing is decorated for nothing. */
Test(check, left_alone) {
  check_table table;
  cr_assert_eq(colli_check_over(&shm_transport, COLLI_DATA_CHECK_MAC, read_nonce, &table),
               &shm_transport);
  cr_assert_eq(colli_check_over(&tcp_transport, COLLI_DATA_CHECK_NONE, read_nonce, &table),
               &tcp_transport);
}
