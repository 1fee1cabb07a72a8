/* sim_transport.c: the table of operations. It also holds its callers to the contract. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/sim/sim_internal.h"

#define SIM_BLOB_MAGIC 0x314d4953u

/* What a peer must know. */
typedef struct sim_blob {
  uint32_t magic;
  int32_t rank;
  uint64_t seed;
  double alpha_ns;
  double ns_per_byte;
} sim_blob;
_Static_assert(sizeof(sim_blob) <= COLL_BLOB_BYTES, "fits in a blob");

/* Tells the owner of a side what is wrong and gives the status. */
static int report_failure(sim_side *side, coll_status status, const char *detail) {
  const coll_transport_env *env = side->ep->env;
  coll_transport_failure failure = {
      .status = status, .peer = side->conn.peer, .channel = side->conn.channel, .detail = detail};
  env->fail(env->ctx, &failure);
  return status;
}

/* Ends a connection whose caller broke the rules of coll_transport.h. */
static int broken_rule(sim_side *side, const char *rule) {
  side->status = COLL_ERR_INTERNAL;
  side->why = rule;
  return report_failure(side, side->status, side->why);
}

/* AGAIN for no reason, with an event that makes the rank look again later. */
static int again_later(sim_side *side) {
  sim_world *world = side->ep->world;
  sim_plan(world, world->now_ns + world->config.alpha_ns + 1, SIM_EV_RETRY, side->pair,
           side == &side->pair->side[1]);
  return COLL_T_AGAIN;
}

/* What every data call checks first: DONE, AGAIN or an error. */
static int enter_call(sim_side *side) {
  if (side->ep->world->out_of_memory)
    return report_failure(side, COLL_ERR_NO_MEMORY, "out of memory for the simulator's events");
  if (side->status != COLL_OK)
    return report_failure(side, side->status, side->why);
  return side->ready || side->peer_closed ? COLL_T_DONE : COLL_T_AGAIN;
}

/* Whether a message may be sent now. */
static int enter_send(sim_side *side, size_t bytes) {
  if (bytes > side->ep->env->slot_bytes)
    return broken_rule(side, "a message larger than slot_bytes was sent");
  int status = enter_call(side);
  if (status != COLL_T_DONE)
    return status;
  if (side->peer_closed)
    return report_failure(side, COLL_ERR_PEER_LOST,
                          "the other rank has closed the simulated connection");
  if (side->credits == 0)
    return COLL_T_AGAIN;
  return sim_chance(side->ep->world, side->ep->world->config.again) ? again_later(side)
                                                                    : COLL_T_DONE;
}

/* Whether a message is there to be received: DONE with *msg set, AGAIN or an error. */
static int enter_recv(sim_side *side, sim_msg **msg) {
  int status = enter_call(side);
  if (status != COLL_T_DONE)
    return status;
  sim_side *mate = sim_side_mate(side);
  if (mate->head && mate->head != mate->coming) {
    *msg = mate->head;
    return sim_chance(side->ep->world, side->ep->world->config.again) ? again_later(side)
                                                                      : COLL_T_DONE;
  }
  if (side->peer_closed)
    return report_failure(side, COLL_ERR_PEER_LOST,
                          "the other rank has closed the simulated connection");
  return COLL_T_AGAIN;
}

/* A message with room for `bytes` bytes. */
static sim_msg *msg_create(size_t bytes) {
  size_t size = offsetof(sim_msg, payload) + bytes;
  sim_msg *msg =
      aligned_alloc(SIM_SLOT_ALIGN, (size + SIM_SLOT_ALIGN - 1) / SIM_SLOT_ALIGN * SIM_SLOT_ALIGN);
  if (msg) {
    msg->borrowed = NULL;
    msg->bytes = bytes;
  }
  return msg;
}

static int sim_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  sim_side *side = (sim_side *)conn;
  if (side->slot)
    return broken_rule(side, "send() between slot_acquire() and slot_commit()");
  int status = enter_send(side, bytes);
  if (status != COLL_T_DONE)
    return status;
  sim_msg *msg = msg_create(bytes);
  if (!msg)
    return report_failure(side, COLL_ERR_NO_MEMORY, "out of memory for a simulated message");
  msg->tag = *tag;
  if (bytes > 0 && sim_chance(side->ep->world, side->ep->world->config.pending))
    msg->borrowed = buf;
  else if (bytes > 0)
    memcpy(msg->payload, buf, bytes);
  int result = msg->borrowed ? COLL_T_PENDING : COLL_T_DONE;
  sim_side_post(side, msg);
  return result;
}

