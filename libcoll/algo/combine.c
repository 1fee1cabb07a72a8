/*
 * combine.c: every rank owns one chunk, gets all ranks' contributions to it straight from them, and
 * combines them in the order that the shape asks for. The first half of all algorithms that are
 * called direct.
 *
 * ANY: own contribution first, then the others as they come. LEFT: from left to right; what is
 * there already is kept in one chunk of scratch. TREE: from left to right as well; halves that wait
 * for their other half are a stack in scratch, at most one for each level.
 */
#include "libcoll/sched/order.h"

#include "libcoll/algo/timeline.h"

/* A value that has been or will be combined. */
typedef struct operand {
  enum { MESSAGE, OWN, KEPT, DONE } kind; /* DONE: in OUTPUT */
  int at;                                 /* MESSAGE: whose; KEPT: at which place of the stack */
} operand;

typedef struct combination {
  colli_builder *builder;
  const colli_shape *shape;
  int lane;
  bool store; /* the result goes to OUTPUT */
  int to;     /* it is sent to this rank, or COLLI_NOBODY */
  int made;   /* operations so far; the last one completes the reduction */
} combination;

/* Seats that have two ranks. */
static int pairs(int nranks) {
  return nranks - colli_order_seats(nranks);
}

/* How many chunks of scratch a rank takes that combines. */
int colli_combine_scratch(const colli_shape *shape, bool store) {
  int n = shape->nranks;
  if (n <= 2)
    return 0;
  if (shape->order == COLLI_ORDER_ANY)
    return store ? 0 : 1;
  if (shape->order != COLLI_ORDER_TREE)
    return 1;
  return colli_log2_up(colli_order_seats(n)) + (pairs(n) > 0);
}

/* A rank's contribution, not read yet. */
static operand leaf(const combination *c, int rank) {
  return (operand){rank == c->shape->rank ? OWN : MESSAGE, rank};
}

/* Emits a step whose value comes from `src` and goes to `dst`. */
static void step(const combination *c, unsigned bits, operand src, int dst_buf, int dst, int from) {
  int n = c->shape->nranks, rank = c->shape->rank;
  colli_buf buf = src.kind == KEPT ? COLLI_SCRATCH : src.kind == DONE ? COLLI_OUTPUT : COLLI_INPUT;
  colli_builder_add(c->builder, (colli_step){
                                    .bits = (uint8_t)bits,
                                    .lane = (uint8_t)c->lane,
                                    .src_buf = (uint8_t)buf,
                                    .dst_buf = (uint8_t)dst_buf,
                                    .peer_recv = from,
                                    .peer_send = bits & COLLI_SEND ? c->to : COLLI_NOBODY,
                                    .chunk_in = src.kind == KEPT ? rank + src.at * n : rank,
                                    .chunk_out = dst_buf == COLLI_SCRATCH ? rank + dst * n : rank,
                                });
}

/* Emits left op right, one of which is a message; where it is not the last one it is kept at `at`.
 */
static operand merge_message(combination *c, operand left, operand right, int at, bool last) {
  operand kept = {KEPT, at};
  if (left.kind == MESSAGE && right.kind == MESSAGE) {
    step(c, COLLI_RECV | COLLI_STORE, kept, COLLI_SCRATCH, at, left.at);
    left = kept;
  }
  bool first = left.kind == MESSAGE;
  unsigned bits = COLLI_RECV | COLLI_FOLD | (first ? COLLI_MSG_LEFT : 0);
  if (last)
    bits |= COLLI_FINAL | (c->to == COLLI_NOBODY ? 0 : COLLI_SEND);
  if (!last || c->store)
    bits |= COLLI_STORE;
  bool out = c->store && (last || c->shape->order == COLLI_ORDER_ANY);
  step(c, bits, first ? right : left, out ? COLLI_OUTPUT : COLLI_SCRATCH, at,
       first ? left.at : right.at);
  return out ? (operand){DONE, 0} : kept;
}

/* Emits left op right. `left` is kept if `right` is no message: no tree of order.h has a rank of
 * its own to the left of what took others to combine. */
