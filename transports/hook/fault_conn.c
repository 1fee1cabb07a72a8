/*
 * fault_conn.c: a connection of the decorator: when it is made, when it breaks or falls silent, and
 * sends and work that are passed to the inner connection late.
 */
#include "transports/hook/fault_internal.h"

int fault_report(fault_conn *fc) {
  coll_transport_failure failure = {
      .status = fc->status, .peer = fc->conn.peer, .channel = fc->conn.channel, .detail = fc->why};
  fc->ep->env->fail(fc->ep->env->ctx, &failure);
  return fc->status;
}

void fault_settle(fault_conn *fc) {
  if (fc->worked)
    (void)fault_noted(fc, fc->inner->ops->finish_work(fc->inner, &fc->work));
  fc->worked = false;
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
  return fault_report(fc);
}

/* Sends by reference if there is a region, unless that is refused. */
static int send_inner(fault_conn *fc, const coll_tag *tag, uint32_t region, const void *buf,
                      size_t bytes) {
  const coll_transport_ops *ops = fc->inner->ops;
  if (region && !fault_chance(fc, fc->ep->plan.refuse))
    return ops->send_ref(fc->inner, tag, region, buf, bytes);
  return ops->send(fc->inner, tag, buf, bytes);
}

int fault_flush(fault_conn *fc) {
  fault_settle(fc);
  if (!fc->held)
    return COLL_T_DONE;
  int status = send_inner(fc, &fc->held_tag, fc->held_region, fc->held_buf, fc->held_bytes);
  if (status == COLL_T_AGAIN || status > 0)
    return status;
  fc->held = false;
  return COLL_T_DONE;
}

int fault_connect_inner(fault_conn *fc) {
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

int fault_prepare(fault_conn *fc, bool moves_data) {
  if (fc->status != COLL_OK)
    return fault_report(fc);
  if (!fc->inner) {
    int status = fault_connect_inner(fc);
    if (status != COLL_T_DONE)
      return status;
  }
  if (moves_data && fc->messages >= fc->limit)
    return fc->silent ? COLL_T_AGAIN : break_conn(fc);
  return COLL_T_DONE;
}

int fault_enter(fault_conn *fc) {
  int status = fault_prepare(fc, true);
  return status == COLL_T_DONE && fault_chance(fc, fc->ep->plan.again) ? COLL_T_AGAIN : status;
}

int fault_noted(fault_conn *fc, int status) {
  fc->broken |= status > 0 && status != COLL_ERR_MISMATCH;
  return status;
}

int fault_counted(fault_conn *fc, int status) {
  if (status == COLL_T_DONE || status == COLL_T_PENDING)
    fc->messages++;
  return fault_noted(fc, status);
}

int fault_send_from(fault_conn *fc, const coll_tag *tag, uint32_t region, const void *buf,
                    size_t bytes) {
  int status = fault_enter(fc);
  if (status == COLL_T_DONE)
    status = fault_flush(fc);
  if (status != COLL_T_DONE)
    return fault_noted(fc, status);
  /* Not before something went through: until then nobody knows whether the peer is there. */
  if (fc->messages > 0 && fault_chance(fc, fc->ep->plan.pending)) {
    fc->held = true;
    fc->held_tag = *tag;
    fc->held_region = region;
    fc->held_buf = buf;
    fc->held_bytes = bytes;
    return fault_counted(fc, COLL_T_PENDING);
  }
  return fault_counted(fc, send_inner(fc, tag, region, buf, bytes));
}

void fault_plan_limit(fault_conn *fc) {
  const fault_plan *plan = &fc->ep->plan;
  int rank = fc->ep->env->rank, peer = fc->conn.peer;
  fc->limit = plan->drop_after;
  for (int i = 0; i < plan->nlinks; i++) {
    const fault_link *link = &plan->links[i];
    bool here = (link->a == rank && link->b == peer) || (link->a == peer && link->b == rank);
    if (link->kind <= FAULT_STALL && here && link->at < fc->limit) {
      fc->limit = link->at;
      fc->silent = link->kind == FAULT_STALL;
    } else if (link->kind > FAULT_STALL && link->a == peer && link->b == rank) {
      fc->tamper = (fault_tamper){.kind = link->kind, .at = link->at};
    }
  }
}

int fault_paths(coll_conn *conn, char *text, size_t bytes) {
  fault_conn *fc = (fault_conn *)conn;
  *text = '\0';
  if (fc->status != COLL_OK || (!fc->inner && fault_connect_inner(fc) != COLL_T_DONE))
    return 1;
  return fc->inner->ops->paths(fc->inner, text, bytes);
}

double fault_round_trip(coll_conn *conn) {
  const fault_conn *fc = (const fault_conn *)conn;
  return fc->inner ? fc->inner->ops->round_trip(fc->inner) : 0;
}
