/* prepare.c: turns a collective call into a request: plan, blocks, staging, kernels. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/call.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/ops.h"

/* Where nobody knows all counts, the choice assumes blocks of so many bytes. */
#define ASSUMED_BLOCK_BYTES 65536

/* What a call comes down to once types and operations of the caller's own are resolved. */
typedef struct meaning {
  const colli_user_op *user; /* or NULL */
  int type;                  /* in which it is reduced and sent */
  size_t elem_bytes;
  colli_order order;
  bool widened; /* type is float32 instead of the caller's */
} meaning;

/* Gives a buffer that a request keeps at least `bytes` bytes; the old contents are lost. */
static bool grow(char **buf, size_t *room, size_t bytes) {
  if (__builtin_expect(bytes <= *room, 1))
    return true;
  free(*buf);
  *room = 0;
  *buf = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*buf)
    *room = bytes;
  return *buf != NULL;
}

static bool is_float(int type) {
  return type >= COLL_FLOAT16 && type <= COLL_FLOAT8_E5M2;
}

static bool is_short_float(int type) {
  return is_float(type) && type != COLL_FLOAT32 && type != COLL_FLOAT64;
}

/* The order in which a reduction must be combined. */
static colli_order order_of(const coll_comm *comm, const colli_call *call,
                            const colli_user_op *user) {
  bool custom = user && !user->premul;
  bool rounds = custom || (is_float(call->type) && (user || call->op == COLL_SUM ||
                                                    call->op == COLL_PROD || call->op == COLL_AVG));
  bool scan = call->coll == COLLI_SCAN || call->coll == COLLI_EXSCAN;
  coll_determinism wanted = comm->deterministic;
  if (rounds && wanted > COLL_DETERMINISTIC_OFF)
    return wanted == COLL_DETERMINISTIC_ON && !scan ? COLLI_ORDER_TREE : COLLI_ORDER_LEFT;
  return custom && !user->commutative && !scan ? COLLI_ORDER_RANKS : COLLI_ORDER_ANY;
}

/* Resolves types and operations. */
static meaning resolve(const coll_comm *comm, const colli_call *call) {
  meaning m = {.type = call->type, .elem_bytes = 1};
  if (call->coll == COLLI_BARRIER)
    return m;
  if (colli_reduces(call->coll)) {
    m.user = call->op >= COLL_OP_USER_BASE ? colli_ops_find(comm, call->op) : NULL;
    m.order = order_of(comm, call, m.user);
    bool sums = call->op == COLL_SUM || call->op == COLL_PROD || call->op == COLL_AVG ||
                (m.user && m.user->premul);
    m.widened = sums && is_short_float(call->type) && comm->accumulate == COLL_ACCUMULATE_FLOAT32;
    if (m.widened)
      m.type = COLL_FLOAT32;
  }
  m.elem_bytes = coll_type_bytes((coll_type)m.type);
  return m;
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

/* Writes one side's counts and displacements: those given, or else the rank's own block alone. */
static void fill_side(const coll_comm *comm, const size_t *counts, const size_t *displs, size_t own,
                      size_t *to_counts, size_t *to_first) {
  size_t n = (size_t)comm->nranks, end = 0;
  for (size_t rank = 0; rank < n; rank++) {
    size_t count = counts ? counts[rank] : rank == (size_t)comm->rank ? own : 0;
    size_t first = !counts ? 0 : displs ? displs[rank] : end;
    to_counts[rank] = count;
    to_first[rank] = first;
    end = first + count;
  }
}

/* Copies the tables of a v-form into memory of the request, four numbers a rank. */
static bool copy_blocks(const coll_comm *comm, const colli_call *call, coll_request *op) {
  size_t n = (size_t)comm->nranks;
  bool root = call->root == comm->rank;
  if (!grow((char **)&op->blocks, &op->blocks_bytes, 4 * n * sizeof(size_t)))
    return false;
  const size_t *in = call->in_counts, *out = call->out_counts;
  const size_t *in_displs = call->in_displs, *out_displs = call->out_displs;
  if (call->coll == COLLI_GATHER)
    in = out = root ? out : NULL, in_displs = out_displs;
  if (call->coll == COLLI_SCATTER)
    in = out = root ? in : NULL, out_displs = in_displs;
  fill_side(comm, in, in_displs, call->count, op->blocks, op->blocks + n);
  fill_side(comm, out, out_displs, call->count, op->blocks + 2 * n, op->blocks + 3 * n);
  return true;
}

/* Copies the tables of a persistent call, and makes the call point to the copies. */
bool colli_call_keep_blocks(const coll_comm *comm, colli_call *call, coll_request *op) {
  size_t n = (size_t)comm->nranks;
  if (!copy_blocks(comm, call, op))
    return false;
  call->in_counts = op->blocks;
  call->in_displs = op->blocks + n;
  call->out_counts = op->blocks + 2 * n;
  call->out_displs = op->blocks + 3 * n;
  return true;
}

/* A number for tables of counts that all ranks have: ranks that disagree will differ in it. */
static size_t blocks_number(const coll_comm *comm, const size_t *counts) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int rank = 0; rank < comm->nranks; rank++)
    hash = (hash ^ counts[rank]) * 0x100000001b3ull;
  return (size_t)(hash >> 17);
}

