/* shrink_listener.c: the listener at which survivors reach a process, with a count of its users. */
#include "libcoll/comm/shrink_listener.h"

#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/fork.h"

/* Takes over a listening socket. */
colli_shrink_listener *colli_shrink_listener_create(int listen_fd, colli_secret *secret) {
  colli_shrink_listener *listener = calloc(1, sizeof(*listener));
  if (!listener) {
    colli_fd_close(listen_fd);
    return NULL;
  }
  atomic_init(&listener->refs, 1);
  listener->listen_fd = listen_fd;
  listener->secret = colli_secret_acquire(secret);
  return listener;
}

/* Takes a reference. */
void colli_shrink_listener_acquire(colli_shrink_listener *listener) {
  if (listener)
    atomic_fetch_add(&listener->refs, 1);
}

/* Gives up a reference. */
void colli_shrink_listener_release(colli_shrink_listener *listener) {
  if (!listener || atomic_fetch_sub(&listener->refs, 1) != 1)
    return;
  colli_fd_close(listener->listen_fd);
  colli_secret_release(listener->secret);
  free(listener);
}