static operand merge(combination *c, operand left, operand right, int at) {
  bool last = ++c->made == c->shape->nranks - 1;
  if (left.kind == MESSAGE || right.kind == MESSAGE)
    return merge_message(c, left, right, at, last);
  unsigned send = c->to == COLLI_NOBODY ? 0 : COLLI_SEND;
  unsigned bits = COLLI_FOLD | COLLI_STORE;
  if (last)
    bits |= COLLI_FINAL | (c->store ? 0 : send);
  step(c, bits, right, COLLI_SCRATCH, left.at, COLLI_NOBODY);
  if (last && c->store)
    step(c, COLLI_STORE | send, left, COLLI_OUTPUT, 0, COLLI_NOBODY);
  return left;
}

/* Emits the part of TREE that is made of seats first .. first + count - 1, kept at `at`. */
static operand merge_seats(combination *c, int first, int count, int at) {
  int n = c->shape->nranks;
  if (count == 1) {
    int rank = colli_order_seat_rank(n, first);
    return first < pairs(n) ? merge(c, leaf(c, rank), leaf(c, rank + 1), at) : leaf(c, rank);
  }
  operand left = merge_seats(c, first, count / 2, at);
  operand right = merge_seats(c, first + count / 2, count / 2, at + (left.kind == KEPT));
  return merge(c, left, right, at);
}

/* Emits own contribution first, then the others in the order in which they are sent. */
static void merge_any(combination *c) {
  int n = c->shape->nranks, rank = c->shape->rank;
  operand value = leaf(c, rank);
  for (int i = 1; i < n; i++)
    value = merge(c, value, leaf(c, (rank + i) % n), 0);
}

/* Emits the combination of all ranks' contributions to the rank's own chunk. */
void colli_emit_combine(colli_builder *builder, const colli_shape *shape, int lane, bool store,
                        int to) {
  combination c = {builder, shape, lane, store, to, 0};
  int n = shape->nranks;
  if (shape->order == COLLI_ORDER_ANY) {
    merge_any(&c);
  } else if (shape->order == COLLI_ORDER_TREE) {
    merge_seats(&c, 0, colli_order_seats(n), 0);
  } else {
    operand value = leaf(&c, 0);
    for (int rank = 1; rank < n; rank++)
      value = merge(&c, value, leaf(&c, rank), 0);
  }
}

/* Emits the sending of all chunks but the own one to their owners. */
void colli_emit_contribute(colli_builder *builder, const colli_shape *shape, int lane) {
  int n = shape->nranks, rank = shape->rank;
  for (int i = 1; i < n; i++) {
    int to = (rank + n - i) % n;
    colli_emit(builder, lane, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT},
               to);
  }
}

/* How many messages a rank stores before it can combine them; it is rank 1, or does most. */
static int stored(const colli_shape *shape, bool first) {
  int seats = colli_order_seats(shape->nranks), two = pairs(shape->nranks);
  if (shape->order == COLLI_ORDER_ANY)
    return 0;
  if (shape->order != COLLI_ORDER_TREE)
    return !first && shape->nranks > 2;
  /* Two leaves that meet, neither of which is the rank's own. One leaf meets no other if there is
   * an odd number of both kinds of seats. */
  return two + (seats - two) / 2 - (first || two % 2 == 0);
}

/* A rank contributes and combines. */
colli_flight colli_timeline_combine(colli_timeline *at, const colli_shape *shape, bool first,
                                    bool sends) {
  int n = shape->nranks, store = stored(shape, first), folds = n - 1;
  int owners = (int)(at->filled * n + 0.5), sent = owners < n - 1 ? owners : n - 1;
  bool in_turn = shape->order == COLLI_ORDER_ANY || !first;
  bool local = n > 2 && (!first || (shape->order == COLLI_ORDER_TREE && n > 3)) &&
               shape->order != COLLI_ORDER_ANY; /* the last operation needs no message */
  colli_timeline peer = *at;
  colli_flight in = {0, 0};
  for (int i = 0; i < sent; i++)
    in = colli_timeline_send(at);
  for (int i = 0; i < n - 1; i++) {
    if (in_turn && i < sent)
      in = colli_timeline_send(&peer);
    if (store > 0 && store--)
      colli_timeline_receive(at, in);
    else if (--folds > 0 || local || !sends)
      colli_timeline_fold(at, in);
    else
      in = colli_timeline_fold_forward(at, in);
  }
  while (folds-- > 0)
    colli_timeline_copy(at);
  return local && sends ? colli_timeline_send(at) : in;
}
