/*
 * plan.h: the cache of choices and schedules. A *plan* is what a call leads to, whatever its
 * buffers: algorithm, schedule, partition, kernels. A call whose plan is there needs no further
 * checks of its arguments. Schedules do not depend on the count and are shared between plans.
 */
#ifndef COLLI_COMM_PLAN_H
#define COLLI_COMM_PLAN_H

#include "coll/coll_transport.h"
#include "libcoll/comm/choose.h"
#include "libcoll/comm/ops.h"
#include "libcoll/exec/reduce.h"

#define COLLI_PLANS 64 /* a power of two */

/* What a plan is made for: all that a call says, but its buffers. */
typedef struct colli_plan_key {
  size_t count; /* blocks: per rank; of differing length: a typical one, equal on all ranks */
  int type;
  int op; /* 0 where nothing is reduced */
  int root;
  uint8_t coll;
  bool in_place; /* all-to-all */
  bool varying;
} colli_plan_key;

typedef struct colli_plan {
  const colli_sched *sched; /* NULL: empty entry */
  colli_plan_key key;
  const colli_user_op *user; /* an operation of the caller's own, or NULL */
  int wire_type;             /* in which it is reduced and sent */
  size_t elem_bytes;         /* of that type */
  colli_order order;
  bool widened; /* wire_type is float32 instead of the caller's */
  bool staged;  /* works on a copy of the input */
  colli_reduce_fn reduce;
  colli_average_fn average;
  colli_partition partition;
  coll_tag tag;   /* without sequence number; v-forms: without a count */
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

/* The entry where a call's plan is, or is to be made. */
colli_plan *colli_plans_entry(colli_plans *plans, const colli_plan_key *key);

/* Whether an entry is this call's plan. */
bool colli_plan_is(const colli_plan *plan, const colli_plan_key *key);

/* The shape of an entry whose key and order are set. */
colli_shape colli_plans_shape(const colli_plans *plans, const colli_plan *plan);

/*
 * Chooses algorithm, schedule and partition for an entry whose other fields are set. On failure the
 * entry is empty and `error` is filled in.
 */
coll_status colli_plans_choose(colli_plans *plans, colli_plan *plan, coll_error *error);

/* Empties all entries: an operation has got another meaning. Schedules are kept. */
void colli_plans_forget(colli_plans *plans);

void colli_plans_free(colli_plans *plans);

#endif
