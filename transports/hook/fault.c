/*
 * fault.c: the decorator. Its connection stands in front of the inner one and passes calls on,
 * except where chance or the plan says otherwise. What only some transports have is in
 * fault_memory.c.
 */
#include "transports/hook/fault_internal.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

/* Reports what broke a connection. */
static int fail(fault_conn *fc) {
  coll_transport_failure failure = {
      .status = fc->status, .peer = fc->conn.peer, .channel = fc->conn.channel, .detail = fc->why};
  fc->ep->env->fail(fc->ep->env->ctx, &failure);
  return fc->status;
}

/* Breaks a connection: the peer sees it closed. */
static int break_conn(fault_conn *fc) {
  fc->status = COLL_ERR_PEER_LOST;
  fc->why = "COLL_FAULT broke this connection as it was told to";
  fault_settle(fc);
  if (fc->inner)
    fc->inner->ops->disconnect(fc->inner);
  fc->inner = NULL;
  fc->held = false;
  return fail(fc);
}

/* Sends by reference if there is a region, unless that is refused. */
static int send_inner(fault_conn *fc, const coll_tag *tag, uint32_t region, const void *buf,
                      size_t bytes) {
  const coll_transport_ops *ops = fc->inner->ops;
  if (region && !fault_chance(fc, fc->ep->plan.refuse))
    return ops->send_ref(fc->inner, tag, region, buf, bytes);
  return ops->send(fc->inner, tag, buf, bytes);
}

/* Passes a held send on to the inner connection: DONE, AGAIN or an error. */
static int flush(fault_conn *fc) {
  fault_settle(fc);
  if (!fc->held)
    return COLL_T_DONE;
  int status = send_inner(fc, &fc->held_tag, fc->held_region, fc->held_buf, fc->held_bytes);
  if (status == COLL_T_AGAIN || status > 0)
    return status;
  fc->held = false;
  return COLL_T_DONE;
}

/* Makes the inner connection once its time has come. */
static int connect_inner(fault_conn *fc) {
  coll_endpoint *ep = fc->ep;
  if (ep->env->now_ns(ep->env->ctx) < fc->connect_at_ns)
    return COLL_T_AGAIN;
  int status =
      ep->inner_ops->connect(ep->inner, fc->conn.peer, fc->blob, fc->conn.channel, &fc->inner);
  if (status > 0) {
    fc->status = (coll_status)status;
    fc->why = "the delayed connection could not be made";
    fc->inner = NULL;
  }
  return status;
}

bool fault_chance(const fault_conn *fc, unsigned percent) {
  coll_endpoint *ep = fc->ep;
  return percent && !ep->armed && !fc->broken && colli_prng_below(&ep->prng, 100) < percent;
}

/* What every data call does first: DONE if the inner connection may be called. */
static int enter(fault_conn *fc, bool moves_data) {
  if (fc->status != COLL_OK)
    return fail(fc);
  if (!fc->inner) {
    int status = connect_inner(fc);
    if (status != COLL_T_DONE)
      return status;
  }
  if (moves_data && fc->messages >= fc->limit)
    return fc->silent ? COLL_T_AGAIN : break_conn(fc);
  return COLL_T_DONE;
}

int fault_enter(fault_conn *fc) {
  int status = enter(fc, true);
  return status == COLL_T_DONE && fault_chance(fc, fc->ep->plan.again) ? COLL_T_AGAIN : status;
}

int fault_noted(fault_conn *fc, int status) {
  fc->broken |= status > 0 && status != COLL_ERR_MISMATCH;
  return status;
}

/* Counts a message that went through. */
static int counted(fault_conn *fc, int status) {
  if (status == COLL_T_DONE || status == COLL_T_PENDING)
    fc->messages++;
  return fault_noted(fc, status);
}

int fault_send_from(fault_conn *fc, const coll_tag *tag, uint32_t region, const void *buf,
                    size_t bytes) {
  int status = fault_enter(fc);
  if (status == COLL_T_DONE)
    status = flush(fc);
  if (status != COLL_T_DONE)
    return fault_noted(fc, status);
  /* Not before something went through: until then nobody knows whether the peer is there. */
  if (fc->messages > 0 && fault_chance(fc, fc->ep->plan.pending)) {
    fc->held = true;
    fc->held_tag = *tag;
    fc->held_region = region;
    fc->held_buf = buf;
    fc->held_bytes = bytes;
    return counted(fc, COLL_T_PENDING);
  }
  return counted(fc, send_inner(fc, tag, region, buf, bytes));
}

