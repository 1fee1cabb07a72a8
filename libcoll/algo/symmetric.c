/* symmetric.c: all-gathers, reduce-scatters and all-reduces that are symmetric in the ranks. */
#include "libcoll/algo/symmetric.h"

#include <math.h>
#include <stdlib.h>

#include "libcoll/algo/timeline.h"
#include "libcoll/base/assert.h"

#define LANES 4 /* each lane needs a connection of its own to every partner */

/* ---- moves ------------------------------------------------------------------------------------*/

/* An empty list of moves with a capacity of n - 1, on numbers modulo n. */
static colli_symmetric empty_list(int n) {
  return (colli_symmetric){
      .n = n, .digits = 1, .radix = {n}, .move = malloc((size_t)n * sizeof(colli_move))};
}

/* Adds a move. */
static void add_move(colli_symmetric *symmetric, int distance, int offset, int round, int turn) {
  COLLI_ASSERT(symmetric->count < symmetric->n - 1 || !symmetric->move);
  COLLI_ASSERT(distance > 0 && distance < symmetric->n && offset >= 0 && offset < symmetric->n);
  if (symmetric->move)
    symmetric->move[symmetric->count++] = (colli_move){distance, offset, round, turn};
}

/* Round k: blocks o < radix^k to the distances j radix^k. */
colli_symmetric colli_symmetric_dissemination(int n, int radix) {
  colli_symmetric symmetric = empty_list(n);
  int round = 0;
  for (int have = 1; have < n; have *= radix, round++)
    for (int offset = 0; offset < have; offset++)
      for (int j = 1; j < radix && j * have + offset < n; j++)
        add_move(&symmetric, j * have, offset, round, offset);
  return symmetric;
}

/* Distances that double, with the last one as near to n / 2 as possible. */
colli_symmetric colli_symmetric_circulant(int n) {
  colli_symmetric symmetric = empty_list(n);
  int rounds = colli_log2_up(n);
  for (int round = 0, have = 1; round < rounds; round++) {
    int all = n; /* n halved, rounding up, once for each round to come */
    for (int k = round + 1; k < rounds; k++)
      all = (all + 1) / 2;
    for (int offset = 0; offset < all - have; offset++)
      add_move(&symmetric, have, offset, round, offset);
    have = all;
  }
  return symmetric;
}

/* Distances that halve. Blocks travel towards higher ranks. */
colli_symmetric colli_symmetric_far_first(int n) {
  colli_symmetric symmetric = empty_list(n);
  int rounds = colli_log2_up(n);
  for (int round = 0; round < rounds; round++) {
    int distance = 1 << (rounds - 1 - round);
    for (int back = 0; back + distance < n; back += 2 * distance)
      add_move(&symmetric, n - distance, (n - back) % n, round, back / (2 * distance));
  }
  return symmetric;
}

void colli_symmetric_factor(colli_symmetric *symmetric, int most) {
  int left = symmetric->n, count = 0;
  for (int factor = 2; left > 1; factor++) {
    for (; left % factor == 0; left /= factor) {
      COLLI_ASSERT(count < COLLI_SYMMETRIC_DIGITS);
      symmetric->radix[count++] = factor;
    }
    if (factor > left / factor && left > 1) /* what is left is a prime */
      factor = left - 1;
  }
  int twos = 0;
  while (twos < count && symmetric->radix[twos] == 2)
    twos++;
  int each = 1, digits = 0, packed[COLLI_SYMMETRIC_DIGITS];
  while (2 << each <= most)
    each++;
  if (twos % each)
    packed[digits++] = 1 << twos % each;
  for (int i = 0; i < twos / each; i++)
    packed[digits++] = 1 << each;
  for (int i = twos; i < count; i++) {
    int at = digits++;
    for (; at > 0 && packed[at - 1] > symmetric->radix[i]; at--)
      packed[at] = packed[at - 1];
    packed[at] = symmetric->radix[i];
  }
  COLLI_ASSERT(digits <= count);
  symmetric->digits = digits;
  for (int i = 0; i < digits; i++)
    symmetric->radix[i] = packed[i];
}

/* Round k: among ranks that differ in digit k only. */
colli_symmetric colli_symmetric_digits(int n, int most) {
  colli_symmetric symmetric = empty_list(n);
  colli_symmetric_factor(&symmetric, most);
  for (int round = 0, stride = 1; round < symmetric.digits; stride *= symmetric.radix[round++])
    for (int offset = 0; offset < stride; offset++)
      for (int j = 1; j < symmetric.radix[round]; j++)
        add_move(&symmetric, j * stride, offset, round, offset);
  return symmetric;
}

