/*
 * fork.h: what a child of fork() gets of libcoll. Descriptors in the child would keep connections
 * alive when its parent dies, and calls on its parent's communicators would disturb the job. So
 * before fork() returns in the child, all descriptors of libcoll are closed there (only there:
 * nothing is shut down), and all objects with a guard are marked as inherited.
 *
 * fork.c has the lists that this needs, which belong to the whole process. A descriptor is made
 * with COLLI_FD() and closed with colli_fd_close(), so that a fork() in another thread comes before
 * or after both of the call and its entry in the list.
 *
 * A child that was made without the handlers of pthread_atfork() (clone(2), _Fork(), vfork())
 * has everything its parent has, until it calls exec.
 */
#ifndef COLLI_BASE_FORK_H
#define COLLI_BASE_FORK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "libcoll/base/queue.h"

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Between these no fork() happens in another thread. errno does not change. */
void colli_fork_hold(void);
void colli_fork_release(void);

/* While fork() is held: a descriptor is one of libcoll's from now on; or no longer. */
void colli_fd_enlist(int fd);
void colli_fd_delist(int fd);

/* Releases fork(), and returns a descriptor that was just made (or -1), which is listed. */
int colli_fd_made(int fd);

/* Makes a descriptor: COLLI_FD(eventfd(0, EFD_CLOEXEC)). */
#define COLLI_FD(call) (colli_fork_hold(), colli_fd_made(call))

/* Closes a descriptor. */
void colli_fd_close(int fd);

/* A descriptor is no longer libcoll's: it is passed to a child, or closed otherwise. */
void colli_fd_disown(int fd);

/* ---- objects --------------------------------------------------------------------------------- */

/* Part of an object that at most one thread may be inside of, and no child of its process. */
typedef struct colli_fork_guard {
  LIST_ENTRY(colli_fork_guard) link;
  atomic_int inside; /* 1: a thread is; or the object is inherited, and nobody ever gets in */
  bool inherited;    /* from the parent */
} colli_fork_guard;

/* From now on a forked child finds `inherited` and `inside` set. False: out of memory. */
bool colli_fork_guard_add(colli_fork_guard *guard);

/* The end of that. Does nothing if the guard was not added. */
void colli_fork_guard_remove(colli_fork_guard *guard);

#endif
