/* mail.c: mailboxes, the start and end of operations, and the order in which peers are served. */
#include "libcoll/exec/mail.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/exec/mail_parts.h"

void mail_append(colli_posts *list, colli_post *post) {
  post->next = NULL;
  if (list->head)
    list->tail->next = post;
  else
    list->head = post;
  list->tail = post;
}

/* Takes out the post behind `before`, or the first. */
colli_post *mail_take(colli_posts *list, colli_post *before) {
  colli_post **at = before ? &before->next : &list->head;
  colli_post *post = *at;
  *at = post->next;
  if (list->tail == post)
    list->tail = before;
  return post;
}

/* The mailbox of a peer, made and connected when first used. */
colli_mailbox *mail_box(colli_exec *exec, coll_request *op, int peer) {
  colli_link *link = &exec->links[peer];
  if (__builtin_expect(link->box != NULL, 1))
    return link->box;
  coll_conn *conn = NULL;
  if (peer != exec->rank) {
    conn = colli_exec_conn(exec, op, peer, COLLI_CHANNEL_P2P);
    if (!conn)
      return NULL;
  }
  colli_mailbox *box = calloc(1, sizeof(*box));
  if (!box) {
    exec->events->failed(exec->ctx, op, peer, COLLI_CHANNEL_P2P, -1, COLL_ERR_NO_MEMORY);
    return NULL;
  }
  box->peer = peer;
  box->conn = conn;
  box->next = exec->mail.boxes;
  exec->mail.boxes = box;
  return link->box = box;
}

int colli_mail_connect_all(colli_exec *exec, coll_request *op) {
  for (int peer = 0; peer < exec->nranks; peer++)
    if (!mail_box(exec, op, peer))
      return COLLI_STEP_FAILED;
  return 0;
}

/* Marks a post as complete, and its operation when it was the last. */
void mail_finish(colli_exec *exec, colli_post *post) {
  coll_request *op = post->op;
  post->over = true;
  exec->mail.busy--;
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
  exec->mail.busy++;
  if (post->window)
    post->window->inflight++;
  if (post->kind == COLLI_POST_WAIT) {
    mail_wait_signals(exec, post);
    return COLLI_STEP_DONE;
  }
  if (post->peer == COLL_ANY_SOURCE) {
    if (colli_mail_connect_all(exec, post->op) != 0)
      return COLLI_STEP_FAILED;
    return mail_post_recv(exec, post);
  }
  colli_mailbox *box = mail_box(exec, post->op, post->peer);
  if (!box)
    return COLLI_STEP_FAILED;
  if (post->kind == COLLI_POST_RECV)
    return mail_post_recv(exec, post);
  mail_append(&box->out, post);
  return COLLI_STEP_DONE;
}

/* Ends a window: tells everybody, and waits until everybody has. */
static void start_ends(colli_exec *exec, coll_request *op) {
  coll_window *window = op->post[0].window;
  window->closing = &op->post[0];
  exec->mail.busy++;
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
    mail_finish(exec, window->closing);
}

void colli_mail_start(colli_exec *exec, coll_request *op) {
  int nposts = op->posts_left;
  if (op->post[0].kind == COLLI_POST_ENDS) {
    start_ends(exec, op);
    return;
  }
  for (int i = 0; i < nposts; i++)
    if (start(exec, &op->post[i]) != COLLI_STEP_DONE)
      return;
}

int colli_mail_progress(colli_exec *exec) {
  int moved = 0;
  for (colli_mailbox *box = exec->mail.boxes; box; box = box->next) {
    int read = box->conn ? mail_read(exec, box) : 0;
    int sent = read < 0 ? read : box->conn ? mail_send(exec, box) : mail_send_self(exec, box);
    if (sent < 0)
      return sent;
    moved |= read | sent;
  }
  return moved;
}

/* Releases the letters among posts that were to be sent. */
static void drop_outbox(colli_mail *mail, colli_mailbox *box) {
  for (colli_post *post = box->out.head, *next; post; post = next) {
    next = post->next;
    if (!post->op)
      mail_letter_put(mail, (colli_letter *)((char *)post - offsetof(colli_letter, post)));
  }
  box->noutbox = 0;
  box->outbox_bytes = 0;
}

void colli_mail_cancel(colli_exec *exec) {
  colli_mail *mail = &exec->mail;
  for (colli_mailbox *box = mail->boxes; box; box = box->next) {
    drop_outbox(mail, box);
    mail_drop_letters(mail, box);
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

void colli_mail_free(colli_exec *exec) {
  colli_mail *mail = &exec->mail;
  colli_mail_cancel(exec);
  while (mail->boxes) {
    colli_mailbox *box = mail->boxes;
    mail->boxes = box->next;
    free(box);
  }
  for (int i = 0; i < COLLI_LETTER_CLASSES; i++)
    while (mail->spare[i]) {
      colli_letter *letter = mail->spare[i];
      mail->spare[i] = letter->next;
      free(letter);
    }
  while (mail->windows) {
    coll_window *window = mail->windows;
    mail->windows = window->next;
    free_window(window);
  }
}

void colli_mail_add_window(colli_exec *exec, coll_window *window) {
  window->number = exec->mail.nwindows++;
  window->next = exec->mail.windows;
  exec->mail.windows = window;
  exec->mail.busy++;
}

void colli_mail_remove_window(colli_exec *exec, coll_window *window) {
  coll_window **at = &exec->mail.windows;
  while (*at != window)
    at = &(*at)->next;
  *at = window->next;
  if (exec->mail.busy > 0) /* not after cancel */
    exec->mail.busy--;
  free_window(window);
}

int colli_mail_waits(const coll_request *op, int *peers, int count, int max) {
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
