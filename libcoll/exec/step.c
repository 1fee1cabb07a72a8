/* step.c: runs one step of a schedule, slice by slice, over the connections it names. */
#include "libcoll/exec/step.h"

#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/connect.h"
#include "libcoll/exec/worksharing.h"

int colli_exec_fail(colli_exec *exec, colli_lane *lane, int peer, int status) {
  exec->events->failed(exec->ctx, lane->op, peer, lane->index, lane->step, (coll_status)status);
  return COLLI_STEP_FAILED;
}

/* Drops completed sends from the pending ones: 1 if none is left, 0 if some are, or
 * COLLI_STEP_FAILED. */
int colli_exec_reap(colli_exec *exec, colli_lane *lane) {
  COLLI_ASSERT_RANK(lane->npending >= 0 && lane->npending <= COLLI_MAX_PENDING, exec->rank);
  int kept = 0;
  for (int i = 0; i < lane->npending; i++) {
    colli_pending *pending = &lane->pending[i];
    uint64_t count = 0;
    int status = pending->conn->ops->sent(pending->conn, &count);
    if (status > 0)
      return colli_exec_fail(exec, lane, pending->conn->peer, status);
    if (count >= pending->ticket)
      continue;
    if (count >= pending->first && pending->begin) {
      pending->begin += (count - pending->first + 1) * pending->slice;
      pending->first = count + 1;
    }
    lane->pending[kept++] = *pending;
  }
  lane->npending = kept;
  if (kept > 0)
    lane->waits_for = lane->pending[0].conn->peer;
  return kept == 0;
}

int colli_exec_check_sent(colli_exec *exec, colli_lane *lane, const char *begin, size_t bytes) {
  colli_lane *other = colli_exec_find_pending(lane->op, begin, bytes);
  for (const colli_lane *last = NULL; other && other != last;) {
    const int waits_for = other->waits_for;
    if (colli_exec_reap(exec, other) < 0)
      return COLLI_STEP_FAILED;
    other->waits_for = waits_for;
    last = other;
    other = colli_exec_find_pending(lane->op, begin, bytes);
  }
  return other ? colli_exec_block(lane, other->pending[0].conn->peer) : COLLI_STEP_DONE;
}

/* The region of `buf` from which a step's message may be sent by reference; 0 if none. */
static inline uint32_t region_by_ref(const coll_request *op, const colli_step *step, int buf,
                                     const coll_transport_ops *ops) {
  bool may = step->bits & op->by_ref && buf != COLLI_SCRATCH && coll_transport_sends_by_ref(ops);
  return may ? op->region[buf] : 0;
}

/* Sends a slice from memory in one of the buffers. */
static inline int send_slice(colli_exec *exec, colli_lane *lane, const colli_step *step, int from,
                             const char *buf, size_t bytes) {
  COLLI_ASSERT_RANK(step->bits & COLLI_SEND && step->lane == lane->index, exec->rank);
  COLLI_ASSERT_RANK(bytes == lane->slice.bytes, exec->rank);
  coll_request *op = lane->op;
  coll_conn *conn = colli_exec_conn(exec, lane->op, step->peer_send, lane->index);
  if (!conn)
    return COLLI_STEP_FAILED;
  (void)colli_exec_registers(exec, op, conn, from);
  uint32_t region = region_by_ref(op, step, from, conn->ops);
  int ready = colli_exec_limit_pending(exec, lane, region ? COLLI_MAX_BY_REF : COLLI_MAX_PENDING);
  if (region && ready == COLLI_STEP_BLOCKED)
    region = 0; /* this lane must not wait for the peer, which may wait for this lane's next step */
  else if (ready != COLLI_STEP_DONE)
    return ready;
  int status = region ? conn->ops->send_ref(conn, &op->tag, region, buf, bytes)
                      : conn->ops->send(conn, &op->tag, buf, bytes);
  if (status == COLL_T_AGAIN)
    return colli_exec_block(lane, step->peer_send);
  if (status > 0)
    return colli_exec_fail(exec, lane, step->peer_send, status);
  colli_exec_note_sent(&exec->links[step->peer_send], lane, conn, status, buf, bytes);
  return COLLI_STEP_DONE;
}

int colli_exec_mismatch(colli_exec *exec, colli_lane *lane, int peer, const coll_tag *got,
                        size_t got_bytes) {
  exec->events->mismatch(exec->ctx, lane->op, peer, got, got_bytes);
  return COLLI_STEP_FAILED;
}

/* Copies a slice of a step; past the caches if they are too small for it and it is not sent on from
 * dst. */
