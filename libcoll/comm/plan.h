/*
 * plan.h: the cache of choices and schedules. A *plan* is what a shape and a count lead to:
 * algorithm, schedule, partition. Schedules do not depend on the count and are shared between
 * plans.
 */
#ifndef COLLI_COMM_PLAN_H
#define COLLI_COMM_PLAN_H

#include "libcoll/comm/choose.h"

#define COLLI_PLANS 64 /* a power of two */

/* What a plan is made for. */
typedef struct colli_plan_key {
  colli_coll coll;
  int root;
  colli_order order;
  bool in_place; /* all-to-all */
  bool varying;
  size_t count; /* blocks: per rank; of differing length: a typical one, equal on all ranks */
  size_t elem_bytes;
} colli_plan_key;

typedef struct colli_plan {
  const colli_sched *sched; /* NULL: empty entry */
  colli_plan_key key;
  int root;
  colli_partition partition;
  bool connected; /* its connections have been begun */
} colli_plan;

typedef struct colli_plans {
  int nranks;
  int rank;
  colli_limits limits;
  colli_model model;
  int ngroups;    /* as in colli_shape */
  int32_t *group; /* freed with the rest */
  colli_chooser chooser;
  colli_plan plan[COLLI_PLANS];
  colli_sched **scheds;
  int nscheds;
  int room;
} colli_plans;

/* The plan for one call; made when first asked for. On failure NULL and `error` is filled in. */
colli_plan *colli_plans_get(colli_plans *plans, const colli_plan_key *key, coll_error *error);

void colli_plans_free(colli_plans *plans);

#endif
