/* direct_shape.c: what a call in GPU memory moves, and in which pieces. */
#include "libcoll/stream/direct_round.h"

#define ONE_SHOT_BYTES ((size_t)2 << 20) /* an all-reduce reads no more of all slots at once */

size_t colli_direct_elem(const colli_call *call) {
  return call->coll == COLLI_BARRIER ? 1 : coll_type_bytes((coll_type)call->type);
}

size_t colli_direct_parts(const coll_comm *comm, const colli_call *call) {
  const bool many = call->coll == COLLI_SCATTER || call->coll == COLLI_ALLTOALL ||
                    call->coll == COLLI_REDUCE_SCATTER;
  return many ? (size_t)comm->nranks : 1;
}

size_t colli_direct_block(const colli_direct_call *it, bool of_input, size_t i, size_t *bytes) {
  const colli_call *call = it->call;
  const size_t elem = colli_direct_elem(call);
  const size_t *counts = of_input ? call->in_counts : call->out_counts;
  const size_t *displs = of_input ? call->in_displs : call->out_displs;
  *bytes = (call->varying ? counts[i] : call->count) * elem;
  return (call->varying ? displs[i] : i * call->count) * elem;
}

size_t colli_direct_longest(const colli_direct_call *it) {
  const colli_call *call = it->call;
  size_t most = 0, bytes;
  if (call->coll == COLLI_BARRIER)
    return 0;
  for (size_t i = 0; i < (size_t)(call->varying ? it->comm->nranks : 1); i++) {
    colli_direct_block(it, call->coll == COLLI_REDUCE_SCATTER, i, &bytes);
    most = bytes > most ? bytes : most;
  }
  return most;
}

size_t colli_direct_in_round(const colli_direct_round *r, size_t bytes) {
  const size_t left = bytes > r->first ? bytes - r->first : 0;
  return left < r->it->piece ? left : r->it->piece;
}

size_t colli_direct_piece(const coll_comm *comm, const colli_call *call, bool tree) {
  const size_t n = (size_t)comm->nranks;
  size_t room = comm->direct->peers->slot_bytes / colli_direct_parts(comm, call);
  /* A tree has n - 1 results, for which there is room as long as a slot. */
  if (tree && call->coll == COLLI_REDUCE)
    room /= n;
  if (tree && call->coll == COLLI_ALLREDUCE)
    room -= room > n * COLLI_DIRECT_ALIGN ? n * COLLI_DIRECT_ALIGN : room;
  return room / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

bool colli_direct_in_segments(const colli_direct_call *it, size_t bytes) {
  const size_t n = (size_t)it->comm->nranks, slot_bytes = it->comm->direct->peers->slot_bytes;
  const size_t most = it->tree && slot_bytes < ONE_SHOT_BYTES ? slot_bytes : ONE_SHOT_BYTES;
  return it->call->coll == COLLI_ALLREDUCE && n > 2 && bytes * n > most;
}

size_t colli_direct_segment(const colli_direct_call *it, size_t bytes) {
  const size_t n = (size_t)it->comm->nranks, each = (bytes + n - 1) / n;
  return (each + COLLI_DIRECT_ALIGN - 1) / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

bool colli_direct_takes(const coll_comm *comm, const colli_call *call, bool *tree) {
  *tree = false;
  if (!comm->direct || call->coll == COLLI_SENDRECV)
    return false;
  const bool all_know = call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER;
  if (call->varying && !all_know)
    return false;
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  if (plan.checks_finite)
    return false;
  if (colli_reduces(call->coll)) {
    *tree = plan.order == COLLI_ORDER_TREE && comm->nranks > 2;
    if (plan.user || (*tree && plan.widened) || /* whose results would be rounded on the way */
        !colli_gpu_folds((coll_type)call->type, call->op, plan.widened))
      return false;
  }
  return colli_direct_piece(comm, call, *tree) > 0;
}
