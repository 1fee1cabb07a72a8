/* filter.h: which packets the kernel lets through to a door (door.h). */
#ifndef COLLI_NET_FILTER_H
#define COLLI_NET_FILTER_H

#include "libcoll/net/auth.h"

/* Which first messages pass. */
typedef struct colli_filter {
  const uint8_t *secret; /* hellos made with it, if they fit the rest; NULL: all hellos */
  bool others;           /* all hellos made with another secret, too */
  /* Those made with the secret pass only if they have one of these kinds (0: any), */
  colli_hello_kind kinds[2];
  int rank; /* and are to this rank (-1: any) */
} colli_filter;

/*
 * Has the kernel drop packets of connections that a listening socket has not accepted yet, unless
 * their data is such a hello, which always fits into one packet. So the packet that would complete
 * another connection is dropped, too: it stays half open. So is a copy of a hello that counts from
 * one origin only (colli_auth_bind()) and comes from another. Where the kernel cannot do that,
 * nothing happens.
 */
void colli_filter_attach(int listen_fd, const colli_filter *filter);

/* The same for connections that must begin with a word (in host order) and `bytes` bytes in all. */
void colli_filter_attach_word(int listen_fd, uint32_t word, uint32_t bytes);

/* Removes the filter that an accepted socket inherited; false with errno. */
bool colli_filter_detach(int fd);

#endif