/* The count by which an algorithm is chosen for blocks of differing lengths. */
static size_t typical_count(const coll_comm *comm, const colli_call *call, const meaning *m) {
  size_t total = 0;
  if (call->coll != COLLI_ALLGATHER && call->coll != COLLI_REDUCE_SCATTER)
    return ASSUMED_BLOCK_BYTES / m->elem_bytes + 1;
  for (int rank = 0; rank < comm->nranks; rank++)
    total += call->out_counts[rank];
  return (total + (size_t)comm->nranks - 1) / (size_t)comm->nranks;
}

/* ---- buffers -----------------------------------------------------------------------------------
 */

/* Sets where the vector begins in the caller's buffers. */
static void set_buffers(const coll_comm *comm, const colli_call *call, coll_request *op) {
  size_t own = call->count * (size_t)comm->rank, n = (size_t)comm->nranks;
  bool own_in = call->coll == COLLI_ALLGATHER || call->coll == COLLI_GATHER;
  bool own_out = call->coll == COLLI_REDUCE_SCATTER || call->coll == COLLI_SCATTER;
  op->in = call->sendbuf ? call->sendbuf : call->recvbuf;
  op->out = call->recvbuf;
  if (__builtin_expect(call->varying, 0))
    own = own_in ? op->blocks[n + (size_t)comm->rank] : op->blocks[3 * n + (size_t)comm->rank];
  op->in_first = own_in ? own : 0;
  op->out_first = own_out ? own : 0;
}

/* Whether a reduce-scatter puts its result at the beginning of its own input, as in MPI. */
static bool over_input(const coll_comm *comm, const colli_call *call) {
  return call->coll == COLLI_REDUCE_SCATTER && call->sendbuf == call->recvbuf && comm->rank > 0 &&
         call->sendbuf;
}

/*
 * Works on a copy where the caller's buffers do not serve: inputs that are widened or multiplied
 * first, and results that would overwrite what is still to be read.
 */
static bool stage(const coll_comm *comm, const colli_call *call, const meaning *m,
                  coll_request *op) {
  size_t reads, writes;
  colli_call_extent(comm, call, &reads, &writes);
  bool premul = m->user && m->user->premul, covers = !premul && !m->widened;
  size_t room = covers ? writes : reads;
  if (!grow(&op->stage, &op->stage_bytes, room * m->elem_bytes))
    return false;
  op->stage_count = writes;
  op->stage_to = call->recvbuf;
  if (covers) {
    op->out = op->stage;
    op->stage_out = COLLI_STAGE_COPY;
    return true;
  }
  return false;
}

