/* conns.c: the connections that a set of schedules sends on. */
#include "libcoll/sched/conns.h"

#include <stdlib.h>

#include "libcoll/base/assert.h"

/* The key of a connection on a lane's channel; never 0. */
static uint64_t key_of(int from, int to, int lane) {
  return 1 + (((uint64_t)(unsigned)from << 32) | ((uint64_t)(unsigned)to << 8) | (unsigned)lane);
}

/* Where a key is, or would be. */
static size_t place_of(const colli_conns *conns, uint64_t key) {
  COLLI_ASSERT((size_t)conns->count <= conns->mask); /* there is an empty place */
  size_t at = (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & conns->mask;
  while (conns->key[at] && conns->key[at] != key)
    at = (at + 1) & conns->mask;
  return at;
}

/* Doubles the table, or makes the first one. */
static bool grow_table(colli_conns *conns) {
  colli_conns old = *conns;
  size_t size = old.key ? 2 * (old.mask + 1) : 1024;
  conns->key = calloc(size, sizeof(*conns->key));
  conns->number = malloc(size * sizeof(*conns->number));
  conns->mask = size - 1;
  bool ok = conns->key && conns->number;
  for (size_t i = 0; ok && old.key && i <= old.mask; i++) {
    if (!old.key[i])
      continue;
    size_t at = place_of(conns, old.key[i]);
    conns->key[at] = old.key[i];
    conns->number[at] = old.number[i];
  }
  colli_conns_free(&old);
  return ok;
}

/* Finds all connections. */
bool colli_conns_make(colli_conns *conns, const colli_sched *const *scheds, int nranks) {
  *conns = (colli_conns){0};
  if (!grow_table(conns))
    return false;
  for (int rank = 0; rank < nranks; rank++) {
    for (int i = 0; i < scheds[rank]->nsteps; i++) {
      const colli_step *step = &scheds[rank]->steps[i];
      if (!(step->bits & COLLI_SEND))
        continue;
      if ((size_t)conns->count * 2 > conns->mask && !grow_table(conns))
        return false;
      uint64_t key = key_of(rank, step->peer_send, step->lane);
      size_t at = place_of(conns, key);
      if (conns->key[at])
        continue;
      conns->key[at] = key;
      conns->number[at] = conns->count++;
    }
  }
  return true;
}

/* The number of a connection, or -1. */
int colli_conns_find(const colli_conns *conns, int from, int to, int lane) {
  size_t at = place_of(conns, key_of(from, to, lane));
  return conns->key[at] ? conns->number[at] : -1;
}

/* Frees the numbering. */
void colli_conns_free(colli_conns *conns) {
  free(conns->key);
  free(conns->number);
}
