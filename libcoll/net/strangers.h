/* strangers.h: how many connections came from strangers, and from where. */
#ifndef COLLI_NET_STRANGERS_H
#define COLLI_NET_STRANGERS_H

#include "libcoll/net/sockets.h"

#define COLLI_STRANGERS_SOURCES 8
#define COLLI_STRANGERS_TEXT    128

typedef struct colli_strangers {
  unsigned long count;
  int nsources; /* the first that came */
  struct {
    uint8_t ip[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned long count;
  } sources[COLLI_STRANGERS_SOURCES];
} colli_strangers;

/* Counts one. */
void colli_strangers_add(colli_strangers *strangers, const colli_addr *from);

/* Counts those that the kernel keeps for a port of this host because they have not said enough. */
void colli_strangers_add_silent(colli_strangers *strangers, uint16_t port);

/* "; meanwhile 4012 strangers connected, 4000 of them from 10.0.0.7", or "" if none did. Returns
 * text. */
const char *colli_strangers_text(const colli_strangers *strangers, char text[COLLI_STRANGERS_TEXT]);

#endif