/* a + sign * b, digit by digit. */
static int add_digits(const colli_symmetric *symmetric, int a, int sign, int b) {
  int result = 0, stride = 1;
  for (int i = 0; i < symmetric->digits; i++) {
    int radix = symmetric->radix[i];
    result += (a / stride % radix + (sign < 0 ? radix - b / stride % radix : b / stride % radix)) %
              radix * stride;
    stride *= radix;
  }
  COLLI_ASSERT(stride == symmetric->n && result >= 0 && result < stride);
  return result;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Moves that are sent together and then received; no two of them use the same lane and rank. */
typedef struct together {
  const colli_move *first;
  const colli_move *end;
} together;

/* The moves of round `round`. */
static together find_round(const colli_symmetric *symmetric, int round) {
  const colli_move *first = symmetric->move, *end = first + symmetric->count;
  while (first < end && first->round != round)
    first++;
  const colli_move *last = first;
  while (last < end && last->round == round)
    last++;
  return (together){first, last};
}

/* Removes the next moves to be sent together from a round, and returns them. */
static together take_together(together *round) {
  COLLI_ASSERT(round->first < round->end);
  together some = {round->first, round->first};
  while (some.end < round->end && some.end->turn / LANES == some.first->turn / LANES)
    some.end++;
  round->first = some.end;
  return some;
}

/* The number of rounds. */
static int count_rounds(const colli_symmetric *symmetric) {
  return symmetric->count ? symmetric->move[symmetric->count - 1].round + 1 : 0;
}

/* The highest number of moves of a round to one rank. */
static int most_turns(together round) {
  COLLI_ASSERT(round.first < round.end);
  return round.end[-1].turn + 1;
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* A rank that writes down its steps. */
typedef struct writer {
  const colli_symmetric *symmetric;
  colli_builder *builder;
  colli_coll coll;
  int rank;
  int turns; /* of this round to one rank */
  int shift; /* of this round's lanes */
  int last;  /* the last step, and its lane; -1: none yet */
  int lane;
  int *parts;  /* reducing [block]: messages that are still to be added */
  bool *begun; /* [block]: was added to; all-gather: was stored */
} writer;

/* Adds a step of a move, which waits for the previous one. */
static void emit_next(writer *w, const colli_move *move, unsigned bits, colli_way way, int block) {
  COLLI_ASSERT_RANK(move->turn < w->turns && w->shift >= 0, w->rank);
  int lane = (w->turns - 1 - move->turn + w->shift) % LANES;
  int step = colli_emit(w->builder, lane, bits, way, block);
  if (w->last >= 0 && lane != w->lane)
    colli_builder_dep(w->builder, step, w->last);
  w->last = step;
  w->lane = lane;
}

/* A rank's side of a move in an all-gather. */
static void emit_gathering(writer *w, const colli_move *move, bool sends) {
  int above = add_digits(w->symmetric, w->rank, 1, move->distance);
  if (!sends) {
    emit_next(w, move, COLLI_RECV | COLLI_STORE,
              (colli_way){above, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT},
              add_digits(w->symmetric, above, 1, move->offset));
    return;
  }
  int block = add_digits(w->symmetric, w->rank, 1, move->offset);
  bool own = block == w->rank && w->coll == COLLI_ALLGATHER, store = own && !w->begun[block];
  w->begun[block] = true;
  emit_next(w, move, COLLI_SEND | (store ? COLLI_STORE : 0),
            (colli_way){COLLI_NOBODY, add_digits(w->symmetric, w->rank, -1, move->distance),
                        own ? COLLI_INPUT : COLLI_OUTPUT, COLLI_OUTPUT},
            block);
}

/* Emits a rank's side of a move in a reduce-scatter. An all-reduce keeps all partial sums in
 * OUTPUT. */
static void emit_reducing(writer *w, const colli_move *move, bool sends) {
  int above = add_digits(w->symmetric, w->rank, 1, move->distance);
  int block = add_digits(w->symmetric, sends ? above : w->rank, 1, move->offset);
  bool in_output = w->coll == COLLI_ALLREDUCE || block == w->rank;
  colli_buf sum = in_output ? COLLI_OUTPUT : COLLI_SCRATCH;
  colli_buf have = w->begun[block] ? sum : COLLI_INPUT;
  if (sends) {
    emit_next(w, move, COLLI_SEND, (colli_way){COLLI_NOBODY, above, have, have}, block);
    return;
  }
  COLLI_ASSERT_RANK(w->parts[block] > 0, w->rank);
  bool complete = --w->parts[block] == 0 && block == w->rank;
  w->begun[block] = true;
  emit_next(
      w, move, COLLI_RECV | COLLI_FOLD | COLLI_STORE | (complete ? COLLI_FINAL : 0),
      (colli_way){add_digits(w->symmetric, w->rank, -1, move->distance), COLLI_NOBODY, have, sum},
      block);
}

/*
 * Emits the steps of an all-gather or reduce-scatter. The last one is in the lane of the first, so
 * that no lane begins the next pass, which uses the same SCRATCH, before this one is done.
 */
static void emit_rounds(writer *w, bool reduces) {
  int rounds = count_rounds(w->symmetric);
  together start = find_round(w->symmetric, reduces ? rounds - 1 : 0);
  for (int i = 0; i < w->symmetric->count && reduces; i++)
    w->parts[add_digits(w->symmetric, w->rank, 1, w->symmetric->move[i].offset)]++;
  for (int k = 0; k < rounds; k++) {
    together round = find_round(w->symmetric, reduces ? rounds - 1 - k : k);
    w->turns = most_turns(round);
    w->shift = k > 0 && k == rounds - 1 ? most_turns(start) - 1 : 0;
    while (round.first < round.end) {
      together some = take_together(&round);
      for (int sends = 1; sends >= 0; sends--)
        for (const colli_move *move = some.first; move < some.end; move++)
          (reduces ? emit_reducing : emit_gathering)(w, move, sends);
    }
  }
}

/* Emits the steps of a rank. */
static void emit_moves(writer *w) {
  if (w->coll != COLLI_ALLGATHER)
    emit_rounds(w, true);
  if (w->coll != COLLI_REDUCE_SCATTER)
    emit_rounds(w, false);
}

/* How many lanes are used. */
static int count_lanes(const colli_symmetric *symmetric) {
  int most = 1;
  for (int i = 0; i < symmetric->count; i++)
    most = symmetric->move[i].turn >= most ? symmetric->move[i].turn + 1 : most;
  return most < LANES ? most : LANES;
}

/* Emits the schedule, and frees the moves. */
coll_status colli_symmetric_emit(const colli_shape *shape, colli_symmetric *symmetric,
                                 colli_sched **sched) {
  int n = shape->nranks;
  COLLI_ASSERT_RANK(symmetric->n == n && (!symmetric->move || symmetric->count == n - 1),
                    shape->rank);
  int sums = shape->coll == COLLI_REDUCE_SCATTER ? n : 0;
  writer w = {.symmetric = symmetric,
              .builder = colli_builder_create(shape, n, sums, count_lanes(symmetric)),
              .coll = shape->coll,
              .rank = shape->rank,
              .last = -1,
              .parts = calloc((size_t)n, sizeof(*w.parts)),
              .begun = calloc((size_t)n, sizeof(*w.begun))};
  bool enough = symmetric->move && w.builder && w.parts && w.begun;
  if (enough && n == 1)
    colli_emit_alone(w.builder, shape->coll, 1);
  else if (enough)
    emit_moves(&w);
  free(w.parts);
  free(w.begun);
  free(symmetric->move);
  if (enough)
    return colli_builder_finish(w.builder, sched);
  colli_builder_discard(w.builder);
  return COLL_ERR_NO_MEMORY;
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* The time of the rounds of an all-gather or reduce-scatter. Empty chunks are not counted. */
static void follow_rounds(colli_timeline *at, const colli_symmetric *symmetric, bool reduces) {
  int rounds = count_rounds(symmetric);
  for (int k = 0; k < rounds; k++) {
    together round = find_round(symmetric, reduces ? rounds - 1 - k : k);
    int partners = (int)(round.end - round.first) / most_turns(round);
    int full = partners * (int)(at->filled * symmetric->n + 0.5);
    while (round.first < round.end && full > 0) {
      together some = take_together(&round);
      int moves = some.end - some.first < full ? (int)(some.end - some.first) : full;
      full -= moves;
      colli_timeline sender = *at;
      for (int i = 0; i < moves; i++)
        colli_timeline_send(at);
      for (int i = 0; i < moves; i++)
        (reduces ? colli_timeline_fold : colli_timeline_receive)(at, colli_timeline_send(&sender));
    }
  }
}

/* One pass of any rank. */
static void symmetric_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  if (shape->coll != COLLI_ALLGATHER)
    follow_rounds(at, ctx, true);
  if (shape->coll != COLLI_REDUCE_SCATTER)
    follow_rounds(at, ctx, false);
}

/* Its cost; frees the moves. */
double colli_symmetric_cost(const colli_shape *shape, colli_symmetric *symmetric,
                            const colli_partition *partition, size_t elem_bytes,
                            const colli_model *model) {
  if (!symmetric->move)
    return INFINITY;
  double times = shape->coll == COLLI_ALLREDUCE ? 2 : 1, partners = 1;
  colli_work work = {.steps = 2 * times * symmetric->count, .received = times * symmetric->count};
  work.reduced = shape->coll == COLLI_ALLGATHER ? 0 : symmetric->count;
  for (int k = 0; k < count_rounds(symmetric); k++) {
    together round = find_round(symmetric, k);
    work.waits += times * ((most_turns(round) + LANES - 1) / LANES);
    partners = (double)(round.end - round.first) / most_turns(round);
  }
  if (shape->coll == COLLI_ALLREDUCE) { /* few chunks are not empty: one wait for each */
    double each = symmetric->count * (1 + 1 / partners);
    work.waits /= colli_terms_make(partition, elem_bytes, model).filled;
    work.waits = work.waits < each ? work.waits : each;
  }
  double cost =
      colli_timeline_cost(shape, partition, elem_bytes, model, work, symmetric_pass, symmetric);
  free(symmetric->move);
  return cost;
}
