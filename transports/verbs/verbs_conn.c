/* verbs_conn.c: connections: made over their links, watched, ended. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "libcoll/base/clock.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs_poll.h"
#include "transports/verbs/verbs_post.h"

#define LINGER_NS COLLI_NS_PER_S         /* how long what was sent may take to arrive */
#define DRAIN_NS  (50 * COLLI_NS_PER_MS) /* the same for messages in the caller's memory */
#define LATE_NS   COLLI_NS_PER_MS        /* how long after its link a farewell may be seen */

bool verbs_blob_read(const uint8_t raw[COLL_BLOB_BYTES], verbs_blob *blob) {
  memcpy(blob, raw, sizeof(*blob));
  return blob->magic == VERBS_BLOB_MAGIC && blob->rails > 0 && blob->rails <= VERBS_BLOB_RAILS;
}

/* Allocates the memory of a connection: the receive ring, and its mirror for what is sent. */
static coll_status create_ring(verbs_conn *conn, verbs_fault *fault) {
  const coll_transport_env *env = conn->ep->env;
  uint32_t units = verbs_ring_units(env->slot_bytes, env->slot_count);
  if (units == 0)
    return verbs_fault_set(fault, COLL_ERR_INVALID_ARGUMENT, NULL, 0,
                           "COLL_SLOT_BYTES times COLL_SLOT_COUNT is zero or too large");
  size_t bytes = (size_t)units * VERBS_UNIT;
  coll_status status =
      verbs_slab_create(&conn->port->domain, 2 * bytes + 2 * VERBS_TARGETS * sizeof(verbs_advert),
                        VERBS_USE_POLL, &conn->slab, fault);
  if (status != COLL_OK)
    return status;
  conn->rx_memory = conn->slab.memory;
  conn->tx_memory = (uint8_t *)conn->slab.memory + bytes;
  conn->adverts = (verbs_advert *)(void *)(conn->tx_memory + bytes);
  if (getrandom(&conn->offer.mark, sizeof(conn->offer.mark), 0) < 0)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "getrandom", errno, "no random numbers");
  verbs_rx_init(&conn->rx, units, env->slot_bytes, conn->offer.mark);
  verbs_tx_init(&conn->tx, units);
  conn->offer.magic = VERBS_BLOB_MAGIC;
  conn->offer.key = conn->slab.mr->rkey;
  conn->offer.memory = (uintptr_t)conn->slab.memory;
  conn->offer.units = units;
  conn->offer.slot_bytes = (uint32_t)env->slot_bytes;
  return COLL_OK;
}

/* Chooses a pair of rails, and creates whatever does not need the peer. */
static coll_status prepare_conn(verbs_conn *conn, const uint8_t raw[COLL_BLOB_BYTES],
                                verbs_fault *fault) {
  verbs_endpoint *ep = conn->ep;
  verbs_blob blob;
  verbs_path paths[VERBS_MAX_RAILS];
  char why[96];
  if (conn->base.peer < 0 || conn->base.peer >= ep->env->nranks ||
      conn->base.peer == ep->env->rank || conn->base.channel < 0)
    return verbs_fault_set(fault, COLL_ERR_INVALID_ARGUMENT, NULL, 0, "no such peer or channel");
  if (!verbs_blob_read(raw, &blob))
    return verbs_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                           "the peer's address is not one of a verbs endpoint; all ranks must run "
                           "the same libcoll");
  int count =
      verbs_paths(ep->self.rail, ep->nports, blob.rail, (int)blob.rails, paths, why, sizeof(why));
  if (count == 0)
    return verbs_fault_set(fault, COLL_ERR_UNREACHABLE, NULL, 0, "%s", why);
  conn->path = paths[conn->base.channel % count];
  conn->port = &ep->ports[conn->path.mine];
  conn->peer_rail = blob.rail[conn->path.theirs];
  coll_status status = create_ring(conn, fault);
  return status != COLL_OK ? status : verbs_qp_create(conn, fault);
}

/* Starts the link, over which the rest is settled. */
static coll_status start_link(verbs_conn *conn, const uint8_t raw[COLL_BLOB_BYTES],
                              verbs_fault *fault) {
  verbs_endpoint *ep = conn->ep;
  verbs_blob blob;
  uint8_t link_blob[COLL_BLOB_BYTES] = {0};
  verbs_blob_read(raw, &blob);
  memcpy(link_blob, blob.link, sizeof(blob.link));
  int status =
      tcp_transport.connect(ep->links, conn->base.peer, link_blob, conn->base.channel, &conn->link);
  if (status != COLL_OK)
    *fault = ep->link_fault;
  return (coll_status)status;
}