static int sim_sent(coll_conn *conn, uint64_t *count) {
  sim_side *side = (sim_side *)conn;
  *count = side->unread ? side->unread->number - 1 : side->taken;
  int status = enter_call(side);
  return status > 0 ? status : COLL_T_DONE;
}

static int sim_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  sim_side *side = (sim_side *)conn;
  if (!side->slot) {
    int status = enter_send(side, bytes);
    if (status != COLL_T_DONE)
      return status;
    side->slot = msg_create(bytes);
    if (!side->slot)
      return report_failure(side, COLL_ERR_NO_MEMORY, "out of memory for a simulated slot");
  }
  if (side->slot->bytes != bytes)
    return broken_rule(side, "slot_acquire() again, with another size");
  *buf = side->slot->payload;
  return COLL_T_DONE;
}

static int sim_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  sim_side *side = (sim_side *)conn;
  sim_msg *msg = side->slot;
  if (!msg || bytes > msg->bytes)
    return broken_rule(side, "slot_commit() without slot_acquire() of that size");
  int status = enter_call(side);
  if (status > 0)
    return status;
  side->slot = NULL;
  msg->tag = *tag;
  msg->bytes = bytes;
  sim_side_post(side, msg);
  return COLL_T_DONE;
}

/* Fills a receive buffer with garbage, as if half of a message had arrived. */
static int scribble_buffer(sim_side *side, void *buf, size_t bytes) {
  sim_world *world = side->ep->world;
  memset(buf, (int)colli_prng_below(&world->network, 256), bytes);
  side->receiving = true;
  side->recv_buf = buf;
  side->recv_bytes = bytes;
  return again_later(side);
}

static int sim_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                    size_t *got_bytes) {
  sim_side *side = (sim_side *)conn;
  if (side->receiving && (side->recv_buf != buf || side->recv_bytes != bytes))
    return broken_rule(side, "another recv() while one is not complete");
  sim_msg *msg = NULL;
  int status = enter_recv(side, &msg);
  if (status != COLL_T_DONE)
    return status;
  if (memcmp(&msg->tag, expect, sizeof(*expect)) != 0 || msg->bytes != bytes) {
    *got = msg->tag;
    *got_bytes = msg->bytes;
    return COLL_ERR_MISMATCH;
  }
  if (!side->receiving && bytes > 0 &&
      sim_chance(side->ep->world, side->ep->world->config.scribble))
    return scribble_buffer(side, buf, bytes);
  side->receiving = false;
  if (bytes > 0)
    memcpy(buf, msg->payload, bytes);
  sim_side_take(sim_side_mate(side));
  return COLL_T_DONE;
}

static int sim_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  sim_side *side = (sim_side *)conn;
  if (side->receiving)
    return broken_rule(side, "slot_peek() while a recv() is not complete");
  sim_msg *msg = NULL;
  int status = enter_recv(side, &msg);
  if (status != COLL_T_DONE)
    return status;
  *got = msg->tag;
  *buf = msg->payload;
  *bytes = msg->bytes;
  side->recv_buf = msg;
  return COLL_T_DONE;
}

static int sim_slot_release(coll_conn *conn) {
  sim_side *side = (sim_side *)conn;
  sim_side *mate = sim_side_mate(side);
  if (side->status != COLL_OK)
    return report_failure(side, side->status, side->why);
  if (!mate->head || side->recv_buf != mate->head)
    return broken_rule(side, "slot_release() of a slot that was not peeked at");
  side->recv_buf = NULL;
  sim_side_take(mate);
  return COLL_T_DONE;
}

/* Opens the endpoint in the world that env->device is. */
static int open_with(const coll_transport_ops *ops, const coll_transport_env *env,
                     coll_endpoint **ep) {
  sim_world *world = env->device;
  *ep = NULL;
  coll_transport_failure failure = {.status = COLL_ERR_UNSUPPORTED, .peer = -1, .channel = -1};
  if (!world || env->rank < 0 || env->rank >= world->config.nranks || world->endpoints[env->rank]) {
    failure.detail = "the sim transport works in simulated worlds only, one endpoint a rank";
    env->fail(env->ctx, &failure);
    return failure.status;
  }
  *ep = calloc(1, sizeof(**ep));
  if (!*ep) {
    failure.status = COLL_ERR_NO_MEMORY;
    failure.detail = "out of memory for a simulated endpoint";
    env->fail(env->ctx, &failure);
    return failure.status;
  }
  **ep = (coll_endpoint){.world = world, .env = env, .ops = ops};
  world->endpoints[env->rank] = *ep;
  return COLL_T_DONE;
}

