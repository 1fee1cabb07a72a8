/*
 * p2p_kept.c: kept messages: unexpected ones, in a list per peer and one for all, and buffered
 * sends, which keep their place in the queue of their peer.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_internal.h"

#define LEAST_BYTES 64u

/* Freed memory is kept for later messages, in lists by size (powers of two). */
colli_p2p_kept *p2p_kept_get(colli_p2p *p2p, size_t bytes) {
  int class = 0;
  while ((size_t)LEAST_BYTES << class < bytes)
    class ++;
  COLLI_ASSERT(class < COLLI_P2P_SIZE_CLASSES);
  colli_p2p_kept *message = p2p->spare[class];
  if (message) {
    p2p->spare[class] = message->next;
  } else {
    message = malloc(sizeof(*message) + ((size_t)LEAST_BYTES << class));
    if (!message)
      return NULL;
  }
  message->size_class = class;
  return message;
}

void p2p_kept_put(colli_p2p *p2p, colli_p2p_kept *message) {
  COLLI_ASSERT(message->size_class >= 0 && message->size_class < COLLI_P2P_SIZE_CLASSES);
  message->next = p2p->spare[message->size_class];
  p2p->spare[message->size_class] = message;
}

/* ---- unexpected messages --------------------------------------------------------------------- */

/* Appends a message to both lists. */
static void append_unexpected(colli_p2p *p2p, colli_p2p_peer *peer, colli_p2p_kept *message) {
  COLLI_ASSERT(!peer->first == !peer->last && !p2p->first == !p2p->last);
  COLLI_ASSERT(message->peer == peer->rank);
  message->next = message->later = NULL;
  message->prev = peer->last;
  message->earlier = p2p->last;
  *(peer->last ? &peer->last->next : &peer->first) = message;
  *(p2p->last ? &p2p->last->later : &p2p->first) = message;
  peer->last = p2p->last = message;
  peer->nunexpected++;
  peer->unexpected_bytes += message->sender ? 0 : message->bytes;
}

void p2p_kept_remove(colli_p2p *p2p, colli_p2p_peer *peer, colli_p2p_kept *message) {
  COLLI_ASSERT((message->prev ? message->prev->next : peer->first) == message);
  COLLI_ASSERT((message->earlier ? message->earlier->later : p2p->first) == message);
  COLLI_ASSERT(peer->nunexpected > 0);
  *(message->prev ? &message->prev->next : &peer->first) = message->next;
  *(message->next ? &message->next->prev : &peer->last) = message->prev;
  *(message->earlier ? &message->earlier->later : &p2p->first) = message->later;
  *(message->later ? &message->later->earlier : &p2p->last) = message->earlier;
  peer->nunexpected--;
  peer->unexpected_bytes -= message->sender ? 0 : message->bytes;
}

/* Whether a part of a collective, or a clear-to-send for one, is awaited from a peer: it may be
 * behind any number of messages that the program has not received yet, and need not before the
 * collective has ended. */
static bool awaits_part(const colli_p2p_peer *peer) {
  const colli_posts *lists[] = {&peer->recvs, &peer->matched, &peer->incoming, &peer->awaiting_cts};
  for (int i = 0; i < 4; i++)
    for (const colli_post *post = lists[i]->head; post; post = post->next)
      if (post->tag == COLLI_OWN_TAG(COLLI_PART_TAG))
        return true;
  return false;
}

int p2p_keep(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head, const char *data,
             size_t bytes, colli_post *sender) {
  bool full = peer->nunexpected >= COLLI_UNEXPECTED_MAX ||
              peer->unexpected_bytes + bytes > COLLI_UNEXPECTED_MAX_BYTES;
  if (full && !p2p_probes(p2p, peer->rank, head->tag) && !p2p_seeks(p2p, peer->rank, head->tag) &&
      !awaits_part(peer))
    return COLLI_STEP_BLOCKED;
  colli_p2p_kept *message = p2p_kept_get(p2p, sender ? 0 : bytes);
  if (!message)
    return p2p_fail(p2p, p2p->exec->oldest, peer->rank, COLL_ERR_NO_MEMORY);
  message->taken = false;
  message->peer = peer->rank;
  message->head = *head;
  message->sender = sender;
  message->bytes = bytes;
  if (bytes && !sender)
    memcpy(message->data, data, bytes);
  append_unexpected(p2p, peer, message);
  return COLLI_STEP_DONE;
}

void p2p_drop_unexpected(colli_p2p *p2p, colli_p2p_peer *peer) {
  while (peer->first) {
    colli_p2p_kept *message = peer->first;
    p2p_kept_remove(p2p, peer, message);
    p2p_kept_put(p2p, message);
  }
  COLLI_ASSERT(peer->nunexpected == 0 && peer->unexpected_bytes == 0);
}

/* ---- buffered sends -------------------------------------------------------------------------- */

bool p2p_buffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post **at) {
  colli_post *post = *at;
  if (peer->nbuffered >= COLLI_UNEXPECTED_MAX ||
      peer->buffered_bytes + post->bytes > COLLI_UNEXPECTED_MAX_BYTES)
    return false;
  colli_p2p_kept *copy = p2p_kept_get(p2p, post->bytes);
  if (!copy)
    return false;
  if (post->bytes)
    memcpy(copy->data, post->buf, post->bytes);
  COLLI_ASSERT(post->op && !post->over && post->done == 0 && post->kind == COLLI_POST_SEND);
  copy->post = *post;
  copy->post.op = NULL;
  copy->post.buf = copy->data;
  *at = &copy->post;
  if (peer->out.tail == post)
    peer->out.tail = &copy->post;
  peer->nbuffered++;
  peer->buffered_bytes += post->bytes;
  p2p->busy++;
  p2p->outgoing++;
  return true;
}

void p2p_unbuffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post) {
  COLLI_ASSERT(!post->op && peer->nbuffered > 0 && peer->buffered_bytes >= post->bytes);
  COLLI_ASSERT(p2p->busy > 0 && p2p->outgoing > 0);
  peer->nbuffered--;
  peer->buffered_bytes -= post->bytes;
  p2p->busy--;
  p2p->outgoing--;
  p2p_kept_put(p2p, (colli_p2p_kept *)((char *)post - offsetof(colli_p2p_kept, post)));
}
