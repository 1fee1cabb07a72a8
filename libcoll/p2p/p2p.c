/* p2p.c: mailboxes, the start and end of operations, and the order in which peers are served. */
#include "libcoll/p2p/p2p.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

void p2p_append(colli_posts *list, colli_post *post) {
  post->next = NULL;
  if (list->head)
    list->tail->next = post;
  else
    list->head = post;
  list->tail = post;
}

/* Takes out the post behind `before`, or the first. */
colli_post *p2p_take(colli_posts *list, colli_post *before) {
  colli_post **at = before ? &before->next : &list->head;
  colli_post *post = *at;
  *at = post->next;
  if (list->tail == post)
    list->tail = before;
  return post;
}

/* The mailbox of a peer, made and connected when first used. */
colli_p2p_peer *p2p_peer_get(colli_exec *exec, coll_request *op, int peer) {
  colli_link *link = &exec->links[peer];
  if (__builtin_expect(link->box != NULL, 1))
    return link->box;
  coll_conn *conn = NULL;
  if (peer != exec->rank) {
    conn = colli_exec_conn(exec, op, peer, COLLI_CHANNEL_P2P);
    if (!conn)
      return NULL;
  }
  colli_p2p_peer *box = calloc(1, sizeof(*box));
  if (!box) {
    exec->events->failed(exec->ctx, op, peer, COLLI_CHANNEL_P2P, -1, COLL_ERR_NO_MEMORY);
    return NULL;
  }
  box->peer = peer;
  box->conn = conn;
  box->next = exec->p2p.boxes;
  exec->p2p.boxes = box;
  return link->box = box;
}

int colli_p2p_connect_all(colli_exec *exec, coll_request *op) {
  for (int peer = 0; peer < exec->nranks; peer++)
    if (!p2p_peer_get(exec, op, peer))
      return COLLI_STEP_FAILED;
  return 0;
}

/* Marks a post as complete, and its operation when it was the last. */
void p2p_finish(colli_exec *exec, colli_post *post) {
  coll_request *op = post->op;
  post->over = true;
  exec->p2p.busy--;
  if (post->window)
    post->window->inflight--;
  if (post->kind == COLLI_POST_RECV && post->message)
    *post->message = (coll_message){post->peer, post->tag, post->count};
  op->moved = true;
  if (--op->posts_left == 0)
    colli_exec_finish(exec, op, COLL_OK);
}

/* Starts one post. */
static int start(colli_exec *exec, colli_post *post) {
  exec->p2p.busy++;
  if (post->window)
    post->window->inflight++;
  if (post->kind == COLLI_POST_WAIT) {
    p2p_wait_signals(exec, post);
    return COLLI_STEP_DONE;
  }
  if (post->peer == COLL_ANY_SOURCE) {
    if (colli_p2p_connect_all(exec, post->op) != 0)
      return COLLI_STEP_FAILED;
    return p2p_post_recv(exec, post);
  }
  colli_p2p_peer *box = p2p_peer_get(exec, post->op, post->peer);
  if (!box)
    return COLLI_STEP_FAILED;
  if (post->kind == COLLI_POST_RECV)
    return p2p_post_recv(exec, post);
  p2p_append(&box->out, post);
  return COLLI_STEP_DONE;
}

/* Ends a window: tells everybody, and waits until everybody has. */
static void start_ends(colli_exec *exec, coll_request *op) {
  coll_window *window = op->post[0].window;
  window->closing = &op->post[0];
  exec->p2p.busy++;
  window->inflight++;
  op->posts_left = exec->nranks;
  for (int peer = 0; peer < exec->nranks; peer++) {
    if (peer == exec->rank)
      continue;
    window->ends[peer] =
        (colli_post){.op = op, .kind = COLLI_POST_END, .peer = peer, .window = window};
    if (start(exec, &window->ends[peer]) != COLLI_STEP_DONE)
      return;
  }
  if (window->left == 0)
    p2p_finish(exec, window->closing);
}

