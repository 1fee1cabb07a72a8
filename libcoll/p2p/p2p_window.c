/* p2p_window.c: a rank's windows, and the handling of incoming puts and signals. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_internal.h"
#include "libcoll/p2p/window.h"

void colli_p2p_add_window(colli_p2p *p2p, coll_window *window) {
  window->number = p2p->nwindows++;
  window->next = p2p->windows;
  p2p->windows = window;
  p2p->busy++;
}

void colli_p2p_remove_window(colli_p2p *p2p, coll_window *window) {
  coll_window **at = &p2p->windows;
  while (*at != window)
    at = &(*at)->next;
  COLLI_ASSERT(window->inflight == 0);
  *at = window->next;
  if (p2p->busy > 0) /* not after cancel */
    p2p->busy--;
  free(window->sizes);
  free(window->signals);
  free(window->ended);
  free(window->ends);
  free(window);
}

/* The window with that number, or NULL. */
static coll_window *find_window(const colli_p2p *p2p, uint32_t number) {
  coll_window *window = p2p->windows;
  while (window && window->number != number)
    window = window->next;
  return window;
}

/* Completes waits for a rank's signals, in the order of the calls, as long as there are enough. */
static void serve_waits(colli_p2p *p2p, coll_window *window, int peer) {
  colli_post *before = NULL;
  for (colli_post *post = p2p->waits.head, *next; post; post = next) {
    next = post->next;
    if (post->window != window || post->peer != peer) {
      before = post;
      continue;
    }
    post->op->request.moved = true;
    if (window->signals[peer] < post->signals)
      return;
    window->signals[peer] -= post->signals;
    COLLI_ASSERT(post->kind == COLLI_POST_WAIT);
    p2p_finish(p2p, p2p_take(&p2p->waits, before));
  }
}

void p2p_wait_signals(colli_p2p *p2p, colli_post *post) {
  p2p_append(&p2p->waits, post);
  serve_waits(p2p, post->window, post->peer);
}

/* Copies the data of a put if it fits, so that no message writes outside the window. */
static const char *store_put(coll_window *window, uint64_t offset, const char *data, size_t bytes) {
  if (offset > window->bytes || bytes > window->bytes - offset)
    return "a put beyond the memory of the window";
  if (bytes)
    memcpy(window->base + offset, data, bytes);
  return NULL;
}

/* A rank writes to the window no more. */
static void end_of_peer(colli_p2p *p2p, coll_window *window, int peer) {
  window->ended[peer] = true;
  COLLI_ASSERT(window->left > 0);
  window->left--;
  if (!window->closing)
    return;
  window->closing->op->request.moved = true;
  if (window->left == 0)
    p2p_finish(p2p, window->closing);
}

const char *p2p_window_message(colli_p2p *p2p, int peer, const colli_p2p_header *head,
                               const char *data, size_t bytes) {
  coll_window *window = find_window(p2p, head->number);
  if (!window || window->ended[peer])
    return "a put or signal for a window that does not exist (any more)";
  switch (head->kind) {
  case P2P_PUT:
    return store_put(window, head->word, data, bytes);
  case P2P_SIGNAL:
    window->signals[peer]++;
    serve_waits(p2p, window, peer);
    return NULL;
  default:
    end_of_peer(p2p, window, peer);
    return NULL;
  }
}
