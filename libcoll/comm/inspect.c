/* inspect.c: queries on a communicator for programs of this project. */
#include "libcoll/comm/inspect.h"

#include <stdio.h>

#include "libcoll/comm/comm.h"

/* Which transport connects this rank and `peer`, and why. */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes) {
  if (peer < 0 || peer >= comm->nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  const colli_family *family = comm->family;
  const colli_route *route = &family->routes[colli_comm_base_rank(comm, peer)];
  *transport = route->ops ? route->ops->name : "self";
  coll_link how = {.reason = "the rank itself"};
  for (int i = 0; i < family->nports; i++)
    if (route->ops && family->ports[i].ops == route->ops)
      route->ops->reach(family->table[family->rank].blob[i], route->blob, &how);
  snprintf(reason, reason_bytes, "%s", how.reason);
  return COLL_OK;
}

/* What is known of a rank. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank) {
  return rank >= 0 && rank < comm->nranks ? &comm->table[rank] : NULL;
}
