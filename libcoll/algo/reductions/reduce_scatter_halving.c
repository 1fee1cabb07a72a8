/*
 * reduce_scatter_halving.c: recursive halving. In round k seats (order.h) at distance 2^k share
 * their remaining blocks: each sends the blocks of ranks on the other's side, where sides differ in
 * bit k of the seat's number, and reduces those of its own side, with lower ranks on the left. So
 * nearby ranks are combined first, as the order TREE requires.
 *
 * Cost: about log2(n) alpha + (n-1)/n N (beta + gamma) for N bytes in all, as long as the lanes can
 * keep the messages of a round under way at once. As few bytes as the ring in a logarithmic number
 * of rounds. Wins where ranks must stay in order and should have few partners, log2(n) each; direct
 * takes one round but needs a connection between any two ranks. Source: Thakur, Rabenseifner and
 * Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005).
 *
 * If the number of ranks is not a power of two, the ranks of a seat share the vector, as in
 * allreduce_rabenseifner.c. The keeper is responsible for the side that the seat keeps in round 0,
 * the giver for the other side. First, each sends the other's side to it and reduces its own. In
 * round 0 the keeper only receives and the giver only sends. Then the giver rests until the keeper
 * sends it its block in the last round.
 *
 * 5 ranks: seats {0, 1}, {2}, {3}, {4}; seats on the even side have blocks 0 1 3, on the odd one 2
 * 4. Who reduces what:
 *
 *     fold in:  0 <-> 1                      0 keeps blocks 0 1 3, 1 has 2 4
 *     round 0:  1 --> 2 --> 0,  3 <-> 4      0: blocks 0 1 3, 2: 2 4, 3: 0 1 3, 4: 2 4
 *     round 1:  0 <-> 3,  2 <-> 4            0: blocks 0 1, 3: 3, 2: 2, 4: 4
 *     at once:  0 --> 1                      block 1
 *
 * Messages of a round are spread over lanes, so that several are under way at once however little
 * credit a connection has; a dep from each step to the one before it keeps all steps in order.
 */
#include "libcoll/sched/order.h"

#include "libcoll/algo/timeline.h"

#define LANES 4 /* each lane needs a connection of its own to every partner */

/* The blocks of seats seat, seat + stride, ... */
typedef struct side {
  int seat;
  int stride;
  int twos;  /* seats of two ranks; they come first */
  int count; /* of blocks */
} side;

/* Seats that have two ranks. */
static int pairs_of(int n) {
  return n - colli_order_seats(n);
}

/* The blocks of all seats whose numbers equal that of `seat` modulo the stride. */
static side side_of(int n, int seat, int stride) {
  side s = {.seat = seat % stride, .stride = stride};
  s.twos = pairs_of(n) > s.seat ? (pairs_of(n) - s.seat + stride - 1) / stride : 0;
  s.count = s.twos + colli_order_seats(n) / stride;
  return s;
}

/* The turn-th block of a side. */
static int block_of(int n, const side *s, int turn) {
  bool two = turn < 2 * s->twos;
  int nth = two ? turn / 2 : turn - s->twos;
  return colli_order_seat_rank(n, s->seat + nth * s->stride) + (two ? turn % 2 : 0);
}

