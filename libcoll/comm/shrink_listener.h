/*
 * shrink_listener.h: where the survivors of a failure reach a process. For this, each process keeps
 * the listener of its creation, and the secret that all who connect must know. A created
 * communicator and all those made from it share them.
 */
#ifndef COLLI_COMM_SHRINK_LISTENER_H
#define COLLI_COMM_SHRINK_LISTENER_H

#include <stdatomic.h>

#include "libcoll/base/secret.h"

typedef struct colli_shrink_listener {
  atomic_int refs;
  int listen_fd;
  colli_secret *secret; /* one reference */
} colli_shrink_listener;

/* Takes ownership of a listening socket, with one reference; closes it and returns NULL if out of
 * memory. */
colli_shrink_listener *colli_shrink_listener_create(int listen_fd, colli_secret *secret);

/* Take and drop a reference; the last drop closes the socket. NULL is allowed. */
void colli_shrink_listener_acquire(colli_shrink_listener *listener);
void colli_shrink_listener_release(colli_shrink_listener *listener);

#endif
