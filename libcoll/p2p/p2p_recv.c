/* p2p_recv.c: incoming messages: copies each to its destination and releases its slot. */
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/names.h"
#include "libcoll/p2p/p2p_internal.h"
#include "libcoll/p2p/window.h"

#define MAX_AT_ONCE 64 /* messages to read from one peer before the others have a turn */

/* Reports a message that no sender makes. */
static int report_broken(colli_p2p *p2p, colli_p2p_peer *peer, const char *detail) {
  peer->recv_status = COLL_ERR_PROTOCOL;
  p2p->events->broken(p2p->exec->ctx, p2p->exec->oldest, peer->rank, detail);
  return COLLI_STEP_FAILED;
}

/* Handles an eager message, or the first slice of a rendezvous. One that no receive takes is kept,
 * or if it is not to be BLOCKED. */
static int take_message(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head,
                        const char *data, size_t bytes, bool keeps) {
  size_t total;
  size_t elem_bytes = colli_type_bytes(head->type);
  if (elem_bytes == 0 || __builtin_mul_overflow((size_t)head->word, elem_bytes, &total) ||
      (head->kind == P2P_EAGER ? bytes != total : bytes >= total || bytes == 0))
    return report_broken(p2p, peer, "a message whose length is not what its tag says");
  colli_post *post = p2p_match(p2p, peer, head->tag);
  if (post)
    return p2p_deliver(p2p, peer, post, head, data, bytes);
  int result = keeps ? p2p_keep(p2p, peer, head, data, bytes, NULL) : COLLI_STEP_BLOCKED;
  if (result == COLLI_STEP_DONE)
    p2p_probe_kept(p2p);
  return result;
}

/* Removes and returns the post with that number from a list, or NULL. */
static colli_post *take_numbered(colli_posts *list, uint32_t number) {
  colli_post *before = NULL;
  for (colli_post *post = list->head; post; before = post, post = post->next)
    if (post->number == number)
      return p2p_take(list, before);
  return NULL;
}

/* Handles a further slice of a rendezvous. */
static int take_slice(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head,
                      const char *data, size_t bytes) {
  colli_post *before = NULL, *post = peer->incoming.head;
  while (post && post->number != head->number)
    before = post, post = post->next;
  if (!post || head->word != (post->to_target ? 0 : post->done) || bytes == 0 ||
      bytes > post->bytes - post->done || post->to_target != (head->kind == P2P_TARGET) ||
      (post->to_target && data != post->lent->address + post->done))
    return report_broken(p2p, peer, "a slice that is not the next one of its message");
  COLLI_ASSERT_RANK(post->kind == COLLI_POST_RECV && !post->over, p2p->exec->rank);
  if (!post->unfit && !post->to_target)
    memcpy(post->buf + post->done, data, bytes);
  post->done += bytes;
  post->op->request.moved = true;
  if (post->done == post->bytes)
    p2p_finish(p2p, p2p_take(&peer->incoming, before));
  return COLLI_STEP_DONE;
}

/* The receiver of a rendezvous is ready. */
static int take_clear_to_send(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head) {
  colli_post *post = take_numbered(&peer->awaiting_cts, head->number);
  if (!post || (head->word && !coll_transport_reaches_devices(peer->conn->ops)))
    return report_broken(p2p, peer, "a clear-to-send for a message that is not waiting");
  COLLI_ASSERT_RANK(post->kind == COLLI_POST_SEND && post->done > 0, p2p->exec->rank);
  post->op->request.moved = true;
  post->to_target = head->word != 0;
  p2p_append(&peer->cleared, post);
  return COLLI_STEP_DONE;
}

/* Handles one message: DONE, BLOCKED if it cannot be taken now, or FAILED. `keeps`: also one that
 * is unexpected. */