/* How many of `count` messages are in flight together, from number `first` on. */
static int batch(int count, int first) {
  int left = count - first;
  return left < 0 ? 0 : left < LANES ? left : LANES;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A rank that writes down its steps. */
typedef struct writer {
  colli_builder *builder;
  int n;
  int rank;
  int seat;
  int last, lane; /* the last step, and its lane; -1: none yet */
} writer;

/* The keeper or single rank of a seat; its giver or single rank. */
static int keeper_of(const writer *w, int seat) {
  return colli_order_seat_rank(w->n, seat);
}
static int giver_of(const writer *w, int seat) {
  return colli_order_seat_rank(w->n, seat) + (seat < pairs_of(w->n));
}

/* Adds a step that waits for the one before. */
static void emit_next(writer *w, int lane, unsigned bits, colli_way way, int chunk) {
  int step = colli_emit(w->builder, lane, bits, way, chunk);
  if (w->last >= 0 && lane != w->lane)
    colli_builder_dep(w->builder, step, w->last);
  w->last = step;
  w->lane = lane;
}

/*
 * Adds a step for each block of a side, up to the number that the lanes can have in flight. The
 * last one of a side is in lane 0, as is one of the first sends of a rank, so that no lane begins
 * the next pass, which uses the same scratch, before this one is done. Finished blocks go to their
 * destination.
 */
static void emit_some(writer *w, unsigned bits, colli_way way, const side *s, int first) {
  for (int turn = first; turn < first + batch(s->count, first); turn++) {
    int chunk = block_of(w->n, s, turn), lane = (s->count - 1 - turn) % LANES;
    colli_way to = way;
    unsigned more = 0;
    if ((bits & COLLI_FINAL) && chunk == w->rank) {
      to.dst = COLLI_OUTPUT;
      more = COLLI_STORE;
    } else if (bits & COLLI_FINAL) {
      to.to = giver_of(w, w->seat);
      more = COLLI_SEND;
    }
    emit_next(w, lane, bits | more, to, chunk);
  }
}

/* Emits the folding in of a seat's keeper and giver. The giver sends its side to the other seat. */
static void emit_fold_in(writer *w, const side *kept, const side *given, int first) {
  int keeper = keeper_of(w, w->seat), giver = giver_of(w, w->seat);
  bool gives = w->rank == giver;
  colli_way out = {COLLI_NOBODY, gives ? keeper : giver, COLLI_INPUT, COLLI_INPUT};
  colli_way in = {gives ? keeper : giver, COLLI_NOBODY, COLLI_INPUT, COLLI_SCRATCH};
  emit_some(w, COLLI_SEND, out, gives ? kept : given, first);
  if (gives) {
    in.to = keeper_of(w, w->seat ^ 1);
    emit_some(w, COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_SEND, in, given, first);
  } else {
    emit_some(w, COLLI_RECV | COLLI_FOLD | COLLI_STORE, in, kept, first);
  }
}

/* Emits a round with the seat at a distance; round 0 begins with folding in. */
static void emit_round(writer *w, int distance) {
  int other = w->seat ^ distance, keeper = keeper_of(w, w->seat), giver = giver_of(w, w->seat);
  side kept = side_of(w->n, w->seat, 2 * distance), given = side_of(w->n, other, 2 * distance);
  bool begins = distance == 1, folds_in = begins && keeper != giver;
  bool complete = 2 * distance == colli_order_seats(w->n);
  unsigned fold = COLLI_RECV | COLLI_FOLD | (other < w->seat ? COLLI_MSG_LEFT : 0) |
                  (complete ? COLLI_FINAL : COLLI_STORE);
  colli_buf have = begins && !folds_in ? COLLI_INPUT : COLLI_SCRATCH;
  colli_way out = {COLLI_NOBODY, keeper_of(w, other), have, have};
  colli_way in = {begins ? giver_of(w, other) : keeper_of(w, other), COLLI_NOBODY, have,
                  COLLI_SCRATCH};
  for (int first = 0; first < kept.count || first < given.count; first += LANES) {
    if (folds_in)
      emit_fold_in(w, &kept, &given, first);
    else
      emit_some(w, COLLI_SEND, out, &given, first);
    if (!folds_in || w->rank == keeper)
      emit_some(w, fold, in, &kept, first);
  }
}

/* Emits the steps of one rank of several. */
static void emit_steps(writer *w) {
  int keeper = keeper_of(w, w->seat), seats = colli_order_seats(w->n);
  emit_round(w, 1);
  for (int distance = 2; distance < seats && w->rank == keeper; distance *= 2)
    emit_round(w, distance);
  if (w->rank != keeper)
    emit_next(w, 0, COLLI_RECV | COLLI_STORE,
              (colli_way){keeper, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, w->rank);
}

/* The number of lanes in use: as many as the larger side of round 0 has blocks. */
static int count_lanes(int n) {
  return n == 1 ? 1 : batch(side_of(n, 0, 2).count, 0);
}

static coll_status halving_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, seat = colli_order_seat(n, shape->rank);
  bool gives = shape->rank != colli_order_seat_rank(n, seat); /* it keeps nothing */
  colli_builder *builder = colli_builder_create(shape, n, n > 2 && !gives ? n : 0, count_lanes(n));
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  writer w = {builder, n, shape->rank, seat, -1, 0};
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    emit_steps(&w);
  return colli_builder_finish(builder, sched);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* When the ranks of a seat finish their steps; a single rank is a keeper. */
typedef struct seated {
  bool pair;
  colli_timeline keeper;
  colli_timeline giver;
} seated;

/* Sends some blocks; when they arrive. */
static void send_some(colli_timeline *at, colli_flight *out, int count) {
  for (int i = 0; i < count; i++)
    out[i] = colli_timeline_send(at);
}

/* Reduces some blocks that come at `in`. */
static void fold_some(colli_timeline *at, const colli_flight *in, int count) {
  for (int i = 0; i < count; i++)
    colli_timeline_fold(at, in[i]);
}

/* A seat sends `given` blocks to another one. If it `begins`, a pair folds in first: the giver
 * sends these blocks, and the keeper reduces `kept` others. */
static void leave_seat(seated *s, bool begins, int kept, int given, colli_flight *out) {
  colli_flight up[LANES], down[LANES];
  if (!s->pair || !begins) {
    send_some(&s->keeper, out, given);
    return;
  }
  send_some(&s->keeper, down, given);
  send_some(&s->giver, up, kept);
  for (int i = 0; i < given; i++)
    out[i] = colli_timeline_fold_forward(&s->giver, down[i]);
  fold_some(&s->keeper, up, kept);
}

/* A seat reduces some blocks that arrive at `in`; if they are final, the last one goes to the
 * giver. */
static void reach_seat(seated *s, bool complete, const colli_flight *in, int count) {
  bool gives = complete && s->pair && count > 0;
  fold_some(&s->keeper, in, count - gives);
  if (gives)
    colli_timeline_receive(&s->giver, colli_timeline_fold_forward(&s->keeper, in[count - 1]));
}

/* A round between two seats, with as many blocks as between seat 0, which has the most, and its
 * partner at that distance. */
static void meet(int n, int distance, seated *low, seated *high) {
  int kept = side_of(n, 0, 2 * distance).count, given = side_of(n, distance, 2 * distance).count;
  bool complete = 2 * distance == colli_order_seats(n), begins = distance == 1;
  for (int first = 0; first < kept || first < given; first += LANES) {
    colli_flight up[LANES], down[LANES];
    int ours = batch(kept, first), theirs = batch(given, first);
    leave_seat(low, begins, ours, theirs, up);
    leave_seat(high, begins, theirs, ours, down);
    reach_seat(low, complete, down, ours);
    reach_seat(high, complete, up, theirs);
  }
}

/* The last of some seats, and the last with two ranks, if there is one. */
typedef struct latest {
  seated any;
  seated pair;
} latest;

/* The seat that is later. */
static const seated *later_of(const seated *a, const seated *b) {
  return a->keeper.now > b->keeper.now ? a : b;
}

/*
 * Some seats, the first `pairs` of which have two ranks, after the rounds among them. When two
 * halves meet, all ranks of at least one half do the same, so it does not matter which of its seats
 * the last seat of the other half meets.
 */
static latest follow(int n, int seats, int pairs, const colli_timeline *begun) {
  if (seats == 1) {
    seated s = {pairs > 0, begun[pairs > 0 ? 1 : 0], begun[2]};
    return (latest){s, s};
  }
  int half = seats / 2, in_low = pairs < half ? pairs : half, in_high = pairs - in_low;
  latest low = follow(n, half, in_low, begun);
  latest high = in_low == in_high ? low : follow(n, half, in_high, begun);
  latest after = low;
  seated other = high.any;
  meet(n, half, &low.any, &other);
  meet(n, half, &after.pair, &high.pair);
  after.any = *later_of(&low.any, &other);
  if (in_low == half && in_high > 0)
    after.pair = *later_of(&low.any, later_of(&after.pair, &high.pair));
  else if (in_low == half)
    after.pair = low.any;
  return after;
}

/* One pass of the last rank, at[0], and of a keeper and a giver, at[1] and at[2]. */
static void halving_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int n = shape->nranks;
  latest last = follow(n, colli_order_seats(n), pairs_of(n), at);
  at[0] = last.any.keeper;
  if (last.pair.pair) {
    at[1] = last.pair.keeper;
    at[2] = last.pair.giver;
  }
}

static double halving_cost(const colli_shape *shape, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks, seats = colli_order_seats(n);
  double pairs = pairs_of(n), reduced = seats - 1 + pairs;
  colli_work work = {.received = reduced + pairs / n, .waits = 2 * pairs / n, .reduced = reduced};
  work.steps = 2 * work.received - pairs / 2 - pairs / n;
  for (int stride = 2; stride <= seats; stride *= 2)
    work.waits += (side_of(n, stride - 1, stride).count + LANES - 1) / LANES * (double)seats / n;
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, halving_pass, NULL);
}

const colli_algo colli_reduce_scatter_halving = {
    .name = "halving",
    .id = 130,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "many ranks that must stay in order: log2(n) rounds, log2(n) partners",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE,
    .ranks_min = 3, /* two ranks do the same with direct */
    .varying = true,
    .reach = COLLI_REACH_PAIRS,
    .radix = 2,
    .longer = -1,
    .nchunks = colli_nchunks_blocks,
    .emit = halving_emit,
    .cost = halving_cost,
};
