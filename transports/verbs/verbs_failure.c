/* verbs_failure.c: a connection that failed: the reason is kept, and the next data call reports it.
 */
#include "transports/verbs/verbs_internal.h"

void verbs_conn_break(verbs_conn *conn, const verbs_fault *fault) {
  if (conn->gate & VERBS_GATE_GONE)
    return;
  if (conn->gate & VERBS_GATE_CONNECTING)
    conn->ep->connecting--;
  conn->gate = VERBS_GATE_GONE;
  conn->fault = *fault;
  conn->ep->happened = true;
}

void verbs_conn_reject(verbs_conn *conn, const char *what, uint32_t bits) {
  typedef unsigned long long number;
  verbs_fault fault;
  verbs_fault_set(
      &fault, COLL_ERR_PROTOCOL, NULL, 0,
      "a message came that no libcoll sends (%s, bits 0x%x; units %llu to %llu, adverts "
      "%llu, %llu to %llu, messages %llu to %llu); all ranks must run the same libcoll",
      what, bits, (number)conn->tx.freed, (number)conn->tx.passed, (number)conn->here.over,
      (number)conn->here.copied, (number)conn->here.made, (number)conn->rx.taken,
      (number)conn->rx.arrived);
  verbs_conn_break(conn, &fault);
}

int verbs_conn_report(verbs_conn *conn) {
  const coll_transport_env *env = conn->ep->env;
  if (conn->reported)
    return (int)conn->fault.status;
  conn->reported = true;
  if (conn->fault.status == COLL_OK)
    verbs_fault_set(&conn->fault, COLL_ERR_PEER_LOST, NULL, 0,
                    "the peer has closed the connection; see its own error, or let it take part as "
                    "long as the others");
  coll_transport_failure failure = {conn->fault.status,    conn->base.peer,     conn->base.channel,
                                    conn->fault.sys_errno, conn->fault.syscall, conn->fault.detail};
  env->fail(env->ctx, &failure);
  return (int)conn->fault.status;
}
