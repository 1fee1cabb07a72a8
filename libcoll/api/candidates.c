/* candidates.c: coll_candidates: the algorithms that could run a call, and the chosen one. */
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"

static const char operation[] = "candidates";

/* Checks the arguments. */
static coll_status check_arguments(coll_comm *comm, const char *collective, colli_call *call) {
  size_t bytes = coll_type_bytes((coll_type)call->type), total;
  if (!collective || !colli_coll_find(collective, &call->coll, &call->varying))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation,
                             "'%s' is no collective that has algorithms",
                             collective ? collective : "(null)");
  if (call->coll == COLLI_BARRIER) {
    call->count = 0;
    return COLL_OK;
  }
  if (bytes == 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation,
                             "%d is no coll_type; see coll.h for the list", call->type);
  if (call->root < 0 || call->root >= comm->nranks)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation,
                             "root %d is not in 0 .. %d", call->root, comm->nranks - 1);
  if (__builtin_mul_overflow(call->count, bytes * (size_t)comm->nranks, &total) ||
      total > PTRDIFF_MAX)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation,
                             "%zu elements are more than memory can hold", call->count);
  coll_error error;
  if (colli_reduces(call->coll) && colli_call_check_op(&comm->calls, call, &error) != COLL_OK)
    return colli_comm_refuse_as(comm, &error);
  return COLL_OK;
}

/* Inserts, by cost, a chosen algorithm that the choice had not considered. */
static int insert_candidate(colli_choice *list, int count, const colli_choice *choice) {
  int at = count < COLLI_MAX_CANDIDATES ? count : COLLI_MAX_CANDIDATES - 1;
  for (; at > 0 && list[at - 1].predicted_ns > choice->predicted_ns; at--)
    list[at] = list[at - 1];
  list[at] = *choice;
  return count < COLLI_MAX_CANDIDATES ? count + 1 : count;
}

/* Lists the algorithms that can run a call, best first, and finds the chosen one; NULL if none
 * can. */
static int list_candidates(coll_comm *comm, const colli_call *call, colli_choice *list,
                           const colli_algo **chosen) {
  colli_plan_key key = {.count = call->count,
                        .type = call->type,
                        .op = call->op,
                        .root = colli_rooted(call->coll) ? call->root : 0,
                        .coll = (uint8_t)call->coll,
                        .varying = call->varying};
  colli_plan plan;
  colli_choice choice;
  coll_error error;
  colli_plans *plans = &comm->calls.plans;
  if (call->varying && call->coll != COLLI_ALLGATHER && call->coll != COLLI_REDUCE_SCATTER)
    key.count = colli_call_assumed_count(call->type);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  colli_shape shape = colli_plans_shape(plans, &plan);
  int count = colli_select(&shape, key.count * plan.pieces, plan.elem_bytes, &plans->limits,
                           &plans->model, "", &choice, list, COLLI_MAX_CANDIDATES);
  size_t type_bytes = coll_type_bytes((coll_type)call->type);
  *chosen = NULL;
  if (count < 0)
    return count;
  if (colli_choose(&plans->chooser, &shape, key.count * plan.pieces, plan.elem_bytes,
                   key.count * type_bytes, &choice, &error) != COLL_OK)
    return count;
  *chosen = choice.algo;
  for (int i = 0; i < count; i++)
    if (list[i].algo == choice.algo)
      return count;
  return insert_candidate(list, count, &choice);
}

coll_status coll_candidates(coll_comm *comm, const char *collective, size_t count, coll_type type,
                            coll_op op, int root, coll_candidate *candidates, int capacity,
                            int *found) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_call call = {.name = operation, .count = count, .type = (int)type, .op = op, .root = root};
  if (!found || capacity < 0 || (capacity > 0 && !candidates))
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation,
                               "found is NULL, or `candidates` cannot hold %d of them", capacity);
  else
    status = check_arguments(comm, collective, &call);
  if (status == COLL_OK) {
    colli_choice list[COLLI_MAX_CANDIDATES];
    const colli_algo *chosen;
    *found = list_candidates(comm, &call, list, &chosen);
    if (*found < 0) {
      *found = 0;
      status =
          colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, operation, "out of memory for the costs");
    }
    for (int i = 0; i < *found && i < capacity; i++) {
      candidates[i] = (coll_candidate){.predicted_us = list[i].predicted_ns / 1e3,
                                       .chosen = list[i].algo == chosen};
      strncpy(candidates[i].name, list[i].algo->name, sizeof(candidates[i].name) - 1);
    }
  }
  colli_call_leave(comm);
  return status;
}
