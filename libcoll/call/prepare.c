/* prepare.c: turns a collective call into a request: plan, blocks, staging, kernels. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/call/calls.h"
#include "libcoll/exec/rooms.h"
#include "libcoll/exec/stage.h"

/* Grows a request's buffer to at least `bytes` bytes; loses the old contents. */
static bool grow_buffer(char **buf, size_t *capacity, size_t bytes) {
  if (__builtin_expect(bytes <= *capacity, 1))
    return true;
  free(*buf);
  *capacity = 0;
  *buf = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*buf)
    *capacity = bytes;
  return *buf != NULL;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Writes one side's counts and displacements: the given ones, or else just the rank's own block. */
static void fill_side(const colli_calls *calls, const size_t *counts, const size_t *displs,
                      size_t own, size_t *to_counts, size_t *to_first) {
  size_t n = (size_t)calls->exec->nranks, end = 0;
  for (size_t rank = 0; rank < n; rank++) {
    size_t count = counts ? counts[rank] : rank == (size_t)calls->exec->rank ? own : 0;
    size_t first = !counts ? 0 : displs ? displs[rank] : end;
    to_counts[rank] = count;
    to_first[rank] = first;
    end = first + count;
  }
}

/* Copies the tables of a v-form into memory of the request, four numbers per rank. If elements are
 * longer than a slot, there is room for as many more: the same in bytes. */
static bool copy_blocks(const colli_calls *calls, const colli_call *call, coll_request *op) {
  size_t n = (size_t)calls->exec->nranks;
  bool root = call->root == calls->exec->rank;
  COLLI_ASSERT_RANK(call->varying && colli_exact(call->coll), calls->exec->rank);
  size_t tables = coll_type_bytes((coll_type)call->type) > calls->plans.limits.slot_bytes ? 8 : 4;
  if (!grow_buffer((char **)&op->blocks, &op->blocks_bytes, tables * n * sizeof(size_t)))
    return false;
  const size_t *in = call->in_counts, *out = call->out_counts;
  const size_t *in_displs = call->in_displs, *out_displs = call->out_displs;
  if (call->coll == COLLI_GATHER)
    in = out = root || call->known ? out : NULL, in_displs = out_displs;
  if (call->coll == COLLI_SCATTER)
    in = out = root ? in : NULL, out_displs = in_displs;
  fill_side(calls, in, in_displs, call->count, op->blocks, op->blocks + n);
  fill_side(calls, out, out_displs, call->count, op->blocks + 2 * n, op->blocks + 3 * n);
  return true;
}

/* Copies the tables of a persistent call, and makes the call point to the copies. */
bool colli_call_keep_blocks(const colli_calls *calls, colli_call *call, coll_request *op) {
  size_t n = (size_t)calls->exec->nranks;
  if (!copy_blocks(calls, call, op))
    return false;
  call->in_counts = op->blocks;
  call->in_displs = op->blocks + n;
  call->out_counts = op->blocks + 2 * n;
  call->out_displs = op->blocks + 3 * n;
  return true;
}

size_t colli_call_blocks_number(const colli_calls *calls, const size_t *counts) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int rank = 0; rank < calls->exec->nranks; rank++)
    hash = (hash ^ counts[rank]) * 0x100000001b3ull;
  return (size_t)(hash >> 17);
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Whether a reduce-scatter puts its result at the beginning of its own input, as in MPI. */
static bool over_input(const colli_calls *calls, const colli_call *call) {
  return call->coll == COLLI_REDUCE_SCATTER && call->sendbuf == call->recvbuf &&
         calls->exec->rank > 0 && call->sendbuf;
}

/*
 * Works on a copy where the caller's buffers are unsuitable: inputs that are widened, multiplied or
 * made 0 or 1 first, and results that would overwrite unread input.
 */
