/*
 * shrink_listener.h: where the survivors of a failure find a process. Each process keeps the
 * listener of its creation for that, and the secret that all who come to it must know. Both belong
 * to a communicator that was created and to all that are made from it.
 */
#ifndef COLLI_COMM_SHRINK_LISTENER_H
#define COLLI_COMM_SHRINK_LISTENER_H

#include <stdatomic.h>

#include "coll/coll_transport.h"

typedef struct colli_shrink_listener {
  atomic_int refs;
  int listen_fd;
  uint8_t secret[COLL_SECRET_BYTES];
} colli_shrink_listener;

/* Takes over a listening socket, with one reference; closes it and returns NULL if out of memory.
 */
colli_shrink_listener *colli_shrink_listener_create(int listen_fd,
                                                    const uint8_t secret[COLL_SECRET_BYTES]);

/* Take and give up a reference; the last one closes the socket. NULL is allowed. */
void colli_shrink_listener_acquire(colli_shrink_listener *listener);
void colli_shrink_listener_release(colli_shrink_listener *listener);

#endif
