/* inspect.h: what programs of this project (coll_topo) may ask of a communicator. */
#ifndef COLLI_COMM_INSPECT_H
#define COLLI_COMM_INSPECT_H

#include "libcoll/comm/bootstrap.h"

/* Which transport joins this rank and `peer` ("self" for itself), and why. INVALID_ARGUMENT. */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes);

/* What is known of a rank; NULL if there is no such rank. Lives as long as the communicator. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank);

#endif
