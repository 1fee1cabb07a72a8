/* direct_put.c: puts copies and reductions of a round into the stream. */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/sched/order.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/direct_round.h"

#define CAPTURED_SLOT 2 /* eager calls take turns with the other two */

uint64_t colli_direct_input(const colli_direct_call *it) {
  return (uint64_t)(it->in ? it->in->memory : it->call->sendbuf);
}

uint64_t colli_direct_result(const colli_direct_call *it) {
  return (uint64_t)(it->out ? it->out->memory : it->call->recvbuf);
}

coll_status colli_direct_meet(const colli_direct_round *r) {
  colli_direct_call *it = r->it;
  return colli_direct_put_meet(it->comm->direct, r->passage, it->way, it->request,
                               colli_direct_place(it->way, false, it->place++, it->places.check),
                               r->error);
}

int colli_direct_next_slot(const colli_direct_round *r) {
  colli_direct *direct = r->it->comm->direct;
  return r->passage->captured ? CAPTURED_SLOT : (int)(direct->rounds++ % CAPTURED_SLOT);
}

coll_status colli_direct_put_copy(const colli_direct_round *r, uint64_t to, uint64_t from,
                                  size_t bytes) {
  const colli_gpu_passage *passage = r->passage;
  const colli_cuda *cuda = &passage->gpu->cuda;
  if (bytes == 0)
    return COLL_OK;
  const colli_cu_result result = cuda->memcpy_async(to, from, bytes, passage->stream);
  return colli_cuda_status(cuda, r->error, "cuMemcpyAsync", passage->device, result);
}

/* Room for addresses that are not arguments; where the host and the device see it. */
static void *take_addresses(const colli_direct_round *r, size_t bytes) {
  colli_direct_call *it = r->it;
  if (bytes == 0)
    return NULL;
  char *at = (char *)it->addresses->memory + it->used;
  it->used += bytes;
  return at;
}

coll_status colli_direct_put_pieces(const colli_direct_round *r,
                                    const struct coll_gpu_piece *pieces, size_t count,
                                    uint64_t guard) {
  const size_t beyond = count > COLL_GPU_PLACES ? count - COLL_GPU_PLACES : 0;
  void *table = take_addresses(r, beyond * sizeof(*pieces));
  const colli_gpu_copy_call copy = {pieces, (uint32_t)count, table, (uint64_t)table, guard};
  return colli_gpu_launch_copy(&r->passage->gpu->cuda, r->it->comm->direct->programs,
                               r->passage->stream, &copy, r->error);
}

/* Combines vectors of `bytes` bytes by a kernel, from left to right. */
static coll_status put_kernel(const colli_direct_round *r, coll_op op, const uint64_t *from,
                              uint32_t count, uint64_t to, size_t bytes, uint64_t guard) {
  const colli_direct_call *it = r->it;
  const coll_type type = (coll_type)it->call->type;
  void *table = take_addresses(r, colli_gpu_fold_words(count, 1) * sizeof(uint64_t));
  const colli_gpu_fold_call call = {.type = type,
                                    .op = op,
                                    .wide = it->shape.wide,
                                    .nranks = it->comm->nranks,
                                    .ninputs = count,
                                    .noutputs = 1,
                                    .inputs = from,
                                    .outputs = &to,
                                    .count = bytes / colli_direct_elem(it->call),
                                    .table = table,
                                    .table_at = (uint64_t)table,
                                    .guard = guard};
  return colli_gpu_launch_fold(&r->passage->gpu->cuda, it->comm->direct->programs,
                               r->passage->stream, &call, r->error);
}

/* Where kernels find the input of a rank. */
static uint64_t source(const colli_direct_round *r, int rank) {
  const colli_direct_places *places = &r->it->places;
  return places->from ? places->from->memory.at[rank] + places->from_at
                      : colli_gpu_peers_slot(r->it->comm->direct->peers, rank, r->slot);
}

