/* comm.c: the small public calls on a communicator. */
#include "libcoll/comm/comm.h"

#include "libcoll/base/error.h"
#include "libcoll/comm/inspect.h"

coll_status coll_comm_rank(const coll_comm *comm, int *rank) {
  if (!comm || !rank)
    return COLL_ERR_INVALID_ARGUMENT;
  *rank = comm->rank;
  return COLL_OK;
}

coll_status coll_comm_nranks(const coll_comm *comm, int *nranks) {
  if (!comm || !nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  *nranks = comm->nranks;
  return COLL_OK;
}

coll_status coll_last_error(const coll_comm *comm, coll_error *error) {
  if (!comm || !error || error->size < sizeof(size_t) + sizeof(coll_status))
    return COLL_ERR_INVALID_ARGUMENT;
  colli_error_copy(error, &comm->error);
  return COLL_OK;
}

coll_status coll_comm_abort(coll_comm *comm) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  atomic_store(&comm->abort_flag, 1);
  for (int i = 0; i < comm->nports; i++)
    if (comm->ports[i].endpoint)
      comm->ports[i].ops->wake(comm->ports[i].endpoint);
  return COLL_OK;
}

/* Which transport joins this rank and `peer`, and why. */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes) {
  if (peer < 0 || peer >= comm->nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  const colli_link *link = &comm->exec.links[peer];
  *transport = link->ops ? link->ops->name : "self";
  coll_link how = {.reason = "the rank itself"};
  for (int i = 0; i < comm->nports; i++)
    if (link->ops && comm->ports[i].ops == link->ops)
      link->ops->reach(comm->table[comm->rank].blob[i], link->blob, &how);
  snprintf(reason, reason_bytes, "%s", how.reason);
  return COLL_OK;
}

/* What is known of a rank. */
const colli_rank_info *colli_comm_info(const coll_comm *comm, int rank) {
  return rank >= 0 && rank < comm->nranks ? &comm->table[rank] : NULL;
}
