/*
 * alltoall_pairwise.c: in round k each rank sends to the rank k further on and receives from the
 * rank k before. In place it receives from the rank to which it sends, so that each block replaces
 * the one that was sent; partners are paired as in a round-robin tournament.
 *
 * Cost: (n-1) (alpha + m beta) for blocks of m bytes. Wins for long blocks: at any time each rank
 * serves one other and is served by one, so that links are not congested.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19 (2005).
 *
 * 5 ranks: whom rank 2 sends to, and whom it receives from:
 *
 *     round 1:  2 --> 3    1 --> 2
 *     round 2:  2 --> 4    0 --> 2
 *     round 3:  2 --> 0    4 --> 2
 *     round 4:  2 --> 1    3 --> 2
 */
#include "libcoll/algo/timeline.h"

/* The number of rounds in which everybody meets everybody else once; with an odd n, one rank rests
 * in each. */
static int rounds_in_place(int n) {
  return n % 2 ? n : n - 1;
}

/* The partner of a rank in a round, counted from 0; the rank itself if it rests. */
static int partner_in_place(int n, int rank, int round) {
  int m = rounds_in_place(n); /* ranks below m whose sum is the round, modulo m, meet */
  int lone = (int)((long long)round * ((m + 1) / 2) % m); /* twice that is the round as well */
  if (rank == m)
    return lone;
  if (rank == lone)
    return n % 2 ? rank : m;
  return (round + m - rank) % m;
}

static coll_status pairwise_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (!shape->in_place)
    colli_emit_own(builder, shape);
  int rounds = shape->in_place ? rounds_in_place(n) : n - 1;
  for (int k = 0; k < rounds; k++) {
    int to = (rank + k + 1) % n, from = (rank + n - k - 1) % n;
    if (shape->in_place)
      to = from = partner_in_place(n, rank, k);
    if (to == rank)
      continue;
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, to);
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){from, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, from);
  }
  return colli_builder_finish(builder, sched);
}

/* One pass of any rank. */
static void pairwise_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int n = shape->nranks, rounds = shape->in_place ? rounds_in_place(n) : n - 1;
  if (!shape->in_place)
    colli_timeline_copy(at);
  for (int k = 0; k < rounds; k++)
    colli_timeline_receive(at, colli_timeline_send(at));
}

static double pairwise_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1, copies = shape->in_place ? 0 : 1;
  colli_work work = {
      .steps = 2 * peers + copies, .received = peers, .waits = peers, .reduced = copies};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, pairwise_pass, NULL);
}

const colli_algo colli_alltoall_pairwise = {
    .name = "pairwise",
    .id = 70,
    .coll = COLLI_ALLTOALL,
    .when = "long blocks: one partner at a time",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .exchanges = true,
    .reach = COLLI_REACH_TURNS,
    .nchunks = colli_nchunks_blocks,
    .emit = pairwise_emit,
    .cost = pairwise_cost,
};
