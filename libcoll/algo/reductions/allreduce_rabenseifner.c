/*
 * allreduce_rabenseifner.c: recursive halving, then recursive doubling. In round k of the first
 * half partners at distance 2^k halve what is left of the vector between them: each sends the half
 * that the other one keeps and reduces its own, with lower ranks on the left. Then the same rounds
 * backwards double each rank's part of the result.
 *
 * Cost: about 2 log2(n) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes, as long as the
 * lanes can keep the messages of a round under way at once. As few bytes as the ring in a
 * logarithmic number of rounds: wins for middle sizes and powers of two. Source: Rabenseifner,
 * "Optimization of collective reduction operations", ICCS 2004. With other numbers of ranks:
 * Rabenseifner and Traeff, "More efficient reduction algorithms for non-power-of-two number of
 * processors in message-passing parallel systems", EuroPVM/MPI 2004, from whose elimination of
 * every second rank the method here is derived.
 *
 * If the number of ranks is not a power of two, the ranks of a seat (order.h) share the vector. The
 * keeper is responsible for the half that the seat keeps in round 0, the giver for the other half.
 * First, each sends the other's half to it (N/2 bytes) and reduces its own. In round 0 the keeper
 * only receives and the giver only sends, N/2 bytes each. Then the giver rests until the last
 * round. So in the first half the keeper receives (1/2 + 1/2 + 1/4 + ...) N = 1.5 N bytes and sends
 * N, the giver sends N and receives N/2, and ranks that are alone in their seat move N each way.
 * Folding a whole vector in would take 2 N bytes at the rank that it is folded into.
 *
 * 5 ranks: seats {0, 1}, {2}, {3}, {4}, so 4 chunks; who reduces what:
 *
 *     fold in:  0 <-> 1      0 keeps chunks 0 1, 1 has 2 3
 *     round 0:  1 --> 2 --> 0,  3 <-> 4      0: chunks 0 1, 2: 2 3, 3: 0 1, 4: 2 3
 *     round 1:  0 <-> 3,  2 <-> 4            0: chunk 0, 3: 1, 2: 2, 4: 3
 *
 * and the way back. At the end of round k a seat has those chunks whose leading k + 1 bits are the
 * last k + 1 bits of its number in reverse order.
 *
 * Messages of a round are spread over lanes, so that several are under way at once however little
 * credit a connection has; a dep from each step to the one before it keeps all steps in order.
 */
#include "libcoll/sched/order.h"

#include "libcoll/algo/timeline.h"

#define LANES 4 /* each lane needs a connection of its own to every partner */

enum { SINGLE, KEEPER, GIVER };

/* A rank that writes down its steps. */
typedef struct writer {
  colli_builder *builder;
  int n;
  int seats;
  int seat;
  int own;        /* the chunk that the seat has at the end of the first half */
  int last, lane; /* the last step, and its lane; -1: none yet */
} writer;

/* What a rank of a seat is. */
static int role_of(int n, int rank) {
  int seat = colli_order_seat(n, rank);
  if (seat >= n - colli_order_seats(n))
    return SINGLE;
  return rank == colli_order_seat_rank(n, seat) ? KEEPER : GIVER;
}

/* The keeper or single rank of a seat; its giver or single rank. */
static int keeper_of(const writer *w, int seat) {
  return colli_order_seat_rank(w->n, seat);
}
static int giver_of(const writer *w, int seat) {
  return colli_order_seat_rank(w->n, seat) + (seat < w->n - w->seats);
}

/* Adds a step, number `turn` of its round, after the previous one. */
static void emit_next(writer *w, unsigned bits, colli_way way, int chunk, int turn) {
  int lane = turn % LANES;
  int step = colli_emit(w->builder, lane, bits, way, chunk);
  if (w->last >= 0 && lane != w->lane)
    colli_builder_dep(w->builder, step, w->last);
  w->last = step;
  w->lane = lane;
}

/*
 * Adds steps on as many chunks as the lanes can have in flight: those whose numbers differ from the
 * rank's own by half + y .. half + end - 1.
 */
static void emit_some(writer *w, unsigned bits, colli_way way, int half, int y, int end) {
  way.from = bits & COLLI_RECV ? way.from : COLLI_NOBODY;
  way.to = bits & COLLI_SEND ? way.to : COLLI_NOBODY;
  for (; y < end; y++)
    emit_next(w, bits, way, w->own ^ (half + y), y);
}

/* The flags of a reduction with a message from another seat. */
static unsigned fold_from(const writer *w, int seat, bool complete) {
  return COLLI_RECV | COLLI_FOLD | (seat < w->seat ? COLLI_MSG_LEFT : 0) |
         (complete ? COLLI_FINAL : 0);
}

