/*
 * test_verbs_conn.c: connections over a fake libibverbs: what becomes of the settings, of devices
 * with several ports or with little room; and ends that come at odd moments.
 */
#include <stdlib.h>
#include <string.h>

#include "support_verbs.h"
#include "tests/conformance/support_world.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/verbs_internal.h"

static void *infiniband(int nranks) {
  (void)nranks;
  fake_verbs *fake = fake_load();
  cr_assert_not_null(fake);
  if (fake->count == 0)
    fake_add(fake, "mlx5_0", 1);
  return NULL;
}

static verbs_conn *conn_of(const conf_end *end) {
  return (verbs_conn *)end->conn;
}

/* Which ways through the network an end says that it has. */
static void expect_path(const conf_end *end, const char *path) {
  char text[128], cut[8];
  cr_expect_eq(verbs_transport.paths(end->conn, text, sizeof(text)), 0);
  cr_expect_str_eq(text, path);
  verbs_transport.paths(end->conn, cut, sizeof(cut));
  cr_expect(strlen(cut) == sizeof(cut) - 1 && strncmp(cut, text, sizeof(cut) - 1) == 0);
}

/* ---- settings and devices -------------------------------------------------------------------- */

static const char *settings(const char *name) {
  static const char *const values[][2] = {
      {"COLL_VERBS_GID_INDEX", "3"},     {"COLL_VERBS_TRAFFIC_CLASS", "104"},
      {"COLL_VERBS_SERVICE_LEVEL", "5"}, {"COLL_VERBS_TIMEOUT", "15"},
      {"COLL_VERBS_RETRY", "4"},         {"COLL_VERBS_DEVICE", "mlx5_1"},
      {"COLL_VERBS_PORT", "2"}};
  for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
    if (strcmp(name, values[i][0]) == 0)
      return values[i][1];
  return NULL;
}

static void *roce_at_3(int nranks) {
  (void)nranks;
  fake_verbs *fake = fake_load();
  cr_assert_not_null(fake);
  fake_add(fake, "mlx5_0", 1);
  fake_port *port = &fake_add(fake, "mlx5_1", 2)->ports[1];
  fake_make_roce(port);
  port->attr.active_mtu = IBV_MTU_1024;
  fake_gid(port, 0, "192.168.6.1", IBV_GID_TYPE_ROCE_V2);
  fake_gid(port, 3, "192.168.7.1", IBV_GID_TYPE_ROCE_V2);
  return NULL;
}

