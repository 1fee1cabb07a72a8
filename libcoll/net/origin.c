/* origin.c: a keyed hash of where a connection comes from. filter.c has the same in the kernel's
 * instructions. */
#include "libcoll/net/origin.h"

#include <arpa/inet.h>
#include <string.h>

/* Mixes a word into the hash. */
static uint32_t mix(uint32_t hash, uint32_t word, uint32_t multiplier) {
  hash = (hash ^ word) * multiplier;
  return hash ^ hash >> 16;
}

uint32_t colli_origin_hash(const colli_origin_key *key, const colli_addr *from, uint16_t to_port) {
  const int words = from->family == 4 ? 1 : 4;
  uint32_t hash = mix(key->start, (uint32_t)from->port << 16 | to_port, key->multiplier);
  for (int i = 0; i < words; i++) {
    uint32_t word;
    memcpy(&word, from->ip + 4 * i, sizeof(word));
    hash = mix(hash, ntohl(word), key->multiplier);
  }
  return mix(hash, 0, key->last);
}