int verbs_connect(coll_endpoint *handle, int peer, const uint8_t raw[COLL_BLOB_BYTES], int channel,
                  coll_conn **result) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  verbs_conn *conn = calloc(1, sizeof(*conn));
  *result = NULL;
  if (!conn) {
    coll_transport_failure failure = {
        COLL_ERR_NO_MEMORY, -1, channel, ENOMEM, "malloc", "out of memory for a connection"};
    ep->env->fail(ep->env->ctx, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  verbs_fault fault;
  conn->base = (coll_conn){ep->ops, peer, channel};
  conn->ep = ep;
  conn->gate = VERBS_GATE_CONNECTING;
  ep->connecting++;
  TAILQ_INSERT_TAIL(&ep->conns, conn, entry);
  if (prepare_conn(conn, raw, &fault) != COLL_OK || start_link(conn, raw, &fault) != COLL_OK)
    verbs_conn_break(conn, &fault);
  *result = &conn->base;
  return COLL_OK;
}

/*
 * Takes the result of a call on the link: true if it is done. A link that fails ends the
 * connection.
 */
static bool link_done(verbs_conn *conn, int status) {
  if (status == COLL_T_DONE || status == COLL_T_PENDING) {
    conn->ep->happened = true;
    return true;
  }
  if (status == COLL_ERR_MISMATCH)
    verbs_fault_set(&conn->ep->link_fault, COLL_ERR_PROTOCOL, NULL, 0,
                    "the peer does not speak the protocol of libcoll; all ranks must run the same "
                    "libcoll");
  if (status > 0)
    verbs_conn_break(conn, &conn->ep->link_fault);
  return false;
}

/* Sends a word over the link, with a text. */
static bool send_word(verbs_conn *conn, uint64_t what, const void *text, size_t bytes) {
  coll_tag tag = {{what, 0, 0}};
  return link_done(conn, conn->link->ops->send(conn->link, &tag, text, bytes));
}

/* Receives a word over the link, with a text. */
static bool receive_word(verbs_conn *conn, uint64_t what, void *text, size_t bytes) {
  coll_tag expect = {{what, 0, 0}}, got;
  size_t got_bytes;
  return link_done(conn, conn->link->ops->recv(conn->link, &expect, text, bytes, &got, &got_bytes));
}

/* The peer's offer has come: connects the queue pair. */
static bool accept_offer(verbs_conn *conn) {
  verbs_fault fault;
  const verbs_offer *offer = &conn->peer_offer;
  if (offer->magic != VERBS_BLOB_MAGIC || offer->units != conn->offer.units ||
      offer->slot_bytes != conn->offer.slot_bytes) {
    verbs_fault_set(&fault, COLL_ERR_PROTOCOL, NULL, 0,
                    "the peer's slots differ; COLL_SLOT_BYTES and COLL_SLOT_COUNT must be the same "
                    "on all ranks");
    verbs_conn_break(conn, &fault);
    return false;
  }
  if (verbs_qp_connect(conn, &fault) != COLL_OK) {
    verbs_conn_break(conn, &fault);
    return false;
  }
  verbs_post_init(conn);
  return true;
}

void verbs_conn_handshake(verbs_conn *conn) {
  if (!conn->offered &&
      !(conn->offered = send_word(conn, VERBS_SAYS_OFFER, &conn->offer, sizeof(conn->offer))))
    return;
  if (!conn->answered) {
    if (!receive_word(conn, VERBS_SAYS_OFFER, &conn->peer_offer, sizeof(conn->peer_offer)))
      return;
    conn->answered = true;
    if (!accept_offer(conn))
      return;
  }
  if (!conn->readied && !(conn->readied = send_word(conn, VERBS_SAYS_READY, NULL, 0)))
    return;
  if (receive_word(conn, VERBS_SAYS_READY, NULL, 0)) {
    conn->gate &= ~VERBS_GATE_CONNECTING;
    conn->ep->connecting--;
  }
}

void verbs_conn_check_link(verbs_conn *conn) {
  coll_tag got;
  const void *buf;
  size_t bytes;
  if (conn->gate || conn->link->ops->slot_peek(conn->link, &got, &buf, &bytes) == COLL_T_AGAIN)
    return;
  /*
   * A peer that leaves ends its link once its farewell is acknowledged, which devices may do a
   * little before this process sees it. One that was killed sends none.
   */
  uint64_t until = colli_now_ns() + LATE_NS;
  while (!conn->gate && (verbs_poll(conn->ep, conn->port) > 0 || colli_now_ns() < until)) {
  }
  /* It may have left for a reason that this process has not noticed yet. */
  verbs_port_check_device(conn->ep, conn->port);
  verbs_port_events(conn->ep, conn->port);
  verbs_fault fault;
  verbs_fault_set(&fault, COLL_ERR_PEER_LOST, NULL, 0,
                  "the peer's process has ended; see its output or exit status");
  verbs_conn_break(conn, conn->port->down ? &conn->port->fault : &fault);
}

void verbs_conn_free(verbs_conn *conn) {
  verbs_qp_destroy(conn);
  if (conn->slab.memory)
    verbs_slab_destroy(&conn->port->domain, &conn->slab);
  if (conn->link)
    conn->link->ops->disconnect(conn->link);
  free(conn);
}

/* Whether all that was sent has arrived, or never will. */
static bool is_drained(const verbs_conn *conn) {
  return conn->gate || conn->completed == conn->posted;
}

void verbs_conn_linger(verbs_conn *conn, uint64_t now_ns) {
  verbs_conn_check_link(conn);
  if (!is_drained(conn) && now_ns < conn->linger_ns)
    return;
  TAILQ_REMOVE(&conn->ep->lingering, conn, entry);
  verbs_conn_free(conn);
}

/* Waits, for a bounded time, until the device has read what it reads from the caller's memory;
 * false if it has not. */
static bool drain_references(verbs_conn *conn) {
  uint64_t until = colli_now_ns() + DRAIN_NS;
  while (conn->refs_posted != conn->refs_done && !conn->gate && colli_now_ns() < until)
    verbs_poll(conn->ep, conn->port);
  return conn->refs_posted == conn->refs_done;
}

void verbs_disconnect(coll_conn *base) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_endpoint *ep = conn->ep;
  if (ep->watched == conn)
    ep->watched = TAILQ_NEXT(conn, entry);
  TAILQ_REMOVE(&ep->conns, conn, entry);
  if (conn->gate & VERBS_GATE_CONNECTING)
    ep->connecting--;
  /* After this the caller has back memory that the peer may still write to. */
  verbs_targets_pass(&conn->here, verbs_next_taken(conn));
  bool written = conn->here.over < conn->here.made;
  if (conn->gate || written || !drain_references(conn) || !verbs_post_farewell(conn)) {
    verbs_conn_free(conn);
    return;
  }
  conn->linger_ns = ep->env->now_ns(ep->env->ctx) + LINGER_NS;
  TAILQ_INSERT_TAIL(&ep->lingering, conn, entry);
  verbs_poll(ep, conn->port);
  verbs_conn_linger(conn, 0);
}

