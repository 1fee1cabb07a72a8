/* verbs_port.c: the queues of a rail, the queue pairs of connections, and the device's events. */
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>

#include "libcoll/base/fork.h"
#include "transports/verbs/verbs_internal.h"

void verbs_port_repost(verbs_port *port) {
  struct ibv_recv_wr requests[VERBS_REPOST], *bad;
  while (port->spent > 0) {
    unsigned count = port->spent < VERBS_REPOST ? port->spent : VERBS_REPOST;
    for (unsigned i = 0; i < count; i++)
      requests[i] = (struct ibv_recv_wr){.next = i + 1 < count ? &requests[i + 1] : NULL};
    if (ibv_post_srq_recv(port->srq, requests, &bad) != 0)
      return; /* the device lets the peers wait; the next poll tries again */
    port->spent -= count;
  }
}

/* Makes the completion queue, and the shared receive queue with its requests. */
static coll_status create_queues(verbs_endpoint *ep, verbs_port *port, verbs_fault *fault) {
  const verbs_lib *lib = &ep->lib;
  const struct ibv_device_attr *limits = &port->rail->limits;
  struct ibv_context *context = port->rail->context;
  unsigned conns = (unsigned)(ep->env->nranks - 1) * VERBS_PEER_CONNS;
  unsigned wanted = conns * (ep->env->slot_count + VERBS_REPOST);
  wanted = wanted > VERBS_RECEIVES_LEAST ? wanted : VERBS_RECEIVES_LEAST;
  wanted = wanted < VERBS_RECEIVES_MOST ? wanted : VERBS_RECEIVES_MOST;
  port->receives = wanted < (unsigned)limits->max_srq_wr ? wanted : (unsigned)limits->max_srq_wr;
  unsigned entries = port->receives + conns * VERBS_SENDS;
  entries = entries < (unsigned)limits->max_cqe ? entries : (unsigned)limits->max_cqe;
  port->conns_most = (entries - port->receives) / VERBS_SENDS;
  colli_fork_hold();
  port->channel = lib->create_comp_channel(context);
  colli_fd_enlist(port->channel ? port->channel->fd : -1);
  colli_fork_release();
  if (!port->channel || fcntl(port->channel->fd, F_SETFL, O_NONBLOCK) != 0)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_create_comp_channel", errno,
                           "no completion channel of %s; raise ulimit -n", port->rail->name);
  port->cq = lib->create_cq(context, (int)entries, NULL, port->channel, 0);
  if (!port->cq)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_create_cq", errno,
                           "no completion queue of %u entries on %s", entries, port->rail->name);
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = port->receives, .max_sge = 1}};
  port->srq = lib->create_srq(port->domain.pd, &attr);
  if (!port->srq)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_create_srq", errno,
                           "no shared receive queue of %u requests on %s", port->receives,
                           port->rail->name);
  port->repost = port->receives < 2 * VERBS_REPOST ? (port->receives + 1) / 2 : VERBS_REPOST;
  port->spent = port->receives;
  verbs_port_repost(port);
  return COLL_OK;
}

coll_status verbs_port_open(verbs_endpoint *ep, verbs_port *port, verbs_fault *fault) {
  port->domain = (verbs_domain){.lib = &ep->lib, .rail = port->rail};
  port->domain.pd = ep->lib.alloc_pd(port->rail->context);
  if (!port->domain.pd)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_alloc_pd", errno,
                           "no protection domain of %s", port->rail->name);
  port->cache.domain = port->domain;
  port->inline_bytes = VERBS_INLINE_BYTES;
  return create_queues(ep, port, fault);
}

void verbs_port_close(verbs_endpoint *ep, verbs_port *port) {
  const verbs_lib *lib = &ep->lib;
  verbs_cache_free(&port->cache);
  if (port->srq)
    lib->destroy_srq(port->srq);
  if (port->cq)
    lib->destroy_cq(port->cq);
  if (port->channel) {
    colli_fork_hold();
    colli_fd_delist(port->channel->fd);
    lib->destroy_comp_channel(port->channel);
    colli_fork_release();
  }
  if (port->domain.pd)
    lib->dealloc_pd(port->domain.pd);
}

/* Creates a queue pair that carries as much inline as the device allows. */
static struct ibv_qp *create_qp(verbs_conn *conn) {
  verbs_port *port = conn->port;
  struct ibv_qp *qp = NULL;
  for (;;) {
    struct ibv_qp_init_attr attr = {.send_cq = port->cq,
                                    .recv_cq = port->cq,
                                    .srq = port->srq,
                                    .cap = {.max_send_wr = VERBS_SENDS,
                                            .max_send_sge = 2,
                                            .max_inline_data = port->inline_bytes},
                                    .qp_type = IBV_QPT_RC};
    qp = conn->ep->lib.create_qp(port->domain.pd, &attr);
    if (qp || port->inline_bytes == 0)
      return qp;
    port->inline_bytes /= 2;
  }
}

