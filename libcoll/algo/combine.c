/*
 * combine.c: every rank owns one chunk, receives the contributions to it directly from all ranks,
 * and combines them in the order of the shape. The first half of all "direct" algorithms.
 *
 * ANY: own contribution first, then the others as they come. LEFT: from left to right; what is
 * there already is kept in one chunk of scratch. TREE: from left to right as well; halves that wait
 * for their other half are a stack in scratch, at most one for each level.
 */
#include "libcoll/base/assert.h"
#include "libcoll/sched/order.h"

#include "libcoll/algo/timeline.h"

/* A value that has been or will be combined. */
typedef struct operand {
  enum { MESSAGE, OWN, KEPT, DONE } kind; /* DONE: in OUTPUT */
  int at;                                 /* MESSAGE: whose; KEPT: at which place of the stack */
} operand;

/* A rank that combines. It emits its steps or, for the cost, only computes when it would finish
 * them. */
typedef struct combination {
  colli_builder *builder; /* NULL: it only computes times */
  const colli_shape *shape;
  int lane;
  bool store; /* the result goes to OUTPUT */
  int to;     /* it is sent to this rank, or COLLI_NOBODY */
  int made;   /* operations so far; the last one makes the final result */
  colli_timeline *at;
  colli_timeline peer; /* every rank, before it contributes */
  int sent;            /* how many chunks each rank contributes to */
  colli_flight out;    /* when the result arrives */
} combination;

/* Seats that have two ranks. */
static int paired_seats(int nranks) {
  return nranks - colli_order_seats(nranks);
}

/* The number of scratch chunks that a combining rank needs. */
int colli_combine_scratch(const colli_shape *shape, bool store) {
  int n = shape->nranks;
  if (n <= 2)
    return 0;
  if (shape->order == COLLI_ORDER_ANY)
    return store ? 0 : 1;
  if (shape->order != COLLI_ORDER_TREE)
    return 1;
  return colli_log2_up(colli_order_seats(n)) + (paired_seats(n) > 0);
}

/* A rank's contribution, not read yet. */
static operand leaf_of(const combination *c, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < c->shape->nranks, c->shape->rank);
  return (operand){rank == c->shape->rank ? OWN : MESSAGE, rank};
}

/* When what another rank has sent as its `turn`-th message arrives. */
static colli_flight arrival_of(const combination *c, int turn) {
  const colli_timeline *p = &c->peer;
  double begin = p->now + p->step > p->out ? p->now + p->step : p->out, slot[2];
  for (int last = 0; last < 2; last++) {
    double slices = last ? turn * p->slices : (turn - 1) * p->slices + 1;
    double linked = begin + slices * p->link, worked = p->now + slices * p->step + p->link;
    slot[last] = (linked > worked ? linked : worked) + p->alpha;
  }
  return (colli_flight){slot[0], slot[1]};
}

/* Computes when a step would be done. */
static void time_step(combination *c, unsigned bits, int from) {
  int n = c->shape->nranks;
  colli_flight in = {0, 0};
  if (bits & COLLI_RECV) {
    int turn = (from - c->shape->rank + n) % n;
    in = arrival_of(c, turn < c->sent ? turn : c->sent);
  }
  bool touches = (bits & COLLI_FOLD) || !(bits & (COLLI_RECV | COLLI_SEND));
  if (bits & COLLI_SEND)
    c->out = (touches ? colli_timeline_fold_forward : colli_timeline_forward)(c->at, in);
  else
    (touches ? colli_timeline_fold : colli_timeline_receive)(c->at, in);
}

