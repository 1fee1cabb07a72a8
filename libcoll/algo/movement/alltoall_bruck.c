/*
 * alltoall_bruck.c: slot i holds the block for the rank i further on. In round k each rank sends
 * the slots whose number has bit k to the rank 2^k further on. Between rounds they are in scratch.
 *
 * Cost: about ceil(log2 n) alpha + n/2 log2(n) m beta for blocks of m bytes, as long as the lanes
 * can keep the messages of a round under way at once; n/2 messages a round, as each block is one.
 * Wins for short blocks where ranks should have few partners, log2(n) each; direct sends fewer
 * bytes.
 * Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8 (1997).
 *
 * 5 ranks: what each rank r hands on:
 *
 *     round 0:  slots 1, 3 to r + 1       (slot 1 has arrived)
 *     round 1:  slots 2, 3 to r + 2       (slots 2 and 3 have arrived)
 *     round 2:  slot 4     to r + 4       (slot 4 has arrived)
 */
#include "libcoll/algo/timeline.h"

#define LANES 4 /* each lane needs a connection of its own to every partner */

/* A rank that writes down its steps. */
typedef struct writer {
  colli_builder *builder;
  int n;
  int rank;
  colli_buf have; /* where its own blocks are */
  int relay;      /* scratch chunk of slot 0 */
  int last, lane; /* the last step, and its lane */
} writer;

/* How many slots have bit k of their number. */
static int slots_with(int n, int bit) {
  int rest = n % (2 * bit) - bit;
  return n / (2 * bit) * bit + (rest > 0 ? rest : 0);
}

/* The turn-th slot that has the bit. */
static int slot_of(int turn, int bit) {
  return turn / bit * 2 * bit + bit + turn % bit;
}

/* Adds a step that waits for the one before. */
static void emit_next(writer *w, int lane, colli_step step) {
  step.lane = (uint8_t)lane;
  int handle = colli_builder_add(w->builder, step);
  if (lane != w->lane)
    colli_builder_dep(w->builder, handle, w->last);
  w->last = handle;
  w->lane = lane;
}

/* Sends a slot in the round of a bit. */
static void emit_send(writer *w, int lane, int slot, int bit) {
  bool own = slot % bit == 0;
  emit_next(w, lane,
            (colli_step){.bits = COLLI_SEND,
                         .src_buf = (uint8_t)(own ? w->have : COLLI_SCRATCH),
                         .chunk_in = own ? (w->rank + slot) % w->n : w->relay + slot,
                         .peer_recv = COLLI_NOBODY,
                         .peer_send = (w->rank + bit) % w->n});
}

/* Receives a slot in the round of a bit. */
static void emit_receive(writer *w, int lane, int slot, int bit) {
  bool arrived = slot < 2 * bit;
  emit_next(w, lane,
            (colli_step){.bits = COLLI_RECV | COLLI_STORE,
                         .dst_buf = arrived ? COLLI_OUTPUT : COLLI_SCRATCH,
                         .chunk_out = arrived ? (w->rank + w->n - slot) % w->n : w->relay + slot,
                         .peer_recv = (w->rank + w->n - bit) % w->n,
                         .peer_send = COLLI_NOBODY});
}

/*
 * Emits the steps of a rank, in one order over all lanes. The first and the last are in lane 0, so
 * that no lane begins the next pass, which uses the same scratch, before this one is done.
 */
static void bruck_steps(writer *w) {
  for (int bit = 1; bit < w->n; bit *= 2) {
    int turns = slots_with(w->n, bit);
    for (int first = 0; first < turns; first += LANES) {
      int end = first + LANES < turns ? first + LANES : turns;
      for (int turn = first; turn < end; turn++)
        emit_send(w, (turns - 1 - turn) % LANES, slot_of(turn, bit), bit);
      for (int turn = first; turn < end; turn++)
        emit_receive(w, (turns - 1 - turn) % LANES, slot_of(turn, bit), bit);
    }
  }
}

/*
 * Emits the initial copies, in lane 0. In place, a slot may arrive before the block at its
 * destination has left, so all blocks for others go to scratch.
 */
static void copy_own(writer *w, const colli_shape *shape) {
  if (!shape->in_place)
    w->last = colli_emit_own(w->builder, shape);
  for (int k = 1; k < w->n && shape->in_place; k++)
    w->last = colli_emit(w->builder, 0, COLLI_STORE,
                         (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, w->have},
                         (w->rank + k) % w->n);
}

static coll_status bruck_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, copies = shape->in_place && n > 1 ? n : 0;
  int lanes = n / 2 < 1 ? 1 : n / 2 < LANES ? n / 2 : LANES;
  colli_builder *builder = colli_builder_create(shape, n, copies + (n > 1 ? n : 0), lanes);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  writer w = {.builder = builder, .n = n, .rank = shape->rank, .relay = copies};
  w.have = copies ? COLLI_SCRATCH : COLLI_INPUT;
  copy_own(&w, shape);
  bruck_steps(&w);
  return colli_builder_finish(builder, sched);
}

/* One pass of any rank. */
static void bruck_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int n = shape->nranks;
  for (int copies = shape->in_place ? n - 1 : 1; copies > 0; copies--)
    colli_timeline_copy(at);
  for (int bit = 1; bit < n; bit *= 2)
    for (int left = slots_with(n, bit); left > 0; left -= LANES) {
      colli_timeline sender = *at;
      int some = left < LANES ? left : LANES;
      for (int i = 0; i < some; i++)
        colli_timeline_send(at);
      for (int i = 0; i < some; i++)
        colli_timeline_receive(at, colli_timeline_send(&sender));
    }
}

static double bruck_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks;
  double copies = shape->in_place ? n - 1 : 1;
  colli_work work = {.steps = copies, .reduced = copies};
  for (int bit = 1; bit < n; bit *= 2) {
    work.received += slots_with(n, bit);
    work.waits += (slots_with(n, bit) + LANES - 1) / LANES;
  }
  work.steps += 2 * work.received;
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, bruck_pass, NULL);
}

const colli_algo colli_alltoall_bruck = {
    .name = "bruck",
    .id = 72,
    .coll = COLLI_ALLTOALL,
    .when = "short blocks on many ranks: log2(n) rounds, log2(n) partners",
    .source = "Bruck, Ho, Kipnis, Upfal and Weathersby 1997",
    .orders = COLLI_GIVES_ANY,
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .nchunks = colli_nchunks_blocks,
    .emit = bruck_emit,
    .cost = bruck_cost,
};