static int handle_message(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag,
                          const char *data, size_t bytes, bool keeps) {
  colli_p2p_header head;
  if (!p2p_tag_read(tag, &head))
    return report_broken(p2p, peer, "a message of an unknown kind");
  switch (head.kind) {
  case P2P_EAGER:
  case P2P_RENDEZVOUS:
  case P2P_LENT:
    return take_message(p2p, peer, &head, data, bytes, keeps);
  case P2P_CLEAR_TO_SEND:
    return take_clear_to_send(p2p, peer, &head);
  case P2P_SLICE:
  case P2P_TARGET:
    return take_slice(p2p, peer, &head, data, bytes);
  default: {
    const char *wrong = p2p_window_message(p2p, peer->rank, &head, data, bytes);
    return wrong ? report_broken(p2p, peer, wrong) : COLLI_STEP_DONE;
  }
  }
}

/* The first post that cannot complete without this peer, or NULL. */
static colli_post *find_needing(const colli_p2p *p2p, const colli_p2p_peer *peer) {
  const colli_posts *lists[] = {&peer->recvs, &peer->incoming, &peer->awaiting_cts, &peer->matched};
  for (int i = 0; i < 4; i++)
    if (lists[i]->head)
      return lists[i]->head;
  for (colli_post *post = p2p->waits.head; post; post = post->next)
    if (post->peer == peer->rank)
      return post;
  if (p2p->probe && p2p->probe->peer == peer->rank)
    return p2p->probe;
  for (const coll_window *window = p2p->windows; window; window = window->next)
    if (window->closing && !window->ended[peer->rank])
      return window->closing;
  return NULL;
}

/*
 * No more messages come from a peer. This is a failure as soon as an operation needs the peer. A
 * receive from any source does not, as long as other ranks exist or this rank may send to itself.
 */
static int report_end(colli_p2p *p2p, colli_p2p_peer *peer) {
  colli_post *post = find_needing(p2p, peer);
  if (!post)
    return 0;
  return p2p_fail(p2p, &post->op->request, peer->rank, peer->recv_status);
}

/* Fails a receive from any source if no other rank is left. */
void colli_p2p_abandoned(colli_p2p *p2p) {
  const colli_p2p_peer *peer = p2p->first_peer;
  colli_post *post = p2p->any.head;
  if (!post && p2p->probe && p2p->probe->peer == COLL_ANY_SOURCE)
    post = p2p->probe;
  if (!post || p2p->exec->nranks == 1 || p2p->broken < p2p->exec->nranks - 1)
    return;
  COLLI_ASSERT_RANK(p2p->broken < p2p->exec->nranks, p2p->exec->rank);
  while (peer->recv_status == COLL_OK)
    peer = peer->next;
  p2p_fail(p2p, &post->op->request, peer->rank, peer->recv_status);
}

void p2p_note_end(colli_p2p *p2p, colli_p2p_peer *peer, int status) {
  COLLI_ASSERT_RANK(peer->rank != p2p->exec->rank, p2p->exec->rank);
  peer->recv_status = (coll_status)status;
  p2p->broken++;
}

/*
 * After a message that was expected, an unexpected one stays on the connection until the next poll.
 * Its receive may be posted before, and then it need not be kept.
 */
int p2p_read(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0;
  bool taken = false;
  for (int i = 0; i < MAX_AT_ONCE && peer->recv_status == COLL_OK; i++) {
    coll_tag tag;
    const void *data;
    size_t bytes;
    int status = peer->conn->ops->slot_peek(peer->conn, &tag, &data, &bytes);
    if (status == COLL_T_DONE) {
      int before = peer->nunexpected;
      int result = p2p_deliver_expected(p2p, peer, &tag, data, bytes)
                       ? COLLI_STEP_DONE
                       : handle_message(p2p, peer, &tag, data, bytes, !taken);
      if (result != COLLI_STEP_DONE)
        return result == COLLI_STEP_BLOCKED ? moved : result;
      p2p_release(p2p, peer);
      moved = 1;
      taken |= peer->nunexpected == before;
    } else if (status == COLL_T_AGAIN) {
      return moved;
    } else {
      p2p_note_end(p2p, peer, status);
    }
  }
  if (__builtin_expect(peer->recv_status != COLL_OK, 0) && report_end(p2p, peer) < 0)
    return COLLI_STEP_FAILED;
  return moved;
}