static inline void copy_slice(const coll_request *op, const colli_step *step, const colli_slice *s,
                              const void *from, bool sent_on) {
  if (__builtin_expect(op->stream, 0) && step->dst_buf == COLLI_OUTPUT && !sent_on)
    colli_copy_stream(s->dst, from, s->bytes);
  else
    memcpy(s->dst, from, s->bytes);
}

/* Receives, past the caches, a slice that is not sent on from where it arrived. */
static int receive_past_caches(colli_exec *exec, colli_lane *lane, const colli_step *step,
                               const colli_slice *s, coll_conn *conn) {
  coll_tag got;
  const void *msg;
  size_t bytes;
  int status = conn->ops->slot_peek(conn, &got, &msg, &bytes);
  if (status == COLL_T_AGAIN)
    return colli_exec_block(lane, step->peer_recv);
  if (status > 0)
    return colli_exec_fail(exec, lane, step->peer_recv, status);
  if (memcmp(&got, &lane->op->tag, sizeof(got)) != 0 || bytes != s->bytes)
    return colli_exec_mismatch(exec, lane, step->peer_recv, &got, bytes);
  if (msg)
    copy_slice(lane->op, step, s, msg, false);
  status = conn->ops->slot_release(conn);
  return status > 0 ? colli_exec_fail(exec, lane, step->peer_recv, status) : COLLI_STEP_DONE;
}

/* Receives a slice straight into dst, and sends it on from there if the step says so. */
static inline int receive_slice(colli_exec *exec, colli_lane *lane, const colli_step *step,
                                const colli_slice *s) {
  COLLI_ASSERT_RANK(step->bits & COLLI_RECV && !(step->bits & COLLI_FOLD), exec->rank);
  COLLI_ASSERT_RANK(!lane->received || step->bits & COLLI_SEND, exec->rank);
  if (!lane->received) {
    coll_conn *conn = colli_exec_conn(exec, lane->op, step->peer_recv, lane->index);
    if (!conn)
      return COLLI_STEP_FAILED;
    /* A preposted message may already be in dst; recv() knows. */
    bool in_slots = !(conn->ops->caps & COLL_CAP_SEND_DIRECT) && !coll_transport_expects(conn->ops);
    if (__builtin_expect(lane->op->stream, 0) && in_slots && !(step->bits & COLLI_SEND))
      return receive_past_caches(exec, lane, step, s, conn);
    coll_tag got;
    size_t got_bytes;
    int status = conn->ops->recv(conn, &lane->op->tag, s->dst, s->bytes, &got, &got_bytes);
    if (status == COLL_T_AGAIN)
      return colli_exec_block(lane, step->peer_recv);
    if (status == COLL_ERR_MISMATCH)
      return colli_exec_mismatch(exec, lane, step->peer_recv, &got, got_bytes);
    if (status > 0)
      return colli_exec_fail(exec, lane, step->peer_recv, status);
    if (!(step->bits & COLLI_SEND))
      return COLLI_STEP_DONE;
    lane->received = true;
  }
  int result = send_slice(exec, lane, step, step->dst_buf, s->dst, s->bytes);
  if (result == COLLI_STEP_DONE)
    lane->received = false;
  return result;
}

/* Whether a step's result is final and not sent on, so that nobody reads it soon. */
static bool is_final_result(const colli_step *step) {
  return step->bits & COLLI_FINAL && step->dst_buf == COLLI_OUTPUT && !(step->bits & COLLI_SEND);
}

/* Stores v = own op message (or message op own) to `to` and to2; applies the final step (AVG) if
 * FINAL. */
static inline void combine_slice(const coll_request *op, const colli_step *step,
                                 const colli_slice *s, const void *msg, void *to, void *to2) {
  const void *left = (step->bits & COLLI_MSG_LEFT) ? msg : s->src;
  const void *right = (step->bits & COLLI_MSG_LEFT) ? s->src : msg;
  if (__builtin_expect(op->user_fn != NULL, 0)) {
    op->user_fn(left, right, to, s->count, op->user_type, op->user_context);
    if (to2)
      memcpy(to2, to, s->bytes);
    return;
  }
  bool average = op->average && (step->bits & COLLI_FINAL);
  if (__builtin_expect(op->stream, 0) && !average && is_final_result(step))
    colli_reduce_stream(op->reduce, to, to2, left, right, s->count, op->elem_bytes, false);
  else
    op->reduce(to, to2, left, right, s->count);
  if (__builtin_expect(average, 0)) {
    op->average(to, s->count, op->nranks);
    if (to2)
      op->average(to2, s->count, op->nranks);
  }
}

