/* p2p_window.c: what others do to this rank's windows. */
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

/* The window with that number, or NULL. */
static coll_window *find(const colli_exec *exec, uint32_t number) {
  coll_window *window = exec->p2p.windows;
  while (window && window->number != number)
    window = window->next;
  return window;
}

/* Ends waits for a rank's signals, in the order called, as long as there are enough. */
static void serve_waits(colli_exec *exec, coll_window *window, int peer) {
  colli_post *before = NULL;
  for (colli_post *post = exec->p2p.waits.head, *next; post; post = next) {
    next = post->next;
    if (post->window != window || post->peer != peer) {
      before = post;
      continue;
    }
    post->op->moved = true;
    if (window->signals[peer] < post->signals)
      return;
    window->signals[peer] -= post->signals;
    p2p_finish(exec, p2p_take(&exec->p2p.waits, before));
  }
}

void p2p_wait_signals(colli_exec *exec, colli_post *post) {
  p2p_append(&exec->p2p.waits, post);
  serve_waits(exec, post->window, post->peer);
}

/* Copies what is put, if it fits: nothing that comes writes elsewhere. */
static const char *put(coll_window *window, uint64_t offset, const char *data, size_t bytes) {
  if (offset > window->bytes || bytes > window->bytes - offset)
    return "a put beyond the memory of the window";
  if (bytes)
    memcpy(window->base + offset, data, bytes);
  return NULL;
}

/* A rank writes to the window no more. */
static void end(colli_exec *exec, coll_window *window, int peer) {
  window->ended[peer] = true;
  window->left--;
  if (!window->closing)
    return;
  window->closing->op->moved = true;
  if (window->left == 0)
    p2p_finish(exec, window->closing);
}

const char *p2p_window_message(colli_exec *exec, int peer, const colli_p2p_header *head,
                               const char *data, size_t bytes) {
  coll_window *window = find(exec, head->number);
  if (!window || window->ended[peer])
    return "a put or signal for a window that does not exist (any more)";
  switch (head->kind) {
  case P2P_PUT:
    return put(window, head->word, data, bytes);
  case P2P_SIGNAL:
    window->signals[peer]++;
    serve_waits(exec, window, peer);
    return NULL;
  default:
    end(exec, window, peer);
    return NULL;
  }
}
