/*
 * test_verbs_fake.c: the conformance suite on a fake libibverbs, so that it also runs where
 * there is no device, and under sanitizers. InfiniBand with two ports, RoCE, a device by which
 * writes arrive in two parts, and the fault decorator.
 */
#include <string.h>

#include "support_verbs.h"
#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_tcp.h"
#include "transports/check/check.h"
#include "transports/hook/fault.h"
#include "transports/verbs/verbs.h"

static void *infiniband(int nranks) {
  (void)nranks;
  fake_verbs *fake = fake_load();
  cr_assert_not_null(fake);
  if (fake->count == 0)
    fake_add(fake, "mlx5_0", 2);
  return NULL;
}

static void *roce(int nranks) {
  (void)nranks;
  fake_verbs *fake = fake_load();
  cr_assert_not_null(fake);
  if (fake->count > 0)
    return NULL;
  fake_port *port = &fake_add(fake, "mlx5_0", 1)->ports[0];
  fake_make_roce(port);
  fake_gid(port, 0, "192.168.7.1", IBV_GID_TYPE_ROCE_V2);
  return NULL;
}

/* The same with addresses of version 1. */
static void *roce_v1(int nranks) {
  void *none = roce(nranks);
  fake_gid(&fake_load()->devices[0].ports[0], 0, "192.168.7.1", IBV_GID_TYPE_ROCE_V1);
  return none;
}

static const conf_transport rails = {.ops = &verbs_transport, .setup = infiniband};
CONFORMANCE(verbs_fake_rails, &rails)

static const conf_transport large = {
    .ops = &verbs_transport, .slot_bytes = 1 << 18, .slot_count = 8, .setup = roce};
CONFORMANCE(verbs_fake_large, &large)

/* Hosts with two network interfaces: the links beside the queue pairs have several sockets. */
static void *two_interfaces(int nranks) {
  conf_tcp_two_interfaces(nranks);
  return infiniband(nranks);
}

static const conf_transport linked = {
    .ops = &verbs_transport, .setup = two_interfaces, .prepare = conf_tcp_apart};
CONFORMANCE(verbs_fake_linked, &linked)

static void *slow(int nranks) {
  void *none = infiniband(nranks);
  fake_load()->slow = true;
  return none;
}

static const conf_transport in_parts = {.ops = &verbs_transport, .setup = slow};
CONFORMANCE(verbs_fake_slow, &in_parts)

/* Faults that a caller must bear without noticing. */
static const char *param(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,delay_us=300" : NULL;
}

static const conf_transport *faulty(void) {
  static conf_transport transport = {.setup = roce, .param = param};
  static fault_table table;
  transport.ops = colli_fault_over(&verbs_transport, &table);
  return &transport;
}
CONFORMANCE(verbs_fake_fault, faulty())

/* Messages that are long enough to be written to their places, and what becomes of them if that is
 * refused or told late. */
static const char *param_refuse(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,pending=25,refuse=20,delay_us=300"
                                         : NULL;
}

Test(verbs_fake_fault, long_messages, .timeout = 60) {
  fault_table table;
  conf_transport transport = {.ops = colli_fault_over(&verbs_transport, &table),
                              .slot_bytes = 65536,
                              .setup = roce,
                              .param = param_refuse};
  conf_memory_traffic(&transport);
}

/* With its messages checked. */
static void read_nonce(void *ctx, int rank, uint8_t nonce[COLLI_NONCE_BYTES]) {
  static const uint8_t drawn[4][COLLI_NONCE_BYTES] = {{1, 7}, {2, 8}, {3, 9}, {4, 10}};
  (void)ctx;
  memcpy(nonce, drawn[rank], COLLI_NONCE_BYTES);
}

static const conf_transport *checked(void) {
  static conf_transport transport = {.slot_bytes = 1 << 15, .setup = roce};
  static check_table table;
  transport.ops = colli_check_over(&verbs_transport, COLLI_DATA_CHECK_MAC, read_nonce, &table);
  return &transport;
}
CONFORMANCE(verbs_fake_check, checked())

static const conf_transport version_1 = {
    .ops = &verbs_transport, .slot_bytes = 1 << 15, .setup = roce_v1};
CONFORMANCE(verbs_fake_v1, &version_1)
