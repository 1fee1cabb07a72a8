/* worksharing.c: offers work to the peer, and claims that of peers. */
#include "libcoll/exec/worksharing.h"

#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/step.h"

/* The work on a message (coll_work_offer.kind): bits, type and operation. */
#define KIND_LEFT       1u /* reduction: the message is the left operand */
#define KIND_STREAM     2u /* the result goes past the caches */
#define KIND_AVERAGE    4u /* ... and is divided by the number of ranks */
#define KIND_TYPE(kind) ((kind) >> 8 & 0xff)
#define KIND_OP(kind)   ((kind) >> 16 & 0xff)

/* ---- offering -------------------------------------------------------------------------------- */

/* The memory of a step's chunk. */
typedef struct span {
  const char *src; /* NULL: it reads none but its message */
  char *dst;       /* NULL: it stores nowhere */
  size_t bytes;
} span;

/* The memory of a step in a pass. */
static span memory_of_step(const coll_request *op, const colli_step *step, int pass) {
  size_t out_first;
  colli_range in = colli_exec_range(op, step, pass, &out_first);
  span s = {.bytes = in.count * op->elem_bytes};
  if (colli_step_reads(step))
    s.src = colli_exec_locate(op, step->src_buf, step->chunk_in, in.first, 0);
  if (step->bits & COLLI_STORE)
    s.dst = colli_exec_locate(op, step->dst_buf, step->chunk_out, out_first, 0);
  return s;
}

/* Sets *kind to a step's work on its messages; false if other ranks cannot do it. */
static bool kind_of(const coll_request *op, const colli_step *step, uint32_t *kind) {
  bool last = step->dst_buf == COLLI_OUTPUT && !(step->bits & COLLI_SEND);
  *kind = op->stream && last ? KIND_STREAM : 0;
  if (!(step->bits & COLLI_FOLD))
    return true;
  bool complete = step->bits & COLLI_FINAL;
  if (!complete || op->average)
    *kind = 0;
  *kind |= (step->bits & COLLI_MSG_LEFT ? KIND_LEFT : 0) |
           (complete && op->average ? KIND_AVERAGE : 0) | (uint32_t)op->reduce_type << 8 |
           (uint32_t)op->reduce_op << 16;
  return !op->user_fn && step->src_buf != COLLI_SCRATCH && op->region[step->src_buf];
}

/* Whether a step can send its received message on from where it was stored. */
static bool sends_from_dst(const colli_exec *exec, const coll_request *op, const colli_step *step) {
  if (!(step->bits & COLLI_SEND))
    return true;
  const coll_transport_ops *ops = exec->links[step->peer_send].ops;
  return ops && (ops->caps & COLL_CAP_SEND_DIRECT ||
                 (step->bits & op->by_ref && coll_transport_sends_by_ref(ops)));
}

/* How many messages a chunk takes. */
static unsigned count_messages(const coll_request *op, size_t bytes) {
  size_t slice = op->partition.slice * op->elem_bytes;
  return (unsigned)((bytes + slice - 1) / slice);
}

/* Offers the work on a step's messages, after `skip` other messages: 1, or 0 if it cannot be
 * shared. */
static int offer_step(colli_exec *exec, colli_lane *lane, const colli_step *step, const span *s,
                      unsigned skip) {
  const coll_request *op = lane->op;
  uint32_t kind;
  if (!(step->bits & COLLI_RECV) || !(step->bits & COLLI_STORE) || s->bytes == 0 ||
      step->dst_buf != COLLI_OUTPUT || !kind_of(op, step, &kind) ||
      !sends_from_dst(exec, op, step) || colli_exec_find_pending(lane->op, s->dst, s->bytes))
    return 0;
  coll_conn *conn = exec->links[step->peer_recv].conn[lane->index];
  if (!conn || !coll_transport_shares_work(conn->ops))
    return 0;
  COLLI_ASSERT_RANK(op->region[COLLI_OUTPUT] != 0 && lane->shares_work, exec->rank);
  size_t slice = op->partition.slice * op->elem_bytes;
  bool folds = step->bits & COLLI_FOLD;
  coll_work_offer offer = {.kind = kind,
                           .to_region = op->region[COLLI_OUTPUT],
                           .own_region = folds ? op->region[step->src_buf] : 0,
                           .skip = skip,
                           .to = s->dst,
                           .own = folds ? s->src : NULL,
                           .bytes = s->bytes,
                           .slice = slice < s->bytes ? slice : s->bytes};
  return conn->ops->offer_work(conn, &offer);
}

/* Whether two ranges of memory are disjoint. */
static bool are_apart(const char *a, const char *b, const span *s, const span *t) {
  return !a || !b || a + s->bytes <= b || b + t->bytes <= a;
}

