/* plan.c: the cache of choices and schedules. */
#include "libcoll/call/plan.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/tuning/cache.h"
#include "libcoll/tuning/locality.h"

#define STREAM_LEAST (512 << 10) /* no rank has less of a last-level cache */

/* Whether two shapes of one communicator have the same schedules. */
static bool same_shape(const colli_shape *a, const colli_shape *b) {
  return a->root == b->root && a->order == b->order && a->in_place == b->in_place &&
         a->varying == b->varying;
}

/* The schedule of an algorithm for a shape, made on first use. */
static const colli_sched *get_sched(colli_plans *plans, const colli_algo *algo,
                                    const colli_shape *shape, coll_error *error) {
  COLLI_ASSERT_RANK(plans->nscheds <= plans->capacity, plans->rank);
  for (int i = 0; i < plans->nscheds; i++)
    if (plans->scheds[i]->algo == algo && same_shape(&plans->scheds[i]->shape, shape))
      return plans->scheds[i];
  if (plans->nscheds == plans->capacity) {
    int capacity = plans->capacity ? 2 * plans->capacity : 8;
    colli_sched **grown = realloc(plans->scheds, (size_t)capacity * sizeof(*grown));
    if (!grown) {
      colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a schedule");
      return NULL;
    }
    plans->scheds = grown;
    plans->capacity = capacity;
  }
  colli_sched *sched = NULL;
  coll_status status = colli_algo_emit(algo, shape, &sched);
  if (status != COLL_OK) {
    colli_error_set(error, status, NULL, "cannot make the %s schedule for %d ranks", algo->name,
                    shape->nranks);
    return NULL;
  }
  COLLI_ASSERT_RANK(sched->algo == algo && same_shape(&sched->shape, shape), plans->rank);
  return plans->scheds[plans->nscheds++] = sched;
}

/* The shape of a plan. */
colli_shape colli_plans_shape(const colli_plans *plans, const colli_plan *plan) {
  const colli_plan_key *key = &plan->key;
  colli_shape shape = {.coll = (colli_coll)key->coll,
                       .nranks = plans->nranks,
                       .rank = plans->rank,
                       .root = key->root,
                       .order = plan->order,
                       .in_place = key->in_place,
                       .varying = key->varying,
                       .ngroups = plans->ngroups,
                       .group = plans->group,
                       .share = plans->weights ? plans->weights->share : NULL};
  for (int level = 0; level < plans->ninner; level++)
    shape.inner[shape.ninner++] = plans->inner[level];
  return shape;
}

/* Bytes of input and output that an operation has for each rank, on average. */
static uint64_t bytes_per_rank(const colli_plans *plans, const colli_plan *plan) {
  uint64_t own = plan->key.count * plan->pieces * plan->elem_bytes,
           all = own * (uint64_t)plans->nranks;
  switch (plan->key.coll) {
  case COLLI_ALLREDUCE:
  case COLLI_SCAN:
  case COLLI_EXSCAN:
    return 2 * own;
  case COLLI_REDUCE:
  case COLLI_BROADCAST:
    return own + own / (uint64_t)plans->nranks;
  case COLLI_ALLGATHER:
  case COLLI_REDUCE_SCATTER:
    return own + all;
  case COLLI_ALLTOALL:
    return 2 * all;
  default: /* gather, scatter: any rank may be the one with all blocks */
    return 3 * own;
  }
}

/*
 * Chooses whether results are stored past the caches. Then they evict nothing that is still to be
 * read, and no line is fetched only to be overwritten. But such stores are slow, so it pays only
 * when inputs and outputs of all ranks exceed the last-level cache by half; for a broadcast, which
 * reads least, by far more. In place, the next operation reads what this one stored, so the limit
 * is higher; and if a rank has just read the lines to which it stores, they are in its cache and
 * stay there.
 */
static void choose_stores(colli_plans *plans, colli_plan *plan) {
  uint64_t bytes = bytes_per_rank(plans, plan);
  plan->stream = plan->stream_in_place = false;
  if (bytes < STREAM_LEAST)
    return;
  if (!plans->cache)
    plans->cache = colli_cache_share(plans->neighbours);
  COLLI_ASSERT_RANK(plans->neighbours >= 1 && plans->neighbours <= plans->nranks, plans->rank);
  bool read_before = colli_reduces((colli_coll)plan->key.coll) || plan->key.coll == COLLI_ALLTOALL;
  uint64_t halves = plan->key.coll == COLLI_BROADCAST ? 10 : 3;
  plan->stream = plans->cache && bytes >= plans->cache / 2 * halves;
  plan->stream_in_place = plan->stream && !read_before && bytes >= plans->cache / 2 * 5;
}

