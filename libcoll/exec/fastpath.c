/* fastpath.c: writes out fast steps, runs them, and hands over to the executor. */
#include "libcoll/exec/fastpath.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/exec/step.h"

#define MAX_STEPS       32   /* with more, the executor's overhead hardly matters */
#define EXCHANGE_BYTES  4096 /* see pause_for_peer() */
#define EXCHANGE_PAUSES 2

/* ---- making ---------------------------------------------------------------------------------- */

/* The lane in which all steps are, or -1. */
static int only_lane(const colli_sched *sched) {
  int only = -1;
  for (int l = 0; l < sched->nlanes; l++)
    if (sched->lane_first[l] < sched->lane_first[l + 1])
      only = only == -1 ? l : -2;
  return only < 0 ? -1 : only;
}

/* Whether the fast path can do a step of this kind. */
static bool is_fast(const colli_step *step) {
  unsigned bits = step->bits;
  if (bits & COLLI_RECV)
    return !(bits & COLLI_SEND) && (!(bits & COLLI_FOLD) || bits & COLLI_STORE);
  return !(bits & COLLI_FOLD);
}

/* Adds the slices of a step; if they do not fit, adds none and returns false. */
static bool add_step(colli_fastpath *fastpath, const colli_sched *sched, int index,
                     const colli_partition *part, size_t elem_bytes, const size_t first[2]) {
  const colli_step *step = &sched->steps[index];
  bool reads = colli_step_reads(step);
  bool stores = step->bits & COLLI_STORE;
  colli_range in = colli_partition_range(part, (colli_buf)(reads ? step->src_buf : step->dst_buf),
                                         reads ? step->chunk_in : step->chunk_out, 0);
  colli_range out = colli_partition_range(part, (colli_buf)step->dst_buf, step->chunk_out, 0);
  size_t done = 0;
  int before = fastpath->count;
  if (in.count == 0 && sched->coll != COLLI_BARRIER)
    return true;
  do {
    if (fastpath->count == MAX_STEPS) {
      fastpath->count = before; /* the executor begins with a whole step */
      return false;
    }
    size_t count = in.count - done < part->slice ? in.count - done : part->slice;
    fastpath->steps[fastpath->count++] = (colli_fastpath_step){
        .bits = step->bits,
        .peer = step->bits & COLLI_RECV ? step->peer_recv : step->peer_send,
        .src_in = step->src_buf == COLLI_INPUT,
        .dst_in = step->dst_buf == COLLI_INPUT,
        .src = reads ? (in.first - first[step->src_buf] + done) * elem_bytes : 0,
        .dst = stores ? (out.first - first[step->dst_buf] + done) * elem_bytes : 0,
        .count = count,
        .bytes = count * elem_bytes,
        .sched_step = index,
        .sched_done = done,
    };
    if (count * elem_bytes > fastpath->longest)
      fastpath->longest = count * elem_bytes;
    done += count;
  } while (done < in.count);
  return true;
}

bool colli_fastpath_make(colli_fastpath **made, const colli_sched *sched,
                         const colli_partition *partition, size_t elem_bytes, size_t in_first,
                         size_t out_first) {
  int lane = only_lane(sched);
  if (lane < 0 || partition->passes != 1 || partition->blocks.in_count || sched->nscratch)
    return false;
  if (!*made)
    *made = malloc(sizeof(**made) + MAX_STEPS * sizeof(colli_fastpath_step));
  colli_fastpath *fastpath = *made;
  if (!fastpath)
    return false;
  *fastpath = (colli_fastpath){.lane = lane, .whole = true};
  const size_t first[2] = {in_first, out_first};
  int end = sched->lane_first[lane + 1];
  for (int i = sched->lane_first[lane]; i < end && fastpath->whole; i++)
    fastpath->whole =
        is_fast(&sched->steps[i]) && add_step(fastpath, sched, i, partition, elem_bytes, first);
  COLLI_ASSERT(fastpath->count <= MAX_STEPS && fastpath->longest <= partition->slice * elem_bytes);
  return fastpath->count > 0;
}

bool colli_fastpath_can(const colli_exec *exec, const colli_fastpath *fastpath) {
  for (int i = 0; i < fastpath->count; i++) {
    int peer = fastpath->steps[i].peer;
    if (peer < 0)
      continue;
    const coll_conn *conn = exec->links[peer].conn[fastpath->lane];
    if (!conn || (conn->ops->caps & (COLL_CAP_SPIN | COLL_CAP_SEND_DIRECT)) != COLL_CAP_SPIN ||
        (fastpath->longest >= COLLI_REGISTER_MIN_BYTES && coll_transport_registers(conn->ops)))
      return false;
  }
  return true;
}

/* ---- running --------------------------------------------------------------------------------- */

/* An address in a buffer; a rank whose buffer is NULL does not use it. */
static inline char *address(const void *base, size_t offset) {
  return (char *)((uintptr_t)base + offset);
}

