/* support_world.c: a group of endpoints in one process, and how the checks drive it. */
#include "tests/conformance/support_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libcoll/base/clock.h"

#define HANG_NS   (30 * COLLI_NS_PER_S)
#define SETTLE_NS (60 * COLLI_NS_PER_MS)
#define ROUNDS    300

uint64_t conf_real_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * COLLI_NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t env_now(void *ctx) {
  (void)ctx;
  return conf_real_ns();
}

static void env_fail(void *ctx, const coll_transport_failure *failure) {
  conf_rank *rank = ctx;
  rank->failures++;
  rank->last = *failure;
  cr_assert_gt((int)failure->status, COLL_IN_PROGRESS, "a failure without a status");
  cr_assert_not_null(failure->detail, "a failure that does not say what happened");
}

static const char *env_param(void *ctx, const char *name) {
  const conf_transport *transport = ((conf_rank *)ctx)->world->transport;
  const char *text = transport->param ? transport->param(name) : NULL;
  return text ? text : "";
}

static const uint8_t secret[COLL_SECRET_BYTES] = "the secret of the world's ranks";
static const uint8_t other_secret[COLL_SECRET_BYTES] = "a traitor knows another secret.";

/* Fills in what a rank's endpoint gets from its surroundings. */
static void make_env(conf_world *world, int rank, bool traitor) {
  coll_transport_env *env = &world->rank[rank].env;
  *env = (coll_transport_env){.size = sizeof(*env),
                              .ctx = &world->rank[rank],
                              .now_ns = env_now,
                              .fail = env_fail,
                              .param = env_param,
                              .rank = rank,
                              .nranks = world->nranks,
                              .host_id = 42,
                              .comm_id = 4711,
                              .slot_bytes = world->slot_bytes,
                              .slot_count = world->slot_count,
                              .device = world->device,
                              .ops = world->ops};
  env->secret = traitor ? other_secret : secret;
  if (world->transport->prepare)
    world->transport->prepare(env);
}

conf_world *conf_begin(const conf_transport *transport, int nranks, int traitor) {
  conf_world *world = calloc(1, sizeof(*world));
  cr_assert_not_null(world);
  world->transport = transport;
  world->ops = transport->ops;
  world->nranks = nranks;
  world->slot_bytes = transport->slot_bytes ? transport->slot_bytes : 8192;
  world->slot_count = transport->slot_count ? transport->slot_count : 4;
  world->device = transport->setup ? transport->setup(nranks) : NULL;
  world->deadline_ns = conf_real_ns() + HANG_NS;
  for (int i = 0; i < nranks; i++) {
    conf_rank *rank = &world->rank[i];
    rank->world = world;
    make_env(world, i, i == traitor);
    cr_assert_eq(world->ops->open(&rank->env, &rank->ep), COLL_OK, "open: %s",
                 rank->last.detail ? rank->last.detail : "?");
    cr_assert_not_null(rank->ep);
    cr_assert_eq(world->ops->describe(rank->ep, rank->blob), COLL_OK);
  }
  return world;
}

void conf_close(conf_world *world, int rank) {
  if (world->rank[rank].ep)
    world->ops->close(world->rank[rank].ep);
  world->rank[rank].ep = NULL;
}

void conf_finish(conf_world *world) {
  for (int i = 0; i < world->nranks; i++)
    conf_close(world, i);
  if (world->transport->teardown)
    world->transport->teardown(world->device);
  free(world);
}

void conf_round(conf_world *world) {
  for (int i = 0; i < world->nranks; i++)
    if (world->rank[i].ep) {
      int status = world->ops->progress(world->rank[i].ep);
      cr_assert(status == 0 || status == 1, "progress of rank %d: %d", i, status);
    }
  if (world->transport->advance)
    world->transport->advance(world->device);
  cr_assert_lt(conf_real_ns(), world->deadline_ns, "nothing comes any more");
}

void conf_rounds(conf_world *world) {
  uint64_t end = conf_real_ns() + SETTLE_NS;
  for (int i = 0; i < ROUNDS || (!world->transport->advance && conf_real_ns() < end); i++)
    conf_round(world);
}

conf_end conf_connect(conf_world *world, int rank, int peer, int channel) {
  conf_end end = {.world = world};
  int status =
      world->ops->connect(world->rank[rank].ep, peer, world->rank[peer].blob, channel, &end.conn);
  cr_assert_eq(status, COLL_OK, "connect: %d", status);
  cr_assert_not_null(end.conn);
  cr_assert_eq(end.conn->peer, peer);
  cr_assert_eq(end.conn->channel, channel);
  cr_assert_not_null(end.conn->ops);
  return end;
}

void conf_disconnect(conf_end *end) {
  end->conn->ops->disconnect(end->conn);
  end->conn = NULL;
}

void conf_pair(conf_world *world, int a, int b, int channel, conf_end *at_a, conf_end *at_b) {
  *at_a = conf_connect(world, a, b, channel);
  *at_b = conf_connect(world, b, a, channel);
  conf_exchange(world, at_a, CONF_SEND, at_b, CONF_RECV, 1, 0);
  conf_exchange(world, at_b, CONF_SEND, at_a, CONF_RECV, 2, 0);
}

