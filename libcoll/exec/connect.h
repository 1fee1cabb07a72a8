/* connect.h: the connections of a rank: made when they are first used, ended all at once. */
#ifndef COLLI_EXEC_CONNECT_H
#define COLLI_EXEC_CONNECT_H

#include "libcoll/exec/exec.h"

/* Makes the connection to `peer` on `channel`; NULL after events->failed. The transport begins it
 * without waiting for the peer, and may allocate memory. */
coll_conn *colli_exec_dial(colli_exec *exec, coll_request *op, int peer, int channel);

/* The connection to `peer` on `channel`, made when first used; NULL after events->failed. */
static inline coll_conn *colli_exec_conn(colli_exec *exec, coll_request *op, int peer,
                                         int channel) {
  coll_conn *conn = exec->links[peer].conn[channel];
  return __builtin_expect(conn != NULL, 1) ? conn : colli_exec_dial(exec, op, peer, channel);
}

/*
 * Begins to connect with every peer of a collective's schedule. Both ends of a connection must have
 * begun before it carries anything: if each waited until a step needs it, ranks that all send first
 * would wait for each other in a ring.
 */
void colli_exec_connect(colli_exec *exec, coll_request *op);

/* Ends all connections; nothing may be started after that. The transports read no buffer of an
 * operation any more when it returns. */
void colli_exec_disconnect(colli_exec *exec);

#endif
