/*
 * p2p_send.c: outgoing messages. To each peer, in this order: clear to send for the rendezvous that
 * it began; then messages in the order of the calls; then the rest of the rendezvous that it has
 * cleared.
 */
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_internal.h"
#include "libcoll/p2p/window.h"

#define POLLS_BEFORE_BUFFERING 16u /* failed attempts before an eager message is buffered */

int p2p_send_by_slot(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag, const void *data,
                     size_t bytes) {
  void *slot;
  int status = peer->conn->ops->slot_acquire(peer->conn, bytes, &slot);
  if (status == COLL_T_AGAIN)
    return COLLI_STEP_BLOCKED;
  if (status > 0)
    return status;
  if (bytes)
    memcpy(slot, data, bytes);
  status = peer->conn->ops->slot_commit(peer->conn, tag, bytes);
  if (status > 0)
    return status;
  uint64_t number = p2p_count_sent(p2p, peer, bytes);
  COLLI_ASSERT_RANK(number > peer->slot_ticket, p2p->exec->rank);
  if (status == COLL_T_PENDING) {
    peer->slot_ticket = number;
    p2p->busy += !peer->unsent;
    p2p->outgoing += !peer->unsent;
    peer->unsent = true;
  }
  return COLLI_STEP_DONE;
}

/* Passes the next `bytes` bytes of a post to the transport: its status. */
static int send_part(const colli_p2p_peer *peer, const colli_post *post, const coll_tag *tag,
                     size_t bytes) {
  const coll_transport_ops *ops = peer->conn->ops;
  if (__builtin_expect(post->lent != NULL, 0))
    return ops->send_device(peer->conn, tag, post->lent->memory, post->done, bytes,
                            post->to_target);
  const char *buf = post->buf + post->done;
  if (__builtin_expect(post->to_target, 0))
    return ops->send_to_target(peer->conn, tag, buf, bytes);
  return post->region && coll_transport_sends_by_ref(ops)
             ? ops->send_ref(peer->conn, tag, post->region, buf, bytes)
             : ops->send(peer->conn, tag, buf, bytes);
}

/* Sends the next slice of a post straight from its buffer. */
static int send_slice(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post, const coll_tag *tag) {
  COLLI_ASSERT_RANK(post->op && post->done < post->bytes, p2p->exec->rank);
  const size_t slot = p2p->exec->slot_bytes, left = post->bytes - post->done;
  size_t bytes = left < slot ? left : slot;
  if (__builtin_expect(post->to_target, 0)) {
    const size_t slice = p2p_target_slice(post->bytes - slot, slot, !post->lent);
    bytes = left < slice ? left : slice;
  }
  int status = send_part(peer, post, tag, bytes);
  if (status == COLL_T_AGAIN)
    return COLLI_STEP_BLOCKED;
  if (status > 0)
    return status;
  uint64_t number = p2p_count_sent(p2p, peer, bytes);
  if (status == COLL_T_PENDING)
    post->ticket = number; /* a copy may leave at once, behind references that are not read yet */
  post->done += bytes;
  post->op->request.moved = true;
  return COLLI_STEP_DONE;
}

/* A post is fully handed over: it is complete, or will be when the transport has read its
 * buffer. */
static void finish_or_flush(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  COLLI_ASSERT_RANK(post->done == post->bytes, p2p->exec->rank);
  COLLI_ASSERT_RANK(!peer->flush.tail || !peer->flush.head || !post->ticket ||
                        post->ticket > peer->flush.tail->ticket,
                    p2p->exec->rank);
  if (post->ticket)
    p2p_append(&peer->flush, post);
  else
    p2p_finish(p2p, post);
}

/* ---- messages in the order called ------------------------------------------------------------ */

/* Whether a message that a connection has just taken needs further calls of this rank to leave, and
 * the caller waits for that. A device needs none. */
static bool must_flush(const colli_p2p_peer *peer, const colli_post *post) {
  return post->op->delivers && peer->unsent && !(peer->conn->ops->caps & COLL_CAP_DEVICE);
}

