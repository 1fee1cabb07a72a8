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
  coll_status status = colli_algo_emit(algo, shape, &sched);
  if (status != COLL_OK) {
    colli_error_set(error, status, NULL, "cannot make the %s schedule for %d ranks", algo->name,
                    shape->nranks);
    return NULL;
  }
  return plans->scheds[plans->nscheds++] = sched;
}

/* The shape of a plan. */
colli_shape colli_plans_shape(const colli_plans *plans, const colli_plan *plan) {
  const colli_plan_key *key = &plan->key;
  return (colli_shape){.coll = (colli_coll)key->coll,
                       .nranks = plans->nranks,
                       .rank = plans->rank,
                       .root = key->root,
                       .order = plan->order,
                       .in_place = key->in_place,
                       .varying = key->varying,
                       .ngroups = plans->ngroups,
                       .group = plans->group};
}

/* Chooses algorithm, schedule and partition for an entry. */
coll_status colli_plans_choose(colli_plans *plans, colli_plan *plan, coll_error *error) {
  const colli_plan_key *key = &plan->key;
  colli_shape shape = colli_plans_shape(plans, plan);
  colli_choice choice;
  size_t type_bytes = coll_type_bytes((coll_type)key->type);
  plan->sched = NULL;
  plan->connected = false;
  coll_status status = colli_choose(&plans->chooser, &shape, key->count, plan->elem_bytes,
                                    key->count * type_bytes, &choice, error);
  if (status != COLL_OK)
    return status;
  plan->partition = choice.partition;
  plan->stream = plans->cache_bytes && choice.partition.count * plan->elem_bytes >
                                           plans->cache_bytes / 2; /* in and out */
  plan->number = ++plans->made;
  plan->sched = get_sched(plans, choice.algo, &shape, error);
  return plan->sched ? COLL_OK : error->status;
}

/* Empties all entries. */
void colli_plans_forget(colli_plans *plans) {
  for (int i = 0; i < COLLI_PLANS; i++)
    plans->plan[i].sched = NULL;
}

void colli_plans_free(colli_plans *plans) {
  for (int i = 0; i < COLLI_PLANS; i++)
    free(plans->plan[i].script);
  for (int i = 0; i < plans->nscheds; i++)
    colli_sched_free(plans->scheds[i]);
  free(plans->scheds);
  free(plans->group);
  colli_force_free(&plans->chooser.force);
}
