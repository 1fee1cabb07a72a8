/* plan.c: the cache of choices and schedules. */
#include "libcoll/comm/plan.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

#define NAME_BYTES 32

/* Finds what COLL_ALGO says for a collective: the name into `name`, or "" if nothing. */
static void forced_name(const char *force, colli_coll coll, char name[NAME_BYTES]) {
  const char *coll_name = colli_coll_name(coll);
  size_t length = strlen(coll_name);
  name[0] = 0;
  for (const char *at = force; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (strncmp(at, coll_name, length) != 0 || at[length] != ':')
      continue;
    size_t bytes = strcspn(at + length + 1, ",");
    if (bytes >= NAME_BYTES)
      bytes = NAME_BYTES - 1;
    memcpy(name, at + length + 1, bytes);
    name[bytes] = 0;
  }
}

/* Writes "ring, dbtree" for a collective. */
static void known_names(colli_coll coll, char *text, size_t bytes) {
  text[0] = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->coll != coll)
      continue;
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", (*algo)->name);
  }
}

/* Checks COLL_ALGO. */
coll_status colli_plans_check_force(const char *force, coll_error *error) {
  char copy[256];
  if (strlen(force) >= sizeof(copy))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "COLL_ALGO is too long");
  strcpy(copy, force);
  char *rest = NULL;
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    char *colon = strchr(word, ':');
    if (colon)
      *colon = 0;
    int coll = colon ? colli_coll_parse(word) : -1;
    if (coll < 0 || coll == COLLI_SENDRECV)
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "COLL_ALGO=%s: expected collective:algorithm[,...] such as "
                             "allreduce:ring; collectives are allreduce, broadcast, allgather, "
                             "barrier",
                             force);
    if (!colli_algo_find((colli_coll)coll, colon + 1)) {
      char names[128];
      known_names((colli_coll)coll, names, sizeof(names));
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "COLL_ALGO=%s: %s has no algorithm '%s'; it has %s", force, word,
                             colon + 1, names);
    }
  }
  return COLL_OK;
}

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
  char force[NAME_BYTES];
  forced_name(plans->force, key->coll, force);
  if (!colli_select(&shape, key->count, key->elem_bytes, &plans->limits, &plans->model, force,
                    &choice, NULL, 0)) {
    colli_error_set(error, COLL_ERR_INTERNAL, NULL, "no algorithm for %s",
                    colli_coll_name(key->coll));
    return NULL;
  }
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
}
