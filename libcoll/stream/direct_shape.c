/* direct_shape.c: what a call in GPU memory moves, and in which pieces. */
#include "libcoll/stream/direct_round.h"

size_t colli_direct_elem(const colli_call *call) {
  return call->coll == COLLI_BARRIER ? 1 : coll_type_bytes((coll_type)call->type);
}

size_t colli_direct_block(const colli_direct_call *it, bool of_input, size_t i, size_t *bytes) {
  const colli_call *call = it->call;
  const size_t elem = colli_direct_elem(call);
  const size_t *counts = of_input ? call->in_counts : call->out_counts;
  const size_t *displs = of_input ? call->in_displs : call->out_displs;
  *bytes = (call->varying ? counts[i] : call->count) * elem;
  if (of_input && it->in)
    return colli_direct_packed(it, i);
  return (call->varying ? displs[i] : i * call->count) * elem;
}

size_t colli_direct_packed(const colli_direct_call *it, size_t i) {
  const colli_call *call = it->call;
  size_t before = call->varying ? 0 : i * call->count;
  for (size_t k = 0; call->varying && k < i; k++)
    before += call->in_counts[k];
  return before * colli_direct_elem(call);
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

bool colli_direct_overlap(const colli_direct_call *it) {
  const uint64_t in = (uint64_t)it->call->sendbuf, out = (uint64_t)it->call->recvbuf;
  return it->reads > 0 && it->writes > 0 && in < out + it->writes && out < in + it->reads;
}

size_t colli_direct_in_round(const colli_direct_round *r, size_t bytes) {
  const size_t left = bytes > r->first ? bytes - r->first : 0;
  return left < r->it->piece ? left : r->it->piece;
}

bool colli_direct_takes(const coll_comm *comm, const colli_call *call, colli_direct_shape *shape) {
  if (!comm->direct || call->coll == COLLI_SENDRECV)
    return false;
  const bool all_know =
      call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER || call->known;
  if (call->varying && !all_know)
    return false;
  *shape = (colli_direct_shape){.coll = call->coll,
                                .nranks = (size_t)comm->nranks,
                                .slot_bytes = comm->direct->peers->slot_bytes};
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  if (plan.checks_finite)
    return false;
  if (colli_reduces(call->coll)) {
    shape->wide = plan.widened;
    shape->tree = plan.order == COLLI_ORDER_TREE && comm->nranks > 2;
    if (plan.user ||
        (shape->tree && plan.widened) || /* whose results would be rounded on the way */
        !colli_gpu_folds((coll_type)call->type, call->op, plan.widened))
      return false;
  }
  return colli_direct_piece(shape) > 0;
}
