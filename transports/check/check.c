/* check.c: the table of the decorator, and its endpoint. Connections are in check_conn.c. */
#include "transports/check/check.h"

#include <stdlib.h>

#include "transports/check/check_internal.h"

/* Opens an endpoint over the transport that colli_check_over() has decorated. */
static int check_open(const coll_transport_env *env, coll_endpoint **ep) {
  *ep = NULL;
  coll_endpoint *made = calloc(1, sizeof(*made));
  if (!made) {
    coll_transport_failure failure = {
        COLL_ERR_NO_MEMORY, -1, -1, 0, NULL, "out of memory for an endpoint"};
    env->fail(env->ctx, &failure);
    return failure.status;
  }
  made->table = (const check_table *)env->ops;
  made->env = env;
  made->inner_env = *env;
  made->inner_env.slot_bytes += CHECK_SLOT_BYTES;
  made->inner_env.ops = made->table->inner;
  int status = made->table->inner->open(&made->inner_env, &made->inner);
  if (status != COLL_T_DONE) {
    free(made);
    return status;
  }
  *ep = made;
  return COLL_T_DONE;
}

static void check_close(coll_endpoint *ep) {
  ep->table->inner->close(ep->inner);
  free(ep);
}

static int check_describe(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]) {
  return ep->table->inner->describe(ep->inner, blob);
}

static int check_progress(coll_endpoint *ep) {
  return ep->table->inner->progress(ep->inner);
}

static int check_wait_fd(coll_endpoint *ep) {
  return ep->table->inner->wait_fd(ep->inner);
}

static int check_arm(coll_endpoint *ep) {
  return ep->table->inner->arm(ep->inner);
}

static void check_disarm(coll_endpoint *ep) {
  ep->table->inner->disarm(ep->inner);
}

static void check_wake(coll_endpoint *ep) {
  ep->table->inner->wake(ep->inner);
}

const coll_transport_ops *colli_check_over(const coll_transport_ops *inner, colli_data_check kind,
                                           check_nonce *nonce, check_table *table) {
  if (kind == COLLI_DATA_CHECK_NONE ||
      (kind == COLLI_DATA_CHECK_MAC && inner->caps & COLL_CAP_SHARED_MEMORY))
    return inner;
  *table =
      (check_table){.inner = inner,
                    .kind = kind,
                    .nonce = nonce,
                    .ops = {.size = sizeof(coll_transport_ops),
                            .abi = COLL_TRANSPORT_ABI,
                            /* Payloads are copied into slots, before their trailers. */
                            .caps = inner->caps & ~(COLL_CAP_SEND_DIRECT | COLL_CAP_SEND_COPIES),
                            .name = inner->name,
                            .open = check_open,
                            .close = check_close,
                            .describe = check_describe,
                            .reach = inner->reach,
                            .connect = check_connect,
                            .disconnect = check_disconnect,
                            .send = check_send,
                            .sent = check_sent,
                            .slot_acquire = check_slot_acquire,
                            .slot_commit = check_slot_commit,
                            .recv = check_recv,
                            .slot_peek = check_slot_peek,
                            .slot_release = check_slot_release,
                            .progress = check_progress,
                            .wait_fd = check_wait_fd,
                            .arm = check_arm,
                            .disarm = check_disarm,
                            .wake = check_wake}};
  if (coll_transport_tells_paths(inner))
    table->ops.paths = check_paths;
  if (coll_transport_tells_round_trip(inner))
    table->ops.round_trip = check_round_trip;
  return &table->ops;
}