coll_status verbs_qp_create(verbs_conn *conn, verbs_fault *fault) {
  verbs_endpoint *ep = conn->ep;
  verbs_port *port = conn->port;
  if (port->conns >= port->conns_most)
    return verbs_fault_set(fault, COLL_ERR_NO_MEMORY, NULL, 0,
                           "%s has no completion queue that is large enough for so many "
                           "connections; use COLL_TRANSPORT=tcp",
                           port->rail->name);
  conn->qp = create_qp(conn);
  if (!conn->qp)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_create_qp", errno,
                           "%s is out of queue pairs; lower COLL_CHANNELS", port->rail->name);
  port->conns++;
  verbs_conn **bucket = &ep->numbers[conn->qp->qp_num % VERBS_NUMBERS];
  conn->next_number = *bucket;
  *bucket = conn;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                             .pkey_index = port->rail->pkey_index,
                             .port_num = port->rail->port,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int error = ep->lib.modify_qp(
      conn->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_modify_qp", error,
                           "cannot initialize a queue pair of %s", port->rail->name);
  uint32_t psn = 0;
  if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) < 0)
    psn = (uint32_t)ep->env->now_ns(ep->env->ctx);
  conn->offer.qp = conn->qp->qp_num;
  conn->offer.psn = psn & 0xffffffu;
  return COLL_OK;
}

coll_status verbs_qp_connect(verbs_conn *conn, verbs_fault *fault) {
  const verbs_endpoint *ep = conn->ep;
  const verbs_rail *rail = conn->port->rail;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                             .path_mtu = (enum ibv_mtu)conn->path.mtu,
                             .dest_qp_num = conn->peer_offer.qp,
                             .rq_psn = conn->peer_offer.psn,
                             .min_rnr_timer = 1}; /* 10 us */
  verbs_path_address(rail, &ep->settings, &conn->path, &conn->peer_rail, &attr.ah_attr);
  int error =
      ep->lib.modify_qp(conn->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error)
    return verbs_fault_set(fault, COLL_ERR_UNREACHABLE, "ibv_modify_qp", error,
                           "%s port %d finds no route to the peer's port; check the network, and "
                           "at COLL_VERBS_GID_INDEX",
                           rail->name, rail->port);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .sq_psn = conn->offer.psn,
                              .timeout = ep->settings.timeout,
                              .retry_cnt = ep->settings.retry,
                              .rnr_retry = 7}; /* forever: the peer only has to poll */
  error = ep->lib.modify_qp(conn->qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error)
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_modify_qp", error,
                           "a queue pair of %s cannot send", rail->name);
  return COLL_OK;
}

void verbs_qp_destroy(verbs_conn *conn) {
  verbs_endpoint *ep = conn->ep;
  if (!conn->qp)
    return;
  verbs_conn **place = &ep->numbers[conn->qp->qp_num % VERBS_NUMBERS];
  while (*place != conn)
    place = &(*place)->next_number;
  *place = conn->next_number;
  ep->lib.destroy_qp(conn->qp);
  conn->qp = NULL;
  conn->port->conns--;
}

void verbs_port_break(verbs_endpoint *ep, const verbs_port *port, const verbs_fault *fault) {
  verbs_conn *conn;
  TAILQ_FOREACH(conn, &ep->conns, entry)
    if (conn->port == port)
      verbs_conn_break(conn, fault);
}

/* One queue pair has failed. */
static void break_qp(verbs_endpoint *ep, const void *qp, const verbs_fault *fault) {
  verbs_conn *conn;
  TAILQ_FOREACH(conn, &ep->conns, entry)
    if (conn->qp == qp)
      verbs_conn_break(conn, fault);
}

void verbs_port_events(verbs_endpoint *ep, verbs_port *port) {
  verbs_event event;
  verbs_fault fault;
  int got;
  while ((got = verbs_event_next(&ep->lib, port->rail, &event, &fault)) > 0) {
    verbs_event_fault(port->rail, &event, &fault);
    switch (event.kind) {
    case VERBS_EVENT_PORT_DOWN: /* it may come back before the retries are used up */
      port->down = true;
      port->fault = fault;
      break;
    case VERBS_EVENT_PORT_UP:
      port->down = false;
      break;
    case VERBS_EVENT_QP_LOST:
      break_qp(ep, event.object, &fault);
      break;
    case VERBS_EVENT_DEVICE_LOST:
    case VERBS_EVENT_CQ_LOST:
    case VERBS_EVENT_SRQ_LOST:
      verbs_port_break(ep, port, &fault);
      break;
    case VERBS_EVENT_ADDRESS:
    case VERBS_EVENT_OTHER:
      break;
    }
  }
  if (got < 0)
    verbs_port_break(ep, port, &fault);
}

void verbs_port_check_device(verbs_endpoint *ep, verbs_port *port) {
  verbs_fault fault;
  if (verbs_event_removed(port->rail, &fault))
    verbs_port_break(ep, port, &fault);
}

void verbs_port_disarm(verbs_endpoint *ep, verbs_port *port) {
  struct ibv_cq *cq;
  void *context;
  while (ep->lib.get_cq_event(port->channel, &cq, &context) == 0)
    ep->lib.ack_cq_events(cq, 1);
}
