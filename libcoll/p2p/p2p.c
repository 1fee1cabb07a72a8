/* p2p.c: starts and ends operations, and serves the peers in turn. */
#include "libcoll/p2p/p2p.h"

#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_internal.h"
#include "libcoll/p2p/window.h"

bool colli_p2p_init(colli_p2p *p2p, colli_exec *exec, const colli_p2p_events *events) {
  p2p->exec = exec;
  p2p->events = events;
  p2p->peers = calloc((size_t)exec->nranks, sizeof(colli_p2p_peer *));
  return p2p->peers != NULL;
}

/* Starts one post. */
static int start_post(colli_p2p *p2p, colli_post *post) {
  COLLI_ASSERT_RANK(!post->over && post->done == 0 && post->ticket == 0, p2p->exec->rank);
  p2p->busy++;
  if (post->window)
    post->window->inflight++;
  if (post->kind == COLLI_POST_WAIT) {
    p2p_wait_signals(p2p, post);
    return COLLI_STEP_DONE;
  }
  bool any = post->peer == COLL_ANY_SOURCE;
  if (any && colli_p2p_connect_all(p2p, &post->op->request) != 0)
    return COLLI_STEP_FAILED;
  colli_p2p_peer *peer = any ? NULL : p2p_peer_get(p2p, &post->op->request, post->peer);
  if (!any && !peer)
    return COLLI_STEP_FAILED;
  if (__builtin_expect(post->kind == COLLI_POST_PROBE, 0)) {
    p2p_start_probe(p2p, post);
    return COLLI_STEP_DONE;
  }
  if (post->kind == COLLI_POST_RECV)
    return p2p_post_recv(p2p, post);
  p2p_append(&peer->out, post);
  return COLLI_STEP_DONE;
}

/* Starts to end a window: tells all ranks, and waits until all have done the same. */
static void start_ends(colli_p2p *p2p, colli_p2p_op *op) {
  COLLI_ASSERT_RANK(!op->post[0].window->closing, p2p->exec->rank);
  coll_window *window = op->post[0].window;
  window->closing = &op->post[0];
  p2p->busy++;
  window->inflight++;
  op->posts_left = p2p->exec->nranks;
  for (int rank = 0; rank < p2p->exec->nranks; rank++) {
    if (rank == p2p->exec->rank)
      continue;
    window->ends[rank] =
        (colli_post){.op = op, .kind = COLLI_POST_END, .peer = rank, .window = window};
    if (start_post(p2p, &window->ends[rank]) != COLLI_STEP_DONE)
      return;
  }
  if (window->left == 0)
    p2p_finish(p2p, window->closing);
}

void colli_p2p_start(colli_p2p *p2p, colli_p2p_op *op) {
  int nposts = op->nposts;
  COLLI_ASSERT_RANK(nposts >= 1 && nposts <= 2, p2p->exec->rank);
  op->posts_left = nposts;
  colli_exec_enlist(p2p->exec, &op->request);
  if (op->post[0].kind == COLLI_POST_ENDS) {
    start_ends(p2p, op);
    return;
  }
  for (int i = 0; i < nposts; i++)
    if (start_post(p2p, &op->post[i]) != COLLI_STEP_DONE)
      return;
}

void colli_p2p_start_recv(colli_p2p *p2p, colli_p2p_op *op) {
  COLLI_ASSERT_RANK(op->nposts == 1 && p2p->peers[op->post[0].peer], p2p->exec->rank);
  op->posts_left = 1;
  colli_exec_enlist(p2p->exec, &op->request);
  p2p->busy++;
  p2p_post_recv(p2p, &op->post[0]);
}

int colli_p2p_progress(colli_p2p *p2p) {
  int moved = 0;
  for (colli_p2p_peer *peer = p2p->first_peer; peer; peer = peer->next) {
    COLLI_ASSERT_RANK(!peer->conn == (peer->rank == p2p->exec->rank), p2p->exec->rank);
    int read = peer->conn ? p2p_read(p2p, peer) : 0;
    int sent = read < 0 ? read : peer->conn ? p2p_send(p2p, peer) : p2p_send_self(p2p, peer);
    if (sent < 0)
      return sent;
    moved |= read | sent;
  }
  return moved;
}