/* Sends an eager message, or the first slice of a rendezvous. */
static int send_message(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  bool is_rendezvous = post->bytes > p2p->exec->slot_bytes;
  uint32_t number = is_rendezvous ? peer->last_number + 1 : 0;
  const int kind = !is_rendezvous ? P2P_EAGER : post->lent ? P2P_LENT : P2P_RENDEZVOUS;
  coll_tag tag = p2p_tag_make(kind, post->tag, post->type, post->count, number);
  size_t bytes = is_rendezvous ? p2p->exec->slot_bytes : post->bytes;
  int status = kind == P2P_LENT ? send_slice(p2p, peer, post, &tag)
                                : p2p_send_copy(p2p, peer, &tag, post->buf, bytes);
  if (status != COLLI_STEP_DONE)
    return status;
  COLLI_ASSERT_RANK(peer->out.head == post, p2p->exec->rank);
  p2p_take(&peer->out, NULL);
  if (!post->op) {
    p2p_unbuffer(p2p, peer, post);
  } else if (!is_rendezvous && must_flush(peer, post)) {
    post->done = bytes;
    post->copied = true;
    post->ticket = peer->slot_ticket;
    p2p_append(&peer->flush, post);
  } else if (is_rendezvous) {
    peer->last_number = post->number = number;
    post->done = bytes;
    post->op->request.moved = true;
    p2p_append(&peer->awaiting_cts, post);
  } else {
    p2p_finish(p2p, post);
  }
  return COLLI_STEP_DONE;
}

/* Sends the slices of a put. If it fits a slot, it is copied, so that it is complete at once. */
static int send_put(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  bool fits_slot = post->bytes <= p2p->exec->slot_bytes;
  while (post->done < post->bytes) {
    coll_tag tag =
        p2p_tag_make(P2P_PUT, 0, 0, (uint64_t)(post->offset + post->done), post->window->number);
    int status = fits_slot ? p2p_send_copy(p2p, peer, &tag, post->buf, post->bytes)
                           : send_slice(p2p, peer, post, &tag);
    if (status != COLLI_STEP_DONE)
      return status;
    if (fits_slot)
      post->done = post->bytes;
  }
  p2p_take(&peer->out, NULL);
  finish_or_flush(p2p, peer, post);
  return COLLI_STEP_DONE;
}

/* Sends SIGNAL or END. */
static int send_signal(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  int kind = post->kind == COLLI_POST_SIGNAL ? P2P_SIGNAL : P2P_END;
  coll_tag tag = p2p_tag_make(kind, 0, 0, 0, post->window->number);
  int status = p2p_send_copy(p2p, peer, &tag, NULL, 0);
  if (status != COLLI_STEP_DONE)
    return status;
  p2p_take(&peer->out, NULL);
  p2p_finish(p2p, post);
  return COLLI_STEP_DONE;
}

/* Whether a send that cannot go on may become a buffered one. Behind others that are buffered
 * because the peer does not read, it need not wait. */
static bool may_buffer(const colli_p2p *p2p, const colli_p2p_peer *peer, const colli_post *post) {
  if (!post->op || post->kind != COLLI_POST_SEND || post->bytes > p2p->exec->slot_bytes)
    return false;
  return !post->op->delivers || post->op->is_patient ||
         (peer->nbuffered > 0 && colli_p2p_has_sent(p2p, peer->rank));
}

/* Buffers eager messages that cannot be sent, so that their sends are complete. */
static void buffer_blocked(colli_p2p *p2p, colli_p2p_peer *peer) {
  for (colli_post **at = &peer->out.head; *at; at = &(*at)->next) {
    colli_post *post = *at;
    if (!may_buffer(p2p, peer, post))
      continue;
    if (!p2p_buffer(p2p, peer, at))
      return;
    p2p_finish(p2p, post);
  }
}

/* Nobody learns of a message that could not be sent after its operation was complete; the next
 * operation with the peer fails. */
