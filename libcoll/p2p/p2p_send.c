/*
 * p2p_send.c: what goes out. To each peer, in this order: GO for the long messages that it sends;
 * then messages in the order called; then the rest of the long messages that it said GO to.
 */
#include <stddef.h>
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

#define PATIENT_LOOKS 16u /* so often a short message tries in vain before it is copied */

#define USER_TYPE 0xffu /* its size is in word 0, as in all tags */

/* The tag of a message. */
static coll_tag make_tag(int kind, int tag, int type, uint64_t word, uint32_t number) {
  uint64_t code = (uint64_t)type, size = 0;
  if (type >= COLL_TYPE_USER_BASE)
    code = USER_TYPE, size = (uint64_t)(type - COLL_TYPE_USER_BASE);
  coll_tag out = {
      {word | size << 48, (uint64_t)(uint32_t)tag << 32,
       (uint64_t)COLLI_SENDRECV | code << 8 | (uint64_t)kind << 16 | (uint64_t)number << 24}};
  out.word[1] |= p2p_check(&out);
  return out;
}

/* Reports a failed transport call of an operation. */
static int fail(colli_exec *exec, coll_request *op, const colli_p2p_peer *box, int status) {
  exec->events->failed(exec->ctx, op, box->peer, COLLI_CHANNEL_P2P, -1, (coll_status)status);
  return COLLI_STEP_FAILED;
}

/* Counts a message that the connection took; its number. */
static uint64_t count_sent(colli_exec *exec, const colli_p2p_peer *box) {
  return ++exec->links[box->peer].posted[COLLI_CHANNEL_P2P];
}

/* Sends a message from memory of the transport's own: DONE, BLOCKED, or a transport's error. */
static int send_copy(colli_exec *exec, colli_p2p_peer *box, const coll_tag *tag, const void *data,
                     size_t bytes) {
  void *slot;
  int status = box->conn->ops->slot_acquire(box->conn, bytes, &slot);
  if (status == COLL_T_AGAIN)
    return COLLI_STEP_BLOCKED;
  if (status > 0)
    return status;
  if (bytes)
    memcpy(slot, data, bytes);
  status = box->conn->ops->slot_commit(box->conn, tag, bytes);
  if (status > 0)
    return status;
  uint64_t number = count_sent(exec, box);
  if (status == COLL_T_PENDING) {
    box->slot_ticket = number;
    exec->p2p.busy += !box->unsent;
    exec->p2p.outbox += !box->unsent;
    box->unsent = true;
  }
  return COLLI_STEP_DONE;
}

/* Sends the next slice of a post straight from its buffer. */
static int send_slice(colli_exec *exec, colli_p2p_peer *box, colli_post *post,
                      const coll_tag *tag) {
  size_t left = post->bytes - post->done;
  size_t bytes = left < exec->slot_bytes ? left : exec->slot_bytes;
  const coll_transport_ops *ops = box->conn->ops;
  const char *buf = post->buf + post->done;
  int status = post->region && coll_transport_sends_by_ref(ops)
                   ? ops->send_ref(box->conn, tag, post->region, buf, bytes)
                   : ops->send(box->conn, tag, buf, bytes);
  if (status == COLL_T_AGAIN)
    return COLLI_STEP_BLOCKED;
  if (status > 0)
    return status;
  uint64_t number = count_sent(exec, box);
  if (status == COLL_T_PENDING)
    post->ticket = number; /* a copy may go off at once behind references that are not read yet */
  post->done += bytes;
  post->op->moved = true;
  return COLLI_STEP_DONE;
}

/* A post is all handed over: it is complete, or will be once the transport has read its buffer. */
static void handed_over(colli_exec *exec, colli_p2p_peer *box, colli_post *post) {
  if (post->ticket)
    p2p_append(&box->flush, post);
  else
    p2p_finish(exec, post);
}

/* ---- messages in the order called --------------------------------------------------------------
 */

/* Sends a message, or the first slice of a long one. */
static int send_message(colli_exec *exec, colli_p2p_peer *box, colli_post *post) {
  bool is_long = post->bytes > exec->slot_bytes;
  uint32_t number = is_long ? box->last_number + 1 : 0;
  coll_tag tag =
      make_tag(is_long ? P2P_RENDEZVOUS : P2P_EAGER, post->tag, post->type, post->count, number);
  size_t bytes = is_long ? exec->slot_bytes : post->bytes;
  int status = send_copy(exec, box, &tag, post->buf, bytes);
  if (status != COLLI_STEP_DONE)
    return status;
  p2p_take(&box->out, NULL);
  if (!post->op) {
    box->noutbox--;
    box->outbox_bytes -= post->bytes;
    exec->p2p.busy--;
    exec->p2p.outbox--;
    p2p_unexpected_put(&exec->p2p,
                       (colli_unexpected *)((char *)post - offsetof(colli_unexpected, post)));
  } else if (is_long) {
    box->last_number = post->number = number;
    post->done = bytes;
    post->op->moved = true;
    p2p_append(&box->waiting, post);
  } else {
    p2p_finish(exec, post);
  }
  return COLLI_STEP_DONE;
}

