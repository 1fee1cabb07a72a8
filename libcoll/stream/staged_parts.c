/* staged_parts.c: which calls are divided, and where. */
#include "libcoll/stream/staged_parts.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"

#define BLOCK_BYTES_MIN 4096 /* shorter messages cost more than overlap gains */

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

/* Whether a buffer of some rank consists of equal blocks, one for each rank. */
static bool has_blocks(const colli_call *call) {
  return !call->varying && (call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER ||
                            call->coll == COLLI_GATHER || call->coll == COLLI_SCATTER ||
                            call->coll == COLLI_ALLTOALL);
}

/* Elements of a part; of each block, if there are blocks: all together are as long as a part of
 * another call, unless so many ranks would send short messages. */
static size_t elements(const coll_comm *comm, const colli_call *call) {
  size_t bytes = comm->streams->part_bytes;
  if (has_blocks(call)) {
    const size_t least = bytes < BLOCK_BYTES_MIN ? bytes : BLOCK_BYTES_MIN;
    bytes /= (size_t)comm->nranks;
    bytes = bytes > least ? bytes : least;
  }
  const size_t fit = bytes / colli_type_bytes(call->type);
  return fit > 0 ? fit : 1;
}

/* Whether each element of the result depends on one element of each rank's input, at the same
 * place. */
static bool is_elementwise(colli_coll coll) {
  return coll == COLLI_ALLREDUCE || coll == COLLI_REDUCE || coll == COLLI_BROADCAST ||
         coll == COLLI_SCAN || coll == COLLI_EXSCAN;
}

/* Whether the call names elements by their numbers in errors. */
static bool checks_finite(const coll_comm *comm, const colli_call *call) {
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  return plan.checks_finite;
}

size_t colli_staged_parts(const coll_comm *comm, const colli_call *call) {
  if (!is_elementwise(call->coll) && !has_blocks(call))
    return 1;
  const size_t most = elements(comm, call);
  if (call->count / most < 2 || checks_finite(comm, call))
    return 1;
  return call->count / most + (call->count % most > 0);
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