/* Emits (or times) a step whose value comes from `src` and goes to `dst`. */
static void do_step(combination *c, unsigned bits, operand src, int dst_buf, int dst, int from) {
  int n = c->shape->nranks, rank = c->shape->rank;
  COLLI_ASSERT_RANK(!(bits & COLLI_RECV) == (from == COLLI_NOBODY), rank);
  COLLI_ASSERT_RANK(from != rank && (src.kind != MESSAGE || src.at != rank), rank);
  if (!c->builder) {
    time_step(c, bits, from);
    return;
  }
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

/* Emits left op right, one of which is a message. Unless this is the last operation, the result is
 * kept at `at`. */
static operand merge_message(combination *c, operand left, operand right, int at, bool last) {
  COLLI_ASSERT_RANK(left.kind == MESSAGE || right.kind == MESSAGE, c->shape->rank);
  operand kept = {KEPT, at};
  if (left.kind == MESSAGE && right.kind == MESSAGE) {
    do_step(c, COLLI_RECV | COLLI_STORE, kept, COLLI_SCRATCH, at, left.at);
    left = kept;
  }
  bool first = left.kind == MESSAGE;
  unsigned bits = COLLI_RECV | COLLI_FOLD | (first ? COLLI_MSG_LEFT : 0);
  if (last)
    bits |= COLLI_FINAL | (c->to == COLLI_NOBODY ? 0 : COLLI_SEND);
  if (!last || c->store)
    bits |= COLLI_STORE;
  bool out = c->store && (last || c->shape->order == COLLI_ORDER_ANY);
  do_step(c, bits, first ? right : left, out ? COLLI_OUTPUT : COLLI_SCRATCH, at,
          first ? left.at : right.at);
  return out ? (operand){DONE, 0} : kept;
}

/* Emits left op right. If `right` is not a message, `left` is a kept value, because no tree of
 * order.h has a single rank to the left of a combined subtree. */
static operand merge_values(combination *c, operand left, operand right, int at) {
  COLLI_ASSERT_RANK(c->made < c->shape->nranks - 1, c->shape->rank);
  bool last = ++c->made == c->shape->nranks - 1;
  if (left.kind == MESSAGE || right.kind == MESSAGE)
    return merge_message(c, left, right, at, last);
  COLLI_ASSERT_RANK(left.kind == KEPT, c->shape->rank);
  unsigned send = c->to == COLLI_NOBODY ? 0 : COLLI_SEND;
  unsigned bits = COLLI_FOLD | COLLI_STORE;
  if (last)
    bits |= COLLI_FINAL | (c->store ? 0 : send);
  do_step(c, bits, right, COLLI_SCRATCH, left.at, COLLI_NOBODY);
  if (last && c->store)
    do_step(c, COLLI_STORE | send, left, COLLI_OUTPUT, 0, COLLI_NOBODY);
  return left;
}

/* Emits the subtree of TREE over seats [first, first + count), with its result kept at `at`. */
static operand merge_seats(combination *c, int first, int count, int at) {
  int n = c->shape->nranks;
  COLLI_ASSERT_RANK(count >= 1 && (count & (count - 1)) == 0, c->shape->rank);
  COLLI_ASSERT_RANK(first >= 0 && first + count <= colli_order_seats(n), c->shape->rank);
  if (count == 1) {
    int rank = colli_order_seat_rank(n, first);
    return first < paired_seats(n) ? merge_values(c, leaf_of(c, rank), leaf_of(c, rank + 1), at)
                                   : leaf_of(c, rank);
  }
  operand left = merge_seats(c, first, count / 2, at);
  operand right = merge_seats(c, first + count / 2, count / 2, at + (left.kind == KEPT));
  return merge_values(c, left, right, at);
}

/* Walks through the combination in the order of the shape. */
static void merge_all(combination *c) {
  int n = c->shape->nranks, rank = c->shape->rank;
  if (c->shape->order == COLLI_ORDER_TREE) {
    merge_seats(c, 0, colli_order_seats(n), 0);
    COLLI_ASSERT_RANK(c->made == n - 1, rank);
    return;
  }
  /* ANY: own contribution first, then the others in the order in which they are sent. */
  int first = c->shape->order == COLLI_ORDER_ANY ? rank : 0;
  operand value = leaf_of(c, first);
  for (int i = 1; i < n; i++)
    value = merge_values(c, value, leaf_of(c, (first + i) % n), 0);
  COLLI_ASSERT_RANK(c->made == n - 1, rank);
}

/* Emits the combination of all ranks' contributions to the rank's own chunk. */
void colli_emit_combine(colli_builder *builder, const colli_shape *shape, int lane, bool store,
                        int to) {
  COLLI_ASSERT_RANK(shape->nranks > 1 && (store || to != COLLI_NOBODY), shape->rank);
  combination c = {.builder = builder, .shape = shape, .lane = lane, .store = store, .to = to};
  merge_all(&c);
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

/* The rank with the most work in a fixed order. */
int colli_combine_busiest(const colli_shape *shape) {
  int n = shape->nranks, two = paired_seats(n);
  /* A rank whose own leaf is not combined with a neighbour's must store one more message. */
  return shape->order == COLLI_ORDER_TREE && two % 2 ? 2 * two : n - 1;
}

/* `rank` contributes and combines. */
colli_flight colli_timeline_combine(colli_timeline *at, const colli_shape *shape, int rank,
                                    bool store, bool sends) {
  colli_shape followed = *shape;
  combination c = {.shape = &followed, .store = store, .at = at, .peer = *at};
  followed.rank = rank;
  c.to = sends ? (rank + 1) % shape->nranks : COLLI_NOBODY;
  int owners = (int)(at->filled * shape->nranks + 0.5);
  c.sent = owners < shape->nranks - 1 ? owners : shape->nranks - 1;
  for (int i = 0; i < c.sent; i++)
    colli_timeline_send(at);
  merge_all(&c);
  return c.out;
}
