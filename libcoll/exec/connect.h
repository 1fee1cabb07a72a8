/* connect.h: the connections of a rank: created on first use, closed all at once. */
#ifndef COLLI_EXEC_CONNECT_H
#define COLLI_EXEC_CONNECT_H

#include "libcoll/exec/exec.h"

/* Creates the connection to `peer` on `channel`; NULL after events->failed. The transport does not
 * wait for the peer, but may allocate memory. */
coll_conn *colli_exec_dial(colli_exec *exec, coll_request *op, int peer, int channel);

/* The connection to `peer` on `channel`, created on first use; NULL after events->failed. */
static inline coll_conn *colli_exec_conn(colli_exec *exec, coll_request *op, int peer,
                                         int channel) {
  coll_conn *conn = exec->links[peer].conn[channel];
  return __builtin_expect(conn != NULL, 1) ? conn : colli_exec_dial(exec, op, peer, channel);
}

/*
 * Begins to connect with every peer of a collective's schedule. A connection carries data only when
 * both ends have begun it. If ranks waited until a step needs it, a ring of ranks that all send
 * first would deadlock.
 */
void colli_exec_connect(colli_exec *exec, coll_request *op);

/* Closes all connections; nothing may be started after that. When it returns, the transports no
 * longer read buffers of operations. */
void colli_exec_disconnect(colli_exec *exec);

#endif
