/*
 * support_mux.c: the mux as a transport of its own. It has no endpoints: here each is a family with
 * one communicator, whose rank r has number 1 everywhere. What a virtual channel says of a failure
 * is passed to the suite, and the suite's tags lose the bits in which a channel's name travels.
 */
#include "tests/conformance/support_mux.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/family.h"
#include "libcoll/comm/mux/mux.h"
#include "libcoll/comm/report.h"
#include "tests/conformance/support_world.h"

#define NAME_WORD1 (0xffffull << 16)
#define NAME_WORD2 (0xffull << 56)

typedef struct over_endpoint {
  const coll_transport_env *env; /* the suite's */
  coll_transport_env env_below;
  coll_endpoint *below;
  colli_family family;
  colli_mux_child *child;
  int32_t ranks[CONF_MAX_RANKS];
  uint16_t numbers[CONF_MAX_RANKS];
  int8_t routes[CONF_MAX_RANKS]; /* all to one port */
  colli_rank_info records[CONF_MAX_RANKS];
} over_endpoint;

typedef struct over_conn {
  coll_conn conn;
  over_endpoint *ep;
  coll_conn *channel;
} over_conn;

static const coll_transport_ops *below;
static coll_transport_ops over_ops;

/* Passes the failure of a call on to the suite. */
static int checked(over_conn *c, int status) {
  if (status <= 0 || status == COLL_ERR_MISMATCH)
    return status;
  const coll_error *reported = &c->ep->family.reported;
  c->ep->env->fail(c->ep->env->ctx, &(coll_transport_failure){.status = reported->status,
                                                              .peer = reported->peer,
                                                              .channel = c->conn.channel,
                                                              .detail = reported->message});
  return status;
}

/* A tag without the bits that the mux needs, and the suite's tag of which it was made. */
static coll_tag narrow(const coll_tag *tag) {
  coll_tag out = *tag;
  out.word[1] &= ~NAME_WORD1;
  out.word[2] &= ~NAME_WORD2;
  return out;
}

static coll_tag widen(const coll_tag *tag) {
  coll_tag whole = conf_tag(tag->word[0]), expected = narrow(&whole);
  return memcmp(&expected, tag, sizeof(*tag)) == 0 ? whole : *tag;
}

static int over_close_parts(over_endpoint *ep, int status) {
  colli_mux_close(ep->child);
  colli_mux_destroy(ep->family.mux);
  if (ep->below)
    below->close(ep->below);
  colli_rank_table_free(ep->family.table);
  free(ep);
  return status;
}

/* What the transport below says of a failure stays with the family until a call asks for it. */
static void below_fail(void *ctx, const coll_transport_failure *failure) {
  colli_family_report(&((over_endpoint *)ctx)->family, failure);
}

static uint64_t below_now_ns(void *ctx) {
  const over_endpoint *ep = ctx;
  return ep->env->now_ns(ep->env->ctx);
}

static const char *below_param(void *ctx, const char *name) {
  const over_endpoint *ep = ctx;
  return ep->env->param(ep->env->ctx, name);
}

static int over_open(const coll_transport_env *env, coll_endpoint **out) {
  over_endpoint *ep = calloc(1, sizeof(*ep));
  *out = NULL;
  cr_assert_not_null(ep);
  ep->env = env;
  ep->family.rank = env->rank;
  ep->family.nranks = env->nranks;
  ep->family.routes = ep->routes;
  ep->env_below = *env;
  ep->env_below.ops = below;
  ep->env_below.ctx = ep;
  ep->env_below.fail = below_fail;
  ep->env_below.now_ns = below_now_ns;
  ep->env_below.param = below_param;
  int status = below->open(&ep->env_below, &ep->below);
  if (status != COLL_T_DONE)
    return over_close_parts(ep, status);
  ep->family.mux = colli_mux_create(&ep->family, env->slot_bytes, env->slot_count);
  cr_assert_not_null(ep->family.mux);
  for (int rank = 0; rank < env->nranks; rank++) {
    ep->ranks[rank] = rank;
    ep->numbers[rank] = 1;
  }
  ep->family.ports[0].ops = below;
  ep->family.ports[0].endpoint = ep->below;
  ep->family.table = colli_rank_table_create(ep->records, env->nranks);
  cr_assert_not_null(ep->family.table);
  ep->child = colli_mux_begin(ep->family.mux);
  cr_assert_not_null(ep->child);
  cr_assert_eq(colli_mux_number(ep->child), 1);
  cr_assert_eq(colli_mux_complete(ep->child, env->nranks, ep->ranks, ep->ranks, ep->numbers),
               COLL_OK);
  *out = (coll_endpoint *)ep;
  return COLL_T_DONE;
}

