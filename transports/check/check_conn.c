/* check_conn.c: connections of the decorator, and the data calls on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/check/check_internal.h"

/* Reports why a connection failed; returns its status. */
static int report(check_conn *cc) {
  const int peer = cc->status == COLL_ERR_NO_MEMORY ? -1 : cc->conn.peer; /* no fault of the peer */
  coll_transport_failure failure = {
      .status = cc->status, .peer = peer, .channel = cc->conn.channel, .detail = cc->why};
  cc->ep->env->fail(cc->ep->env->ctx, &failure);
  return (int)cc->status;
}

/* Ends a connection: out of memory for a code. */
static int out_of_memory(check_conn *cc) {
  cc->status = COLL_ERR_NO_MEMORY;
  snprintf(cc->why, sizeof(cc->why), "out of memory for the check of a message");
  return report(cc);
}

/* Ends a connection on which something came that the peer did not send, or not now. */
static int refuse(check_conn *cc, check_verdict verdict, size_t bytes, uint64_t came) {
  const check_stream *stream = &cc->recv;
  bool mac = stream->mac != NULL;
  char what[120];
  if (verdict == CHECK_REPEATED)
    snprintf(what, sizeof(what), "did not come: message %llu came again", (unsigned long long)came);
  else if (verdict == CHECK_SKIPPED)
    snprintf(what, sizeof(what), "is lost, or comes late: message %llu came first",
             (unsigned long long)came);
  else if (verdict == CHECK_CUT)
    snprintf(what, sizeof(what), "was cut to %zu bytes", bytes);
  else
    snprintf(what, sizeof(what), "%zu bytes from byte %llu of this connection on, was altered",
             bytes - sizeof(check_trailer), (unsigned long long)stream->bytes);
  cc->status = mac ? COLL_ERR_AUTH : COLL_ERR_PROTOCOL;
  snprintf(cc->why, sizeof(cc->why),
           "%s check: message %llu from rank %d to rank %d over %s, channel %d, %s; %s",
           mac ? "MAC" : "CRC32C", (unsigned long long)stream->number, stream->src, stream->dst,
           cc->inner->ops->name, stream->channel, what,
           mac ? "somebody changes packets, or a device damages them: see the network between the "
                 "hosts"
               : "test memory and network cards of both hosts, and the network between them");
  return report(cc);
}

/*
 * Shows the next message of the inner connection once it was checked: DONE, with the payload and
 * its length; AGAIN or an error.
 */
static int look(check_conn *cc, coll_tag *tag, const void **payload, size_t *bytes) {
  if (cc->status != COLL_OK)
    return report(cc);
  size_t whole;
  const void *message;
  int status = cc->inner->ops->slot_peek(cc->inner, tag, &message, &whole);
  if (status != COLL_T_DONE)
    return status;
  if (!cc->seen) {
    uint64_t came;
    if (cc->copy)
      memcpy(cc->copy, message, whole);
    check_verdict verdict =
        check_verify(&cc->recv, tag, cc->copy ? cc->copy : message, whole, &came);
    if (verdict == CHECK_UNABLE)
      return out_of_memory(cc);
    if (verdict != CHECK_GOOD)
      return refuse(cc, verdict, whole, came);
    cc->seen = true;
    cc->tag = *tag;
    cc->payload_bytes = whole - sizeof(check_trailer);
  }
  *tag = cc->tag;
  *payload = cc->copy ? cc->copy : message;
  *bytes = cc->payload_bytes;
  return COLL_T_DONE;
}

int check_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  return look((check_conn *)conn, got, buf, bytes);
}

int check_slot_release(coll_conn *conn) {
  check_conn *cc = (check_conn *)conn;
  if (cc->status != COLL_OK)
    return report(cc);
  COLLI_ASSERT_RANK(cc->seen, cc->recv.dst);
  cc->seen = false;
  check_count(&cc->recv, cc->payload_bytes);
  return cc->inner->ops->slot_release(cc->inner);
}

