/*
 * exscan_chain.c: each rank sends its own part to the next one at once. From the previous rank it
 * receives that rank's part and, later, the reduction of the ranks before that one. Combined, these
 * are the result that it keeps and sends on.
 *
 * Cost: (n-1) (alpha + N/C beta + N/C gamma) + 2 N beta for N bytes in C chunks. Every link carries
 * two vectors, so that a rank never has to keep one for later: a hop takes one step, and even in
 * place it needs no extra memory. Wins for long vectors. Source: the pipelined chain of Sanders and
 * Traeff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006, with the shift of own
 * parts done first.
 *
 * 5 ranks: first all own parts go to the next rank; then rank 1 begins with what it has:
 *
 *     first:  0 -x0-> 1 -x1-> 2 -x2-> 3 -x3-> 4
 *     then:           1 -x0-> 2 -x0..x1-> 3 -x0..x2-> 4
 *     kept:           x0      x0..x1      x0..x2      x0..x3
 */
#include "libcoll/algo/timeline.h"

static coll_status chain_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  int next = rank + 1 < n ? rank + 1 : COLLI_NOBODY;
  unsigned send = rank + 1 < n ? COLLI_SEND : 0;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (send)
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, next, COLLI_INPUT, COLLI_INPUT},
               0);
  if (rank > 0) {
    colli_way way = {rank - 1, rank == 1 ? next : COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT};
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE | (rank == 1 ? send : 0), way, 0);
  }
  if (rank > 1)
    colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_STORE | send,
               (colli_way){rank - 1, next, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
  return colli_builder_finish(builder, sched);
}

/* When the last rank ends its first pass: the ranks run one after the other. */
static double first_pass(int n, colli_timeline fresh) {
  colli_timeline at = fresh;
  colli_flight part = colli_timeline_send(&at), prefix = part;
  for (int rank = 1; rank < n; rank++) {
    at = fresh;
    if (rank < n - 1)
      colli_timeline_send(&at);
    if (rank == 1) {
      prefix = colli_timeline_forward(&at, part);
    } else {
      colli_timeline_receive(&at, part);
      prefix = colli_timeline_fold_forward(&at, prefix);
    }
  }
  return at.now;
}

static double chain_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  colli_timeline fresh = colli_timeline_make(&t, model);
  int n = shape->nranks;
  if (n == 1)
    return 0;
  double busy = (n > 3 ? 2 : 1) * fresh.step + (n > 2 ? fresh.fold : 0);
  double links = (n > 2 ? 2 : 1) * fresh.link;
  double critical =
      first_pass(n, fresh) + (t.passes - 1) * t.slices * (busy > links ? busy : links);
  double share = (2.0 * n - 3) / n;
  colli_work work = {
      .steps = 1 + share, .received = share, .waits = share, .reduced = (n - 2.0) / n};
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_exscan_chain = {
    .name = "chain",
    .id = 110,
    .coll = COLLI_EXSCAN,
    .when = "long vectors: every rank sends the vector twice and reduces it once",
    .source = "Sanders and Traeff 2006",
    .orders = COLLI_GIVES_LEFT | COLLI_GIVES_TREE,
    .pipelined = true,
    .reach = COLLI_REACH_LINE,
    .nchunks = colli_nchunks_one,
    .emit = chain_emit,
    .cost = chain_cost,
};