/* What is left to do when a collective has ended well. */
void colli_call_finish(coll_request *op) {
  const char *from = op->out;
  if (op->status == COLL_OK && op->stage_count) {
    memcpy(op->stage_to, from, op->stage_count * op->elem_bytes);
  }
  op->stage_out = COLLI_STAGE_NONE;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

/* Sets what combines elements. */
static void set_kernels(const coll_comm *comm, const colli_call *call, const meaning *m,
                        coll_request *op) {
  op->average = NULL;
  op->user_fn = NULL;
  if (!colli_reduces(call->coll))
    return;
  if (m->user && !m->user->premul) {
    op->user_fn = m->user->fn;
    op->user_context = m->user->context;
    op->user_type = (coll_type)call->type;
    return;
  }
  int kernel = m->user ? COLL_SUM : call->op;
  op->reduce = comm->exec.kernels->reduce[m->type][kernel];
  if (kernel == COLL_AVG)
    op->average = comm->exec.kernels->average[m->type];
}

/* Sets the partition and the tag. */
static void set_partition(coll_comm *comm, const colli_call *call, const meaning *m,
                          const colli_plan *plan, coll_request *op) {
  size_t n = (size_t)comm->nranks, number = call->count;
  int passes = plan->partition.passes;
  if (__builtin_expect(call->varying, 0)) {
    colli_blocks blocks = {op->blocks, op->blocks + n, op->blocks + 2 * n, op->blocks + 3 * n};
    colli_partition_make_varying(&op->partition, &blocks, comm->nranks, m->elem_bytes,
                                 &comm->plans.limits);
    bool known = call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER;
    number = known ? blocks_number(comm, call->out_counts) : 0;
    passes = 0; /* differ from rank to rank */
  } else {
    op->partition = plan->partition;
  }
  op->tag = colli_tag_make(call->coll, call->varying, number, call->type, call->op, plan->root,
                           op->sequence, plan->sched->algo->id, passes);
  comm->history[op->sequence % COLLI_HISTORY] = op->tag;
}

/* Fills in a collective's request from its plan. */
coll_status colli_call_prepare(coll_comm *comm, const colli_call *call, coll_request *op,
                               bool *connected) {
  meaning m = resolve(comm, call);
  colli_plan_key key = {
      .coll = call->coll,
      .root = colli_rooted(call->coll) ? call->root : 0,
      .order = m.order,
      .in_place = call->coll == COLLI_ALLTOALL && call->sendbuf == call->recvbuf,
      .varying = call->varying,
      .count = __builtin_expect(call->varying, 0) ? typical_count(comm, call, &m) : call->count,
      .elem_bytes = m.elem_bytes,
  };
  colli_plan *plan = colli_plans_get(&comm->plans, &key, &comm->error);
  if (!plan)
    return colli_comm_refuse(comm, comm->error.status, call->name, "%s", comm->error.message);
  op->elem_bytes = m.elem_bytes;
  op->stage_out = COLLI_STAGE_NONE;
  if (call->varying && !op->kept && !copy_blocks(comm, call, op))
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name, "no memory for counts");
  op->sequence = comm->sequence + 1;
  set_buffers(comm, call, op);
  set_partition(comm, call, &m, plan, op);
  set_kernels(comm, call, &m, op);
  size_t scratch = op->partition.piece * m.elem_bytes * (size_t)plan->sched->nscratch;
  bool staged = m.widened || (m.user && m.user->premul) || over_input(comm, call);
  if (__builtin_expect(!grow(&op->scratch, &op->scratch_bytes, scratch) ||
                           (staged && !stage(comm, call, &m, op)),
                       0))
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                             "no memory for %zu bytes of scratch, or for a copy of the buffer",
                             scratch);
  comm->sequence++;
  *connected = plan->connected;
  plan->connected = true;
  op->sched = plan->sched;
  op->nranks = comm->nranks;
  return COLL_OK;
}
