/* p2p.c: sends and receives between two ranks, cut into messages of at most a slot. */
#include "libcoll/exec/exec.h"

/* Reports a failed transport call. */
static int fail(colli_exec *exec, coll_request *op, int status) {
  exec->events->failed(exec->ctx, op, op->peer, COLLI_CHANNEL_P2P, -1, (coll_status)status);
  return COLLI_STEP_FAILED;
}

/* Bytes of the operation's next message. */
static size_t next_bytes(const colli_exec *exec, const coll_request *op) {
  size_t left = op->partition.count * op->elem_bytes - op->lane[0].done;
  return left < exec->slot_bytes ? left : exec->slot_bytes;
}

/* Moves the send at the head of a peer's queue: done, blocked or failed. */
static int run_send(colli_exec *exec, coll_request *op, coll_conn *conn) {
  colli_link *link = &exec->links[op->peer];
  colli_lane *lane = &op->lane[0];
  while (lane->pass == 0) {
    size_t bytes = next_bytes(exec, op);
    int status = conn->ops->send(conn, &op->tag, op->in + lane->done, bytes);
    if (status == COLL_T_AGAIN)
      return COLLI_STEP_BLOCKED;
    if (status > 0)
      return fail(exec, op, status);
    uint64_t ticket = ++link->posted[COLLI_CHANNEL_P2P];
    if (status == COLL_T_PENDING) {
      lane->npending = 1;
      lane->pending[0].ticket = ticket;
    }
    op->moved = true;
    lane->done += bytes;
    lane->pass = lane->done == op->partition.count * op->elem_bytes;
  }
  if (lane->npending) {
    uint64_t count = 0;
    int status = conn->ops->sent(conn, &count);
    if (status > 0)
      return fail(exec, op, status);
    if (count < lane->pending[0].ticket)
      return COLLI_STEP_BLOCKED;
  }
  return COLLI_STEP_DONE;
}

/* Moves the receive at the head of a peer's queue. */
static int run_recv(colli_exec *exec, coll_request *op, coll_conn *conn) {
  colli_lane *lane = &op->lane[0];
  while (lane->pass == 0) {
    size_t bytes = next_bytes(exec, op), got_bytes;
    coll_tag got;
    int status = conn->ops->recv(conn, &op->tag, op->out + lane->done, bytes, &got, &got_bytes);
    if (status == COLL_T_AGAIN)
      return COLLI_STEP_BLOCKED;
    if (status == COLL_ERR_MISMATCH) {
      exec->events->mismatch(exec->ctx, op, op->peer, &got, got_bytes);
      return COLLI_STEP_FAILED;
    }
    if (status > 0)
      return fail(exec, op, status);
    op->moved = true;
    lane->done += bytes;
    lane->pass = lane->done == op->partition.count * op->elem_bytes;
  }
  return COLLI_STEP_DONE;
}

/* Moves one queue until it is empty or blocked; 1 if something moved. */
static int run_queue(colli_exec *exec, coll_request **head, coll_conn *conn) {
  int moved = 0;
  while (*head) {
    coll_request *op = *head;
    size_t before = op->lane[0].done;
    int result = op->sending ? run_send(exec, op, conn) : run_recv(exec, op, conn);
    if (result == COLLI_STEP_FAILED)
      return result;
    if (result == COLLI_STEP_BLOCKED)
      return moved | (op->lane[0].done != before);
    *head = op->next;
    colli_exec_finish(exec, op, COLL_OK);
    moved = 1;
  }
  return moved;
}

/* Moves one peer's queues of sends and receives. */
int colli_exec_p2p(colli_exec *exec, int peer) {
  colli_link *link = &exec->links[peer];
  coll_request *first = link->send_head ? link->send_head : link->recv_head;
  coll_conn *conn = colli_exec_conn(exec, first, peer, COLLI_CHANNEL_P2P);
  if (!conn)
    return COLLI_STEP_FAILED;
  int sent = run_queue(exec, &link->send_head, conn);
  if (sent < 0)
    return sent;
  int received = run_queue(exec, &link->recv_head, conn);
  return received < 0 ? received : sent | received;
}
