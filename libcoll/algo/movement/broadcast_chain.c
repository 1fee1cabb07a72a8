/*
 * broadcast_chain.c: the vector runs from rank to rank in small pieces, each passed on at once.
 *
 * Cost: (n-1) (alpha + C beta) + N beta for N bytes in slices of C bytes. Wins for long vectors:
 * every link carries the vector once, and all links work at the same time.
 * Source: van de Geijn and Watts, "SUMMA: scalable universal matrix multiplication algorithm",
 * Concurrency 9 (1997), pipelined broadcast.
 *
 * 5 ranks, root 0 (other roots: ranks counted from the root on); slices a, b, c, d on their way:
 *
 *     0 --d--> 1 --c--> 2 --b--> 3 --a--> 4
 */
#include "libcoll/algo/emit.h"

static int chain_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

static coll_status chain_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  int next = (rank + 1) % n, last = (rank + n - 1) % n;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  bool first = rank == shape->root, end = next == shape->root;
  unsigned bits = COLLI_STORE;
  bits |= first ? 0 : COLLI_RECV;
  bits |= end ? 0 : COLLI_SEND;
  colli_emit(builder, 0, bits,
             (colli_way){first ? COLLI_NOBODY : last, end ? COLLI_NOBODY : next, COLLI_INPUT,
                         COLLI_OUTPUT},
             0);
  return colli_builder_finish(builder, sched);
}

static double chain_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double hops = shape->nranks - 1, n = shape->nranks;
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  double critical = hops * t.copy_hop + (t.passes * t.slices - 1) * t.copy + model->step_ns;
  colli_work work = {.steps = 1, .received = hops / n, .waits = hops / n, .reduced = 0};
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_broadcast_chain = {
    .name = "chain",
    .id = 6,
    .coll = COLLI_BROADCAST,
    .when = "long vectors: each link carries every byte once, all at the same time",
    .source = "van de Geijn and Watts 1997",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .reach = COLLI_REACH_LINE,
    .nchunks = chain_nchunks,
    .emit = chain_emit,
    .cost = chain_cost,
};
