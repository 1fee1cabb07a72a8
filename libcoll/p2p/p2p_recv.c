/* p2p_recv.c: what comes in: each message is copied to where it belongs, and its slot freed. */
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

#define MOST_AT_ONCE 64 /* messages that are read from one peer before the others have a turn */

#define USER_TYPE 0xffu

/* Reads a tag; false if no sender makes such a one. */
static bool read_tag(const coll_tag *tag, colli_p2p_header *head) {
  unsigned code = tag->word[2] >> 8 & 0xff;
  head->kind = (int)(tag->word[2] >> 16 & 0xff);
  head->tag = (int)(tag->word[1] >> 32);
  head->type = code == USER_TYPE ? COLL_TYPE_USER_BASE + (int)(tag->word[0] >> 48) : (int)code;
  head->word = tag->word[0] & 0xffffffffffffull;
  head->number = (uint32_t)(tag->word[2] >> 24);
  return (tag->word[2] & 0xff) == COLLI_SENDRECV && tag->word[2] >> 56 == 0 &&
         (tag->word[1] & 0xffffffffu) == p2p_check(tag) && head->kind < P2P_KINDS && head->tag >= 0;
}

/* Reports a message that no sender makes. */
static int broken(colli_exec *exec, colli_p2p_peer *box, const char *detail) {
  box->recv_status = COLL_ERR_PROTOCOL;
  exec->events->broken(exec->ctx, exec->oldest, box->peer, detail);
  return COLLI_STEP_FAILED;
}

/* A message, or the first slice of one. */
static int take_message(colli_exec *exec, colli_p2p_peer *box, const colli_p2p_header *head,
                        const char *data, size_t bytes) {
  size_t total;
  size_t elem_bytes = coll_type_bytes((coll_type)head->type);
  if (elem_bytes == 0 || __builtin_mul_overflow((size_t)head->word, elem_bytes, &total) ||
      (head->kind == P2P_EAGER ? bytes != total : bytes >= total || bytes == 0))
    return broken(exec, box, "a message whose length is not what its tag says");
  colli_post *post = p2p_match(exec, box, head->tag);
  return post ? p2p_deliver(exec, box, post, head, data, bytes)
              : p2p_keep(exec, box, head, data, bytes, NULL);
}

/* The post of a list with that number, taken out, or NULL. */
static colli_post *take_numbered(colli_posts *list, uint32_t number) {
  colli_post *before = NULL;
  for (colli_post *post = list->head; post; before = post, post = post->next)
    if (post->number == number)
      return p2p_take(list, before);
  return NULL;
}

/* A further slice of a long message. */
static int take_slice(colli_exec *exec, colli_p2p_peer *box, const colli_p2p_header *head,
                      const char *data, size_t bytes) {
  colli_post *before = NULL, *post = box->incoming.head;
  while (post && post->number != head->number)
    before = post, post = post->next;
  if (!post || head->word != post->done || bytes == 0 || bytes > post->bytes - post->done)
    return broken(exec, box, "a slice of a message that is not the next one");
  memcpy(post->buf + post->done, data, bytes);
  post->done += bytes;
  post->op->moved = true;
  if (post->done == post->bytes)
    p2p_finish(exec, p2p_take(&box->incoming, before));
  return COLLI_STEP_DONE;
}

/* The receiver of a long message is ready. */
static int take_go(colli_exec *exec, colli_p2p_peer *box, uint32_t number) {
  colli_post *post = take_numbered(&box->waiting, number);
  if (!post)
    return broken(exec, box, "a go-ahead for a message that does not wait");
  post->op->moved = true;
  p2p_append(&box->data, post);
  return COLLI_STEP_DONE;
}

/* Handles one message: DONE, BLOCKED if it cannot be taken now, or FAILED. */
static int take(colli_exec *exec, colli_p2p_peer *box, const coll_tag *tag, const char *data,
                size_t bytes) {
  colli_p2p_header head;
  if (!read_tag(tag, &head))
    return broken(exec, box, "a message of an unknown kind");
  switch (head.kind) {
  case P2P_EAGER:
  case P2P_RENDEZVOUS:
    return take_message(exec, box, &head, data, bytes);
  case P2P_CLEAR_TO_SEND:
    return take_go(exec, box, head.number);
  case P2P_SLICE:
    return take_slice(exec, box, &head, data, bytes);
  default: {
    const char *wrong = p2p_window_message(exec, box->peer, &head, data, bytes);
    return wrong ? broken(exec, box, wrong) : COLLI_STEP_DONE;
  }
  }
}

/* The first of the posts that need something from a peer which only it can give, or NULL. */
static colli_post *needs(const colli_exec *exec, const colli_p2p_peer *box) {
  const colli_posts *lists[] = {&box->recvs, &box->incoming, &box->waiting, &box->go};
  for (int i = 0; i < 4; i++)
    if (lists[i]->head)
      return lists[i]->head;
  for (colli_post *post = exec->p2p.waits.head; post; post = post->next)
    if (post->peer == box->peer)
      return post;
  for (const coll_window *window = exec->p2p.windows; window; window = window->next)
    if (window->closing && !window->ended[box->peer])
      return window->closing;
  return NULL;
}

/*
 * Nothing more comes from a peer. That is a failure once an operation needs it; a receive from
 * anybody does not, as long as there are others, or this rank may send to itself.
 */
static int report(colli_exec *exec, colli_p2p_peer *box) {
  colli_post *post = needs(exec, box);
  if (!post)
    return 0;
  exec->events->failed(exec->ctx, post->op, box->peer, COLLI_CHANNEL_P2P, -1, box->recv_status);
  return COLLI_STEP_FAILED;
}

/* Fails a receive from anybody if nobody else is left. */
void colli_p2p_abandoned(colli_exec *exec) {
  const colli_p2p_peer *box = exec->p2p.boxes;
  if (!exec->p2p.any.head || exec->nranks == 1 || exec->p2p.broken < exec->nranks - 1)
    return;
  while (box->recv_status == COLL_OK)
    box = box->next;
  exec->events->failed(exec->ctx, exec->p2p.any.head->op, box->peer, COLLI_CHANNEL_P2P, -1,
                       box->recv_status);
}

int p2p_read(colli_exec *exec, colli_p2p_peer *box) {
  int moved = 0;
  for (int i = 0; i < MOST_AT_ONCE && box->recv_status == COLL_OK; i++) {
    coll_tag tag;
    const void *data;
    size_t bytes;
    int status = box->conn->ops->slot_peek(box->conn, &tag, &data, &bytes);
    if (status == COLL_T_DONE) {
      int result = take(exec, box, &tag, data, bytes);
      if (result != COLLI_STEP_DONE)
        return result == COLLI_STEP_BLOCKED ? moved : result;
      status = box->conn->ops->slot_release(box->conn);
      moved = 1;
    }
    if (status == COLL_T_AGAIN)
      return moved;
    if (status > 0) {
      box->recv_status = (coll_status)status;
      exec->p2p.broken++;
    }
  }
  if (__builtin_expect(box->recv_status != COLL_OK, 0) && report(exec, box) < 0)
    return COLLI_STEP_FAILED;
  return moved;
}