static int fault_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  return fault_send_from((fault_conn *)conn, tag, 0, buf, bytes);
}

static int fault_sent(coll_conn *conn, uint64_t *count) {
  fault_conn *fc = (fault_conn *)conn;
  *count = fc->sent;
  int status = enter(fc, false);
  if (status == COLL_T_AGAIN)
    return COLL_T_DONE;
  if (status == COLL_T_DONE)
    status = flush(fc);
  if (status > 0)
    return status;
  status = fc->inner->ops->sent(fc->inner, &fc->sent);
  *count = fc->sent;
  return status;
}

static int fault_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status == COLL_T_DONE)
    status = flush(fc);
  if (status == COLL_T_DONE)
    status = fc->inner->ops->slot_acquire(fc->inner, bytes, buf);
  return fault_noted(fc, status);
}

static int fault_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  fault_conn *fc = (fault_conn *)conn;
  if (fc->status != COLL_OK)
    return fail(fc);
  return counted(fc, fc->inner->ops->slot_commit(fc->inner, tag, bytes));
}

static int fault_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status != COLL_T_DONE)
    return status;
  return counted(fc, fc->inner->ops->recv(fc->inner, expect, buf, bytes, got, got_bytes));
}

static int fault_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status == COLL_T_DONE)
    status = fc->inner->ops->slot_peek(fc->inner, got, buf, bytes);
  return fault_noted(fc, status);
}

static int fault_slot_release(coll_conn *conn) {
  fault_conn *fc = (fault_conn *)conn;
  if (fc->status != COLL_OK)
    return fail(fc);
  return counted(fc, fc->inner->ops->slot_release(fc->inner));
}

/* After how many messages the plan ends the link with `peer`. */
static void plan_link(fault_conn *fc, const fault_plan *plan, int rank, int peer) {
  fc->limit = plan->drop_after;
  for (int i = 0; i < plan->nlinks; i++) {
    const fault_link *link = &plan->links[i];
    bool here = (link->a == rank && link->b == peer) || (link->a == peer && link->b == rank);
    if (!here || link->after >= fc->limit)
      continue;
    fc->limit = link->after;
    fc->silent = link->silent;
  }
}

