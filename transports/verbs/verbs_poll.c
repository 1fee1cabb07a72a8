/* verbs_poll.c: takes what completion queues hold, and what arrived before it. */
#include "transports/verbs/verbs_poll.h"

#include <stdio.h>

#include "transports/verbs/verbs_post.h"

/* The connection whose queue pair has a number, or NULL: it has ended. */
static inline verbs_conn *find_conn(const verbs_endpoint *ep, uint32_t number) {
  verbs_conn *conn = ep->numbers[number % VERBS_NUMBERS];
  while (conn && conn->qp->qp_num != number)
    conn = conn->next_number;
  return conn;
}

/* Names a work request of a connection for an error text. */
static const char *name_work(const struct ibv_wc *wc, char text[64]) {
  if (wc->wr_id == VERBS_RECEIVE)
    return "receive request";
  snprintf(text, 64, "RDMA write number %llu", (unsigned long long)wc->wr_id);
  return text;
}

/* A work request failed: so has its queue pair. */
static void completion_failed(verbs_conn *conn, const struct ibv_wc *wc) {
  verbs_fault fault;
  char text[64];
  /* The cause may not have been noticed yet: the port is down, or the device is leaving. */
  verbs_port_check_device(conn->ep, conn->port);
  verbs_port_events(conn->ep, conn->port);
  verbs_completion_fault(&conn->ep->lib, conn->port->rail, &conn->ep->settings, wc,
                         name_work(wc, text), conn->base.peer, &fault);
  verbs_conn_break(conn, conn->port->down ? &conn->port->fault : &fault);
}

/* An advert has come; false: it makes no sense. */
static bool take_advert(verbs_conn *conn, size_t bytes) {
  verbs_targets_pass(&conn->there, verbs_next_sent(conn));
  return bytes == sizeof(verbs_advert) &&
         verbs_targets_add(&conn->there, &conn->adverts[conn->there.made % VERBS_TARGETS]);
}

/* A message has arrived in its target; false: it makes no sense. in_ring: as in its offer. */
static bool take_placed(verbs_conn *conn, size_t bytes, bool in_ring) {
  uint64_t offset;
  size_t capacity;
  const verbs_advert *advert =
      verbs_targets_find(&conn->here, verbs_next_arrived(conn), &offset, &capacity);
  return advert && bytes == capacity && in_ring == (advert->offered == VERBS_OFFERED_COPIES) &&
         verbs_rx_placed(&conn->rx, bytes, (void *)(uintptr_t)(advert->address + offset),
                         &advert->tag, in_ring);
}

/* A long message, credit or farewell has come; all short ones before it are in memory. */
static void take_received(verbs_conn *conn, const struct ibv_wc *wc) {
  bool fits = true;
  uint32_t bits = ntohl(wc->imm_data);
  while (verbs_take_short(conn)) {
  }
  verbs_take_credit(conn, bits);
  if (__builtin_expect(bits & VERBS_IMM_PLACED, 0)) {
    fits = bits & VERBS_IMM_CREDIT ? take_advert(conn, wc->byte_len)
                                   : take_placed(conn, wc->byte_len, bits & VERBS_IMM_TAG);
  } else if (!(bits & VERBS_IMM_CREDIT)) {
    fits =
        verbs_rx_arrived(&conn->rx, wc->byte_len, bits & VERBS_IMM_TAG, conn->ep->env->slot_bytes);
  } else if (bits & VERBS_IMM_TAG) {
    conn->gate |= VERBS_GATE_GONE;
  }
  if (__builtin_expect(!fits, 0))
    verbs_conn_reject(conn, "of a wrong length or kind", bits);
}

/* Sends up to request `number` are complete. */
static void take_sent(verbs_conn *conn, uint64_t number) {
  conn->completed = number;
  while (conn->refs_done != conn->refs_posted &&
         conn->references[conn->refs_done % VERBS_REFERENCES].request <= number)
    conn->refs_done++;
}

/* The completion queue cannot be read; if the device is to blame, its events say why. */
static void poll_failed(verbs_endpoint *ep, verbs_port *port) {
  verbs_fault fault;
  verbs_port_events(ep, port);
  verbs_fault_set(&fault, COLL_ERR_SYSTEM, "ibv_poll_cq", 0,
                  "device %s does not say what it has done: it failed or was removed; see dmesg",
                  port->rail->name);
  verbs_port_break(ep, port, &fault);
}

int verbs_poll(verbs_endpoint *ep, verbs_port *port) {
  struct ibv_wc wc[VERBS_COMPLETIONS];
  int count = ibv_poll_cq(port->cq, VERBS_COMPLETIONS, wc);
  if (__builtin_expect(count < 0, 0))
    poll_failed(ep, port);
  for (int i = 0; i < count; i++) {
    verbs_conn *conn = find_conn(ep, wc[i].qp_num);
    bool receive = wc[i].wr_id == VERBS_RECEIVE;
    port->spent += receive;
    if (__builtin_expect(!conn, 0))
      continue;
    if (__builtin_expect(wc[i].status != IBV_WC_SUCCESS, 0))
      completion_failed(conn, &wc[i]);
    else if (receive)
      take_received(conn, &wc[i]);
    else
      take_sent(conn, wc[i].wr_id);
  }
  if (__builtin_expect(port->spent >= port->repost, 0))
    verbs_port_repost(port);
  return count > 0 ? count : 0;
}

bool verbs_poll_arm(verbs_endpoint *ep, verbs_port *port) {
  verbs_port_disarm(ep, port); /* takes the notices of what has been polled */
  if (port->conns == 0)
    return false;
  verbs_conn *conn;
  TAILQ_FOREACH(conn, &ep->conns, entry)
    if (conn->port == port)
      verbs_post_sleep(conn);
  ibv_req_notify_cq(port->cq, 0);
  return verbs_poll(ep, port) > 0;
}
