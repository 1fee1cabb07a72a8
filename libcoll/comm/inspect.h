/* inspect.h: what programs of this project, such as coll_topo, may ask a communicator. */
#ifndef COLLI_COMM_INSPECT_H
#define COLLI_COMM_INSPECT_H

#include <stddef.h>

#include "coll/coll.h"
#include "libcoll/wireup/bootstrap.h"

#define COLLI_LINK_REASON 192 /* bytes of a reason, at most */

/*
 * How this rank reaches `peer`: *transport receives the transport's name (constant text, "self" if
 * peer is this rank), `reason` one line on why this one was chosen and what kept the better ones
 * out ("same host"; "shm refused: other host"). Works on a revoked communicator too. Errors:
 * INVALID_ARGUMENT (null, peer not in 0 .. nranks-1).
 */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes);

/* The record that `rank` gave of itself at the start, or NULL if there is no such rank. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank);

#endif