/* Emits folding in and round 0. */
static void emit_first(writer *w, int role) {
  int half = w->seats / 2, other = w->seat ^ 1;
  int keeper = keeper_of(w, w->seat), giver = giver_of(w, w->seat);
  unsigned fold = fold_from(w, other, half == 1);
  for (int y = 0; y < half; y += LANES) {
    int end = y + LANES < half ? y + LANES : half;
    colli_way in_out = {giver_of(w, other), keeper_of(w, other), COLLI_INPUT, COLLI_OUTPUT};
    if (role == SINGLE) {
      emit_some(w, COLLI_SEND, in_out, half, y, end);
      emit_some(w, fold | COLLI_STORE, in_out, 0, y, end);
    } else if (role == KEEPER) {
      colli_way pair = {giver, giver, COLLI_INPUT, COLLI_OUTPUT};
      emit_some(w, COLLI_SEND, pair, half, y, end);
      emit_some(w, COLLI_RECV | COLLI_FOLD | COLLI_STORE, pair, 0, y, end);
      in_out.src = COLLI_OUTPUT;
      emit_some(w, fold | COLLI_STORE, in_out, 0, y, end);
    } else {
      colli_way pair = {COLLI_NOBODY, keeper, COLLI_INPUT, COLLI_OUTPUT};
      emit_some(w, COLLI_SEND, pair, 0, y, end);
      in_out.from = keeper;
      emit_some(w, COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_SEND, in_out, half, y, end);
    }
  }
}

/* Emits a round of halving or doubling with the seat at a distance: have: chunks in each half. */
static void emit_round(writer *w, int distance, int have, bool halving) {
  int other = w->seat ^ distance, peer = keeper_of(w, other);
  colli_way way = {peer, peer, COLLI_OUTPUT, COLLI_OUTPUT};
  unsigned bits = halving ? fold_from(w, other, have == 1) : COLLI_RECV;
  for (int y = 0; y < have; y += LANES) {
    int end = y + LANES < have ? y + LANES : have;
    int give = halving ? have : 0, take = halving ? 0 : have;
    emit_some(w, COLLI_SEND, way, give, y, end);
    emit_some(w, bits | COLLI_STORE, way, take, y, end);
  }
}

/* Emits the last round and folding out. */
static void emit_last(writer *w, int role) {
  int half = w->seats / 2, other = w->seat ^ 1;
  int keeper = keeper_of(w, w->seat), giver = giver_of(w, w->seat);
  for (int y = 0; y < half; y += LANES) {
    int end = y + LANES < half ? y + LANES : half;
    colli_way way = {keeper_of(w, other), giver_of(w, other), COLLI_OUTPUT, COLLI_OUTPUT};
    if (role != GIVER)
      emit_some(w, COLLI_SEND, way, 0, y, end);
    if (role == SINGLE) {
      emit_some(w, COLLI_RECV | COLLI_STORE, way, half, y, end);
    } else if (role == KEEPER) {
      colli_way pair = {giver, giver, COLLI_OUTPUT, COLLI_OUTPUT};
      emit_some(w, COLLI_SEND, pair, 0, y, end);
      emit_some(w, COLLI_RECV | COLLI_STORE, pair, half, y, end);
    } else {
      way.to = keeper;
      emit_some(w, COLLI_RECV | COLLI_STORE | COLLI_SEND, way, half, y, end);
      way.from = keeper;
      emit_some(w, COLLI_RECV | COLLI_STORE, way, 0, y, end);
    }
  }
}

/* Emits the steps of one rank of several. */
static void emit_steps(colli_builder *builder, int n, int rank) {
  writer w = {builder, n, colli_order_seats(n), colli_order_seat(n, rank), 0, -1, 0};
  int role = role_of(n, rank);
  for (int bit = 1, top = w.seats / 2; top > 0; bit *= 2, top /= 2)
    w.own |= w.seat & bit ? top : 0;
  emit_first(&w, role);
  for (int distance = 2; distance < w.seats && role != GIVER; distance *= 2)
    emit_round(&w, distance, w.seats / 2 / distance, true);
  for (int distance = w.seats / 2; distance > 1 && role != GIVER; distance /= 2)
    emit_round(&w, distance, w.seats / 2 / distance, false);
  emit_last(&w, role);
}

/* One chunk for each seat. */
static int rabenseifner_nchunks(const colli_shape *shape) {
  return colli_order_seats(shape->nranks);
}

/* How many lanes are used. */
static int count_lanes(int seats) {
  return seats < LANES ? seats : LANES;
}

static coll_status rabenseifner_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, seats = colli_order_seats(n);
  colli_builder *builder = colli_builder_create(shape, seats, 0, count_lanes(seats));
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    emit_steps(builder, n, shape->rank);
  return colli_builder_finish(builder, sched);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Sends some chunks; when they arrive. */
static void send_some(colli_timeline *at, colli_flight *out, int count) {
  for (int i = 0; i < count; i++)
    out[i] = colli_timeline_send(at);
}

/* Handles some chunks that come at `in`. */
static void take_some(void (*how)(colli_timeline *, colli_flight), colli_timeline *at,
                      const colli_flight *in, int count) {
  for (int i = 0; i < count; i++)
    how(at, in[i]);
}

