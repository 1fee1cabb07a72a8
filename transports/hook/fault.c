/*
 * fault.c: the table of the decorator, and its endpoint. Its connections (fault_conn.c) pass calls
 * on to the inner ones, except where chance or the plan says otherwise. The calls that only some
 * transports have are in fault_memory.c.
 */
#include "transports/hook/fault_internal.h"

#include <stdlib.h>
#include <string.h>

static int fault_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  return fault_send_from((fault_conn *)conn, tag, 0, buf, bytes);
}

static int fault_sent(coll_conn *conn, uint64_t *count) {
  fault_conn *fc = (fault_conn *)conn;
  *count = fc->sent;
  int status = fault_prepare(fc, false);
  if (status == COLL_T_AGAIN)
    return COLL_T_DONE;
  if (status == COLL_T_DONE)
    status = fault_flush(fc);
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
    status = fault_flush(fc);
  if (status == COLL_T_DONE)
    status = fc->inner->ops->slot_acquire(fc->inner, bytes, buf);
  return fault_noted(fc, status);
}

static int fault_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  fault_conn *fc = (fault_conn *)conn;
  if (fc->status != COLL_OK)
    return fault_report(fc);
  return fault_counted(fc, fc->inner->ops->slot_commit(fc->inner, tag, bytes));
}

static int fault_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status != COLL_T_DONE)
    return status;
  if (fault_tampers(fc))
    return fault_counted(fc, fault_tamper_recv(fc, expect, buf, bytes, got, got_bytes));
  return fault_counted(fc, fc->inner->ops->recv(fc->inner, expect, buf, bytes, got, got_bytes));
}

static int fault_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status == COLL_T_DONE)
    status = fault_tampers(fc) ? fault_tamper_peek(fc, got, buf, bytes)
                               : fc->inner->ops->slot_peek(fc->inner, got, buf, bytes);
  return fault_noted(fc, status);
}

static int fault_slot_release(coll_conn *conn) {
  fault_conn *fc = (fault_conn *)conn;
  if (fc->status != COLL_OK)
    return fault_report(fc);
  return fault_counted(fc, fault_tampers(fc) ? fault_tamper_release(fc)
                                             : fc->inner->ops->slot_release(fc->inner));
}

static int fault_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                         int channel, coll_conn **conn) {
  *conn = NULL;
  fault_conn *fc = calloc(1, sizeof(*fc));
  if (!fc) {
    coll_transport_failure failure = {
        COLL_ERR_NO_MEMORY, -1, channel, 0, NULL, "out of memory for a connection"};
    ep->env->fail(ep->env->ctx, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  fc->conn = (coll_conn){ep->ops, peer, channel};
  fc->ep = ep;
  memcpy(fc->blob, blob, COLL_BLOB_BYTES);
  fault_plan_limit(fc);
  uint64_t delay_us = colli_prng_below(&ep->prng, ep->plan.delay_us + 1);
  fc->connect_at_ns = delay_us ? ep->env->now_ns(ep->env->ctx) + delay_us * 1000 : 0;
  if (!delay_us) {
    int status = fault_connect_inner(fc);
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
    fault_connect_inner(fc);
  }
  if (fc->inner) {
    fault_flush(fc); /* what was taken is delivered if the inner connection takes it now */
    fc->inner->ops->disconnect(fc->inner);
  }
  fault_tamper_free(fc);
  free(fc);
}

/*
 * Makes connections that are due, and passes held sends on; the data calls report errors. 1: some
 * connection is not due yet.
 */
static int drive_connections(coll_endpoint *ep) {
  int waiting = 0;
  for (fault_conn *fc = ep->conns; fc; fc = fc->next) {
    if (fc->status == COLL_OK && !fc->inner)
      waiting |= fault_connect_inner(fc) == COLL_T_AGAIN;
    if (fc->inner)
      fault_flush(fc);
  }
  return waiting;
}

static int fault_progress(coll_endpoint *ep) {
  drive_connections(ep);
  return ep->inner_ops->progress(ep->inner);
}

static int fault_arm(coll_endpoint *ep) {
  ep->armed = true;
  int busy = ep->inner_ops->arm(ep->inner);
  return drive_connections(ep) | busy;
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
  coll_transport_failure failure = {
      COLL_ERR_NO_MEMORY, -1, -1, 0, NULL, "out of memory for an endpoint"};
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
    over->unfinished_work = fault_unfinished_work;
  }
  if (coll_transport_registers(inner)) {
    over->register_buffer = fault_register_buffer;
    over->release_buffers = fault_release_buffers;
  }
  if (coll_transport_expects(inner))
    over->expect = fault_expect;
  if (coll_transport_tells_paths(inner))
    over->paths = fault_paths;
  if (coll_transport_tells_round_trip(inner))
    over->round_trip = fault_round_trip;
  if (coll_transport_reaches_devices(inner)) {
    over->register_device = fault_register_device;
    over->release_device = fault_release_device;
    over->send_device = fault_send_device;
    over->send_to_target = fault_send_to_target;
    over->offer_device = fault_offer_device;
  }
}

/* Decorates a transport; the table is in the caller's memory. */
const coll_transport_ops *colli_fault_over(const coll_transport_ops *inner, fault_table *table) {
  if (inner->open == fault_open)
    return NULL;
  *table = (fault_table){.inner = inner,
                         .ops = {.size = sizeof(coll_transport_ops),
                                 .abi = COLL_TRANSPORT_ABI,
                                 /* A send may be held back. */
                                 .caps = inner->caps & ~COLL_CAP_SEND_COPIES,
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