/* ---- in words -------------------------------------------------------------------------------- */

/* Writes how the network finds a rail, "LID 7" or "10.0.0.1", and returns text. */
static const char *end_text(const verbs_wire_rail *rail, int gid, char text[INET6_ADDRSTRLEN]) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  const uint8_t *raw = rail->gid[gid];
  const bool is_ipv4 = memcmp(raw, mapped, sizeof(mapped)) == 0;
  if (rail->type == VERBS_NET_INFINIBAND)
    snprintf(text, INET6_ADDRSTRLEN, "LID %u", (unsigned)rail->lid);
  else if (!inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? raw + sizeof(mapped) : raw, text,
                      INET6_ADDRSTRLEN))
    *text = '\0';
  return text;
}

int verbs_tell_paths(coll_conn *base, char *text, size_t bytes) {
  const verbs_conn *conn = (const verbs_conn *)base;
  *text = '\0';
  if (conn->gate)
    return 1;
  const verbs_rail *rail = conn->port->rail;
  const verbs_wire_rail *mine = &conn->ep->self.rail[conn->path.mine], *peer = &conn->peer_rail;
  const unsigned gbit = mine->gbit < peer->gbit ? mine->gbit : peer->gbit;
  char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN], speed[32] = "", why[COLLI_PCI_WHY + 4] = "";
  if (gbit > 0)
    snprintf(speed, sizeof(speed), " (%u Gbit/s)", gbit);
  if (*rail->why)
    snprintf(why, sizeof(why), " (%s)", rail->why);
  snprintf(text, bytes, "%s:%u%s %s to %s%s", rail->name, (unsigned)rail->port, why,
           end_text(mine, conn->path.my_gid, from), end_text(peer, conn->path.their_gid, to),
           speed);
  return 0;
}
