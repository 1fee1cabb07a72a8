/* inspect.c: queries on a communicator for programs of this project. */
#include "libcoll/comm/inspect.h"

#include <stdio.h>

#include "libcoll/comm/comm.h"

/* Which transport connects this rank and another one of the base, and why. */
void colli_family_link(const colli_family *family, int rank, const char **transport, char *reason,
                       size_t reason_bytes) {
  const colli_route *route = &family->routes[rank];
  *transport = route->ops ? route->ops->name : "self";
  coll_link how = {.reason = "the rank itself"};
  for (int i = 0; i < family->nports; i++)
    if (route->ops && family->ports[i].ops == route->ops)
      route->ops->reach(family->table[family->rank].blob[i], route->blob, &how);
  snprintf(reason, reason_bytes, "%s", how.reason);
}

/* Which transport connects this rank and another one of a communicator, and why. */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes) {
  if (peer < 0 || peer >= comm->nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_family_link(comm->family, colli_comm_base_rank(comm, peer), transport, reason,
                    reason_bytes);
  return COLL_OK;
}

/* What is known of a rank. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank) {
  return rank >= 0 && rank < comm->nranks ? &comm->table[rank] : NULL;
}
