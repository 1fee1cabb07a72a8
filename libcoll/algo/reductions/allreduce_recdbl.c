/*
 * allreduce_recdbl.c: recursive doubling. In round k partners at distance 2^k exchange all they
 * have and both reduce it, lower ranks left, so that all form the same expression.
 *
 * Cost: log2(n) (alpha + N beta + N gamma) for N bytes; numbers of ranks that are not a power of
 * two take two rounds more. Wins for short vectors: the fewest rounds. Source: Thakur, Rabenseifner
 * and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005).
 *
 * 5 ranks: rank 0 folds into 1; then 1, 2, 3, 4 double; then 1 gives the result back to 0:
 *
 *     0 --> 1          0
 *           1 <-> 2    1 <------.
 *           3 <-> 4    2 <--.   |        1 --> 0
 *                      3 <--|---'
 *                      4 <--'
 *     fold in, round 0   round 1         fold out
 *
 * Each reduction sends its result on to the next partner in the same pass over the data.
 */
#include "libcoll/sched/order.h"

#include "libcoll/algo/emit.h"

/* The rank that takes part in the rounds as number `seat`. */
static int seat_rank(int seat, int extra) {
  return seat < extra ? 2 * seat + 1 : seat + extra;
}

/* Emits the rounds of a rank that takes part. */
static void emit_rounds(colli_builder *builder, int rank, int power, int extra) {
  bool folded = rank < 2 * extra;
  int seat = folded ? rank / 2 : rank - extra;
  int partner = seat_rank(seat ^ 1, extra);
  if (folded)
    colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_STORE | COLLI_SEND,
               (colli_way){rank - 1, partner, COLLI_INPUT, COLLI_OUTPUT}, 0);
  else
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, partner, COLLI_INPUT, COLLI_INPUT},
               0);
  colli_buf have = folded ? COLLI_OUTPUT : COLLI_INPUT;
  for (int distance = 1; distance < power; distance *= 2) {
    unsigned bits = COLLI_RECV | COLLI_FOLD | COLLI_STORE;
    int from = seat_rank(seat ^ distance, extra), to = COLLI_NOBODY;
    if (seat & distance)
      bits |= COLLI_MSG_LEFT;
    if (2 * distance < power)
      to = seat_rank(seat ^ (2 * distance), extra);
    else if (folded)
      to = rank - 1;
    if (2 * distance >= power)
      bits |= COLLI_FINAL;
    if (to != COLLI_NOBODY)
      bits |= COLLI_SEND;
    colli_emit(builder, 0, bits, (colli_way){from, to, have, COLLI_OUTPUT}, 0);
    have = COLLI_OUTPUT;
  }
}

static int recdbl_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

static coll_status recdbl_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  int power = colli_order_seats(n), extra = n - power;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1) {
    colli_emit_alone(builder, shape->coll, 1);
  } else if (rank < 2 * extra && rank % 2 == 0) {
    colli_emit(builder, 0, COLLI_SEND,
               (colli_way){COLLI_NOBODY, rank + 1, COLLI_INPUT, COLLI_INPUT}, 0);
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){rank + 1, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
  } else {
    emit_rounds(builder, rank, power, extra);
  }
  return colli_builder_finish(builder, sched);
}

/*
 * One pass. Seats of two ranks begin late. At worst, a late value crosses to another seat in each
 * round and ends at a seat without a folded rank. To reach a seat with a folded rank it crosses
 * only in the rounds in which their numbers can differ, but values of seats that are not late may
 * have come there in every round.
 */
static double one_pass(const colli_terms *t, int rounds, int extra) {
  double stage = colli_stage(t, t->reduce, t->reduce_hop);
  double done = (t->slices - 1) * t->reduce + t->work_reduce;
  if (extra == 0)
    return t->copy_hop + (rounds - 1) * stage + done;
  int cross = colli_log2_up(extra);
  double late = cross * stage + (rounds - cross) * t->slices * t->reduce;
  double back = late > (rounds - 1) * stage ? late : (rounds - 1) * stage;
  back += done + t->copy_hop; /* its last slice is sent, and received */
  double out = rounds * stage + done;
  return t->copy_hop + (back > out ? back : out);
}

static double recdbl_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks, power = colli_order_seats(n), extra = n - power;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (n == 1)
    return colli_cost_alone(partition, &t);
  double rounds = colli_log2_up(power);
  double pass = one_pass(&t, colli_log2_up(power), extra);
  double messages = (rounds * power + 2.0 * extra) / n;
  colli_work work = {.steps = messages + 1,
                     .received = messages,
                     .waits = messages,
                     .reduced = messages - (double)extra / n};
  return colli_cost_bound(t.passes * pass, work, &t, model);
}

const colli_algo colli_allreduce_recdbl = {
    .name = "recdbl",
    .id = 1,
    .coll = COLLI_ALLREDUCE,
    .when = "short vectors: log2(n) rounds with the whole vector",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE,
    .pipelined = false,
    .exchanges = true,
    .reach = COLLI_REACH_PAIRS,
    .radix = 2,
    .nchunks = recdbl_nchunks,
    .emit = recdbl_emit,
    .cost = recdbl_cost,
};
