/* inspect.h: queries on a communicator for programs of this project, such as coll_topo. */
#ifndef COLLI_COMM_INSPECT_H
#define COLLI_COMM_INSPECT_H

#include <stddef.h>

#include "coll/coll.h"
#include "libcoll/wireup/bootstrap.h"

#define COLLI_LINK_REASON 192 /* bytes of a reason, at most */

/*
 * How this rank reaches `peer`: *transport receives the transport's name (constant text, "self" if
 * peer is this rank), `reason` a line on why this one was chosen and why better ones were not
 * ("same host"; "shm refused: other host"). Works on a revoked communicator too. Errors:
 * INVALID_ARGUMENT (null, peer not in 0 .. nranks-1).
 */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes);

/* Like colli_comm_link(), but for a rank of the family's base. */
struct colli_family;
void colli_family_link(const struct colli_family *family, int rank, const char **transport,
                       char *reason, size_t reason_bytes);

/* The record with which `rank` described itself at creation, or NULL if there is no such rank. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank);

#endif
