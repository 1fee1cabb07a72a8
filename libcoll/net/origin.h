/* origin.h: a keyed hash of where a connection comes from, which a kernel can compute (filter.h).
 */
#ifndef COLLI_NET_ORIGIN_H
#define COLLI_NET_ORIGIN_H

#include "libcoll/net/sockets.h"

/* Of a job's secret. */
typedef struct colli_origin_key {
  uint32_t start, multiplier, last; /* the latter two are odd */
} colli_origin_key;

/*
 * The hash of an address and port of origin, and of the port that is dialled. It keeps copies of
 * hellos out, and proves nothing: who works out the key from many recorded hellos gains no more
 * than a replay.
 */
uint32_t colli_origin_hash(const colli_origin_key *key, const colli_addr *from, uint16_t to_port);

#endif
