/*
 * staged_parts.h: a long staged call is made in parts, so that the host works on some while the
 * stream copies others, and copies on the host are short. A part is a call of its own: on the next
 * elements of the vector, or of each block if there are equal blocks, one for each rank. These lie
 * apart in the caller's buffers, and follow each other in copies (run/gpu_stage.h).
 */
#ifndef COLLI_STREAM_STAGED_PARTS_H
#define COLLI_STREAM_STAGED_PARTS_H

#include "libcoll/call/call.h"
#include "libcoll/comm/levels.h"

/*
 * How long a part is on this communicator: all ranks find the same. Where there are blocks, this is
 * the length of all its pieces together, so it bounds both the input's and the result's copy. But a
 * piece is not shorter than 4 KiB (or the whole part), because the messages would be too short:
 * then copies are longer, by the number of ranks.
 */
size_t colli_staged_part_bytes(const coll_comm *comm);

/* The shortest slot of a rank. */
size_t colli_staged_least_slot(const coll_comm *comm);

/* How many parts a checked call that is staged has; 1: it is not divided. All ranks find the same,
 * wherever their buffers are. */
size_t colli_staged_parts(const coll_comm *comm, const colli_call *call);

/* The i-th of them. */
colli_call colli_staged_part(const coll_comm *comm, const colli_call *call, size_t i);

#endif
