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

/* The schedule of an algorithm for a root, made when first asked for. */
static const colli_sched *get_sched(colli_plans *plans, const colli_algo *algo,
                                    const colli_shape *shape, coll_error *error) {
  for (int i = 0; i < plans->nscheds; i++)
    if (plans->scheds[i]->algo == algo && plans->scheds[i]->root == shape->root)
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
static size_t slot_of(colli_coll coll, size_t count, size_t elem_bytes, int root) {
  uint64_t key = (uint64_t)count * 0x9e3779b97f4a7c15ull + (uint64_t)root * 0xc2b2ae3d27d4eb4full +
                 (uint64_t)coll * 0x165667b19e3779f9ull + elem_bytes * 0x27d4eb2f165667c5ull;
  return (size_t)(key >> 58) & (COLLI_PLANS - 1);
}

/* The plan for one call. */
colli_plan *colli_plans_get(colli_plans *plans, colli_coll coll, size_t count, size_t elem_bytes,
                            int root, coll_error *error) {
  colli_plan *plan = &plans->plan[slot_of(coll, count, elem_bytes, root)];
  if (plan->sched && plan->count == count && plan->coll == coll && plan->root == root &&
      plan->elem_bytes == elem_bytes)
    return plan;
  colli_shape shape = {.coll = coll, .nranks = plans->nranks, .rank = plans->rank, .root = root};
  colli_choice choice;
  char force[NAME_BYTES];
  forced_name(plans->force, coll, force);
  if (!colli_select(&shape, count, elem_bytes, &plans->limits, &plans->model, force, &choice, NULL,
                    0)) {
    colli_error_set(error, COLL_ERR_INTERNAL, NULL, "no algorithm for %s", colli_coll_name(coll));
    return NULL;
  }
  const colli_sched *sched = get_sched(plans, choice.algo, &shape, error);
  if (!sched)
    return NULL;
  *plan = (colli_plan){sched, coll, root, count, elem_bytes, choice.partition, false};
  return plan;
}

void colli_plans_free(colli_plans *plans) {
  for (int i = 0; i < plans->nscheds; i++)
    colli_sched_free(plans->scheds[i]);
  free(plans->scheds);
}
