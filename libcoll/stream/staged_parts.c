/* staged_parts.c: which calls are divided, and where. */
#include "libcoll/stream/staged_parts.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"

size_t colli_staged_least_slot(const coll_comm *comm) {
  uint32_t least = UINT32_MAX;
  colli_rank_walk walk = colli_rank_walk_over(comm->table, COLLI_RANK_FIELD(gpu_slot_bytes));
  for (int i = 0; i < comm->nranks; i++) {
    const uint32_t bytes = colli_rank_walk_to(&walk, i)->gpu_slot_bytes;
    least = bytes < least ? bytes : least;
  }
  return least;
}

size_t colli_staged_part_bytes(const coll_comm *comm) {
  return colli_staged_part_of(colli_staged_least_slot(comm));
}

/* Elements of a part. */
static size_t elements(const coll_comm *comm, const colli_call *call) {
  return colli_staged_elements(call->coll, call->varying, comm->nranks,
                               colli_type_bytes(call->type), comm->streams->part_bytes);
}

/* Whether the call names elements by their numbers in errors. */
static bool checks_finite(const coll_comm *comm, const colli_call *call) {
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  return plan.checks_finite;
}

size_t colli_staged_parts(const coll_comm *comm, const colli_call *call) {
  const size_t parts = colli_staged_count(call->count, elements(comm, call));
  return parts > 1 && checks_finite(comm, call) ? 1 : parts;
}

colli_call colli_staged_part(const coll_comm *comm, const colli_call *call, size_t i) {
  const size_t most = elements(comm, call), first = i * most;
  const size_t at = first * colli_type_bytes(call->type), left = call->count - first;
  colli_call part = *call;
  part.count = left < most ? left : most;
  part.sendbuf = call->sendbuf ? (const char *)call->sendbuf + at : NULL;
  part.recvbuf = call->recvbuf ? (char *)call->recvbuf + at : NULL;
  part.whole = call->count;
  return part;
}