/* Sends the slices of a put. A short one is copied, so that it is complete at once. */
static int send_put(colli_exec *exec, colli_p2p_peer *box, colli_post *post) {
  bool is_short = post->bytes <= exec->slot_bytes;
  while (post->done < post->bytes) {
    coll_tag tag =
        make_tag(P2P_PUT, 0, 0, (uint64_t)(post->offset + post->done), post->window->number);
    int status = is_short ? send_copy(exec, box, &tag, post->buf, post->bytes)
                          : send_slice(exec, box, post, &tag);
    if (status != COLLI_STEP_DONE)
      return status;
    if (is_short)
      post->done = post->bytes;
  }
  p2p_take(&box->out, NULL);
  handed_over(exec, box, post);
  return COLLI_STEP_DONE;
}

/* Sends SIGNAL or END. */
static int send_note(colli_exec *exec, colli_p2p_peer *box, colli_post *post) {
  int kind = post->kind == COLLI_POST_SIGNAL ? P2P_SIGNAL : P2P_END;
  coll_tag tag = make_tag(kind, 0, 0, 0, post->window->number);
  int status = send_copy(exec, box, &tag, NULL, 0);
  if (status != COLLI_STEP_DONE)
    return status;
  p2p_take(&box->out, NULL);
  p2p_finish(exec, post);
  return COLLI_STEP_DONE;
}

/* Copies short messages that cannot go off; what is copied stays where it was in the queue. */
static void copy_stuck(colli_exec *exec, colli_p2p_peer *box) {
  for (colli_post **at = &box->out.head; *at; at = &(*at)->next) {
    colli_post *post = *at;
    if (!post->op || post->kind != COLLI_POST_SEND || post->bytes > exec->slot_bytes)
      continue;
    colli_unexpected *letter = box->noutbox < COLLI_UNEXPECTED_MAX &&
                                       box->outbox_bytes + post->bytes <= COLLI_UNEXPECTED_MAX_BYTES
                                   ? p2p_unexpected_get(&exec->p2p, post->bytes)
                                   : NULL;
    if (!letter)
      return;
    if (post->bytes)
      memcpy(letter->data, post->buf, post->bytes);
    letter->post = *post;
    letter->post.op = NULL;
    letter->post.buf = letter->data;
    *at = &letter->post;
    if (box->out.tail == post)
      box->out.tail = &letter->post;
    box->noutbox++;
    box->outbox_bytes += post->bytes;
    exec->p2p.busy++;
    exec->p2p.outbox++;
    p2p_finish(exec, post);
  }
}

/* Nobody is told of a message that could not be sent after its operation was complete; the next
 * operation with the peer finds out. */
static void forget_outbox(colli_exec *exec, colli_p2p_peer *box) {
  while (box->out.head && !box->out.head->op) {
    colli_post *post = p2p_take(&box->out, NULL);
    exec->p2p.busy--;
    exec->p2p.outbox--;
    p2p_unexpected_put(&exec->p2p,
                       (colli_unexpected *)((char *)post - offsetof(colli_unexpected, post)));
    box->noutbox--;
    box->outbox_bytes -= post->bytes;
  }
}

/* Sends what is queued. */
static int send_out(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0;
  while (box->out.head) {
    colli_post *post = box->out.head;
    size_t before = post->done;
    coll_request *op = post->op;
    int status = post->kind == COLLI_POST_SEND  ? send_message(exec, box, post)
                 : post->kind == COLLI_POST_PUT ? send_put(exec, box, post)
                                                : send_note(exec, box, post);
    if (status == COLLI_STEP_BLOCKED) {
      moved |= post->done != before;
      box->stuck = moved ? 0 : box->stuck + 1;
      if (box->stuck < PATIENT_LOOKS)
        return moved;
      box->stuck = 0;
      int copied = box->noutbox;
      copy_stuck(exec, box);
      return moved | (box->noutbox != copied);
    }
    if (status > 0 && op)
      return fail(exec, op, box, status);
    if (status > 0)
      forget_outbox(exec, box);
    moved = 1;
  }
  box->stuck = 0;
  return moved;
}