/* A reduction in the order of one tree: each combination is a kernel, with room for its result. */
typedef struct tree {
  const colli_direct_round *round;
  size_t offset, bytes;
  uint64_t to, guard;
  int made; /* combinations so far */
  coll_status status;
} tree;

static int leaf(void *ctx, int rank) {
  (void)ctx;
  return rank;
}

/* Where a value is: a rank's vector, or a result. */
static uint64_t value_at(const tree *t, int value) {
  const colli_direct_round *r = t->round;
  const colli_gpu_peers *peers = r->it->comm->direct->peers;
  if (value < peers->nranks)
    return source(r, value) + t->offset;
  const size_t each = (t->bytes + COLLI_DIRECT_ALIGN - 1) / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
  const size_t i = (size_t)(value - peers->nranks);
  COLLI_ASSERT_RANK((i + 1) * each <= peers->slot_bytes, peers->rank);
  return colli_gpu_peers_result(peers, r->passage->captured) + i * each;
}

static int combine(void *ctx, int left, int right) {
  tree *t = ctx;
  const int nranks = t->round->it->comm->nranks, value = nranks + t->made++;
  const bool last = t->made == nranks - 1;
  const coll_op op = t->round->it->call->op;
  const uint64_t from[] = {value_at(t, left), value_at(t, right)};
  t->status = put_kernel(t->round, op == COLL_AVG && !last ? COLL_SUM : op, from, 2,
                         last ? t->to : value_at(t, value), t->bytes, t->guard);
  return t->status == COLL_OK ? value : -1;
}

/* From left to right, at once. */
static coll_status fold_left(const colli_direct_round *r, int end, size_t offset, uint64_t to,
                             size_t bytes, uint64_t guard) {
  const coll_op op = r->it->call->op;
  const bool alone = end == 1 && op >= COLL_LAND && op <= COLL_LXOR;
  uint64_t *from = malloc(((size_t)end + 1) * sizeof(*from));
  if (!from)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (int rank = 0; rank < end; rank++)
    from[rank] = source(r, rank) + offset;
  from[end] = from[0]; /* alone: with itself, which makes it 0 or 1 */
  const coll_status status =
      put_kernel(r, alone ? COLL_LAND : op, from, (uint32_t)end + alone, to, bytes, guard);
  free(from);
  return status;
}

/* As much as fits into the room for results. */
static coll_status fold_some(const colli_direct_round *r, int end, size_t offset, uint64_t to,
                             size_t bytes, uint64_t guard) {
  const colli_direct_call *it = r->it;
  const uint64_t room = colli_gpu_peers_result(it->comm->direct->peers, r->passage->captured);
  const bool fits = colli_gpu_folds_at((coll_type)it->call->type, to);
  coll_status status;
  if (it->shape.tree) {
    tree t = {r, offset, bytes, to, guard, 0, COLL_OK};
    const uint64_t last = value_at(&t, 2 * end - 2);
    t.to = fits ? to : last;
    const colli_combiner combiner = {leaf, combine, &t};
    (void)colli_order_fold(COLLI_ORDER_TREE, end, &combiner);
    status = t.status;
    return status == COLL_OK && !fits ? colli_direct_put_copy(r, to, last, bytes) : status;
  }
  status = fold_left(r, end, offset, fits ? to : room, bytes, guard);
  return status == COLL_OK && !fits ? colli_direct_put_copy(r, to, room, bytes) : status;
}

coll_status colli_direct_put_fold(const colli_direct_round *r, int end, size_t offset, uint64_t to,
                                  size_t bytes, uint64_t guard) {
  const colli_direct_call *it = r->it;
  const bool uses_room = it->shape.tree || !colli_gpu_folds_at((coll_type)it->call->type, to);
  /* A piece of a round fits by itself; what is registered may be longer. */
  const size_t most = uses_room ? colli_direct_fold_piece(&it->shape, (size_t)end) : bytes;
  coll_status status = COLL_OK;
  for (size_t at = 0; at < bytes && status == COLL_OK; at += most)
    status = fold_some(r, end, offset + at, to + at, bytes - at < most ? bytes - at : most, guard);
  return status;
}
