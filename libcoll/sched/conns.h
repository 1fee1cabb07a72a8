/* conns.h: the connections that a set of schedules sends on, numbered. */
#ifndef COLLI_SCHED_CONNS_H
#define COLLI_SCHED_CONNS_H

#include "libcoll/sched/sched.h"

typedef struct colli_conns {
  uint64_t *key; /* 0: free */
  int32_t *number;
  size_t mask;
  int count;
} colli_conns;

/* Finds all connections; false if out of memory. The caller frees the result either way. */
bool colli_conns_make(colli_conns *conns, const colli_sched *const *scheds, int nranks);

/* The index of the connection from one rank to another on a lane's channel, or -1. */
int colli_conns_find(const colli_conns *conns, int from, int to, int lane);

void colli_conns_free(colli_conns *conns);

#endif
