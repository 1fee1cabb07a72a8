/*
 * levels.h: a communicator whose ranks are in groups: GPUs of one group reach each other, those of
 * different groups do not. Long calls in streams are divided among the ranks of a group
 * (stream/levels.h). Two communicators of its own make the parts of such a call.
 */
#ifndef COLLI_COMM_LEVELS_H
#define COLLI_COMM_LEVELS_H

#include "coll/coll.h"

typedef struct colli_levels {
  coll_comm *within;     /* this rank's group, where calls are direct */
  coll_comm *across;     /* the ranks that have this one's place in their groups; staged */
  int ngroups, size;     /* all groups have the same number of ranks */
  int group, place;      /* this rank's */
  const char *operation; /* the call that has begun last, for messages */
  int *member;           /* ngroups * size ranks, group by group */
} colli_levels;

/* The rank that has a place in a group. */
static inline int colli_levels_member(const colli_levels *levels, int group, int place) {
  return levels->member[group * levels->size + place];
}

#endif
