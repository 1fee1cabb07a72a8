/*
 * allreduce_pairs.c: recursive doubling in which only one of two neighbours goes beyond the first
 * round. In each pair of seats (order.h) one rank sends its vector to the other, the pair's leader;
 * the leaders run recursive doubling; and each sends the result back. The lower ranks lead if the
 * root is even, else the upper ones; the result is the same.
 *
 * Cost: (log2(n) + 1) (alpha + N beta) + log2(n) N gamma for N bytes; numbers of ranks that are not
 * a power of two take two rounds more. Half of recursive doubling's messages leave the pair. Wins
 * where each pair has a core of its own and takes turns in leading: the leader has the result first
 * and can contribute at once to the next operation, which the other one leads. So a core changes
 * ranks only once per operation, and cores exchange only one message in each direction. Source: the
 * two levels of Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
 * collective operation performance", IPDPS 2000; taking turns is libcoll's own.
 *
 * 4 ranks, an even root:
 *
 *     1 --> 0        0 <-> 2        0 --> 1
 *     3 --> 2                       2 --> 3
 *     contribute     double         results
 */
#include "libcoll/sched/order.h"

#include "libcoll/algo/emit.h"

/* A participating rank, alone or with another rank folded into it. */
typedef struct member {
  int rank;
  int seat;
  int extra; /* as many of the first seats have two ranks */
} member;

/* The rank that speaks for a seat. */
static int speaker(const member *m, int seat) {
  return seat < m->extra ? 2 * seat + 1 : seat + m->extra;
}

static bool has_folded(const member *m) {
  return m->seat < m->extra;
}

/* The initial value of a member: its own input plus what is folded in. It also goes to `to`. */
static void emit_begin(colli_builder *builder, const member *m, int to) {
  if (has_folded(m))
    colli_emit(builder, 0,
               COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_STORE |
                   (to == COLLI_NOBODY ? 0 : COLLI_SEND),
               (colli_way){m->rank - 1, to, COLLI_INPUT, COLLI_OUTPUT}, 0);
  else if (to != COLLI_NOBODY)
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, 0);
}

/* The steps of a rank that does not lead. */
static void emit_mate(colli_builder *builder, const member *m) {
  int leader = speaker(m, m->seat ^ 1);
  int to = has_folded(m) ? m->rank - 1 : COLLI_NOBODY;
  emit_begin(builder, m, leader);
  colli_emit(builder, 0, COLLI_RECV | COLLI_STORE | (to == COLLI_NOBODY ? 0 : COLLI_SEND),
             (colli_way){leader, to, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
}

/* The steps of a leader; `power` seats. */
static void emit_leader(colli_builder *builder, const member *m, int power) {
  emit_begin(builder, m, COLLI_NOBODY);
  colli_buf have = has_folded(m) ? COLLI_OUTPUT : COLLI_INPUT;
  for (int distance = 1; distance < power; distance *= 2) {
    bool last = 2 * distance == power;
    unsigned bits = COLLI_RECV | COLLI_FOLD | COLLI_STORE | COLLI_SEND;
    bits |= (m->seat & distance ? COLLI_MSG_LEFT : 0) | (last ? COLLI_FINAL : 0);
    int from = speaker(m, m->seat ^ distance), to = speaker(m, m->seat ^ (last ? 1 : 2 * distance));
    colli_emit(builder, 0, bits, (colli_way){from, to, have, COLLI_OUTPUT}, 0);
    have = COLLI_OUTPUT;
  }
  if (has_folded(m))
    colli_emit(builder, 0, COLLI_SEND,
               (colli_way){COLLI_NOBODY, m->rank - 1, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
}

static coll_status pairs_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank, power = colli_order_seats(n);
  member m = {rank, colli_order_seat(n, rank), n - power};
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1) {
    colli_emit_alone(builder, shape->coll, 1);
  } else if (has_folded(&m) && rank % 2 == 0) {
    colli_emit(builder, 0, COLLI_SEND,
               (colli_way){COLLI_NOBODY, rank + 1, COLLI_INPUT, COLLI_INPUT}, 0);
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){rank + 1, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
  } else if (m.seat % 2 == shape->root % 2) {
    emit_leader(builder, &m, power);
  } else {
    emit_mate(builder, &m);
  }
  return colli_builder_finish(builder, sched);
}

/* The larger of two times. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

/*
 * One pass. Pairs with folded ranks begin late, most of all the `whole` pairs whose non-leader has
 * one. At worst, a value crosses to another pair in each of `rounds` rounds and ends there; or it
 * crosses only in the rounds in which late pairs differ, and then goes on to folded ranks. A pair
 * of which only the leader has one (`half`) begins one reduction late and sends its result twice.
 */
static double one_pass(const colli_terms *t, int rounds, int extra, int root) {
  double stage = colli_stage(t, t->reduce, t->reduce_hop), stay = t->slices * t->reduce;
  double rest = (t->slices - 1) * t->reduce, hop = t->copy_hop, twice = t->slices * t->copy;
  double usual = hop + t->work_reduce + rounds * stage, end = usual + hop;
  int whole = (extra + root % 2) / 2;
  bool half = extra % 2 && root % 2 == 0;
  double own = half || extra > 1 ? rest + t->work_reduce : 0; /* a leader's folded rank */
  double late = hop + larger(whole ? t->reduce_hop : 0, own) + t->work_reduce;
  if (whole || half)
    end = larger(end, late + rounds * stage + hop);
  if (whole) {
    int cross = colli_log2_up(whole);
    end = larger(end, larger(usual, late + cross * stage + (rounds - cross) * stay) + 2 * hop);
  }
  if (half) {
    int cross = colli_log2_up(whole + 1);
    end = larger(end, larger(usual, late + cross * stage + (rounds - cross) * stay) + twice + hop);
  }
  double busy = whole ? hop + stay + twice + hop : 0; /* a mate, which first folds and sends all */
  return larger(end + rest, busy);
}

static double pairs_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks, power = colli_order_seats(n), extra = n - power;
  colli_model now = *model;
  if (model->paired) /* what a leader waits for has come, or is on its way from a running rank */
    now.alpha_ns = model->flight_ns;
  colli_terms t = colli_terms_make(partition, elem_bytes, &now);
  if (n == 1)
    return colli_cost_alone(partition, &t);
  int rounds = colli_log2_up(power);
  double pass = one_pass(&t, rounds - 1, extra, shape->root);
  double received = ((rounds + 1.0) / 2 * power + 2.0 * extra) / n;
  /* Measured: where pairs share cores, a leader's core takes as long as for one vector more. */
  colli_work work = {.steps = received + 0.5,
                     .received = received + (model->paired ? 1 : 0),
                     .waits = model->paired ? 0.5 : received,
                     .reduced = (rounds / 2.0 * power + extra) / n};
  return colli_cost_bound(t.passes * pass, work, &t, model);
}

const colli_algo colli_allreduce_pairs = {
    .name = "pairs",
    .id = 18,
    .coll = COLLI_ALLREDUCE,
    .when = "short and middle vectors where each two ranks share a core: the fewest changes",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_TREE,
    .ranks_min = 4, /* of two or three, one round is all there is */
    .exchanges = true,
    .turns = true,
    .nchunks = colli_nchunks_one,
    .emit = pairs_emit,
    .cost = pairs_cost,
};