static void forget_buffered(colli_p2p *p2p, colli_p2p_peer *peer) {
  while (peer->out.head && !peer->out.head->op)
    p2p_unbuffer(p2p, peer, p2p_take(&peer->out, NULL));
}

/* Sends what is queued. */
static int send_queued(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0;
  while (peer->out.head) {
    colli_post *post = peer->out.head;
    size_t before = post->done;
    colli_p2p_op *op = post->op;
    int status = post->kind == COLLI_POST_SEND  ? send_message(p2p, peer, post)
                 : post->kind == COLLI_POST_PUT ? send_put(p2p, peer, post)
                                                : send_signal(p2p, peer, post);
    if (status == COLLI_STEP_BLOCKED) {
      moved |= post->done != before;
      peer->blocked_polls = moved ? 0 : peer->blocked_polls + 1;
      if (peer->blocked_polls < POLLS_BEFORE_BUFFERING)
        return moved;
      int buffered = peer->nbuffered;
      buffer_blocked(p2p, peer);
      return moved | (peer->nbuffered != buffered);
    }
    if (status > 0 && op)
      return p2p_fail(p2p, &op->request, peer->rank, status);
    if (status > 0)
      forget_buffered(p2p, peer);
    moved = 1;
  }
  peer->blocked_polls = 0;
  return moved;
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

/* Offers the transport a target for the rest of a matched receive, once: DONE, BLOCKED, or an error
 * of the transport. */
static int offer_target(const colli_p2p *p2p, const colli_p2p_peer *peer, colli_post *post) {
  if (post->to_target)
    return COLLI_STEP_DONE;
  const size_t left = post->bytes - post->done;
  const size_t slice = p2p_target_slice(left, p2p->exec->slot_bytes, !post->from_lent);
  const coll_tag tag = p2p_tag_target(post->number);
  const int status = peer->conn->ops->offer_device(peer->conn, &tag, post->lent->memory, post->done,
                                                   left, slice, !post->from_lent);
  if (status == COLL_T_AGAIN)
    return COLLI_STEP_BLOCKED;
  post->to_target = status == COLL_T_DONE;
  return status;
}

/* Sends clear to send for the rendezvous whose receives are matched. */
static int send_clear_to_send(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0;
  while (peer->matched.head) {
    colli_post *post = peer->matched.head;
    int status = COLLI_STEP_DONE;
    if (__builtin_expect(post->lent != NULL, 0) && !post->unfit)
      status = offer_target(p2p, peer, post);
    if (status == COLLI_STEP_DONE) {
      coll_tag tag = p2p_tag_make(P2P_CLEAR_TO_SEND, 0, 0, post->to_target, post->number);
      status = p2p_send_copy(p2p, peer, &tag, NULL, 0);
    }
    if (status == COLLI_STEP_BLOCKED)
      return moved;
    if (status > 0)
      return p2p_fail(p2p, &post->op->request, peer->rank, status);
    p2p_append(&peer->incoming, p2p_take(&peer->matched, NULL));
    moved = 1;
  }
  return moved;
}

/* Sends the rest of cleared rendezvous, one after the other. */
static int send_cleared(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0;
  while (peer->cleared.head) {
    colli_post *post = peer->cleared.head;
    coll_tag tag = post->to_target
                       ? p2p_tag_target(post->number)
                       : p2p_tag_make(P2P_SLICE, 0, 0, (uint64_t)post->done, post->number);
    int status = send_slice(p2p, peer, post, &tag);
    if (status == COLLI_STEP_BLOCKED)
      return moved;
    if (status > 0)
      return p2p_fail(p2p, &post->op->request, peer->rank, status);
    moved = 1;
    if (post->done < post->bytes)
      continue;
    p2p_take(&peer->cleared, NULL);
    finish_or_flush(p2p, peer, post);
  }
  return moved;
}

/* Completes posts whose buffers the transport has read. */
static int flush_sent(colli_p2p *p2p, colli_p2p_peer *peer) {
  uint64_t count = 0;
  int status = peer->conn->ops->sent(peer->conn, &count), moved = 0;
  if (status > 0 && peer->flush.head)
    return p2p_fail(p2p, &peer->flush.head->op->request, peer->rank, status);
  while (peer->flush.head && (peer->flush.head->ticket <= count ||
                              (peer->flush.head->copied && peer->flush.head->op->is_patient))) {
    p2p_finish(p2p, p2p_take(&peer->flush, NULL));
    moved = 1;
  }
  COLLI_ASSERT_RANK(!peer->unsent || p2p->outgoing > 0, p2p->exec->rank);
  if (peer->unsent && (count >= peer->slot_ticket || status > 0)) {
    peer->unsent = false;
    p2p->busy--;
    p2p->outgoing--;
    moved = 1;
  }
  return moved;
}

void colli_p2p_waited(const colli_p2p *p2p, colli_p2p_op *op, uint64_t still_ns,
                      uint64_t timeout_ns) {
  for (int i = 0; i < op->nposts; i++) {
    const colli_post *post = &op->post[i];
    if (post->kind == COLLI_POST_SEND && post->peer != p2p->exec->rank &&
        still_ns >= (colli_p2p_has_sent(p2p, post->peer) ? COLLI_PATIENCE_NS : timeout_ns / 2))
      op->is_patient = true;
  }
}

int p2p_send(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0, result = 0;
  if (peer->matched.head) {
    result = send_clear_to_send(p2p, peer);
    moved |= result;
  }
  if (result >= 0 && peer->out.head) {
    result = send_queued(p2p, peer);
    moved |= result;
  }
  if (result >= 0 && peer->cleared.head) {
    result = send_cleared(p2p, peer);
    moved |= result;
  }
  if (result >= 0 && (peer->flush.head || peer->unsent)) {
    result = flush_sent(p2p, peer);
    moved |= result;
  }
  return result < 0 ? result : moved;
}

/* ---- to the rank itself ---------------------------------------------------------------------- */

/* Delivers a message to a receive of this rank, or keeps it: DONE, BLOCKED or FAILED. */
static int send_to_self(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  bool is_rendezvous = post->bytes > p2p->exec->slot_bytes;
  colli_p2p_header head = {is_rendezvous ? P2P_RENDEZVOUS : P2P_EAGER, post->tag, post->type,
                           post->count, 0};
  colli_post *recv = p2p_match(p2p, peer, post->tag);
  if (!recv) {
    int result = p2p_keep(p2p, peer, &head, post->buf, post->bytes, is_rendezvous ? post : NULL);
    if (result != COLLI_STEP_DONE)
      return result;
    p2p_take(&peer->out, NULL);
    if (!is_rendezvous)
      p2p_finish(p2p, post);
    p2p_probe_kept(p2p);
    return COLLI_STEP_DONE;
  }
  int result = p2p_deliver(p2p, peer, recv, &head, post->buf, post->bytes);
  if (result != COLLI_STEP_DONE)
    return result;
  p2p_take(&peer->out, NULL);
  p2p_finish(p2p, post);
  return COLLI_STEP_DONE;
}

int p2p_send_self(colli_p2p *p2p, colli_p2p_peer *peer) {
  int moved = 0;
  while (peer->out.head) {
    colli_post *post = peer->out.head;
    if (post->kind == COLLI_POST_SEND) {
      int result = send_to_self(p2p, peer, post);
      if (result != COLLI_STEP_DONE)
        return result == COLLI_STEP_BLOCKED ? moved : result;
    } else {
      colli_p2p_header head = {.kind = post->kind == COLLI_POST_PUT ? P2P_PUT : P2P_SIGNAL,
                               .word = post->offset,
                               .number = post->window->number};
      p2p_take(&peer->out, NULL);
      p2p_window_message(p2p, p2p->exec->rank, &head, post->buf, post->bytes);
      p2p_finish(p2p, post);
    }
    moved = 1;
  }
  return moved;
}
