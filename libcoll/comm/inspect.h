/* inspect.h: queries on a communicator for programs of this project, such as coll_topo. */
#ifndef COLLI_COMM_INSPECT_H
#define COLLI_COMM_INSPECT_H

#include <stddef.h>

#include "coll/coll.h"
#include "libcoll/tuning/choose.h"
#include "libcoll/wireup/bootstrap/bootstrap.h"

#define COLLI_LINK_REASON 192 /* bytes of a reason, at most */

/*
 * How this rank reaches `peer`: *transport receives the transport's name (constant text, "self" if
 * peer is this rank), `reason` what it says of the two ("same host", "same subnet, 2 rails"). Works
 * on a revoked communicator too. Errors: INVALID_ARGUMENT (null, peer not in 0 .. nranks-1).
 */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes);

/* The shortest round trip, in ns, that the network has had on some connection to another rank; 0:
 * unknown. Connects nothing. Not while another thread uses the communicator. */
double colli_comm_round_trip(coll_comm *comm, int peer);

/*
 * Which ways through the network messages between this rank and `peer` take, as the transport tells
 * (coll_transport_ops.paths); "" if it does not. Connects first if they are not connected, which
 * needs both ranks' calls. Returns how many ways there could be besides, which do not work or not
 * yet. Not while another thread uses the communicator.
 */
int colli_comm_paths(coll_comm *comm, int peer, char *text, size_t bytes);

/* Like colli_comm_link(), but for a rank of the family's base. */
struct colli_family;
void colli_family_link(const struct colli_family *family, int rank, const char **transport,
                       char *reason, size_t reason_bytes);

/* Says of each transport of this rank, `self`, why it does not reach a peer of the base. */
void colli_family_say_unreached(const struct colli_family *family, const colli_rank_info *self,
                                int peer, const colli_rank_info *other, char *text, size_t bytes);

/* The record with which `rank` described itself at creation. */
colli_rank_info colli_comm_info(const coll_comm *comm, int rank);

/* The first rank on a rank's host. */
int colli_comm_host(const coll_comm *comm, int rank);

/* The shape of a collective with root 0 on floats, which rank 0 sees; lives as long as the
 * communicator. */
colli_shape colli_comm_shape(const coll_comm *comm, colli_coll coll);

/* How many of the names in colli_rank_info.levels the groups of a level have (0: hosts, then
 * shape.inner[1] and so on, and shape.group last); 0: they are hosts. */
int colli_comm_level_names(const coll_comm *comm, int level);

/* What chooses the communicator's algorithms. */
colli_chooser *colli_comm_chooser(coll_comm *comm);

/*
 * What the choice of algorithms assumes that a message between two ranks of the communicator costs.
 * Links of all transports between hosts count as the slowest.
 */
colli_pair_cost colli_comm_pair_cost(const coll_comm *comm, int a, int b);

#endif
