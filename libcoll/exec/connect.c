/* connect.c: makes and ends connections. */
#include "libcoll/exec/connect.h"

#include "libcoll/base/assert.h"

/* Whether there is a connection on some channel. */
static bool is_connected(const colli_link *link) {
  bool connected = false;
  for (int channel = 0; channel < COLLI_CHANNELS; channel++)
    connected |= link->conn[channel] != NULL;
  return connected;
}

/* Creates the connection to a peer on a channel. */
coll_conn *colli_exec_dial(colli_exec *exec, coll_request *op, int peer, int channel) {
  COLLI_ASSERT_RANK(peer >= 0 && peer < exec->nranks && peer != exec->rank, exec->rank);
  COLLI_ASSERT_RANK(channel >= 0 && channel < COLLI_CHANNELS && !exec->links[peer].conn[channel],
                    exec->rank);
  colli_link *link = &exec->links[peer];
  coll_conn *conn = NULL;
  const int status = exec->connect(exec, peer, channel, &conn);
  if (status != COLL_T_DONE) {
    exec->events->failed(exec->ctx, op, peer, channel, -1, (coll_status)status);
    return NULL;
  }
  COLLI_ASSERT_RANK(conn && conn->peer == peer && conn->channel == channel, exec->rank);
  if (!is_connected(link)) {
    link->next = exec->connected;
    exec->connected = 1 + peer;
  }
  link->conn[channel] = conn;
  return conn;
}

/* Begins to connect with every peer of an operation's schedule. */
void colli_exec_connect(colli_exec *exec, coll_request *op) {
  const colli_sched *sched = op->sched;
  for (int i = 0; i < sched->nsteps; i++) {
    const colli_step *step = &sched->steps[i];
    if (step->bits & COLLI_RECV && !colli_exec_conn(exec, op, step->peer_recv, step->lane))
      return;
    if (step->bits & COLLI_SEND && !colli_exec_conn(exec, op, step->peer_send, step->lane))
      return;
  }
}

/* Ends all connections. */
void colli_exec_disconnect(colli_exec *exec) {
  while (exec->connected) {
    colli_link *link = &exec->links[exec->connected - 1];
    exec->connected = link->next;
    for (int channel = 0; channel < COLLI_CHANNELS; channel++) {
      coll_conn *conn = link->conn[channel];
      link->conn[channel] = NULL;
      if (conn)
        conn->ops->disconnect(conn);
    }
  }
}
