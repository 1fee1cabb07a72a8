/* shrink_listener.c: the listener at which survivors reach a process, with a count of its users. */
#include "libcoll/comm/shrink_listener.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Takes over a listening socket. */
colli_shrink_listener *colli_shrink_listener_create(int listen_fd,
                                                    const uint8_t secret[COLL_SECRET_BYTES]) {
  colli_shrink_listener *listener = calloc(1, sizeof(*listener));
  if (!listener) {
    close(listen_fd);
    return NULL;
  }
  atomic_init(&listener->refs, 1);
  listener->listen_fd = listen_fd;
  memcpy(listener->secret, secret, sizeof(listener->secret));
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
  close(listener->listen_fd);
  explicit_bzero(listener->secret, sizeof(listener->secret));
  free(listener);
}
