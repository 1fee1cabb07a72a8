/*
 * p2p_match.c: matches messages and receives, and takes receives back. Receives are in a list per
 * source and one for any source, and are numbered, so that the oldest match can be found.
 * Unexpected messages are in a list per source and one for all.
 */
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/copy.h"
#include "libcoll/base/names.h"
#include "libcoll/p2p/p2p_internal.h"

/* Whether a receive takes a tag; any tag is none of libcoll's own. */
static inline bool tag_fits(const colli_post *post, int tag) {
  return post->tag == tag || (post->tag == COLL_ANY_TAG && tag >= 0);
}

/* The first post of a list that matches `tag`, and its predecessor. */
static colli_post *find_post(const colli_posts *list, int tag, colli_post **before) {
  *before = NULL;
  for (colli_post *post = list->head; post; post = post->next) {
    if (tag_fits(post, tag))
      return post;
    *before = post;
  }
  return NULL;
}

colli_post *p2p_match(colli_p2p *p2p, colli_p2p_peer *peer, int tag) {
  colli_post *before, *before_any;
  colli_post *post = find_post(&peer->recvs, tag, &before);
  colli_post *any = find_post(&p2p->any, tag, &before_any);
  if (any && (!post || any->order < post->order))
    return p2p_take(&p2p->any, before_any);
  return post ? p2p_take(&peer->recvs, before) : NULL;
}

/* What most messages of a window find: the whole tag is the one that the oldest receive expects,
 * and none from any source may be older. Then p2p_match() and p2p_deliver() would do the same. */
bool p2p_deliver_expected(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag,
                          const char *data, size_t bytes) {
  colli_post *post = peer->recvs.head;
  if (!post || p2p->any.head || !p2p_tag_equal(tag, &post->expected) || bytes != post->bytes ||
      __builtin_expect(post->tag == COLL_ANY_TAG, 0))
    return false;
  COLLI_ASSERT_RANK(post->kind == COLLI_POST_RECV && !post->over, p2p->exec->rank);
  p2p_take(&peer->recvs, NULL);
  post->done = bytes;
  colli_copy(post->buf, data, bytes);
  p2p_finish(p2p, post);
  return true;
}

/* Delivers a message, or its first slice, to the matched receive. One that does not fit ends only
 * this receive: its slices still arrive, and are discarded. */
int p2p_deliver(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post,
                const colli_p2p_header *head, const char *data, size_t bytes) {
  COLLI_ASSERT_RANK(post->kind == COLLI_POST_RECV && !post->over, p2p->exec->rank);
  COLLI_ASSERT_RANK(post->peer == peer->rank || post->peer == COLL_ANY_SOURCE, p2p->exec->rank);
  size_t count = (size_t)head->word;
  post->unfit =
      head->type != post->type || count > post->count || (post->exact && count < post->count);
  if (__builtin_expect(post->unfit, 0))
    p2p->events->unfit(p2p->exec->ctx, post, peer->rank, head);
  if (post->peer == COLL_ANY_SOURCE)
    post->peer = peer->rank;
  post->tag = head->tag;
  post->count = count;
  post->bytes = count * colli_type_bytes(head->type);
  COLLI_ASSERT_RANK(bytes <= post->bytes, p2p->exec->rank);
  post->done = bytes;
  post->op->request.moved = true;
  if (!post->unfit)
    colli_copy(post->buf, data, bytes);
  if (bytes == post->bytes) {
    p2p_finish(p2p, post);
  } else {
    post->number = head->number;
    post->from_lent = head->kind == P2P_LENT;
    p2p_append(&peer->matched, post);
  }
  return COLLI_STEP_DONE;
}

/* Delivers an unexpected message, or a taken one, to a receive, and ends the send that waits for
 * this. */
static int take_unexpected(colli_p2p *p2p, colli_p2p_kept *message, colli_post *post) {
  COLLI_ASSERT_RANK(!message->sender || message->peer == p2p->exec->rank, p2p->exec->rank);
  colli_p2p_peer *peer = p2p->peers[message->peer];
  colli_post *sender = message->sender;
  if (message->taken)
    p2p_untake(p2p, message);
  else
    p2p_kept_remove(p2p, peer, message);
  int result = p2p_deliver(p2p, peer, post, &message->head, sender ? sender->buf : message->data,
                           message->bytes);
  p2p_kept_put(p2p, message);
  if (sender && result == COLLI_STEP_DONE)
    p2p_finish(p2p, sender);
  return result;
}

int p2p_post_recv(colli_p2p *p2p, colli_post *post) {
  if (__builtin_expect(post->from != NULL, 0))
    return take_unexpected(p2p, post->from, post);
  bool any = post->peer == COLL_ANY_SOURCE;
  colli_p2p_kept *message = any ? p2p->first : p2p->peers[post->peer]->first;
  while (message && !tag_fits(post, message->head.tag))
    message = any ? message->later : message->next;
  if (message)
    return take_unexpected(p2p, message, post);
  post->order = p2p->nposted++;
  p2p_append(any ? &p2p->any : &p2p->peers[post->peer]->recvs, post);
  return COLLI_STEP_DONE;
}

/* The list in which a post would wait for a message. */
static colli_posts *list_of(const colli_p2p *p2p, const colli_post *post) {
  return post->peer == COLL_ANY_SOURCE ? (colli_posts *)&p2p->any : &p2p->peers[post->peer]->recvs;
}

bool colli_p2p_can_retract(const colli_p2p *p2p, const coll_request *request) {
  const colli_p2p_op *op = colli_p2p_op_of(request);
  if (request->coll != COLLI_SENDRECV || op->nposts != 1 || op->post[0].kind != COLLI_POST_RECV)
    return false;
  const colli_post *post = list_of(p2p, &op->post[0])->head;
  while (post && post != &op->post[0])
    post = post->next;
  return post != NULL;
}

void colli_p2p_retract(colli_p2p *p2p, coll_request *request) {
  COLLI_ASSERT_RANK(colli_p2p_can_retract(p2p, request), p2p->exec->rank);
  colli_p2p_op *op = colli_p2p_op_of(request);
  colli_posts *list = list_of(p2p, &op->post[0]);
  colli_post *before = NULL;
  for (colli_post *post = list->head; post != &op->post[0]; post = post->next)
    before = post;
  p2p_take(list, before);
  op->post[0].over = true;
  op->posts_left = 0;
  p2p->busy--;
  colli_exec_finish(p2p->exec, request, COLL_ERR_TIMEOUT);
}
