/* plan.c: the cache of choices and schedules. */
#include "libcoll/comm/plan.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

/* Whether a schedule of this communicator serves a shape. */
static bool same_shape(const colli_shape *a, const colli_shape *b) {
  return a->root == b->root && a->order == b->order && a->in_place == b->in_place &&
         a->varying == b->varying;
}

/* The schedule of an algorithm for a shape, made when first asked for. */
static const colli_sched *get_sched(colli_plans *plans, const colli_algo *algo,
                                    const colli_shape *shape, coll_error *error) {
  for (int i = 0; i < plans->nscheds; i++)
    if (plans->scheds[i]->algo == algo && same_shape(&plans->scheds[i]->shape, shape))
      return plans->scheds[i];
  if (plans->nscheds == plans->room) {
    int room = plans->room ? 2 * plans->room : 8;
    colli_sched **grown = realloc(plans->scheds, (size_t)room * sizeof(*grown));
    if (!grown) {
      colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "no memory for a schedule");
      return NULL;
    }
    plans->scheds = grown;
    plans->room = room;
  }
  colli_sched *sched = NULL;
  coll_status status = algo->emit(shape, &sched);
  if (status != COLL_OK) {
    colli_error_set(error, status, NULL, "cannot make the %s schedule for %d ranks", algo->name,
                    shape->nranks);
    return NULL;
  }
  sched->algo = algo;
  return plans->scheds[plans->nscheds++] = sched;
}

/* Where in the cache a call's plan is. */
static size_t slot_of(const colli_plan_key *key) {
  uint64_t kind = (uint64_t)key->coll | (uint64_t)key->order << 8 | (uint64_t)key->in_place << 16 |
                  (uint64_t)key->varying << 17;
  uint64_t hash = (uint64_t)key->count * 0x9e3779b97f4a7c15ull +
                  (uint64_t)key->root * 0xc2b2ae3d27d4eb4full + kind * 0x165667b19e3779f9ull +
                  key->elem_bytes * 0x27d4eb2f165667c5ull;
  return (size_t)(hash >> 58) & (COLLI_PLANS - 1);
}

/* Whether a plan is for this key. */
static bool same_key(const colli_plan_key *a, const colli_plan_key *b) {
  return a->count == b->count && a->coll == b->coll && a->root == b->root && a->order == b->order &&
         a->elem_bytes == b->elem_bytes && a->in_place == b->in_place && a->varying == b->varying;
}

/* The plan for one call. */
colli_plan *colli_plans_get(colli_plans *plans, const colli_plan_key *key, coll_error *error) {
  colli_plan *plan = &plans->plan[slot_of(key)];
  if (plan->sched && same_key(&plan->key, key))
    return plan;
  colli_shape shape = {.coll = key->coll,
                       .nranks = plans->nranks,
                       .rank = plans->rank,
                       .root = key->root,
                       .order = key->order,
                       .in_place = key->in_place,
                       .varying = key->varying,
                       .ngroups = plans->ngroups,
                       .group = plans->group};
  colli_choice choice;
  if (colli_choose(&plans->chooser, &shape, key->count, key->elem_bytes,
                   key->count * key->elem_bytes, &choice, error) != COLL_OK)
    return NULL;
  const colli_sched *sched = get_sched(plans, choice.algo, &shape, error);
  if (!sched)
    return NULL;
  *plan =
      (colli_plan){.sched = sched, .key = *key, .root = key->root, .partition = choice.partition};
  return plan;
}

void colli_plans_free(colli_plans *plans) {
  for (int i = 0; i < plans->nscheds; i++)
    colli_sched_free(plans->scheds[i]);
  free(plans->scheds);
  free(plans->group);
  colli_force_free(&plans->chooser.force);
}
