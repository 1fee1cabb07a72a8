/*
 * test_verbs_fake.c: the conformance suite on a pretended libibverbs, so that it also runs where
 * there is no device, and under sanitizers. InfiniBand with two ports, RoCE, a device by which
 * writes arrive in two parts, and the fault decorator. And ends of connections that come at odd
 * moments.
 */
#include <stdlib.h>
#include <string.h>

#include "support_verbs.h"
#include "tests/conformance/support_world.h"
#include "transports/hook/fault.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/verbs_internal.h"

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

static const conf_transport rails = {.ops = &verbs_transport, .setup = infiniband};
CONFORMANCE(verbs_fake_rails, &rails)

static const conf_transport large = {
    .ops = &verbs_transport, .slot_bytes = 1 << 18, .slot_count = 8, .setup = roce};
CONFORMANCE(verbs_fake_large, &large)

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
  transport.ops = colli_fault_over(&verbs_transport);
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
  conf_transport transport = {.ops = colli_fault_over(&verbs_transport),
                              .slot_bytes = 65536,
                              .setup = roce,
                              .param = param_refuse};
  conf_memory_traffic(&transport);
}

/* ---- ends that come at odd moments -------------------------------------------------------------
 */

/*
 * A farewell may overtake the word that the peer is ready, which goes over the link: what was sent
 * before it is delivered all the same. Here that word is not looked for, as the clock stands still.
 */
static uint64_t stopped_at;

static uint64_t stopping_clock(void *ctx) {
  (void)ctx;
  return stopped_at ? stopped_at : conf_real_ns();
}

static void prepare(coll_transport_env *env) {
  env->now_ns = stopping_clock;
}

Test(verbs_fake, farewell_before_ready, .timeout = 30) {
  static const conf_transport transport = {
      .ops = &verbs_transport, .setup = infiniband, .prepare = prepare};
  conf_world *world = conf_begin(&transport, 2, -1);
  conf_end a, b;
  char text[100];
  conf_pair(world, 0, 1, 0, &a, &b);
  verbs_conn *conn = (verbs_conn *)b.conn;
  conn->gate |= VERBS_GATE_CONNECTING;
  conn->ep->connecting++;
  stopped_at = conf_real_ns();
  conn->ep->looked_ns = stopped_at;
  conn->ep->look_now = false;
  conf_fill(text, sizeof(text), 5);
  cr_assert_eq(conf_try_send(&a, CONF_SEND, 5, text, sizeof(text)), COLL_T_DONE);
  cr_expect_eq(conf_try_recv(&b, CONF_RECV, 5, text, sizeof(text)), COLL_T_AGAIN);
  conf_disconnect(&a);
  (void)verbs_transport.progress(world->rank[1].ep);
  cr_assert_eq(conn->gate, VERBS_GATE_CONNECTING | VERBS_GATE_GONE);
  cr_expect_eq(conf_try_recv(&b, CONF_RECV, 5, text, sizeof(text)), COLL_T_DONE);
  cr_expect_eq(world->rank[1].failures, 0);
  stopped_at = 0;
  cr_expect_eq(conf_receive_error(world, &b), COLL_ERR_PEER_LOST);
  conf_disconnect(&b);
  conf_finish(world);
}

/*
 * A peer whose process is killed: its queue pairs are gone without a word, and its end of the link
 * is closed. Messages of it that are here are received, then comes the error; memory that it had
 * been told of is the caller's again.
 */
enum { LONG = 32768, MEMORY = 8 * LONG };

static void kill_peer(const conf_end *end) {
  verbs_conn *conn = (verbs_conn *)end->conn;
  verbs_qp_end(conn);
  conn->gate = VERBS_GATE_GONE;
  tcp_transport.disconnect(conn->link);
  conn->link = NULL;
}

Test(verbs_fake, killed_peer, .timeout = 30) {
  static const conf_transport transport = {
      .ops = &verbs_transport, .slot_bytes = LONG, .setup = infiniband};
  for (int sends = 0; sends < 2; sends++) {
    conf_world *world = conf_begin(&transport, 2, -1);
    coll_endpoint *ep = world->rank[1].ep;
    conf_end a, b;
    char *memory = calloc(1, MEMORY), *out = calloc(1, MEMORY);
    cr_assert(memory && out);
    conf_pair(world, 0, 1, 0, &a, &b);
    verbs_transport.lend(ep, memory, memory, MEMORY, 1);
    verbs_transport.lend(world->rank[0].ep, out, out, MEMORY, 0);
    coll_tag tag = conf_tag(7);
    cr_assert_eq(verbs_transport.expect(b.conn, 0, &tag, memory, MEMORY, LONG), COLL_T_DONE);
    conf_fill(out, LONG, 7);
    cr_assert_eq(conf_try_send(&a, CONF_SEND, 7, out, LONG), COLL_T_PENDING);
    kill_peer(&a);
    int status;
    while ((status = conf_try_recv(&b, CONF_RECV, 7, memory, LONG)) == COLL_T_AGAIN)
      conf_round(world);
    cr_expect_eq(status, COLL_T_DONE, "what had come: %d", status);
    while (sends && (status = conf_try_send(&b, CONF_SEND, 8, memory + LONG, LONG)) <= 0)
      conf_round(world);
    cr_expect_eq(sends ? status : conf_receive_error(world, &b), COLL_ERR_PEER_LOST);
    cr_expect_eq(world->rank[1].last.peer, 0);
    cr_expect_eq(world->rank[1].failures, 1);
    conf_disconnect(&b);
    verbs_transport.reclaim(ep, memory);
    conf_disconnect(&a);
    verbs_transport.reclaim(world->rank[0].ep, out);
    free(memory);
    free(out);
    conf_finish(world);
    cr_expect_eq(fake_load()->registered, 0);
  }
}