coll_tag conf_tag(uint64_t number) {
  return (coll_tag){{number, ~number, number * 0x9e3779b97f4a7c15ull}};
}

int conf_try_send(conf_end *from, conf_send_form form, uint64_t number, const void *buf,
                  size_t bytes) {
  const coll_transport_ops *ops = from->conn->ops;
  coll_tag tag = conf_tag(number);
  int status;
  if (form == CONF_SEND) {
    status = ops->send(from->conn, &tag, buf, bytes);
  } else {
    void *slot = NULL;
    status = ops->slot_acquire(from->conn, bytes, &slot);
    if (status != COLL_T_DONE)
      return status;
    cr_assert_eq((uintptr_t)slot % 64, 0, "an outgoing slot at %p", slot);
    if (bytes)
      memcpy(slot, buf, bytes);
    status = ops->slot_commit(from->conn, &tag, bytes);
    cr_assert_neq(status, COLL_T_AGAIN, "slot_commit() must not ask to be called again");
  }
  if (status == COLL_T_DONE || status == COLL_T_PENDING)
    from->posted++;
  return status;
}

int conf_try_recv(conf_end *to, conf_recv_form form, uint64_t number, void *buf, size_t bytes) {
  const coll_transport_ops *ops = to->conn->ops;
  coll_tag tag = conf_tag(number), got = {{0}};
  size_t got_bytes = 0;
  const void *slot = NULL;
  int status = COLL_T_DONE;
  if (form != CONF_RECV)
    status = ops->slot_peek(to->conn, &got, &slot, &got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (form != CONF_PEEK) {
    while ((status = ops->recv(to->conn, &tag, buf, bytes, &got, &got_bytes)) == COLL_T_AGAIN &&
           form == CONF_LOOK) /* a rough transport puts it off */
      conf_round(to->world);
    cr_assert_neq(status, COLL_ERR_MISMATCH, "message %zu of %zu bytes came, not %zu of %zu",
                  (size_t)got.word[0], got_bytes, (size_t)number, bytes);
  } else {
    cr_assert_eq((uintptr_t)slot % 8, 0, "a received slot at %p", slot);
    cr_assert_eq(got_bytes, bytes, "%zu bytes came, not %zu", got_bytes, bytes);
    cr_assert_eq(memcmp(&got, &tag, sizeof(tag)), 0, "message %zu came, not %zu",
                 (size_t)got.word[0], (size_t)number);
    if (bytes)
      memcpy(buf, slot, bytes);
    status = ops->slot_release(to->conn);
  }
  if (status == COLL_T_DONE) {
    cr_assert(data_are_bytes(buf, bytes, number), "message %zu of %zu bytes is damaged",
              (size_t)number, bytes);
    to->world->deadline_ns = conf_real_ns() + HANG_NS;
  }
  return status;
}

bool conf_all_sent(const conf_end *end) {
  uint64_t count = 0;
  int status = end->conn->ops->sent(end->conn, &count);
  cr_assert_eq(status, COLL_OK, "sent(): %d", status);
  cr_assert_leq(count, end->posted, "more was sent than taken");
  return count == end->posted;
}

void conf_exchange(conf_world *world, conf_end *from, conf_send_form send_form, conf_end *to,
                   conf_recv_form recv_form, uint64_t number, size_t bytes) {
  /* Exact sizes, so that AddressSanitizer sees a byte too many. */
  char *out = malloc(bytes ? bytes : 1), *in = malloc(bytes ? bytes : 1);
  cr_assert(out && in);
  data_fill_bytes(out, bytes, number);
  bool sent = false, received = false;
  while (!sent || !received || !conf_all_sent(from)) {
    if (!sent) {
      int status = conf_try_send(from, send_form, number, out, bytes);
      cr_assert_leq(status, 0, "send: %d", status);
      sent = status != COLL_T_AGAIN;
    }
    if (!received) {
      int status = conf_try_recv(to, recv_form, number, in, bytes);
      cr_assert_leq(status, 0, "receive: %d", status);
      received = status == COLL_T_DONE;
    }
    conf_round(world);
  }
  free(out);
  free(in);
}

void conf_receive(conf_world *world, conf_end *to, conf_recv_form form, uint64_t number,
                  size_t bytes) {
  char *in = malloc(bytes ? bytes : 1);
  cr_assert_not_null(in);
  int status;
  while ((status = conf_try_recv(to, form, number, in, bytes)) == COLL_T_AGAIN)
    conf_round(world);
  cr_assert_eq(status, COLL_T_DONE, "receive of message %zu: %d", (size_t)number, status);
  free(in);
}

int conf_receive_error(conf_world *world, conf_end *to) {
  coll_tag got;
  const void *buf;
  size_t bytes;
  int status;
  while ((status = to->conn->ops->slot_peek(to->conn, &got, &buf, &bytes)) == COLL_T_AGAIN)
    conf_round(world);
  cr_assert_gt(status, 0, "a message came that nobody sent");
  return status;
}
