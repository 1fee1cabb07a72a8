/*
 * movers.h: everything in this process that has to move on while one of its threads waits for
 * something else: the families of communicators. A peer may need a handshake or an answer from one
 * family while this process waits in another one, or makes a new one.
 *
 * movers.c has the list of them. It belongs to the whole process, because a thread that waits in
 * one family knows of no other. A forked child begins with an empty list.
 */
#ifndef COLLI_BASE_MOVERS_H
#define COLLI_BASE_MOVERS_H

#include <poll.h>
#include <stdbool.h>

#include "libcoll/base/queue.h"

#define COLLI_MOVER_FDS 8

/* What a mover says about its next move. */
typedef struct colli_mover_needs {
  bool moved;    /* something has moved now */
  int within_ms; /* move it again so soon; -1: when a descriptor is readable */
  struct pollfd fds[COLLI_MOVER_FDS];
  int nfds;
} colli_mover_needs;

typedef struct colli_mover {
  LIST_ENTRY(colli_mover) link;
  /* Moves as far as possible without waiting, unless a thread is inside, and fills in *needs, which
   * is empty before. Called by one thread at a time. */
  void (*move)(struct colli_mover *mover, colli_mover_needs *needs);
  bool listed;
  colli_mover_needs needs; /* as it was last moved */
  bool blind;              /* a descriptor is readable for nothing, so do not wait for them */
} colli_mover;

/* Adds a mover; false if the process cannot keep it from forked children (out of memory). */
bool colli_movers_add(colli_mover *mover);

/* Removes one that was added or not; it is not moved any more when this returns. */
void colli_movers_remove(colli_mover *mover);

/* Runs `change` while nothing is moved. */
void colli_movers_exclude(void (*change)(void *arg), void *arg);

/* Moves all but `mine` (or NULL), unless another thread does, or they were just moved: for a thread
 * that polls for something else. Costs next to nothing if there is no other. */
void colli_movers_move(const colli_mover *mine);

/* As poll(2), and all movers but `mine` move, before and afterwards. Returns early if one of them
 * has moved; then no descriptor need be ready. */
int colli_movers_poll(struct pollfd *fds, int count, int timeout_ms, const colli_mover *mine);

#endif