/* ---- long messages -----------------------------------------------------------------------------
 */

/* Tells senders of long messages that their receiver is ready. */
static int send_go(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0;
  while (box->go.head) {
    coll_tag tag = make_tag(P2P_CLEAR_TO_SEND, 0, 0, 0, box->go.head->number);
    int status = send_copy(exec, box, &tag, NULL, 0);
    if (status == COLLI_STEP_BLOCKED)
      return moved;
    if (status > 0)
      return fail(exec, box->go.head->op, box, status);
    p2p_append(&box->incoming, p2p_take(&box->go, NULL));
    moved = 1;
  }
  return moved;
}

/* Sends the rest of long messages, one after the other. */
static int send_data(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0;
  while (box->data.head) {
    colli_post *post = box->data.head;
    coll_tag tag = make_tag(P2P_SLICE, 0, 0, (uint64_t)post->done, post->number);
    int status = send_slice(exec, box, post, &tag);
    if (status == COLLI_STEP_BLOCKED)
      return moved;
    if (status > 0)
      return fail(exec, post->op, box, status);
    moved = 1;
    if (post->done < post->bytes)
      continue;
    p2p_take(&box->data, NULL);
    handed_over(exec, box, post);
  }
  return moved;
}

/* Ends posts whose buffers the transport has read. */
static int flush(colli_exec *exec, colli_p2p_peer *box) {
  uint64_t count = 0;
  int status = box->conn->ops->sent(box->conn, &count), moved = 0;
  if (status > 0 && box->flush.head)
    return fail(exec, box->flush.head->op, box, status);
  while (box->flush.head && box->flush.head->ticket <= count) {
    p2p_finish(exec, p2p_take(&box->flush, NULL));
    moved = 1;
  }
  if (box->unsent && (count >= box->slot_ticket || status > 0)) {
    box->unsent = false;
    exec->p2p.busy--;
    exec->p2p.outbox--;
    moved = 1;
  }
  return moved;
}

int p2p_send(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0, result = 0;
  if (box->go.head) {
    result = send_go(exec, box);
    moved |= result;
  }
  if (result >= 0 && box->out.head) {
    result = send_out(exec, box);
    moved |= result;
  }
  if (result >= 0 && box->data.head) {
    result = send_data(exec, box);
    moved |= result;
  }
  if (result >= 0 && (box->flush.head || box->unsent)) {
    result = flush(exec, box);
    moved |= result;
  }
  return result < 0 ? result : moved;
}

/* ---- to the rank itself ------------------------------------------------------------------------
 */

/* Gives a message to a receive of this rank, or keeps it; DONE, BLOCKED or FAILED. */
static int send_to_self(colli_exec *exec, colli_p2p_peer *box, colli_post *post) {
  bool is_long = post->bytes > exec->slot_bytes;
  colli_p2p_header head = {is_long ? P2P_RENDEZVOUS : P2P_EAGER, post->tag, post->type, post->count,
                           0};
  colli_post *recv = p2p_match(exec, box, post->tag);
  if (!recv) {
    int result = p2p_keep(exec, box, &head, post->buf, post->bytes, is_long ? post : NULL);
    if (result != COLLI_STEP_DONE)
      return result;
    p2p_take(&box->out, NULL);
    if (!is_long)
      p2p_finish(exec, post);
    return COLLI_STEP_DONE;
  }
  int result = p2p_deliver(exec, box, recv, &head, post->buf, post->bytes);
  if (result != COLLI_STEP_DONE)
    return result;
  p2p_take(&box->out, NULL);
  p2p_finish(exec, post);
  return COLLI_STEP_DONE;
}

int p2p_send_self(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0;
  while (box->out.head) {
    colli_post *post = box->out.head;
    if (post->kind == COLLI_POST_SEND) {
      int result = send_to_self(exec, box, post);
      if (result != COLLI_STEP_DONE)
        return result == COLLI_STEP_BLOCKED ? moved : result;
    } else {
      colli_p2p_header head = {.kind = post->kind == COLLI_POST_PUT ? P2P_PUT : P2P_SIGNAL,
                               .word = post->offset,
                               .number = post->window->number};
      p2p_take(&box->out, NULL);
      p2p_window_message(exec, exec->rank, &head, post->buf, post->bytes);
      p2p_finish(exec, post);
    }
    moved = 1;
  }
  return moved;
}