int check_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
               size_t *got_bytes) {
  const void *payload;
  int status = look((check_conn *)conn, got, &payload, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof(*got)) != 0)
    return COLL_ERR_MISMATCH;
  if (bytes > 0)
    memcpy(buf, payload, bytes);
  return check_slot_release(conn);
}

int check_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  check_conn *cc = (check_conn *)conn;
  if (cc->status != COLL_OK)
    return report(cc);
  int status = cc->inner->ops->slot_acquire(cc->inner, bytes + sizeof(check_trailer), buf);
  if (status == COLL_T_DONE)
    cc->slot = *buf;
  return status;
}

int check_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  check_conn *cc = (check_conn *)conn;
  if (cc->status != COLL_OK)
    return report(cc);
  COLLI_ASSERT_RANK(cc->slot, cc->send.src);
  if (!check_seal(&cc->send, tag, cc->slot, bytes))
    return out_of_memory(cc);
  cc->slot = NULL;
  return cc->inner->ops->slot_commit(cc->inner, tag, bytes + sizeof(check_trailer));
}

/* Copies, as there must be room for the trailer behind the payload. */
int check_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  void *slot;
  int status = check_slot_acquire(conn, bytes, &slot);
  if (status != COLL_T_DONE)
    return status;
  if (bytes > 0)
    memcpy(slot, buf, bytes);
  return check_slot_commit(conn, tag, bytes);
}

/* Every message is one of the inner connection. */
int check_sent(coll_conn *conn, uint64_t *count) {
  check_conn *cc = (check_conn *)conn;
  int status = cc->inner->ops->sent(cc->inner, count);
  return cc->status != COLL_OK ? report(cc) : status;
}

/* Frees a connection, whose inner one does not exist (any more). */
static void free_conn(check_conn *cc) {
  check_stream_close(&cc->send);
  check_stream_close(&cc->recv);
  free(cc->copy);
  free(cc);
}

/* Makes a connection but for its inner one; NULL: out of memory. */
static check_conn *make_conn(coll_endpoint *ep, int peer, int channel) {
  check_conn *cc = calloc(1, sizeof(*cc));
  if (!cc)
    return NULL;
  /* Who can forge packets of a device may write to its receive buffers at any time. */
  bool copies = ep->table->kind == COLLI_DATA_CHECK_MAC && ep->table->ops.caps & COLL_CAP_DEVICE;
  if (copies)
    cc->copy = aligned_alloc(64, (ep->inner_env.slot_bytes + 63) / 64 * 64);
  if (check_stream_open(&cc->send, ep, ep->env->rank, peer, channel) &&
      check_stream_open(&cc->recv, ep, peer, ep->env->rank, channel) && (cc->copy || !copies))
    return cc;
  free_conn(cc);
  return NULL;
}

int check_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES], int channel,
                  coll_conn **conn) {
  *conn = NULL;
  ep->inner_env.slot_bytes = ep->env->slot_bytes + CHECK_SLOT_BYTES;
  check_conn *cc = make_conn(ep, peer, channel);
  if (!cc) {
    coll_transport_failure failure = {
        COLL_ERR_NO_MEMORY, -1, channel, 0, NULL, "out of memory for a connection"};
    ep->env->fail(ep->env->ctx, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  cc->conn = (coll_conn){&ep->table->ops, peer, channel};
  cc->ep = ep;
  int status = ep->table->inner->connect(ep->inner, peer, blob, channel, &cc->inner);
  if (status != COLL_T_DONE) {
    free_conn(cc);
    return status;
  }
  *conn = &cc->conn;
  return COLL_T_DONE;
}

void check_disconnect(coll_conn *conn) {
  check_conn *cc = (check_conn *)conn;
  cc->inner->ops->disconnect(cc->inner);
  free_conn(cc);
}

int check_paths(coll_conn *conn, char *text, size_t bytes) {
  check_conn *cc = (check_conn *)conn;
  return cc->inner->ops->paths(cc->inner, text, bytes);
}

double check_round_trip(coll_conn *conn) {
  const check_conn *cc = (const check_conn *)conn;
  return cc->inner->ops->round_trip(cc->inner);
}