/* The next step of a lane, and its pass; NULL if there is none. */
static const colli_step *next_step(const colli_lane *lane, int *pass) {
  const colli_sched *sched = lane->op->sched;
  bool again = lane->step + 1 == sched->lane_first[lane->index + 1];
  *pass = lane->pass + again;
  if (*pass == lane->op->partition.passes)
    return NULL;
  return &sched->steps[again ? sched->lane_first[lane->index] : lane->step + 1];
}

/* Offers the work of the next step, if it neither needs nor disturbs the current one. */
static int offer_next_step(colli_exec *exec, colli_lane *lane, const colli_step *step,
                           const span *now) {
  int pass;
  const colli_step *next = next_step(lane, &pass);
  if (!next || (next->dep[0] & next->dep[1]) != COLLI_NO_DEP)
    return 0;
  span s = memory_of_step(lane->op, next, pass);
  if (!are_apart(s.dst, now->src, &s, now) || !are_apart(s.dst, now->dst, &s, now) ||
      !are_apart(s.src, now->dst, &s, now))
    return 0;
  bool same = step->bits & COLLI_RECV && step->peer_recv == next->peer_recv;
  return offer_step(exec, lane, next, &s, same ? count_messages(lane->op, now->bytes) : 0);
}

void colli_worksharing_offer(colli_exec *exec, colli_lane *lane, const colli_step *step) {
  span now = memory_of_step(lane->op, step, lane->pass);
  if (!lane->offered)
    (void)offer_step(exec, lane, step, &now, 0);
  COLLI_ASSERT_RANK(lane->done == 0 && step == &lane->op->sched->steps[lane->step], exec->rank);
  lane->offered = offer_next_step(exec, lane, step, &now);
}

/* ---- claiming -------------------------------------------------------------------------------- */

/* Does the work of a kind; false if the kind is unknown. */
static bool do_work(const colli_exec *exec, const coll_work *work) {
  unsigned kind = work->kind, type = KIND_TYPE(kind), number = KIND_OP(kind);
  if (!work->own) {
    if (kind & KIND_STREAM)
      colli_copy_stream(work->to, work->payload, work->bytes);
    else
      memcpy(work->to, work->payload, work->bytes);
    return true;
  }
  if (type >= COLL_TYPE_COUNT || number >= COLL_OP_COUNT || !exec->kernels->reduce[type][number])
    return false;
  colli_reduce_fn reduce = exec->kernels->reduce[type][number];
  size_t elem_bytes = coll_type_bytes((coll_type)type), count = work->bytes / elem_bytes;
  const void *left = kind & KIND_LEFT ? work->payload : work->own;
  const void *right = kind & KIND_LEFT ? work->own : work->payload;
  if (kind & KIND_STREAM)
    colli_reduce_stream(reduce, work->to, work->to2, left, right, count, elem_bytes, true);
  else
    reduce(work->to, work->to2, left, right, count);
  if (!(kind & KIND_AVERAGE))
    return true;
  colli_average_fn average = exec->kernels->average[type];
  if (average)
    average(work->to, count, exec->nranks);
  if (average && work->to2)
    average(work->to2, count, exec->nranks);
  return average != NULL;
}

/* Claims and does one piece of work of a connection: 1 if there was any, 0, or
 * COLLI_STEP_FAILED. */
static int claim_from(colli_exec *exec, colli_lane *lane, coll_conn *conn) {
  coll_work work;
  if (!conn || !coll_transport_shares_work(conn->ops))
    return 0;
  int status = conn->ops->claim_work(conn, &work);
  if (status == COLL_T_AGAIN)
    return 0;
  if (status == COLL_T_DONE)
    status = do_work(exec, &work) ? conn->ops->finish_work(conn, &work) : COLL_ERR_PROTOCOL;
  if (status > 0) {
    exec->events->failed(exec->ctx, lane->op, conn->peer, lane->index, lane->step,
                         (coll_status)status);
    return COLLI_STEP_FAILED;
  }
  lane->op->moved = true;
  return 1;
}

int colli_worksharing_claim(colli_exec *exec) {
  for (unsigned active = exec->active; active; active &= active - 1) {
    colli_lane *lane = exec->head[__builtin_ctz(active)];
    const coll_conn *tried = NULL;
    int result = 0;
    if (lane->shares_work && lane->pass < lane->op->partition.passes) {
      const colli_step *step = &lane->op->sched->steps[lane->step];
      coll_conn *conn =
          step->bits & COLLI_RECV ? exec->links[step->peer_recv].conn[lane->index] : NULL;
      result = claim_from(exec, lane, conn);
      tried = conn;
    }
    for (int i = 0; i < lane->npending && result == 0; i++) {
      coll_conn *conn = lane->pending[i].conn;
      if (lane->pending[i].begin && conn != tried)
        result = claim_from(exec, lane, conn);
      tried = conn;
    }
    if (result != 0)
      return result;
  }
  return 0;
}