static bool stage_input(const colli_calls *calls, const colli_call *call, const colli_plan *plan,
                        coll_request *op) {
  size_t reads, writes;
  colli_call_extent(calls, call, &reads, &writes);
  const colli_kernels *kernels = calls->exec->kernels;
  bool premul = plan->user && plan->user->premul, covers = !plan->staged;
  size_t elements = covers ? writes : reads;
  COLLI_ASSERT_RANK(!covers || over_input(calls, call), calls->exec->rank);
  COLLI_ASSERT_RANK(covers || plan->staged, calls->exec->rank);
  if (!grow_buffer(&op->stage, &op->stage_bytes, elements * plan->elem_bytes))
    return false;
  op->stage_count = writes;
  op->stage_to = call->recvbuf;
  if (covers) {
    op->out = op->stage;
    op->stage_out = COLLI_STAGE_COPY;
    return true;
  }
  op->in = op->stage;
  if (plan->widened) {
    colli_stage_widen(kernels, (float *)(void *)op->stage, call->sendbuf, reads,
                      (coll_type)call->type);
    op->out = op->stage + op->out_first * plan->elem_bytes;
    op->stage_out = COLLI_STAGE_NARROW;
    op->stage_type = call->type;
    if (call->coll == COLLI_EXSCAN && calls->exec->rank == 0)
      op->stage_count = 0;
  }
  if (premul && plan->widened) {
    float factor;
    colli_stage_widen(kernels, &factor, plan->user->factor, 1, (coll_type)call->type);
    colli_stage_combine(kernels, op->stage, op->stage, reads, COLL_FLOAT32, COLL_PROD, &factor);
  } else if (premul) {
    colli_stage_combine(kernels, op->stage, call->sendbuf, reads, (coll_type)call->type, COLL_PROD,
                        plan->user->factor);
  } else if (plan->alone) { /* combined with itself */
    bool has_index = call->op == COLL_MINLOC || call->op == COLL_MAXLOC;
    kernels->reduce[call->type][has_index ? call->op : COLL_LAND](op->stage, NULL, call->sendbuf,
                                                                  call->sendbuf, reads);
  }
  return true;
}

