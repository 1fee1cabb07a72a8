/*
 * staged_parts.h: a long staged call is made in parts, so that the host works on some while the
 * stream copies others, and copies on the host are short. A part is a call of its own.
 */
#ifndef COLLI_STREAM_STAGED_PARTS_H
#define COLLI_STREAM_STAGED_PARTS_H

#include "libcoll/call/call.h"
#include "libcoll/comm/levels.h"

/* How long a part's input is on this communicator: all ranks find the same. */
size_t colli_staged_part_bytes(const coll_comm *comm);

/* How many parts a checked call that is staged has; 1: it is not divided. All ranks find the same,
 * wherever their buffers are. */
size_t colli_staged_parts(const coll_comm *comm, const colli_call *call);

/* The i-th of them. */
colli_call colli_staged_part(const coll_comm *comm, const colli_call *call, size_t i);

#endif
