/* engine.c: progress, cancelling and diagnosis of both kinds of operations. */
#include "libcoll/p2p/engine.h"

int colli_engine_progress_p2p(colli_p2p *p2p, int moved) {
  if (moved < 0)
    return moved;
  int result = colli_p2p_progress(p2p);
  return result < 0 ? result : moved | result;
}

void colli_engine_cancel(colli_exec *exec, colli_p2p *p2p, coll_status status) {
  colli_p2p_cancel(p2p);
  colli_exec_cancel(exec, status);
}

int colli_engine_waits_for(const coll_request *op, int *channel, int *step) {
  *channel = COLLI_CHANNEL_P2P;
  *step = -1;
  if (op->coll != COLLI_SENDRECV)
    return colli_exec_waits_for(op, channel, step);
  int peer = -1;
  return colli_p2p_waits(colli_p2p_op_of(op), &peer, 0, 1) ? peer : -1;
}

int colli_engine_all_waits(const colli_exec *exec, int *peers, int max) {
  int count = 0;
  for (const coll_request *op = exec->oldest; op && count < max; op = op->newer)
    count = op->coll == COLLI_SENDRECV ? colli_p2p_waits(colli_p2p_op_of(op), peers, count, max)
                                       : colli_exec_add_waits(op, peers, count, max);
  return count;
}