/* Every setting arrives at the queue pair. */
Test(verbs_conn, settings, .timeout = 30) {
  conf_world *world = conf_begin(
      &(conf_transport){.ops = &verbs_transport, .setup = roce_at_3, .param = settings}, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  const verbs_rail *rail = conn_of(&a)->port->rail;
  cr_expect_str_eq(rail->name, "mlx5_1");
  cr_expect_eq(rail->port, 2);
  const struct ibv_qp_attr *attr = &fake_load()->attr;
  cr_expect_eq(attr->ah_attr.grh.sgid_index, 3);
  cr_expect_eq(attr->ah_attr.grh.dgid.raw[14], 7);
  cr_expect_eq(attr->ah_attr.grh.traffic_class, 104);
  cr_expect_eq(attr->ah_attr.sl, 5);
  cr_expect_eq(attr->ah_attr.port_num, 2);
  cr_expect_eq(attr->timeout, 15);
  cr_expect_eq(attr->retry_cnt, 4);
  cr_expect_eq(attr->path_mtu, IBV_MTU_1024);
  verbs_wire_rail *peer = &conn_of(&a)->peer_rail; /* as if on a slower port elsewhere */
  peer->gid[conn_of(&a)->path.their_gid][15] = 9;
  peer->gbit = 25;
  expect_path(&a, "mlx5_1:2 192.168.7.1 to 192.168.7.9 (25 Gbit/s)");
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

static void *two_devices(int nranks) {
  infiniband(nranks);
  fake_add(fake_load(), "mlx5_1", 1);
  return NULL;
}

/* Connections of one pair are spread over devices, each end of a connection on the same one. */
Test(verbs_conn, rails_over_devices, .timeout = 30) {
  conf_world *world =
      conf_begin(&(conf_transport){.ops = &verbs_transport, .setup = two_devices}, 2, -1);
  conf_end a[4], b[4];
  for (int channel = 0; channel < 4; channel++) {
    conf_pair(world, 0, 1, channel, &a[channel], &b[channel]);
    const char *name = conn_of(&a[channel])->port->rail->name;
    cr_expect_str_eq(name, conn_of(&b[channel])->port->rail->name);
    cr_expect_eq(strcmp(name, conn_of(&a[0])->port->rail->name) == 0, channel % 2 == 0);
    expect_path(&a[channel], strcmp(name, "mlx5_0") == 0
                                 ? "mlx5_0:1 LID 10 to LID 10 (100 Gbit/s)"
                                 : "mlx5_1:1 LID 20 to LID 20 (100 Gbit/s)");
    conf_exchange(world, &a[channel], CONF_SEND, &b[channel], CONF_PEEK, 10, world->slot_bytes);
  }
  for (int channel = 0; channel < 4; channel++) {
    conf_disconnect(&a[channel]);
    conf_disconnect(&b[channel]);
  }
  conf_finish(world);
}

/* A device that carries little in its work requests, and has few receive requests. */
static void *poor(int nranks) {
  infiniband(nranks);
  fake_load()->devices[0].max_srq_wr = 5;
  fake_load()->devices[0].max_inline = 70;
  return NULL;
}

Test(verbs_conn, poor_device, .timeout = 60) {
  const conf_transport transport = {.ops = &verbs_transport, .slot_bytes = 1 << 15, .setup = poor};
  conf_pairings(&transport);
  conf_flow_control(&transport);
  conf_memory_traffic(&transport);
  conf_random_traffic(&transport);
}

/* Without room for completions a connection is an error that says what to do. */
static void *short_queues(int nranks) {
  infiniband(nranks);
  fake_load()->devices[0].max_cqe = 256 + (int)VERBS_SENDS;
  return NULL;
}

Test(verbs_conn, no_room_for_completions, .timeout = 30) {
  conf_world *world =
      conf_begin(&(conf_transport){.ops = &verbs_transport, .setup = short_queues}, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  conf_end second = conf_connect(world, 0, 1, 1);
  char path[64] = "none yet";
  cr_expect_eq(verbs_transport.paths(second.conn, path, sizeof(path)), 1);
  cr_expect_str_empty(path);
  cr_expect_eq(conf_receive_error(world, &second), COLL_ERR_NO_MEMORY);
  cr_expect(strstr(world->rank[0].last.detail, "mlx5_0 has no completion queue"), "%s",
            world->rank[0].last.detail);
  conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, 10, world->slot_bytes);
  conf_disconnect(&second);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* Memory that a peer does not let this rank write to: the error names both and the request. */
Test(verbs_conn, remote_access, .timeout = 30) {
  conf_world *world =
      conf_begin(&(conf_transport){.ops = &verbs_transport, .setup = infiniband}, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  conn_of(&a)->write.wr.rdma.rkey += 1000;
  char text[64];
  data_fill_bytes(text, sizeof(text), 5);
  cr_assert_eq(conf_try_send(&a, CONF_SEND, 5, text, sizeof(text)), COLL_T_DONE);
  cr_expect_eq(conf_receive_error(world, &a), COLL_ERR_PEER_LOST);
  const coll_transport_failure *last = &world->rank[0].last;
  cr_expect_eq(last->peer, 1);
  cr_expect(strstr(last->detail, "RDMA write number ") &&
                strstr(last->detail, "rank 1, mlx5_0 port 1: remote access error"),
            "%s", last->detail);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* ---- connections that end at odd moments ----------------------------------------------------- */

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

Test(verbs_conn, farewell_before_ready, .timeout = 30) {
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
  conn->ep->polled_ns = stopped_at;
  conn->ep->poll_now = false;
  data_fill_bytes(text, sizeof(text), 5);
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
 * A peer whose process is killed: its queue pairs are gone without an event, and its end of the
 * link is closed. Messages of it that are here are received, then comes the error; memory that it
 * had been told of is the caller's again.
 */
enum { LONG = 32768, MEMORY = 8 * LONG };

static void kill_peer(const conf_end *end) {
  verbs_conn *conn = (verbs_conn *)end->conn;
  verbs_qp_destroy(conn);
  conn->gate = VERBS_GATE_GONE;
  tcp_transport.disconnect(conn->link);
  conn->link = NULL;
}

Test(verbs_conn, killed_peer, .timeout = 30) {
  static const conf_transport transport = {
      .ops = &verbs_transport, .slot_bytes = LONG, .setup = infiniband};
  for (int sends = 0; sends < 2; sends++) {
    conf_world *world = conf_begin(&transport, 2, -1);
    coll_endpoint *ep = world->rank[1].ep;
    conf_end a, b;
    char *memory = calloc(1, MEMORY), *out = calloc(1, MEMORY);
    cr_assert(memory && out);
    conf_pair(world, 0, 1, 0, &a, &b);
    verbs_transport.register_buffer(ep, memory, memory, MEMORY, 1);
    verbs_transport.register_buffer(world->rank[0].ep, out, out, MEMORY, 0);
    coll_tag tag = conf_tag(7);
    cr_assert_eq(verbs_transport.expect(b.conn, 0, &tag, memory, MEMORY, LONG), COLL_T_DONE);
    data_fill_bytes(out, LONG, 7);
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
    verbs_transport.release_buffers(ep, memory);
    conf_disconnect(&a);
    verbs_transport.release_buffers(world->rank[0].ep, out);
    free(memory);
    free(out);
    conf_finish(world);
    cr_expect_eq(fake_load()->registered, 0);
  }
}

/*
 * A side that leaves after all that it expected has come lets what it sent arrive, and says
 * farewell.
 */
Test(verbs_conn, farewell_after_expected, .timeout = 30) {
  static const conf_transport transport = {
      .ops = &verbs_transport, .slot_bytes = LONG, .setup = infiniband};
  conf_world *world = conf_begin(&transport, 2, -1);
  conf_end a, b;
  char text[100], *memory = calloc(2, LONG);
  cr_assert_not_null(memory);
  conf_pair(world, 0, 1, 0, &a, &b);
  verbs_transport.register_buffer(world->rank[1].ep, memory, memory, LONG, 1);
  verbs_transport.register_buffer(world->rank[0].ep, memory, memory + LONG, LONG, 0);
  coll_tag tag = conf_tag(7);
  cr_assert_eq(verbs_transport.expect(b.conn, 0, &tag, memory, LONG, LONG), COLL_T_DONE);
  cr_expect_eq(((verbs_conn *)b.conn)->here.made, 1, "it was not told of");
  data_fill_bytes(memory + LONG, LONG, 7);
  cr_assert_eq(conf_try_send(&a, CONF_SEND, 7, memory + LONG, LONG), COLL_T_PENDING);
  while (conf_try_recv(&b, CONF_RECV, 7, memory, LONG) != COLL_T_DONE)
    conf_round(world);
  data_fill_bytes(text, sizeof(text), 5);
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 5, text, sizeof(text)), COLL_T_DONE);
  conf_disconnect(&b);
  verbs_transport.release_buffers(world->rank[1].ep, memory);
  conf_receive(world, &a, CONF_RECV, 5, sizeof(text));
  cr_expect_eq(conf_receive_error(world, &a), COLL_ERR_PEER_LOST);
  cr_expect(strstr(world->rank[0].last.detail, "has closed the connection"), "%s",
            world->rank[0].last.detail);
  conf_disconnect(&a);
  verbs_transport.release_buffers(world->rank[0].ep, memory);
  free(memory);
  conf_finish(world);
}