/* Whether a message is the expected one. */
static inline bool is_expected(const coll_tag *got, const coll_tag *tag) {
  return !((got->word[0] ^ tag->word[0]) | (got->word[1] ^ tag->word[1]) |
           (got->word[2] ^ tag->word[2]));
}

/* Combines the next message with the data at src. Also false on errors: the executor will hit and
 * report them. */
static inline bool fold_message(coll_conn *conn, const colli_fastpath_step *step,
                                const colli_fastpath_call *call, const char *src, char *dst) {
  coll_tag got;
  const void *msg;
  size_t bytes;
  int status;
  for (unsigned left = call->polls;
       (status = conn->ops->slot_peek(conn, &got, &msg, &bytes)) == COLL_T_AGAIN && left; left--)
    colli_cpu_relax();
  if (status != COLL_T_DONE || bytes != step->bytes || !is_expected(&got, call->tag))
    return false;
  bool left = step->bits & COLLI_MSG_LEFT;
  call->reduce(dst, NULL, left ? msg : src, left ? src : msg, step->count);
  return conn->ops->slot_release(conn) == COLL_T_DONE;
}

/* Receives the next message to dst. */
static inline bool receive_message(coll_conn *conn, const colli_fastpath_step *step,
                                   const colli_fastpath_call *call, char *dst) {
  coll_tag got;
  size_t got_bytes;
  int status;
  for (unsigned left = call->polls; (status = conn->ops->recv(conn, call->tag, dst, step->bytes,
                                                              &got, &got_bytes)) == COLL_T_AGAIN &&
                                    left;
       left--)
    colli_cpu_relax(); /* polling without a pause would take the cache line from the writer */
  return status == COLL_T_DONE;
}

/* Sends from src before it copies to dst, so that the peer need not wait for the copy. */
static inline bool send_message(colli_link *link, colli_lane *lane, coll_conn *conn,
                                const colli_fastpath_step *step, const colli_fastpath_call *call,
                                const char *src, char *dst) {
  int status = conn->ops->send(conn, call->tag, src, step->bytes);
  if (status != COLL_T_DONE && status != COLL_T_PENDING)
    return false;
  colli_exec_note_sent(link, lane, conn, status, src, step->bytes);
  if (step->bits & COLLI_STORE && dst != src)
    memcpy(dst, src, step->bytes);
  return true;
}

/*
 * Gives a peer that sends as much at the same time a moment to finish. A rank that has just sent,
 * and had nothing to copy meanwhile, would otherwise poll too early and take away the cache line
 * that the peer is about to write (0.02 us of 0.24 for 8 KiB).
 */
static inline void pause_for_peer(const colli_fastpath_step *step,
                                  const colli_fastpath_call *call) {
  for (int i = 0; call->polls && step->bytes >= EXCHANGE_BYTES && i < EXCHANGE_PAUSES; i++)
    colli_cpu_relax();
}

int colli_fastpath_run(colli_exec *exec, const colli_fastpath *fastpath,
                       const colli_fastpath_call *call, coll_request *op) {
  colli_lane *lane = &op->lane[fastpath->lane];
  lane->index = fastpath->lane;
  lane->npending = 0;
  int ran = 0;
  bool sent = false; /* the step before sent, and copied nothing */
  for (const colli_fastpath_step *step = fastpath->steps; ran < fastpath->count; ran++, step++) {
    const char *src = address(step->src_in ? call->in : call->out, step->src);
    char *dst = address(step->dst_in ? call->in : call->out, step->dst);
    if (step->peer < 0) {
      if (dst != src) {
        memcpy(dst, src, step->bytes);
        sent = false;
      }
      continue;
    }
    colli_link *link = &exec->links[step->peer];
    coll_conn *conn = link->conn[fastpath->lane];
    COLLI_ASSERT_RANK(conn && conn->peer == step->peer, exec->rank);
    if (sent && step->bits & COLLI_RECV)
      pause_for_peer(step, call);
    sent = step->bits & COLLI_SEND && (dst == src || !(step->bits & COLLI_STORE));
    bool went = !(step->bits & COLLI_RECV) ? send_message(link, lane, conn, step, call, src, dst)
                : step->bits & COLLI_FOLD  ? fold_message(conn, step, call, src, dst)
                                           : receive_message(conn, step, call, dst);
    if (!went)
      break;
    if (lane->npending)
      return ran + 1; /* its buffer may be one that a later step stores to */
  }
  return ran;
}

void colli_fastpath_resume(colli_exec *exec, const colli_fastpath *fastpath, int ran,
                           coll_request *op) {
  colli_lane *lane = &op->lane[fastpath->lane];
  int npending = lane->npending;
  COLLI_ASSERT_RANK(ran >= 0 && ran <= fastpath->count && op->partition.passes == 1, exec->rank);
  colli_exec_start(exec, op);
  lane->npending = npending;
  if (ran < fastpath->count) {
    lane->step = fastpath->steps[ran].sched_step;
    lane->done = fastpath->steps[ran].sched_done;
  } else if (fastpath->whole) {
    lane->pass = op->partition.passes;
  } else {
    lane->step = fastpath->steps[ran - 1].sched_step + 1;
  }
}