/*
 * Prepares to send the result of a step's reduction: *out is the connection, *slot the slot that
 * gets the result, or NULL if it is sent from dst.
 */
static inline int open_output(colli_exec *exec, colli_lane *lane, const colli_step *step,
                              const colli_slice *s, coll_conn **out, void **slot) {
  coll_request *op = lane->op;
  int ready = colli_exec_limit_pending(exec, lane, COLLI_MAX_PENDING);
  if (ready != COLLI_STEP_DONE)
    return ready;
  coll_conn *conn = *out = colli_exec_conn(exec, op, step->peer_send, lane->index);
  if (!conn)
    return COLLI_STEP_FAILED;
  bool direct = conn->ops->caps & COLL_CAP_SEND_DIRECT ||
                region_by_ref(op, step, step->dst_buf, conn->ops) ||
                colli_exec_registers(exec, op, conn, step->dst_buf);
  if (s->dst && direct)
    return COLLI_STEP_DONE;
  int status = conn->ops->slot_acquire(conn, s->bytes, slot);
  if (status == COLL_T_AGAIN)
    return colli_exec_block(lane, step->peer_send);
  return status > 0 ? colli_exec_fail(exec, lane, step->peer_send, status) : COLLI_STEP_DONE;
}

/*
 * Reduces the next message where it arrived. The result goes to dst, to the outgoing slot, or to
 * both in one pass. If the transport sends from any memory, it is sent from dst.
 */
static inline int reduce_slice(colli_exec *exec, colli_lane *lane, const colli_step *step,
                               const colli_slice *s) {
  coll_request *op = lane->op;
  COLLI_ASSERT_RANK(!lane->received || (step->bits & COLLI_SEND && s->dst), exec->rank);
  COLLI_ASSERT_RANK(s->src && (s->dst || step->bits & COLLI_SEND), exec->rank);
  bool sends = step->bits & COLLI_SEND;
  if (!lane->received) {
    coll_conn *in = colli_exec_conn(exec, op, step->peer_recv, lane->index);
    if (!in)
      return COLLI_STEP_FAILED;
    coll_tag got;
    const void *msg;
    size_t bytes;
    int status = in->ops->slot_peek(in, &got, &msg, &bytes);
    if (status == COLL_T_AGAIN)
      return colli_exec_block(lane, step->peer_recv);
    if (status > 0)
      return colli_exec_fail(exec, lane, step->peer_recv, status);
    if (memcmp(&got, &op->tag, sizeof(got)) != 0 || bytes != s->bytes)
      return colli_exec_mismatch(exec, lane, step->peer_recv, &got, bytes);
    coll_conn *out = NULL;
    void *slot = NULL;
    if (sends) {
      int result = open_output(exec, lane, step, s, &out, &slot);
      if (result != COLLI_STEP_DONE)
        return result;
    }
    if (msg)
      combine_slice(op, step, s, msg, s->dst ? s->dst : slot, s->dst ? slot : NULL);
    status = in->ops->slot_release(in);
    if (status > 0)
      return colli_exec_fail(exec, lane, step->peer_recv, status);
    if (!sends)
      return COLLI_STEP_DONE;
    if (slot) {
      status = out->ops->slot_commit(out, &op->tag, s->bytes);
      if (status > 0)
        return colli_exec_fail(exec, lane, step->peer_send, status);
      colli_exec_note_sent(&exec->links[step->peer_send], lane, out, status, NULL, s->bytes);
      return COLLI_STEP_DONE;
    }
    lane->received = true;
  }
  int result = send_slice(exec, lane, step, step->dst_buf, s->dst, s->bytes);
  if (result == COLLI_STEP_DONE)
    lane->received = false;
  return result;
}

/* The local work of a step without a message, before it sends or (ahead) after that. */
static void do_local_work(const coll_request *op, const colli_step *step, const colli_slice *s,
                          bool ahead) {
  if (step->bits & COLLI_FOLD) {
    combine_slice(op, step, &(colli_slice){s->dst, s->dst, s->count, s->bytes}, s->src, s->dst,
                  NULL);
  } else if (step->bits & COLLI_STORE && s->dst != s->src) {
    copy_slice(op, step, s, s->src, step->bits & COLLI_SEND && !ahead);
    if (op->average && step->bits & COLLI_FINAL)
      op->average(s->dst, s->count, op->nranks);
  }
}

/*
 * A step without a message: copies or reduces from one buffer to another, and may send. A copy from
 * input to output is sent first, so that the peer need not wait for the copy and, by reference,
 * reads data that stays in the caches of both.
 */