/* Finishes a collective. */
void colli_call_finish(const colli_calls *calls, coll_request *op) {
  COLLI_ASSERT_RANK(op->done && op->stage_out != COLLI_STAGE_NONE, calls->exec->rank);
  const char *from = op->out;
  if (op->stage_out >= COLLI_STAGE_OWNER) {
    op->conclude(op, true);
  } else if (op->status == COLL_OK && op->stage_count) {
    if (op->stage_out == COLLI_STAGE_NARROW)
      colli_stage_narrow(calls->exec->kernels, op->stage_to, (const float *)(const void *)from,
                         op->stage_count, (coll_type)op->stage_type);
    else
      memcpy(op->stage_to, from, op->stage_count * op->elem_bytes);
  }
  op->stage_out = COLLI_STAGE_NONE;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Fills in the rest of a v-form: tables, partition, tag, and the start of the rank's own block.
 * False if out of memory. */
static bool prepare_blocks(const colli_calls *calls, const colli_call *call, const colli_plan *plan,
                           coll_request *op) {
  size_t n = (size_t)calls->exec->nranks, rank = (size_t)calls->exec->rank;
  COLLI_ASSERT_RANK(plan->key.varying, calls->exec->rank);
  if (!op->kept && !copy_blocks(calls, call, op))
    return false;
  const size_t *table = op->blocks;
  if (__builtin_expect(plan->pieces > 1, 0)) {
    for (size_t i = 0; i < 4 * n; i++)
      op->blocks[4 * n + i] = op->blocks[i] * plan->pieces;
    table += 4 * n;
  }
  colli_blocks blocks = {table, table + n, table + 2 * n, table + 3 * n};
  colli_partition_make_varying(&op->partition, &blocks, calls->exec->nranks, plan->elem_bytes,
                               &calls->plans.limits);
  if (call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER)
    colli_tag_put(&op->tag, colli_tag_count_field(&op->tag),
                  colli_call_blocks_number(calls, call->out_counts));
  bool own_in = call->coll == COLLI_ALLGATHER || call->coll == COLLI_GATHER;
  bool own_out = call->coll == COLLI_REDUCE_SCATTER || call->coll == COLLI_SCATTER;
  op->in_first = own_in ? blocks.in_first[rank] : 0;
  op->out_first = own_out ? blocks.out_first[rank] : 0;
  op->plan = 0;
  return true;
}

/* Allocates memory in addition to the caller's buffers; false if out of memory. */
static bool prepare_memory(const colli_calls *calls, const colli_call *call, const colli_plan *plan,
                           coll_request *op) {
  size_t scratch = op->partition.piece * op->elem_bytes * (size_t)plan->sched->nscratch;
  if (!grow_buffer(&op->scratch, &op->scratch_bytes, scratch))
    return false;
  return !(plan->staged || over_input(calls, call)) || stage_input(calls, call, plan, op);
}

/* Whether a call's output is disjoint from its input; false if it has no input. */
static bool is_apart(const colli_calls *calls, const colli_call *call) {
  size_t reads, writes, bytes = coll_type_bytes((coll_type)call->type);
  colli_call_extent(calls, call, &reads, &writes);
  const char *in = call->sendbuf, *out = call->recvbuf;
  return !in || !out || in + reads * bytes <= out || out + writes * bytes <= in;
}

/* Records which of a call's buffers lie in regions, from which peers can read by reference. */
static void find_regions(const colli_calls *calls, bool apart, coll_request *op) {
  op->by_ref = apart ? COLLI_BY_REF : COLLI_BY_REF_IN_PLACE;
  op->region[COLLI_INPUT] = colli_memory_region(calls->memories, op->in);
  op->region[COLLI_OUTPUT] = colli_memory_region(calls->memories, op->out);
}

/* Records which buffers are long enough to be registered with a transport for the call. */
static void note_extents(const colli_plan *plan, coll_request *op) {
  bool own = plan->staged || plan->key.varying || op->stage_out != COLLI_STAGE_NONE;
  op->extent[COLLI_INPUT] = own || plan->reads < COLLI_REGISTER_MIN_BYTES ? 0 : plan->reads;
  op->extent[COLLI_OUTPUT] = own || plan->writes < COLLI_REGISTER_MIN_BYTES ? 0 : plan->writes;
}

/* Makes room for elements that are longer than a slot. Their messages are neither preposted nor by
 * reference. False if out of memory. */
static bool make_rooms(coll_request *op) {
  op->extent[COLLI_INPUT] = op->extent[COLLI_OUTPUT] = 0;
  op->by_ref = 0;
  return colli_rooms_make(op);
}

/* Fills in the fields that are the same for all calls of a plan. */
static void fill_from_plan(const colli_calls *calls, const colli_plan *plan, coll_request *op) {
  op->coll = (colli_coll)plan->key.coll;
  op->tag = plan->tag;
  op->elem_bytes = plan->elem_bytes;
  op->in_first = plan->in_first;
  op->out_first = plan->out_first;
  op->sched = plan->sched;
  op->step = colli_exec_step_of(plan->in_rooms);
  op->nranks = calls->exec->nranks;
  op->reduce = plan->reduce;
  op->reduce_type = plan->wire_type;
  op->reduce_op = plan->user ? COLL_SUM : (int)plan->key.op;
  op->average = plan->average;
  op->user_fn = NULL;
  if (plan->user && !plan->user->premul) {
    op->user_fn = plan->user->fn;
    op->user_context = plan->user->context;
    op->user_type = (coll_type)plan->key.type;
  }
  op->partition = plan->partition;
  op->stage_out = COLLI_STAGE_NONE;
  op->plan = plan->number;
}

/* Fills in a collective's request from its plan. */
const char *colli_call_prepare(colli_calls *calls, const colli_call *call, const colli_plan *plan,
                               coll_request *op) {
  bool ok = true;
  COLLI_ASSERT_RANK(plan->sched && plan->number > 0, calls->exec->rank);
  if (op->plan != plan->number)
    fill_from_plan(calls, plan, op);
  COLLI_ASSERT_RANK(op->sched == plan->sched && op->coll == call->coll, calls->exec->rank);
  if (__builtin_expect(call->varying, 0))
    ok = prepare_blocks(calls, call, plan, op);
  if (__builtin_expect(!ok, 0))
    return "counts";
  op->in = call->sendbuf ? call->sendbuf : call->recvbuf;
  op->out = call->recvbuf;
  if (plan->sched->nscratch || plan->staged || call->sendbuf == call->recvbuf)
    ok = prepare_memory(calls, call, plan, op);
  if (__builtin_expect(!ok, 0))
    return "scratch, or for a copy of the buffer";
  note_extents(plan, op);
  op->by_ref = 0;
  op->stream = false;
  if (__builtin_expect(calls->memories->first || plan->stream, 0)) {
    bool apart = is_apart(calls, call);
    if (calls->memories->first)
      find_regions(calls, apart, op);
    bool other = apart && call->sendbuf && call->sendbuf != call->recvbuf;
    op->stream = other ? plan->stream : plan->stream_in_place;
  }
  if (__builtin_expect(plan->in_rooms, 0) && !make_rooms(op))
    return "elements that are longer than a slot (COLL_SLOT_BYTES)";
  op->sequence = calls->sequence + 1;
  op->tag.word[1] = colli_plan_tag(plan, op->sequence).word[1];
  colli_calls_count(calls, plan);
  return NULL;
}
