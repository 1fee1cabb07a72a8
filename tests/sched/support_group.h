/* support_group.h: the schedules of all ranks of a shape, and the shapes worth testing. */
#ifndef TESTS_SCHED_SUPPORT_GROUP_H
#define TESTS_SCHED_SUPPORT_GROUP_H

#include "libcoll/tuning/select.h"
#include "libcoll/verify/verify.h"

typedef struct group {
  int nranks;
  colli_sched **sched;
  int32_t *near; /* the memory of shape.group; NULL without groups */
} group;

/* How ranks are spread over groups (hosts). */
typedef enum near_kind {
  NEAR_ALL,    /* no groups */
  NEAR_HALVES, /* two groups, one after the other */
  NEAR_ROOTS,  /* about sqrt(n) groups of as many ranks */
  NEAR_UNEVEN, /* groups of 1, 2, 3 ... ranks */
  NEAR_DEALT,  /* dealt out to three groups in turn */
  NEAR_MIXED,  /* about sqrt(n) groups in no order */
  NEAR_KINDS
} near_kind;

/* Makes the schedules of all ranks; ends the program with a message if one cannot be made. The
 * shape's rank and groups are set here. */
group group_of(const colli_algo *algo, const colli_shape *shape, near_kind near);

/* The same for the plainest shape that the algorithm supports. */
group group_make(const colli_algo *algo, int nranks, int root);
void group_free(group *all);

/* An example of a shape with this kind of groups, so that colli_algo_can() can be asked. `near`
 * has room for nranks numbers and lives as long as the shape. */
void shape_spread(colli_shape *shape, near_kind kind, int32_t *near);

/* Adds levels inside the groups of a shape: each group's ranks are halved, and both or one of the
 * halves again, and so on. They are valid until the next call. */
void shape_levels(colli_shape *shape, int ninner, bool both);

/* Calls visit with every shape of nranks ranks that the algorithm can do: orders, in place,
 * lengths, groups; of the roots only those that `roots` bounds (0: all), always the first two, the
 * middle one and the last; algorithms that take turns have the first two. */
void shapes_each(const colli_algo *algo, int nranks, int roots,
                 void (*visit)(const colli_algo *algo, const colli_shape *shape, near_kind near,
                               void *ctx),
                 void *ctx);

/* "allreduce ring, 5 ranks, root 0, order 0" ... of a shape; `text` has 160 bytes. */
const char *shape_tell(const colli_algo *algo, const colli_shape *shape, near_kind near,
                       char *text);

/* A copy of one schedule, to be changed, with room for one more step. */
colli_sched *sched_copy(const colli_sched *sched);

/* Runs the verifier; `why` (256 bytes) receives the objection. */
coll_status group_verify(const group *all, int slots, bool in_place, int passes, char *why);

#endif
