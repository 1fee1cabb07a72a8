/* p2p_call.h: point-to-point and one-sided calls. */
#ifndef COLLI_RUN_P2P_CALL_H
#define COLLI_RUN_P2P_CALL_H

#include "libcoll/call/call.h"
#include "libcoll/p2p/p2p_tag.h"

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_p2p_check(coll_comm *comm, const colli_call *call);

/* A call that sends a part of the collective `name` to a rank, or receives it from there: `count`
 * elements. No call of the program gets it. */
colli_call colli_p2p_part(const char *name, bool sends, int peer, const void *buf, size_t count,
                          int type);

/* Fills in its request. */
void colli_p2p_prepare(coll_comm *comm, const colli_call *call, coll_request *op);

/* Waits until eager messages whose sends are complete have been sent: for half of the deadline of
 * an operation, at most ten seconds. False: some have not. */
bool colli_p2p_linger(coll_comm *comm);

/* A connection has taken a message of a blocking send to `rank`: makes the calls without which it
 * would not leave, if any, for at most COLLI_PATIENCE_NS. */
void colli_p2p_flush(coll_comm *comm, int rank);

/* ---- what is inlined, because short messages are sent by the million ---------------------------
 */

/* What both halves set, and what a message changes. Field by field, because the compiler would
 * clear the whole record first. */
static inline void colli_p2p_fill(colli_post *post, colli_p2p_op *op, colli_post_kind kind,
                                  int peer, int tag) {
  post->op = op;
  post->kind = kind;
  post->peer = peer;
  post->tag = tag;
  post->unfit = post->over = post->copied = post->to_target = false;
  post->lent = NULL;
  post->done = post->offset = 0;
  post->ticket = 0;
  post->window = NULL;
  post->from = NULL;
}

/* The arguments of a receive. */
static inline colli_p2p_wanted colli_p2p_wanted_by(void *buf, size_t count, int type, int source,
                                                   int tag, coll_message *message) {
  return (colli_p2p_wanted){
      buf, count, message, type, source, tag, p2p_tag_expected(tag, type, count)};
}

/* The half that receives. */
static inline void colli_p2p_fill_recv(const colli_p2p_wanted *wanted, colli_p2p_op *op,
                                       colli_post *post) {
  colli_p2p_fill(post, op, COLLI_POST_RECV, wanted->source, wanted->tag);
  post->type = wanted->type;
  post->count = wanted->count;
  post->expected = wanted->expected;
  post->exact = !wanted->message;
  post->message = wanted->message;
  post->buf = wanted->buf;
  post->bytes = wanted->count * op->request.elem_bytes;
}

/* Fills in the request of a receive of elements of `elem_bytes` bytes. */
static inline void colli_p2p_prepare_recv(const colli_p2p_wanted *wanted, size_t elem_bytes,
                                          coll_request *op) {
  colli_p2p_op *p2p = colli_p2p_op_of(op);
  op->name = "recv";
  op->elem_bytes = elem_bytes;
  op->partner = wanted->source;
  op->tag = p2p_tag_shown(wanted->count, wanted->type);
  p2p->nposts = 1;
  p2p->delivers = p2p->is_patient = false;
  colli_p2p_fill_recv(wanted, p2p, &p2p->post[0]);
}

#endif