static void over_close(coll_endpoint *out) {
  (void)over_close_parts((over_endpoint *)out, 0);
}

static int over_describe(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]) {
  return below->describe(((over_endpoint *)ep)->below, blob);
}

static int over_connect(coll_endpoint *out, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                        int channel, coll_conn **conn) {
  over_endpoint *ep = (over_endpoint *)out;
  over_conn *c = calloc(1, sizeof(*c));
  cr_assert_not_null(c);
  memcpy(ep->records[peer].blob[0], blob, COLL_BLOB_BYTES);
  cr_assert(colli_rank_table_replace(ep->family.table, ep->records));
  c->conn = (coll_conn){&over_ops, peer, channel};
  c->ep = ep;
  int status = colli_mux_ops_over(below)->connect((coll_endpoint *)ep->child, peer, blob, channel,
                                                  &c->channel);
  cr_assert_eq(status, COLL_T_DONE);
  *conn = &c->conn;
  return status;
}

static void over_disconnect(coll_conn *conn) {
  over_conn *c = (over_conn *)conn;
  c->channel->ops->disconnect(c->channel);
  free(c);
}

static int over_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  over_conn *c = (over_conn *)conn;
  coll_tag narrowed = narrow(tag);
  return checked(c, c->channel->ops->send(c->channel, &narrowed, buf, bytes));
}

static int over_sent(coll_conn *conn, uint64_t *count) {
  over_conn *c = (over_conn *)conn;
  return checked(c, c->channel->ops->sent(c->channel, count));
}

static int over_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  over_conn *c = (over_conn *)conn;
  return checked(c, c->channel->ops->slot_acquire(c->channel, bytes, buf));
}

static int over_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  over_conn *c = (over_conn *)conn;
  coll_tag narrowed = narrow(tag);
  return checked(c, c->channel->ops->slot_commit(c->channel, &narrowed, bytes));
}

static int over_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                     coll_tag *got, size_t *got_bytes) {
  over_conn *c = (over_conn *)conn;
  coll_tag narrowed = narrow(expect);
  int status = checked(c, c->channel->ops->recv(c->channel, &narrowed, buf, bytes, got, got_bytes));
  *got = widen(got);
  return status;
}

static int over_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  over_conn *c = (over_conn *)conn;
  int status = checked(c, c->channel->ops->slot_peek(c->channel, got, buf, bytes));
  if (status == COLL_T_DONE)
    *got = widen(got);
  return status;
}

static int over_slot_release(coll_conn *conn) {
  over_conn *c = (over_conn *)conn;
  return checked(c, c->channel->ops->slot_release(c->channel));
}

static int over_progress(coll_endpoint *out) {
  over_endpoint *ep = (over_endpoint *)out;
  int status = below->progress(ep->below);
  bool moved = colli_mux_progress(ep->family.mux);
  return status == 0 ? moved : status;
}

static int over_wait_fd(coll_endpoint *out) {
  return below->wait_fd(((over_endpoint *)out)->below);
}

static int over_arm(coll_endpoint *out) {
  return below->arm(((over_endpoint *)out)->below);
}

static void over_disarm(coll_endpoint *out) {
  below->disarm(((over_endpoint *)out)->below);
}

static void over_wake(coll_endpoint *out) {
  below->wake(((over_endpoint *)out)->below);
}

const coll_transport_ops *mux_over(const coll_transport_ops *its_below) {
  below = its_below;
  over_ops = (coll_transport_ops){.size = sizeof(over_ops),
                                  .abi = COLL_TRANSPORT_ABI,
                                  .caps = colli_mux_ops_over(below)->caps,
                                  .name = "mux",
                                  .open = over_open,
                                  .close = over_close,
                                  .describe = over_describe,
                                  .reach = below->reach,
                                  .connect = over_connect,
                                  .disconnect = over_disconnect,
                                  .send = over_send,
                                  .sent = over_sent,
                                  .slot_acquire = over_slot_acquire,
                                  .slot_commit = over_slot_commit,
                                  .recv = over_recv,
                                  .slot_peek = over_slot_peek,
                                  .slot_release = over_slot_release,
                                  .progress = over_progress,
                                  .wait_fd = over_wait_fd,
                                  .arm = over_arm,
                                  .disarm = over_disarm,
                                  .wake = over_wake};
  return &over_ops;
}