colli_p2p_kept *colli_p2p_poll_for(colli_p2p *p2p, int peer, int tag) {
  bool any = peer == COLL_ANY_SOURCE;
  colli_p2p_kept *message = colli_p2p_look(p2p, peer, tag);
  if (message || (any ? colli_p2p_connect_all(p2p, NULL) != 0 : !p2p_peer_get(p2p, NULL, peer)))
    return message;
  const colli_post sought = {.kind = COLLI_POST_PROBE, .peer = peer, .tag = tag};
  p2p->sought = &sought;
  const int moved = colli_p2p_progress(p2p);
  p2p->sought = NULL;
  if (moved < 0)
    return NULL;
  message = colli_p2p_look(p2p, peer, tag);
  const colli_p2p_peer *from = any ? p2p->first_peer : p2p->peers[peer];
  bool lost = !any || (p2p->broken > 0 && p2p->broken == p2p->exec->nranks - 1);
  while (any && lost && from->recv_status == COLL_OK)
    from = from->next;
  if (!message && lost && from->recv_status != COLL_OK)
    p2p_fail(p2p, NULL, from->rank, from->recv_status);
  return message;
}

/* Releases the buffered sends to a peer. */
static void drop_buffered(colli_p2p *p2p, colli_p2p_peer *peer) {
  for (colli_post *post = peer->out.head, *next; post; post = next) {
    next = post->next;
    if (!post->op)
      p2p_unbuffer(p2p, peer, post);
  }
}

void colli_p2p_cancel(colli_p2p *p2p) {
  for (colli_p2p_peer *peer = p2p->first_peer; peer; peer = peer->next) {
    drop_buffered(p2p, peer);
    p2p_drop_unexpected(p2p, peer);
    COLLI_ASSERT_RANK(peer->nbuffered == 0 && peer->buffered_bytes == 0, p2p->exec->rank);
    const colli_posts none = {0};
    peer->out = peer->awaiting_cts = peer->cleared = peer->flush = none;
    peer->recvs = peer->matched = peer->incoming = none;
    peer->unsent = false;
    peer->conn = NULL; /* about to be ended, or it was */
  }
  p2p->any = p2p->waits = (colli_posts){0};
  p2p->probe = NULL;
  p2p->found = NULL;
  for (colli_p2p_kept *message = p2p->taken; message; message = message->next)
    message->sender = NULL;
  for (coll_window *window = p2p->windows; window; window = window->next) {
    window->inflight = 0;
    window->closing = NULL;
  }
  p2p->busy = p2p->outgoing = 0;
}

void colli_p2p_free(colli_p2p *p2p) {
  colli_p2p_cancel(p2p);
  while (p2p->taken)
    colli_p2p_drop_taken(p2p, p2p->taken);
  while (p2p->first_peer) {
    colli_p2p_peer *peer = p2p->first_peer;
    p2p->first_peer = peer->next;
    free(peer);
  }
  free(p2p->peers);
  for (int i = 0; i < COLLI_P2P_SIZE_CLASSES; i++)
    while (p2p->spare[i]) {
      colli_p2p_kept *message = p2p->spare[i];
      p2p->spare[i] = message->next;
      free(message);
    }
  while (p2p->windows)
    colli_p2p_remove_window(p2p, p2p->windows);
}

int colli_p2p_waits(const colli_p2p_op *op, int *peers, int count, int max) {
  const coll_window *window = op->post[0].window;
  if (op->post[0].kind == COLLI_POST_ENDS) {
    for (int rank = 0; rank < window->nranks; rank++)
      if (!window->ended[rank] || !window->ends[rank].over)
        count = colli_exec_add_peer(peers, count, max, rank);
    return count;
  }
  for (int i = 0; i < op->nposts; i++)
    if (!op->post[i].over)
      count = colli_exec_add_peer(peers, count, max, op->post[i].peer);
  return count;
}