void colli_p2p_start(colli_exec *exec, coll_request *op) {
  int nposts = op->posts_left;
  if (op->post[0].kind == COLLI_POST_ENDS) {
    start_ends(exec, op);
    return;
  }
  for (int i = 0; i < nposts; i++)
    if (start(exec, &op->post[i]) != COLLI_STEP_DONE)
      return;
}

int colli_p2p_progress(colli_exec *exec) {
  int moved = 0;
  for (colli_p2p_peer *box = exec->p2p.boxes; box; box = box->next) {
    int read = box->conn ? p2p_read(exec, box) : 0;
    int sent = read < 0 ? read : box->conn ? p2p_send(exec, box) : p2p_send_self(exec, box);
    if (sent < 0)
      return sent;
    moved |= read | sent;
  }
  return moved;
}

/* Releases the letters among posts that were to be sent. */
static void drop_outbox(colli_p2p *mail, colli_p2p_peer *box) {
  for (colli_post *post = box->out.head, *next; post; post = next) {
    next = post->next;
    if (!post->op)
      p2p_unexpected_put(mail,
                         (colli_unexpected *)((char *)post - offsetof(colli_unexpected, post)));
  }
  box->noutbox = 0;
  box->outbox_bytes = 0;
}

void colli_p2p_cancel(colli_exec *exec) {
  colli_p2p *mail = &exec->p2p;
  for (colli_p2p_peer *box = mail->boxes; box; box = box->next) {
    drop_outbox(mail, box);
    p2p_drop_unexpected(mail, box);
    const colli_posts none = {0};
    box->out = box->waiting = box->data = box->flush = none;
    box->recvs = box->go = box->incoming = none;
    box->unsent = false;
    box->conn = NULL; /* about to be ended, or it was */
  }
  mail->any = mail->waits = (colli_posts){0};
  for (coll_window *window = mail->windows; window; window = window->next) {
    window->inflight = 0;
    window->closing = NULL;
  }
  mail->busy = mail->outbox = 0;
}

/* Frees a window, which nothing refers to any more. */
static void free_window(coll_window *window) {
  free(window->sizes);
  free(window->signals);
  free(window->ended);
  free(window->ends);
  free(window);
}

void colli_p2p_free(colli_exec *exec) {
  colli_p2p *mail = &exec->p2p;
  colli_p2p_cancel(exec);
  while (mail->boxes) {
    colli_p2p_peer *box = mail->boxes;
    mail->boxes = box->next;
    free(box);
  }
  for (int i = 0; i < COLLI_UNEXPECTED_CLASSES; i++)
    while (mail->spare[i]) {
      colli_unexpected *letter = mail->spare[i];
      mail->spare[i] = letter->next;
      free(letter);
    }
  while (mail->windows) {
    coll_window *window = mail->windows;
    mail->windows = window->next;
    free_window(window);
  }
}

void colli_p2p_add_window(colli_exec *exec, coll_window *window) {
  window->number = exec->p2p.nwindows++;
  window->next = exec->p2p.windows;
  exec->p2p.windows = window;
  exec->p2p.busy++;
}

void colli_p2p_remove_window(colli_exec *exec, coll_window *window) {
  coll_window **at = &exec->p2p.windows;
  while (*at != window)
    at = &(*at)->next;
  *at = window->next;
  if (exec->p2p.busy > 0) /* not after cancel */
    exec->p2p.busy--;
  free_window(window);
}

int colli_p2p_waits(const coll_request *op, int *peers, int count, int max) {
  const coll_window *window = op->post[0].window;
  if (op->post[0].kind == COLLI_POST_ENDS) {
    for (int peer = 0; peer < window->nranks; peer++)
      if (!window->ended[peer] || !window->ends[peer].over)
        count = colli_exec_add_peer(peers, count, max, peer);
    return count;
  }
  for (int i = 0; i < op->nposts; i++)
    if (!op->post[i].over)
      count = colli_exec_add_peer(peers, count, max, op->post[i].peer);
  return count;
}