/* Forwards some chunks that arrive at `in`; returns when they reach the next rank. */
static void pass_some(colli_flight (*how)(colli_timeline *, colli_flight), colli_timeline *at,
                      const colli_flight *in, colli_flight *out, int count) {
  for (int i = 0; i < count; i++)
    out[i] = how(at, in[i]);
}

/* A round among ranks that are all as far. */
static void follow_round(colli_timeline *at, int chunks, bool halving) {
  colli_flight out[LANES];
  for (int left = chunks; left > 0; left -= LANES) {
    int some = left < LANES ? left : LANES;
    send_some(at, out, some);
    take_some(halving ? colli_timeline_fold : colli_timeline_receive, at, out, some);
  }
}

/* Folding in and round 0, in which a pair meets a pair or a single rank. */
static void follow_first(colli_timeline *at, int chunks, bool single) {
  colli_flight from[3][LANES], out[LANES];
  for (int left = chunks; left > 0; left -= LANES) {
    int some = left < LANES ? left : LANES;
    for (int i = 0; i < 3; i++)
      send_some(&at[i], from[i], some);
    pass_some(colli_timeline_fold_forward, &at[GIVER], from[KEEPER], out, some);
    take_some(colli_timeline_fold, &at[KEEPER], from[GIVER], some);
    take_some(colli_timeline_fold, &at[KEEPER], single ? from[SINGLE] : out, some);
    take_some(colli_timeline_fold, &at[SINGLE], single ? out : from[SINGLE], some);
  }
}

/* The last round and folding out. */
static void follow_last(colli_timeline *at, int chunks, bool single) {
  colli_flight single_out[LANES], over[LANES], back[LANES], given[LANES];
  for (int left = chunks; left > 0; left -= LANES) {
    int some = left < LANES ? left : LANES;
    send_some(&at[SINGLE], single_out, some);
    send_some(&at[KEEPER], over, some);
    send_some(&at[KEEPER], back, some);
    pass_some(colli_timeline_forward, &at[GIVER], single ? single_out : over, given, some);
    take_some(colli_timeline_receive, &at[GIVER], back, some);
    take_some(colli_timeline_receive, &at[KEEPER], given, some);
    take_some(colli_timeline_receive, &at[SINGLE], single ? over : single_out, some);
  }
}

/*
 * One pass. Ranks that begin a round late delay others, and by the last round the delay comes back
 * to them, as if all were late. A pair meets a pair if there are two pairs, and two single ranks
 * meet if there are three of them.
 */
static void rabenseifner_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int seats = colli_order_seats(shape->nranks), pairs = shape->nranks - seats;
  int full = (int)(at->filled * seats + 0.5), half = seats / 2 < full ? seats / 2 : full;
  int first = pairs ? 0 : SINGLE, last = pairs ? KEEPER : SINGLE;
  if (pairs)
    follow_first(at, half, pairs == 1);
  else
    follow_round(at, half, true);
  for (int i = first; i <= last; i++) {
    for (int have = seats / 4; have > 0; have /= 2)
      follow_round(&at[i], have < full ? have : full, true);
    for (int have = 1; have <= seats / 4; have *= 2)
      follow_round(&at[i], have < full ? have : full, false);
  }
  if (pairs)
    follow_last(at, half, pairs == 1);
  else
    follow_round(at, half, false);
}

static double rabenseifner_cost(const colli_shape *shape, const colli_partition *partition,
                                size_t elem_bytes, const colli_model *model) {
  double n = shape->nranks, seats = colli_order_seats(shape->nranks), pairs = n - seats;
  double messages = (2 * seats * (seats - 1) + 2 * pairs * seats) / n;
  double reduced = (seats * (seats - 1) + pairs * seats) / n;
  double filled = colli_terms_make(partition, elem_bytes, model).filled, groups = 2 * pairs / n;
  for (int have = colli_order_seats(shape->nranks) / 2; have > 0; have /= 2)
    groups += 2 * ((have + LANES - 1) / LANES);
  colli_work work = {.steps = 2 * messages,
                     .received = messages,
                     .waits = groups / filled < messages ? groups / filled : messages,
                     .reduced = reduced};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, rabenseifner_pass, NULL);
}

const colli_algo colli_allreduce_rabenseifner = {
    .name = "rabenseifner",
    .id = 11,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes: 2 log2(n) rounds and the fewest bytes, combined in a tree",
    .source = "Rabenseifner 2004; Rabenseifner and Traeff 2004",
    .orders = COLLI_GIVES_TREE,
    .ranks_min = 3, /* two ranks exchange as many bytes in one round with recdbl */
    .reach = COLLI_REACH_PAIRS,
    .radix = 2,
    .longer = -1,
    .nchunks = rabenseifner_nchunks,
    .emit = rabenseifner_emit,
    .cost = rabenseifner_cost,
};
