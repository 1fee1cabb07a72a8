/*
 * scan_chain.c: each rank receives the reduction of those before it, adds its own part, keeps the
 * result and hands it on.
 *
 * Cost: (n-1) (alpha + N/C beta + N/C gamma) + N beta for N bytes in C chunks: the ranks work as a
 * pipeline, and every rank sends and reduces the vector once. Wins for long vectors.
 * Source: Hillis and Steele, "Data parallel algorithms", CACM 29 (1986) name it as the serial scan;
 * pipelined as in Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI
 * 2006.
 *
 * 5 ranks:
 *
 *     0 --> 1 --> 2 --> 3 --> 4
 *     x0   .x1   .x2   .x3   .x4       each keeps what it sends
 */
#include "libcoll/algo/emit.h"

static coll_status chain_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  int next = rank + 1 < n ? rank + 1 : COLLI_NOBODY;
  unsigned bits = COLLI_STORE | (rank + 1 < n ? COLLI_SEND : 0);
  if (rank > 0)
    bits |= COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_emit(builder, 0, bits,
             (colli_way){rank > 0 ? rank - 1 : COLLI_NOBODY, next, COLLI_INPUT, COLLI_OUTPUT}, 0);
  return colli_builder_finish(builder, sched);
}

static double chain_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double n = shape->nranks, share = (n - 1) / n;
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  double critical =
      t.copy_hop + (n - 2) * t.reduce_hop + (t.passes * t.slices - 1) * t.reduce + t.work_reduce;
  colli_work work = {.steps = 1, .received = share, .waits = share, .reduced = share};
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_scan_chain = {
    .name = "chain",
    .id = 100,
    .coll = COLLI_SCAN,
    .when = "long vectors: every rank sends and reduces the vector once",
    .source = "Sanders and Traeff 2006",
    .orders = COLLI_GIVES_LEFT | COLLI_GIVES_TREE,
    .pipelined = true,
    .reach = COLLI_REACH_LINE,
    .nchunks = colli_nchunks_one,
    .emit = chain_emit,
    .cost = chain_cost,
};
