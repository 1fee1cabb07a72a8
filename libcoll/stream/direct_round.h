/*
 * direct_round.h: what the files that put a call in GPU memory into a stream share: its shape, and
 * the parts of a round.
 */
#ifndef COLLI_STREAM_DIRECT_ROUND_H
#define COLLI_STREAM_DIRECT_ROUND_H

#include "libcoll/comm/comm.h"
#include "libcoll/stream/direct_call.h"

/* One round of a call. */
typedef struct colli_direct_round {
  colli_direct_call *it;
  colli_gpu_passage *passage;
  coll_error *error;
  int slot;
  size_t first; /* bytes of each block in earlier rounds */
} colli_direct_round;

/* ---- direct_shape.c -------------------------------------------------------------------------- */

/* Bytes of an element. */
size_t colli_direct_elem(const colli_call *call);

/* A block of input (where there are parts) or result: its first byte and its length. */
size_t colli_direct_block(const colli_direct_call *it, bool of_input, size_t i, size_t *bytes);

/* Where the i-th block of input begins in the copy of input on the host, in which no gaps are. */
size_t colli_direct_packed(const colli_direct_call *it, size_t i);

/* The longest block of all ranks, which all of them know. */
size_t colli_direct_longest(const colli_direct_call *it);

/* Whether this rank's buffers overlap. */
bool colli_direct_overlap(const colli_direct_call *it);

/* What of a block is in a round. */
size_t colli_direct_in_round(const colli_direct_round *r, size_t bytes);

/* ---- direct_put.c ---------------------------------------------------------------------------- */

/* The address of this rank's input, or of its result, for copies and kernels. */
uint64_t colli_direct_input(const colli_direct_call *it);
uint64_t colli_direct_result(const colli_direct_call *it);

/* Lets all ranks meet. Errors: those of colli_direct_put_meet(). */
coll_status colli_direct_meet(const colli_direct_round *r);

/* The slot of the next round. */
int colli_direct_next_slot(const colli_direct_round *r);

/* Copies bytes in the stream. Errors of this and the next: SYSTEM, NO_MEMORY. */
coll_status colli_direct_put_copy(const colli_direct_round *r, uint64_t to, uint64_t from,
                                  size_t bytes);

/* Copies pieces by a kernel, which does nothing if the guard's words are not 0. */
coll_status colli_direct_put_pieces(const colli_direct_round *r,
                                    const struct coll_gpu_piece *pieces, size_t count,
                                    uint64_t guard);

/* Folds `bytes` at `offset` of the slots of ranks [0, end), or of their registered inputs, into
 * `to`, in the call's order. The guard is that of its kernels. */
coll_status colli_direct_put_fold(const colli_direct_round *r, int end, size_t offset, uint64_t to,
                                  size_t bytes, uint64_t guard);

#endif
