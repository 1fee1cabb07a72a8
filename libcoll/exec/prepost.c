/*
 * prepost.c: preposts receives: tells a connection where messages belong in the caller's memory, so
 * that a transport that supports it writes them there directly (expect() of the transport's table).
 *
 * The transport must know before the peer sends, so when a lane begins a step, it preposts the
 * receives of the next few steps. Until a message arrives, nothing else may use its memory: neither
 * a step in between nor a transport that still sends from there. There is one exception: in an
 * all-reduce in place, a step may read this rank's contribution from where the result will arrive,
 * because the result depends on that contribution.
 */
#include "libcoll/base/assert.h"
#include "libcoll/exec/step.h"

#define STEPS_AHEAD 4 /* a peer is seldom further ahead */

/* A step that a lane has before it. */
typedef struct lane_position {
  const colli_step *step;
  int pass;
} lane_position;

/* A range of memory. */
typedef struct range {
  const char *begin;
  size_t bytes;
} range;

/* Steps of a lane in one pass. */
static uint64_t steps_of(const colli_lane *lane) {
  const colli_sched *sched = lane->op->sched;
  return (uint64_t)(sched->lane_first[lane->index + 1] - sched->lane_first[lane->index]);
}

/* Step number `number` of a lane, counted over all passes. */
static lane_position find_position(const colli_lane *lane, uint64_t number) {
  const colli_sched *sched = lane->op->sched;
  uint64_t steps = steps_of(lane);
  COLLI_ASSERT(number / steps < (uint64_t)lane->op->partition.passes);
  return (lane_position){&sched->steps[sched->lane_first[lane->index] + (int)(number % steps)],
                         (int)(number / steps)};
}

/* The memory of a chunk of INPUT or OUTPUT; empty for SCRATCH. */
static range memory_of_chunk(const coll_request *op, int buf, int chunk, int pass) {
  if (buf == COLLI_SCRATCH)
    return (range){NULL, 0};
  colli_range r = colli_partition_range(&op->partition, (colli_buf)buf, chunk, pass);
  size_t begin = buf == COLLI_INPUT ? op->in_first : op->out_first;
  const char *base = buf == COLLI_INPUT ? op->in : op->out;
  return r.count ? (range){base + (r.first - begin) * op->elem_bytes, r.count * op->elem_bytes}
                 : (range){NULL, 0};
}

/* Whether two ranges have a byte in common. */
static bool overlap(range a, range b) {
  return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

/* Whether a step stores its message unchanged in the caller's memory. */
static bool receives_to_output(const colli_step *step) {
  return (step->bits & (COLLI_RECV | COLLI_FOLD | COLLI_STORE)) == (COLLI_RECV | COLLI_STORE) &&
         step->dst_buf == COLLI_OUTPUT;
}

/* How a step uses memory: 0: not at all, 1: reads it, 2: stores to it. */
static int use_of(const coll_request *op, lane_position at, range memory) {
  const colli_step *step = at.step;
  bool reads = !(step->bits & COLLI_RECV) || step->bits & COLLI_FOLD;
  if (step->bits & COLLI_STORE &&
      overlap(memory_of_chunk(op, step->dst_buf, step->chunk_out, at.pass), memory))
    return 2;
  return reads && overlap(memory_of_chunk(op, step->src_buf, step->chunk_in, at.pass), memory);
}

/* Whether a step of an all-reduce receives the final result, which nothing overwrites. */
static bool gets_result(const coll_request *op, const colli_step *step) {
  const colli_sched *sched = op->sched;
  bool last = op->coll == COLLI_ALLREDUCE;
  for (int i = 0; i < sched->nsteps && last; i++) {
    const colli_step *other = &sched->steps[i];
    bool stores = other->bits & COLLI_STORE && other->dst_buf == COLLI_OUTPUT &&
                  other->chunk_out == step->chunk_out;
    last = !stores || (other->lane == step->lane && other <= step);
  }
  return last;
}

/* The number of messages that a step receives from a peer. */
static uint64_t messages_from(const coll_request *op, lane_position at, int peer) {
  const colli_step *step = at.step;
  if (!(step->bits & COLLI_RECV) || step->peer_recv != peer)
    return 0;
  bool folds = step->bits & COLLI_FOLD;
  size_t count =
      colli_partition_range(&op->partition, (colli_buf)(folds ? step->src_buf : step->dst_buf),
                            folds ? step->chunk_in : step->chunk_out, at.pass)
          .count;
  return (count + op->partition.slice - 1) / op->partition.slice;
}

/* Preposts the messages of step `number`, if it receives any; false: not yet. */
static bool prepost_step(colli_exec *exec, colli_lane *lane, uint64_t here, uint64_t number) {
  coll_request *op = lane->op;
  lane_position at = find_position(lane, number);
  if (number > here && (at.step->dep[0] & at.step->dep[1]) != COLLI_NO_DEP)
    return false; /* other lanes may use the memory until then */
  if (!receives_to_output(at.step))
    return true;
  range memory = memory_of_chunk(op, COLLI_OUTPUT, at.step->chunk_out, at.pass);
  coll_conn *conn = exec->links[at.step->peer_recv].conn[lane->index];
  if (memory.bytes < COLLI_REGISTER_MIN_BYTES || !conn || !coll_transport_expects(conn->ops))
    return true;
  uint64_t ahead = 0;
  int reads = 0;
  for (uint64_t i = here; i < number; i++) {
    lane_position between = find_position(lane, i);
    int use = use_of(op, between, memory);
    reads += use == 1;
    if (use == 2 || reads > 1)
      return false;
    ahead += messages_from(op, between, at.step->peer_recv);
  }
  if ((reads > 0 && !gets_result(op, at.step)) ||
      colli_exec_find_pending(op, memory.begin, memory.bytes))
    return false;
  (void)colli_exec_registers(exec, op, conn, COLLI_OUTPUT);
  return conn->ops->expect(conn, ahead, &op->tag, (char *)(uintptr_t)memory.begin, memory.bytes,
                           op->partition.slice * op->elem_bytes) != COLL_T_AGAIN;
}

void colli_exec_prepost(colli_exec *exec, colli_lane *lane) {
  const coll_request *op = lane->op;
  uint64_t steps = steps_of(lane), all = steps * (uint64_t)op->partition.passes;
  uint64_t here =
      (uint64_t)lane->pass * steps + (uint64_t)(lane->step - op->sched->lane_first[lane->index]);
  COLLI_ASSERT_RANK(here < all && lane->preposted <= all, exec->rank);
  if (lane->preposted < here)
    lane->preposted = here;
  while (lane->preposted <= here + STEPS_AHEAD && lane->preposted < all &&
         prepost_step(exec, lane, here, lane->preposted))
    lane->preposted++;
}