/* Chooses algorithm, schedule and partition for an entry. */
coll_status colli_plans_choose(colli_plans *plans, colli_plan *plan, coll_error *error) {
  const colli_plan_key *key = &plan->key;
  colli_shape shape = colli_plans_shape(plans, plan);
  shape.root = colli_rooted(shape.coll) ? key->root : 0;
  colli_choice choice;
  size_t type_bytes = coll_type_bytes((coll_type)key->type);
  plan->sched = NULL;
  plan->connected = false;
  coll_status status = colli_choose(&plans->chooser, &shape, key->count * plan->pieces,
                                    plan->elem_bytes, key->count * type_bytes, &choice, error);
  if (status != COLL_OK)
    return status;
  COLLI_ASSERT_RANK(choice.algo->coll == shape.coll && choice.partition.passes >= 1, plans->rank);
  plan->partition = choice.partition;
  choose_stores(plans, plan);
  plan->number = ++plans->made;
  plan->turns = choice.algo->turns && plans->model.paired;
  if (plan->turns)
    shape.root = key->root;
  plan->sched = get_sched(plans, choice.algo, &shape, error);
  return plan->sched ? COLL_OK : error->status;
}

/* Takes a plan out of its bucket. */
static void remove_plan(colli_plans *plans, colli_plan *plan) {
  colli_plan **at = colli_plans_bucket(plans, &plan->key);
  while (*at != plan) {
    COLLI_ASSERT_RANK(*at, plans->rank); /* it is in its bucket */
    at = &(*at)->next;
  }
  *at = plan->next;
}

/* An entry for a new plan: the clock's hand skips entries that were used since its last round. */
colli_plan *colli_plans_evict(colli_plans *plans) {
  COLLI_ASSERT_RANK(plans->hand >= 0 && plans->hand < COLLI_PLANS, plans->rank);
  if (!plans->plan)
    plans->plan = calloc(COLLI_PLANS, sizeof(*plans->plan));
  if (!plans->plan)
    return NULL;
  colli_plan *plan = &plans->plan[plans->hand];
  while (plan->sched && plan->recent) {
    plan->recent = false;
    plans->hand = (plans->hand + 1) % COLLI_PLANS;
    plan = &plans->plan[plans->hand];
  }
  if (plan->sched) {
    remove_plan(plans, plan);
    colli_user_op_release(plan->user);
  }
  plan->sched = NULL;
  return plan;
}

/* Puts the entry that was last evicted into its bucket. */
void colli_plans_insert(colli_plans *plans, colli_plan *plan) {
  colli_plan **bucket = colli_plans_bucket(plans, &plan->key);
  COLLI_ASSERT_RANK(plan == &plans->plan[plans->hand] && plan->sched, plans->rank);
  COLLI_ASSERT_RANK(plan != *bucket, plans->rank);
  colli_user_op_retain(plan->user); /* no other operation gets its address while it is in keys */
  plan->next = *bucket;
  *bucket = plan;
  plans->hand = (plans->hand + 1) % COLLI_PLANS;
}

const colli_user_op *colli_plans_user_op(const colli_plans *plans, const coll_tag *tag) {
  for (int i = 0; plans->plan && i < COLLI_PLANS; i++) {
    const colli_plan *plan = &plans->plan[i];
    if (plan->sched && plan->user && colli_tag_op(&plan->tag) == colli_tag_op(tag))
      return plan->user;
  }
  return NULL;
}

void colli_plans_clear(colli_plans *plans) {
  for (int i = 0; plans->plan && i < COLLI_PLANS; i++) {
    if (plans->plan[i].sched)
      colli_user_op_release(plans->plan[i].user);
    free(plans->plan[i].fastpath);
  }
  for (int i = 0; i < plans->nscheds; i++)
    colli_sched_free(plans->scheds[i]);
  free(plans->plan);
  free(plans->scheds);
  for (; plans->ninner > 0; plans->ninner--)
    free(plans->inner[plans->ninner - 1]);
  free(plans->group);
  free(plans->weights);
  plans->plan = NULL;
  plans->scheds = NULL;
  plans->group = NULL;
  plans->weights = NULL;
  plans->nscheds = plans->capacity = plans->hand = 0;
  memset(plans->bucket, 0, sizeof(plans->bucket));
  colli_chooser_forget(&plans->chooser);
}

void colli_plans_free(colli_plans *plans) {
  colli_plans_clear(plans);
  colli_chooser_free(&plans->chooser);
}