static int fault_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                         int channel, coll_conn **conn) {
  *conn = NULL;
  fault_conn *fc = calloc(1, sizeof(*fc));
  if (!fc) {
    coll_transport_failure failure = {COLL_ERR_NO_MEMORY,          peer, channel, 0, NULL,
                                      "no memory for a connection"};
    ep->env->fail(ep->env->ctx, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  fc->conn = (coll_conn){ep->ops, peer, channel};
  fc->ep = ep;
  memcpy(fc->blob, blob, COLL_BLOB_BYTES);
  plan_link(fc, &ep->plan, ep->env->rank, peer);
  uint64_t delay_us = colli_prng_below(&ep->prng, ep->plan.delay_us + 1);
  fc->connect_at_ns = delay_us ? ep->env->now_ns(ep->env->ctx) + delay_us * 1000 : 0;
  if (!delay_us) {
    int status = connect_inner(fc);
    if (status > 0) {
      free(fc);
      return status;
    }
  }
  fc->next = ep->conns;
  if (ep->conns)
    ep->conns->prev = fc;
  ep->conns = fc;
  *conn = &fc->conn;
  return COLL_T_DONE;
}

static void fault_disconnect(coll_conn *conn) {
  fault_conn *fc = (fault_conn *)conn;
  if (fc->prev)
    fc->prev->next = fc->next;
  else
    fc->ep->conns = fc->next;
  if (fc->next)
    fc->next->prev = fc->prev;
  if (!fc->inner && fc->status == COLL_OK) {
    fc->connect_at_ns = 0; /* so that the peer sees it come and go */
    connect_inner(fc);
  }
  if (fc->inner) {
    flush(fc); /* what was taken is delivered if the inner connection takes it now */
    fc->inner->ops->disconnect(fc->inner);
  }
  free(fc);
}

/* Moves connections that are due and held sends on; errors show in the data calls. 1: some
 * connection waits for its time. */
static int move_on(coll_endpoint *ep) {
  int waiting = 0;
  for (fault_conn *fc = ep->conns; fc; fc = fc->next) {
    if (fc->status == COLL_OK && !fc->inner)
      waiting |= connect_inner(fc) == COLL_T_AGAIN;
    if (fc->inner)
      flush(fc);
  }
  return waiting;
}

static int fault_progress(coll_endpoint *ep) {
  move_on(ep);
  return ep->inner_ops->progress(ep->inner);
}

static int fault_arm(coll_endpoint *ep) {
  ep->armed = true;
  int busy = ep->inner_ops->arm(ep->inner);
  return move_on(ep) | busy;
}

static void fault_disarm(coll_endpoint *ep) {
  ep->armed = false;
  ep->inner_ops->disarm(ep->inner);
}

static int fault_wait_fd(coll_endpoint *ep) {
  return ep->inner_ops->wait_fd(ep->inner);
}

static void fault_wake(coll_endpoint *ep) {
  ep->inner_ops->wake(ep->inner);
}

static int fault_describe(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]) {
  return ep->inner_ops->describe(ep->inner, blob);
}

static void fault_close(coll_endpoint *ep) {
  ep->inner_ops->close(ep->inner);
  free(ep);
}

/* Reads the plan and opens the inner endpoint. */
static int open_over(const coll_transport_ops *inner, const coll_transport_ops *ops,
                     const coll_transport_env *env, coll_endpoint **ep) {
  *ep = NULL;
  char why[256];
  coll_transport_failure failure = {COLL_ERR_NO_MEMORY, -1, -1, 0, NULL, "no memory"};
  coll_endpoint *made = calloc(1, sizeof(*made));
  if (made &&
      !fault_plan_parse(env->param(env->ctx, "COLL_FAULT"), &made->plan, why, sizeof(why))) {
    failure.status = COLL_ERR_INVALID_USAGE;
    failure.detail = why;
    free(made);
    made = NULL;
  }
  if (!made) {
    env->fail(env->ctx, &failure);
    return failure.status;
  }
  made->inner_ops = inner;
  made->ops = ops;
  made->env = env;
  made->prng.state = made->plan.seed * 0x100000001b3ull + (uint64_t)env->rank;
  int status = inner->open(env, &made->inner);
  if (status != COLL_T_DONE) {
    free(made);
    return status;
  }
  *ep = made;
  return COLL_T_DONE;
}

/* Opens an endpoint over a transport that colli_fault_over() has decorated. */
static int fault_open(const coll_transport_env *env, coll_endpoint **ep) {
  return open_over(((const fault_table *)env->ops)->inner, env->ops, env, ep);
}

/* Adds what not all transports have, where the inner one has it. */
static void add_optional(const coll_transport_ops *inner, coll_transport_ops *over) {
  if (coll_transport_sends_by_ref(inner)) {
    over->region_add = fault_region_add;
    over->region_remove = fault_region_remove;
    over->send_ref = fault_send_ref;
  }
  if (coll_transport_shares_work(inner)) {
    over->offer_work = fault_offer_work;
    over->claim_work = fault_claim_work;
    over->finish_work = fault_finish_work;
  }
  if (coll_transport_registers(inner)) {
    over->register_buffer = fault_register_buffer;
    over->release_buffers = fault_release_buffers;
  }
  if (coll_transport_expects(inner))
    over->expect = fault_expect;
}

/* Decorates a transport; the table is in the caller's memory. */
const coll_transport_ops *colli_fault_over(const coll_transport_ops *inner, fault_table *table) {
  if (inner->open == fault_open)
    return NULL;
  *table = (fault_table){.inner = inner,
                         .ops = {.size = sizeof(coll_transport_ops),
                                 .abi = COLL_TRANSPORT_ABI,
                                 .caps = inner->caps,
                                 .name = inner->name,
                                 .open = fault_open,
                                 .close = fault_close,
                                 .describe = fault_describe,
                                 .reach = inner->reach,
                                 .connect = fault_connect,
                                 .disconnect = fault_disconnect,
                                 .send = fault_send,
                                 .sent = fault_sent,
                                 .slot_acquire = fault_slot_acquire,
                                 .slot_commit = fault_slot_commit,
                                 .recv = fault_recv,
                                 .slot_peek = fault_slot_peek,
                                 .slot_release = fault_slot_release,
                                 .progress = fault_progress,
                                 .wait_fd = fault_wait_fd,
                                 .arm = fault_arm,
                                 .disarm = fault_disarm,
                                 .wake = fault_wake}};
  add_optional(inner, &table->ops);
  return &table->ops;
}