/* Opens an endpoint whose callers send from their buffers. */
static int sim_open(const coll_transport_env *env, coll_endpoint **ep) {
  return open_with(&sim_transport, env, ep);
}

/* Opens an endpoint whose callers fill slots. */
static int sim_slot_open(const coll_transport_env *env, coll_endpoint **ep) {
  return open_with(&sim_slot_transport, env, ep);
}

static void sim_close(coll_endpoint *ep) {
  ep->world->endpoints[ep->env->rank] = NULL;
  sim_rank_leave(ep->world, ep->env->rank);
  free(ep);
}

static int sim_describe(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]) {
  const sim_config *config = &ep->world->config;
  sim_blob mine = {SIM_BLOB_MAGIC, ep->env->rank, config->seed, (double)config->alpha_ns,
                   config->ns_per_byte};
  memset(blob, 0, COLL_BLOB_BYTES);
  memcpy(blob, &mine, sizeof(mine));
  return COLL_T_DONE;
}

static int sim_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES],
                     coll_link *link) {
  sim_blob from, to;
  memcpy(&from, a, sizeof(from));
  memcpy(&to, b, sizeof(to));
  bool ok = from.magic == SIM_BLOB_MAGIC && to.magic == SIM_BLOB_MAGIC && from.seed == to.seed;
  *link = (coll_link){.alpha_ns = from.alpha_ns, .ns_per_byte = from.ns_per_byte};
  snprintf(link->reason, sizeof(link->reason), "%s",
           ok ? "ranks of one simulated world" : "not in one simulated world");
  return ok;
}

static int sim_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                       int channel, coll_conn **conn) {
  const coll_transport_env *env = ep->env;
  sim_blob to;
  memcpy(&to, blob, sizeof(to));
  *conn = NULL;
  coll_transport_failure failure = {COLL_ERR_PROTOCOL,
                                    peer,
                                    channel,
                                    0,
                                    NULL,
                                    "the peer's blob is not that of this rank in this world"};
  if (to.magic == SIM_BLOB_MAGIC && to.rank == peer && peer >= 0 &&
      peer < ep->world->config.nranks && peer != env->rank) {
    sim_pair *pair = sim_pair_get(ep->world, env->rank, peer, channel);
    if (pair && pair->side[env->rank > peer].state == SIM_ABSENT) {
      sim_side_open(&pair->side[env->rank > peer], ep);
      *conn = &pair->side[env->rank > peer].conn;
      return COLL_T_DONE;
    }
    failure.status = pair ? COLL_ERR_INTERNAL : COLL_ERR_NO_MEMORY;
    failure.detail = pair ? "connected twice" : "out of memory for a simulated connection";
  }
  env->fail(env->ctx, &failure);
  return failure.status;
}

static void sim_disconnect(coll_conn *conn) {
  sim_side_close((sim_side *)conn);
}

static int sim_progress(coll_endpoint *ep) {
  int touched = ep->touched;
  ep->touched = false;
  return touched;
}

/* Nothing to sleep on: whoever drives the world knows when something happens. */
static int sim_wait_fd(coll_endpoint *ep) {
  (void)ep;
  return -1;
}

static int sim_arm(coll_endpoint *ep) {
  return ep->touched;
}

static void sim_disarm(coll_endpoint *ep) {
  (void)ep;
}

#define SIM_OPS(caps_, open_)                                                                      \
  {                                                                                                \
    .size = sizeof(coll_transport_ops), .abi = COLL_TRANSPORT_ABI, .caps = (caps_), .name = "sim", \
    .open = (open_), .close = sim_close, .describe = sim_describe, .reach = sim_reach,             \
    .connect = sim_connect, .disconnect = sim_disconnect, .send = sim_send, .sent = sim_sent,      \
    .slot_acquire = sim_slot_acquire, .slot_commit = sim_slot_commit, .recv = sim_recv,            \
    .slot_peek = sim_slot_peek, .slot_release = sim_slot_release, .progress = sim_progress,        \
    .wait_fd = sim_wait_fd, .arm = sim_arm, .disarm = sim_disarm, .wake = sim_disarm               \
  }

const coll_transport_ops sim_transport = SIM_OPS(COLL_CAP_SPIN | COLL_CAP_SEND_DIRECT, sim_open);
const coll_transport_ops sim_slot_transport = SIM_OPS(COLL_CAP_SPIN, sim_slot_open);
