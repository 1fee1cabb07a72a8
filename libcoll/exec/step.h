/* step.h: runs the steps of a lane; internal to the executor. */
#ifndef COLLI_EXEC_STEP_H
#define COLLI_EXEC_STEP_H

#include "libcoll/exec/exec.h"

/* Records a message that a connection has accepted but not completed. */
void colli_exec_note_pending(colli_lane *lane, coll_conn *conn, uint64_t ticket, const char *buf,
                             size_t bytes);

/* Counts a message that a connection has accepted with `status`. */
static inline void colli_exec_note_sent(colli_link *link, colli_lane *lane, coll_conn *conn,
                                        int status, const char *buf, size_t bytes) {
  uint64_t ticket = ++link->posted[lane->index];
  *link->sent_bytes += bytes;
  if (__builtin_expect(status == COLL_T_PENDING, 0))
    colli_exec_note_pending(lane, conn, ticket, buf, bytes);
}

/* Address of element `done` of a chunk that begins at element `first` of one of the buffers.
 * Without elements there may be no buffer: NULL and an offset of 0, which C does not let pointers
 * add. */
static inline char *colli_exec_locate(const coll_request *op, int buf, int chunk, size_t first,
                                      size_t done) {
  if (buf == COLLI_INPUT)
    return (char *)((uintptr_t)op->in + (first - op->in_first + done) * op->elem_bytes);
  if (buf == COLLI_OUTPUT)
    return (char *)((uintptr_t)op->out + (first - op->out_first + done) * op->elem_bytes);
  size_t place = (size_t)colli_sched_place(op->sched, chunk);
  return (char *)((uintptr_t)op->scratch + (op->partition.piece * place + done) * op->elem_bytes);
}

/* Whether a step reads from a buffer. */
static inline bool colli_step_reads(const colli_step *step) {
  return !(step->bits & COLLI_RECV) || step->bits & COLLI_FOLD;
}

/* The elements that a step reads in a pass (or stores, if it reads none); *out_first is the first
 * element that it stores. */
static inline colli_range colli_exec_range(const coll_request *op, const colli_step *step, int pass,
                                           size_t *out_first) {
  const colli_partition *part = &op->partition;
  bool reads = colli_step_reads(step);
  colli_range in = colli_partition_range(part, (colli_buf)(reads ? step->src_buf : step->dst_buf),
                                         reads ? step->chunk_in : step->chunk_out, pass);
  *out_first = in.first;
  if (step->bits & COLLI_STORE && (step->chunk_out != step->chunk_in || part->blocks.in_count))
    *out_first = colli_partition_range(part, (colli_buf)step->dst_buf, step->chunk_out, pass).first;
  return in;
}

/* A lane whose pending sends overlap some memory, or NULL. Lanes share memory: what one sends,
 * another may overwrite in the next pass. */
colli_lane *colli_exec_find_pending(coll_request *op, const char *begin, size_t bytes);

/* Whether any lane has pending sends. */
static inline bool colli_exec_has_pending(const coll_request *op) {
  int npending = 0;
  for (int l = 0; l < op->sched->nlanes; l++)
    npending |= op->lane[l].npending;
  return npending != 0;
}

/* Registers INPUT or OUTPUT with the transport of a connection. */
void colli_exec_register(colli_exec *exec, coll_request *op, const coll_conn *conn, int buf);

/* Releases what was registered. */
void colli_exec_release(coll_request *op);

/* Whether a buffer is registered with a connection's transport. Registers it if that is
 * worthwhile. */
static inline bool colli_exec_registers(colli_exec *exec, coll_request *op, const coll_conn *conn,
                                        int buf) {
  if (buf == COLLI_SCRATCH || !op->extent[buf] || !coll_transport_registers(conn->ops))
    return false;
  if (!(op->registered & 1u << buf))
    colli_exec_register(exec, op, conn, buf);
  return true;
}

/* A lane begins a step: preposts the receives of the next ones. */
void colli_exec_prepost(colli_exec *exec, colli_lane *lane);

/* Notes which peer the lane waits for. */
static inline int colli_exec_block(colli_lane *lane, int peer) {
  lane->waits_for = peer;
  return COLLI_STEP_BLOCKED;
}

/* Reports a failed transport call; the operation is over then. */
int colli_exec_fail(colli_exec *exec, colli_lane *lane, int peer, int status);

/* Reports a message that belongs to another operation, which is over then. */
int colli_exec_mismatch(colli_exec *exec, colli_lane *lane, int peer, const coll_tag *got,
                        size_t got_bytes);

/* Checks that no transport still reads memory that is about to be overwritten: DONE, BLOCKED or
 * FAILED. */
int colli_exec_check_sent(colli_exec *exec, colli_lane *lane, const char *begin, size_t bytes);

/* Cuts the next slice from a step's chunk. Returns 1, or the step's result if there is none. */
int colli_exec_cut(colli_exec *exec, colli_lane *lane, const colli_step *step);

/* Runs one step of a lane as far as possible. */
int colli_exec_step(colli_exec *exec, colli_lane *lane, const colli_step *step);

/* Drops completed sends from the pending ones: 1 if none is left, 0 if some are, or
 * COLLI_STEP_FAILED. */
int colli_exec_reap(colli_exec *exec, colli_lane *lane);

/* Checks that fewer than `most` runs of sends are pending: DONE, BLOCKED or FAILED. */
static inline int colli_exec_limit_pending(colli_exec *exec, colli_lane *lane, int most) {
  if (__builtin_expect(lane->npending < most, 1))
    return COLLI_STEP_DONE;
  if (colli_exec_reap(exec, lane) < 0)
    return COLLI_STEP_FAILED;
  return lane->npending < most ? COLLI_STEP_DONE : COLLI_STEP_BLOCKED;
}

#endif