static int local_slice(colli_exec *exec, colli_lane *lane, const colli_step *step,
                       const colli_slice *s) {
  const coll_request *op = lane->op;
  bool sends = step->bits & COLLI_SEND, stores = step->bits & COLLI_STORE;
  bool ahead = sends && stores && step->src_buf == COLLI_INPUT && step->dst_buf == COLLI_OUTPUT &&
               s->dst != s->src && !(step->bits & (COLLI_FOLD | COLLI_FINAL));
  if (!ahead && !lane->received)
    do_local_work(op, step, s, false);
  if (!sends)
    return COLLI_STEP_DONE;
  bool kept = stores && !ahead;
  int result = send_slice(exec, lane, step, kept ? step->dst_buf : step->src_buf,
                          kept ? s->dst : s->src, s->bytes);
  lane->received = !ahead && result != COLLI_STEP_DONE;
  if (ahead && result == COLLI_STEP_DONE)
    do_local_work(op, step, s, true);
  return result;
}

/* Whether the step's deps are done. */
static bool deps_done(const colli_lane *lane, const colli_step *step) {
  for (int i = 0; i < 2; i++) {
    if (step->dep[i] == COLLI_NO_DEP)
      continue;
    const coll_request *op = lane->op;
    const colli_lane *other = &op->lane[op->sched->steps[step->dep[i]].lane];
    COLLI_ASSERT(step->dep[i] >= 0 && step->dep[i] < op->sched->nsteps && other != lane);
    if (other->pass < lane->pass || (other->pass == lane->pass && other->step <= step->dep[i]))
      return false;
  }
  return true;
}

/* colli_exec_cut() for this file. */
__attribute__((always_inline)) static inline int cut_slice(colli_exec *exec, colli_lane *lane,
                                                           const colli_step *step) {
  const coll_request *op = lane->op;
  const colli_partition *part = &op->partition;
  if ((step->dep[0] & step->dep[1]) != COLLI_NO_DEP && !deps_done(lane, step)) {
    lane->waits_for = -1;
    return COLLI_STEP_BLOCKED;
  }
  if (__builtin_expect(op->extent[COLLI_OUTPUT] != 0, 0) && lane->done == 0)
    colli_exec_prepost(exec, lane);
  COLLI_ASSERT_RANK(lane->pass < part->passes && !lane->received, exec->rank);
  bool reads = colli_step_reads(step), stores = step->bits & COLLI_STORE;
  size_t out_first;
  colli_range in = colli_exec_range(op, step, lane->pass, &out_first);
  if (in.count == 0 && op->coll != COLLI_BARRIER)
    return COLLI_STEP_DONE;
  COLLI_ASSERT_RANK(lane->done < in.count || (in.count == 0 && lane->done == 0), exec->rank);
  colli_slice *s = &lane->slice;
  s->count = in.count - lane->done < part->slice ? in.count - lane->done : part->slice;
  s->bytes = s->count * op->elem_bytes;
  s->src =
      reads ? colli_exec_locate(op, step->src_buf, step->chunk_in, in.first, lane->done) : NULL;
  s->dst =
      stores ? colli_exec_locate(op, step->dst_buf, step->chunk_out, out_first, lane->done) : NULL;
  if (stores && colli_exec_has_pending(op)) {
    int result = colli_exec_check_sent(exec, lane, s->dst, s->bytes);
    if (result != COLLI_STEP_DONE)
      return result;
  }
  if (__builtin_expect(lane->shares_work, 0) && lane->done == 0)
    colli_worksharing_offer(exec, lane, step);
  lane->total = in.count;
  lane->cut = true;
  return 1;
}

int colli_exec_cut(colli_exec *exec, colli_lane *lane, const colli_step *step) {
  return cut_slice(exec, lane, step);
}

/* Runs one step of a lane as far as possible. The state of a slice is kept while it waits. */
int colli_exec_step(colli_exec *exec, colli_lane *lane, const colli_step *step) {
  const colli_slice *s = &lane->slice;
  do {
    int result = lane->cut ? 1 : cut_slice(exec, lane, step);
    if (result <= 0)
      return result;
    if (!(step->bits & COLLI_RECV))
      result = local_slice(exec, lane, step, s);
    else if (step->bits & COLLI_FOLD)
      result = reduce_slice(exec, lane, step, s);
    else
      result = receive_slice(exec, lane, step, s);
    if (result != COLLI_STEP_DONE)
      return result;
    lane->cut = false;
    lane->done += s->count;
    COLLI_ASSERT_RANK(lane->done <= lane->total, exec->rank);
  } while (lane->done < lane->total);
  return COLLI_STEP_DONE;
}
