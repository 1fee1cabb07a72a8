/*
 * mail_parts.h: what the files of the mail share, and how its messages look.
 *
 * Tag: word 0: elements of a message, or an offset (48 bits), and the size of a type of the
 * caller's own (16 bits). Word 1: the user's tag (high half), and a check (16 bits): a message
 * whose tag is damaged would wait for a receive that never comes. Word 2: COLLI_SENDRECV, type and
 * kind (a byte each), and a number (32 bits): the sender's for a long message, or that of a window.
 * The other bits are left to those who wrap messages (libcoll/comm/mux.h), and zero here.
 */
#ifndef COLLI_EXEC_MAIL_PARTS_H
#define COLLI_EXEC_MAIL_PARTS_H

#include "libcoll/exec/exec.h"

enum {
  MAIL_SHORT, /* a whole message */
  MAIL_FIRST, /* the first slice of a long one */
  MAIL_GO,    /* to the sender of a long one: its receiver is ready */
  MAIL_SLICE, /* a further slice; word: its offset */
  MAIL_PUT,   /* word: offset in the window */
  MAIL_SIGNAL,
  MAIL_END,
  MAIL_KINDS
};

/* The check of a tag. */
static inline uint64_t mail_check(const coll_tag *tag) {
  uint64_t hash = (tag->word[0] ^ (tag->word[1] >> 32)) * 0x9e3779b97f4a7c15ull;
  return ((hash ^ tag->word[2]) * 0xbf58476d1ce4e5b9ull) >> 48;
}

/* ---- mail.c ----------------------------------------------------------------------------------
 */

/* The mailbox of a peer, made and connected when first used; NULL after events->failed. */
colli_mailbox *mail_box(colli_exec *exec, coll_request *op, int peer);

void mail_append(colli_posts *list, colli_post *post);

/* Takes out the post behind `before`, or the first (NULL). */
colli_post *mail_take(colli_posts *list, colli_post *before);

/* Marks a post as complete, and its operation when it was the last. */
void mail_finish(colli_exec *exec, colli_post *post);

/* ---- mail_match.c ----------------------------------------------------------------------------
 */

/* Takes out the posted receive that a message of `box` goes to, or NULL. */
colli_post *mail_match(colli_exec *exec, colli_mailbox *box, int tag);

/* Gives a matched receive its message, or the beginning of it: DONE or FAILED. */
int mail_deliver(colli_exec *exec, colli_mailbox *box, colli_post *post,
                 const colli_mail_head *head, const char *data, size_t bytes);

/* Keeps a message for later: DONE, or BLOCKED where the peer has as many as it may, or FAILED.
 * from: a long message of this rank itself, or NULL. */
int mail_keep(colli_exec *exec, colli_mailbox *box, const colli_mail_head *head, const char *data,
              size_t bytes, colli_post *from);

/* Posts a receive: a letter that fits is taken at once. */
int mail_post_recv(colli_exec *exec, colli_post *post);

/* A letter with room for `bytes`, or NULL without memory; and back to the pool. */
colli_letter *mail_letter_get(colli_mail *mail, size_t bytes);
void mail_letter_put(colli_mail *mail, colli_letter *letter);

/* Releases all letters that wait for a receive. */
void mail_drop_letters(colli_mail *mail, colli_mailbox *box);

/* ---- mail_send.c -----------------------------------------------------------------------------
 */

/* Sends what can go to a peer: 1 if something went, 0, or FAILED. */
int mail_send(colli_exec *exec, colli_mailbox *box);

/* The same for the rank itself. */
int mail_send_self(colli_exec *exec, colli_mailbox *box);

/* ---- mail_recv.c -----------------------------------------------------------------------------
 */

/* Reads what has come from a peer: 1 if something came, 0, or FAILED. */
int mail_read(colli_exec *exec, colli_mailbox *box);

/* ---- mail_window.c ---------------------------------------------------------------------------
 */

/* Handles PUT, SIGNAL, END: NULL, or what is wrong with the message. */
const char *mail_window_message(colli_exec *exec, int peer, const colli_mail_head *head,
                                const char *data, size_t bytes);

/* Begins to wait for signals. */
void mail_wait_signals(colli_exec *exec, colli_post *post);

#endif
