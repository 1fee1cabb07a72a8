/* p2p_peer.c: the table of peers, lists of posts, and the completion of posts. */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/connect.h"
#include "libcoll/p2p/p2p_internal.h"
#include "libcoll/p2p/window.h"

int p2p_fail(colli_p2p *p2p, coll_request *op, int rank, int status) {
  p2p->exec->events->failed(p2p->exec->ctx, op, rank, COLLI_CHANNEL_P2P, -1, (coll_status)status);
  return COLLI_STEP_FAILED;
}

colli_p2p_peer *p2p_peer_get(colli_p2p *p2p, coll_request *op, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < p2p->exec->nranks, p2p->exec->rank);
  if (__builtin_expect(p2p->peers[rank] != NULL, 1))
    return p2p->peers[rank];
  coll_conn *conn = NULL;
  if (rank != p2p->exec->rank) {
    conn = colli_exec_conn(p2p->exec, op, rank, COLLI_CHANNEL_P2P);
    if (!conn)
      return NULL;
  }
  colli_p2p_peer *peer = calloc(1, sizeof(*peer));
  if (!peer) {
    p2p_fail(p2p, op, rank, COLL_ERR_NO_MEMORY);
    return NULL;
  }
  peer->rank = rank;
  peer->conn = conn;
  peer->next = p2p->first_peer;
  p2p->first_peer = peer;
  return p2p->peers[rank] = peer;
}

bool colli_p2p_has_sent(const colli_p2p *p2p, int rank) {
  return p2p->exec->links[rank].posted[COLLI_CHANNEL_P2P] > 0;
}

void colli_p2p_connect(colli_p2p *p2p, int rank) {
  p2p_peer_get(p2p, p2p->exec->oldest, rank);
}

int colli_p2p_connect_all(colli_p2p *p2p, coll_request *op) {
  for (int rank = 0; rank < p2p->exec->nranks; rank++)
    if (!p2p_peer_get(p2p, op, rank))
      return COLLI_STEP_FAILED;
  return 0;
}

/* How an operation ends whose posts are all over. */
static inline coll_status end_of(const colli_p2p_op *op) {
  const bool unfit = op->post[0].unfit || (op->nposts > 1 && op->post[1].unfit);
  return unfit ? COLL_ERR_MISMATCH : COLL_OK;
}

void p2p_finish(colli_p2p *p2p, colli_post *post) {
  COLLI_ASSERT_RANK(post->op && !post->over && post->op->posts_left > 0, p2p->exec->rank);
  COLLI_ASSERT_RANK(p2p->busy > 0 && (!post->window || post->window->inflight > 0),
                    p2p->exec->rank);
  colli_p2p_op *op = post->op;
  post->over = true;
  p2p->busy--;
  if (post->window)
    post->window->inflight--;
  if (post->kind == COLLI_POST_RECV && post->message)
    *post->message = (coll_message){post->peer, post->tag, post->count, (coll_type)post->type};
  op->request.moved = true;
  if (--op->posts_left == 0)
    colli_exec_finish(p2p->exec, &op->request, end_of(op));
}
