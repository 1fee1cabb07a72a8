/* support_group.h: the schedules of all ranks of a shape. */
#ifndef TESTS_SCHED_SUPPORT_GROUP_H
#define TESTS_SCHED_SUPPORT_GROUP_H

#include "libcoll/algo/algo.h"
#include "libcoll/sched/verify.h"

typedef struct group {
  int nranks;
  colli_sched **sched;
} group;

/* Makes the schedules of all ranks; ends the program with a message if one cannot be made. */
group group_make(const colli_algo *algo, int nranks, int root);
void group_free(group *all);

/* A copy of one schedule, to be changed. */
colli_sched *sched_copy(const colli_sched *sched);

/* Runs the verifier; `why` (256 bytes) receives the objection. */
coll_status group_verify(const group *all, int slots, bool in_place, int passes, char *why);

#endif
