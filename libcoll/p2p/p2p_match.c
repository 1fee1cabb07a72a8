/*
 * p2p_match.c: which receive takes which message. Receives are posted in a list for each source
 * and one for any source, numbered, so that the oldest that fits is found; letters are in a list
 * for each source and one for all.
 */
#include <stdlib.h>
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

#define LEAST_ROOM 64u

/* ---- letters ----------------------------------------------------------------------------------
 */

/* Letters are kept for the next ones, by powers of two of room. */
colli_unexpected *p2p_unexpected_get(colli_p2p *mail, size_t bytes) {
  int class = 0;
  while ((size_t)LEAST_ROOM << class < bytes)
    class ++;
  colli_unexpected *letter = mail->spare[class];
  if (letter) {
    mail->spare[class] = letter->next;
  } else {
    letter = malloc(sizeof(*letter) + ((size_t)LEAST_ROOM << class));
    if (!letter)
      return NULL;
  }
  letter->room_class = class;
  return letter;
}

void p2p_unexpected_put(colli_p2p *mail, colli_unexpected *letter) {
  letter->next = mail->spare[letter->room_class];
  mail->spare[letter->room_class] = letter;
}

/* Puts a letter at the end of both lists. */
static void enlist(colli_p2p *mail, colli_p2p_peer *box, colli_unexpected *letter) {
  letter->next = letter->later = NULL;
  letter->prev = box->last;
  letter->earlier = mail->last;
  *(box->last ? &box->last->next : &box->first) = letter;
  *(mail->last ? &mail->last->later : &mail->first) = letter;
  box->last = mail->last = letter;
  box->nunexpected++;
  box->unexpected_bytes += letter->from ? 0 : letter->bytes;
}

/* Takes a letter out of both. */
static void delist(colli_p2p *mail, colli_p2p_peer *box, colli_unexpected *letter) {
  *(letter->prev ? &letter->prev->next : &box->first) = letter->next;
  *(letter->next ? &letter->next->prev : &box->last) = letter->prev;
  *(letter->earlier ? &letter->earlier->later : &mail->first) = letter->later;
  *(letter->later ? &letter->later->earlier : &mail->last) = letter->earlier;
  box->nunexpected--;
  box->unexpected_bytes -= letter->from ? 0 : letter->bytes;
}

void p2p_drop_unexpected(colli_p2p *mail, colli_p2p_peer *box) {
  while (box->first) {
    colli_unexpected *letter = box->first;
    delist(mail, box, letter);
    p2p_unexpected_put(mail, letter);
  }
}

int p2p_keep(colli_exec *exec, colli_p2p_peer *box, const colli_p2p_header *head, const char *data,
             size_t bytes, colli_post *from) {
  if (box->nunexpected >= COLLI_UNEXPECTED_MAX ||
      box->unexpected_bytes + bytes > COLLI_UNEXPECTED_MAX_BYTES)
    return COLLI_STEP_BLOCKED;
  colli_unexpected *letter = p2p_unexpected_get(&exec->p2p, from ? 0 : bytes);
  if (!letter) {
    exec->events->failed(exec->ctx, exec->oldest, box->peer, COLLI_CHANNEL_P2P, -1,
                         COLL_ERR_NO_MEMORY);
    return COLLI_STEP_FAILED;
  }
  letter->peer = box->peer;
  letter->head = *head;
  letter->from = from;
  letter->bytes = bytes;
  if (bytes && !from)
    memcpy(letter->data, data, bytes);
  enlist(&exec->p2p, box, letter);
  return COLLI_STEP_DONE;
}

/* ---- matching ---------------------------------------------------------------------------------
 */

static inline bool tag_fits(const colli_post *post, int tag) {
  return post->tag == tag || post->tag == COLL_ANY_TAG;
}

/* The first post of a list that takes `tag`, with the one before it. */
static colli_post *find_post(const colli_posts *list, int tag, colli_post **before) {
  *before = NULL;
  for (colli_post *post = list->head; post; post = post->next) {
    if (tag_fits(post, tag))
      return post;
    *before = post;
  }
  return NULL;
}

colli_post *p2p_match(colli_exec *exec, colli_p2p_peer *box, int tag) {
  colli_post *before, *before_any;
  colli_post *post = find_post(&box->recvs, tag, &before);
  colli_post *any = find_post(&exec->p2p.any, tag, &before_any);
  if (any && (!post || any->order < post->order))
    return p2p_take(&exec->p2p.any, before_any);
  return post ? p2p_take(&box->recvs, before) : NULL;
}

/* Gives a matched receive its message, or the beginning of it. */
int p2p_deliver(colli_exec *exec, colli_p2p_peer *box, colli_post *post,
                const colli_p2p_header *head, const char *data, size_t bytes) {
  size_t count = (size_t)head->word;
  if (head->type != post->type || count > post->count || (post->exact && count < post->count)) {
    exec->events->unfit(exec->ctx, post, box->peer, head);
    return COLLI_STEP_FAILED;
  }
  if (post->peer == COLL_ANY_SOURCE)
    post->peer = box->peer;
  post->tag = head->tag;
  post->count = count;
  post->bytes = count * coll_type_bytes((coll_type)post->type);
  post->done = bytes;
  post->op->moved = true;
  if (bytes)
    memcpy(post->buf, data, bytes);
  if (bytes == post->bytes) {
    p2p_finish(exec, post);
  } else {
    post->number = head->number;
    p2p_append(&box->go, post);
  }
  return COLLI_STEP_DONE;
}

/* Hands a letter to a receive, and ends the send that waits for it. */
static int take_letter(colli_exec *exec, colli_unexpected *letter, colli_post *post) {
  colli_p2p_peer *box = exec->links[letter->peer].box;
  colli_post *from = letter->from;
  delist(&exec->p2p, box, letter);
  int result =
      p2p_deliver(exec, box, post, &letter->head, from ? from->buf : letter->data, letter->bytes);
  p2p_unexpected_put(&exec->p2p, letter);
  if (from && result == COLLI_STEP_DONE)
    p2p_finish(exec, from);
  return result;
}

int p2p_post_recv(colli_exec *exec, colli_post *post) {
  colli_p2p *mail = &exec->p2p;
  bool any = post->peer == COLL_ANY_SOURCE;
  colli_unexpected *letter = any ? mail->first : exec->links[post->peer].box->first;
  while (letter && !tag_fits(post, letter->head.tag))
    letter = any ? letter->later : letter->next;
  if (letter)
    return take_letter(exec, letter, post);
  post->order = mail->nposted++;
  p2p_append(any ? &mail->any : &exec->links[post->peer].box->recvs, post);
  return COLLI_STEP_DONE;
}
