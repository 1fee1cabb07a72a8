/* lend.c: buffers of an operation, lent to the transport that makes use of them until its end. */
#include "libcoll/exec/exec.h"

/* Whether the input lies in the output: in place. */
static bool is_in_place(const coll_request *op) {
  size_t offset = (uintptr_t)op->in - (uintptr_t)op->out;
  return offset < op->extent[COLLI_OUTPUT];
}

void colli_exec_lend(colli_exec *exec, coll_request *op, const coll_conn *conn, int buf) {
  coll_endpoint *endpoint = exec->links[conn->peer].endpoint;
  if (!op->lent) {
    op->borrower = conn->ops;
    op->lent_to = endpoint;
  }
  unsigned bits = 1u << buf;
  if (buf == COLLI_INPUT && is_in_place(op)) {
    buf = COLLI_OUTPUT;
    bits |= 1u << buf;
  }
  bool known = op->lent & 1u << buf;
  op->lent |= bits;
  if (!known && op->lent_to == endpoint) /* at most one transport borrows */
    op->borrower->lend(endpoint, op, buf == COLLI_INPUT ? op->in : op->out, op->extent[buf],
                       buf == COLLI_OUTPUT);
}

void colli_exec_reclaim(coll_request *op) {
  op->lent = 0;
  op->borrower->reclaim(op->lent_to, op);
}
