/* collective.h: the collectives, their traits and their names. */
#ifndef COLLI_SCHED_COLLECTIVE_H
#define COLLI_SCHED_COLLECTIVE_H

#include <stdbool.h>

#include "coll/coll.h"

/* Travels in tags: numbers stay. */
typedef enum colli_coll {
  COLLI_ALLREDUCE = 0,
  COLLI_BROADCAST = 1,
  COLLI_ALLGATHER = 2,
  COLLI_BARRIER = 3,
  COLLI_SENDRECV = 4, /* point to point and one-sided: no schedule, but a name and a tag */
  COLLI_REDUCE = 5,
  COLLI_REDUCE_SCATTER = 6,
  COLLI_ALLTOALL = 7,
  COLLI_GATHER = 8,
  COLLI_SCATTER = 9,
  COLLI_SCAN = 10,
  COLLI_EXSCAN = 11,
  COLLI_COLL_COUNT
} colli_coll;

/* Whether it combines elements. */
bool colli_reduces(colli_coll coll);

/* Whether it moves blocks of exactly `count` elements. */
bool colli_exact(colli_coll coll);

/* Whether its result depends on a root. */
bool colli_rooted(colli_coll coll);

/* "allreduce" ...; NULL for an unknown number. */
const char *colli_coll_name(colli_coll coll);

/* The collective of a name, or -1. */
int colli_coll_parse(const char *name);

/*
 * Finds a collective that has algorithms by its name. A v-form has the name of its plain form plus
 * a "v". False if there is none.
 */
bool colli_coll_find(const char *name, colli_coll *coll, bool *varying);

#endif
