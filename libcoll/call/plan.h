/*
 * plan.h: the cache of choices and schedules. A *plan* is everything about a call that does not
 * depend on its buffers: algorithm, schedule, partition, kernels. A call whose plan exists needs no
 * further checks of its arguments. Schedules do not depend on the count and are shared between
 * plans.
 */
#ifndef COLLI_CALL_PLAN_H
#define COLLI_CALL_PLAN_H

#include "coll/coll_transport.h"
#include "libcoll/call/ops.h"
#include "libcoll/exec/fastpath.h"
#include "libcoll/sched/tag.h"
#include "libcoll/tuning/choose.h"

#define COLLI_PLANS        64 /* so many shapes can be in use without evicting each other */
#define COLLI_PLAN_BUCKETS 64 /* a power of two */

/* The key of a plan: all arguments of a call except its buffers. */
typedef struct colli_plan_key {
  size_t count; /* blocks: per rank; of differing lengths: a typical length, equal on all ranks */
  coll_op op;   /* 0 where nothing is reduced */
  int type;
  int root;
  uint8_t coll;
  bool in_place; /* all-to-all */
  bool varying;
} colli_plan_key;

typedef struct colli_plan {
  struct colli_plan *next;  /* in its bucket */
  const colli_sched *sched; /* NULL: empty entry */
  colli_plan_key key;
  bool recent;          /* used since the clock's hand last passed */
  uint64_t number;      /* of all plans ever made; not 0 */
  size_t reads, writes; /* bytes of the caller's buffers; not of v-forms */
  size_t in_first;      /* where they begin in the vector, in elements; not for v-forms */
  size_t out_first;
  uintptr_t shift;     /* in place: the offset of sendbuf from recvbuf in bytes */
  colli_user_op *user; /* a user-defined operation, or NULL; an entry in a bucket has a reference */
  int wire_type;       /* in which it is reduced and sent */
  size_t elem_bytes;   /* of that type, or 1: elements longer than a slot move as bytes */
  size_t pieces;       /* an element of the caller's has so many of these */
  colli_order order;
  bool widened;       /* wire_type is float32 instead of the caller's */
  bool alone;         /* the input may become a result, and first gets the form of one */
  bool staged;        /* works on a copy of the input */
  bool checks_finite; /* the input is looked through first */
  bool in_rooms;      /* reduces elements that are longer than a slot */
  colli_reduce_fn reduce;
  colli_average_fn average;
  bool stream;          /* results go past the caches, which are too small for all vectors */
  bool stream_in_place; /* ... also where a result lies on the input */
  colli_partition partition;
  coll_tag tag;             /* without sequence number; v-forms: without a count */
  bool turns;               /* the next all-reduce has another root: see colli_algo.turns */
  bool connected;           /* its connections have been begun */
  bool has_fastpath;        /* `fastpath` is this plan's */
  bool runs_fastpath;       /* ... and its connections can run it; known once they are begun */
  colli_fastpath *fastpath; /* the entry's own memory, which the next plan reuses */
} colli_plan;

typedef struct colli_plans {
  int nranks;
  int rank;
  colli_limits limits;
  colli_model model;
  int neighbours; /* ranks on this rank's machine, itself included */
  uint64_t cache; /* this rank's share of the last-level cache; 0: not determined yet */
  int ngroups;    /* as in colli_shape */
  int32_t *group; /* freed with the rest */
  int ninner;     /* as in colli_shape */
  int32_t *inner[COLLI_INNER_LEVELS]; /* freed with the rest */
  int names[COLLI_INNER_LEVELS + 1];  /* as in colli_locality */
  struct colli_weights *weights;      /* of the hosts, or NULL; freed with the rest */
  colli_chooser chooser;
  colli_plan *bucket[COLLI_PLAN_BUCKETS];
  colli_plan *plan; /* COLLI_PLANS entries, from the first call on: many communicators make none */
  int hand;      /* the clock's hand: the entry that is evicted next unless it was used recently */
  uint64_t made; /* the number of the last plan */
  colli_sched **scheds;
  int nscheds;
  int capacity;
} colli_plans;

/* The bucket of a key. */
static inline colli_plan **colli_plans_bucket(colli_plans *plans, const colli_plan_key *key) {
  uint64_t kind = (uint64_t)key->coll | (uint64_t)key->type << 8 | (uint64_t)key->op << 32 |
                  (uint64_t)key->in_place << 56 | (uint64_t)key->varying << 57;
  uint64_t hash = key->count * 0x9e3779b97f4a7c15ull + kind * 0x165667b19e3779f9ull +
                  (uint64_t)(unsigned)key->root * 0xc2b2ae3d27d4eb4full;
  return &plans->bucket[(size_t)(hash >> 58) & (COLLI_PLAN_BUCKETS - 1)];
}

/* Whether a plan was made for a key. */
static inline bool colli_plan_is(const colli_plan *plan, const colli_plan_key *key) {
  const colli_plan_key *a = &plan->key;
  return a->count == key->count && a->type == key->type && a->op == key->op &&
         a->root == key->root && a->coll == key->coll && a->in_place == key->in_place &&
         a->varying == key->varying;
}

/* The plan for a key, or NULL. */
static inline colli_plan *colli_plans_find(colli_plans *plans, const colli_plan_key *key) {
  colli_plan *plan = *colli_plans_bucket(plans, key);
  while (plan && !colli_plan_is(plan, key))
    plan = plan->next;
  if (plan)
    plan->recent = true;
  return plan;
}

/* An entry for a new plan, in no bucket: an empty one, or one evicted because it was not used
 * recently. NULL: out of memory. */
colli_plan *colli_plans_evict(colli_plans *plans);

/* Adds such an entry, once filled in, to its bucket, where colli_plans_find() finds it. */
void colli_plans_insert(colli_plans *plans, colli_plan *plan);

/* The tag of the operation with a number. */
static inline coll_tag colli_plan_tag(const colli_plan *plan, uint64_t sequence) {
  coll_tag tag = plan->tag;
  colli_tag_put(&tag, COLLI_TAG_SEQUENCE, sequence);
  return tag;
}

/* The shape of an entry whose key and order are set. */
colli_shape colli_plans_shape(const colli_plans *plans, const colli_plan *plan);

/*
 * Chooses algorithm, schedule and partition for an entry whose other fields are set. On failure the
 * entry is empty and `error` is filled in.
 */
coll_status colli_plans_choose(colli_plans *plans, colli_plan *plan, coll_error *error);

/* The user-defined operation of a tag, if a plan in the cache uses it; else NULL. */
const colli_user_op *colli_plans_user_op(const colli_plans *plans, const coll_tag *tag);

/* Forgets all plans, and where the ranks are, while no operation is in flight. */
void colli_plans_clear(colli_plans *plans);
void colli_plans_free(colli_plans *plans);

#endif
