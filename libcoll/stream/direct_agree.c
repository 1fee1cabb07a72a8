/* direct_agree.c: all ranks find out what all of them can. */
#include "libcoll/stream/direct_agree.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/comm/pool.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/run.h"

/* What each rank says once it has tried. */
typedef struct verdict {
  int32_t failed; /* coll_status */
  char reason[156];
} verdict;

coll_status colli_direct_gather(coll_comm *comm, const colli_direct_matter *matter,
                                const void *mine, void *all, size_t bytes) {
  const colli_call call = {.name = matter->name,
                           .coll = COLLI_ALLGATHER,
                           .sendbuf = mine,
                           .recvbuf = all,
                           .count = bytes,
                           .type = COLL_UINT8,
                           .op = (coll_op)matter->makes,
                           .on_host = true};
  coll_request *op;
  coll_status status = colli_call_start(comm, &call, &op);
  if (status != COLL_OK)
    return status;
  status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

coll_status colli_direct_refuse(coll_comm *comm, const colli_direct_matter *matter,
                                coll_status status, int rank, const char *reason) {
  return colli_comm_refuse(comm, status, matter->name, "%s, says rank %d: %s", matter->otherwise,
                           rank, reason);
}

coll_status colli_direct_agree(coll_comm *comm, const colli_direct_matter *matter, coll_status mine,
                               const coll_error *error, coll_status as) {
  verdict own = {.failed = (int32_t)mine};
  verdict *all = malloc((size_t)comm->nranks * sizeof(*all));
  snprintf(own.reason, sizeof(own.reason), "%.150s", mine == COLL_OK ? "" : error->message);
  if (!all)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, matter->name, "out of memory");
  coll_status status = colli_direct_gather(comm, matter, &own, all, sizeof(own));
  for (int rank = 0; rank < comm->nranks && status == COLL_OK; rank++) {
    verdict *it = &all[rank];
    it->reason[sizeof(it->reason) - 1] = 0;
    if (it->failed != COLL_OK)
      status = colli_direct_refuse(comm, matter, as == COLL_OK ? (coll_status)it->failed : as, rank,
                                   it->reason);
  }
  free(all);
  return status;
}

bool colli_direct_await(coll_comm *comm, const colli_direct_matter *matter, uint64_t limit_ns) {
  const colli_call call = {
      .name = matter->name, .coll = COLLI_BARRIER, .op = (coll_op)matter->makes, .on_host = true};
  coll_request *op;
  if (comm->failure.status != COLL_OK || colli_call_start(comm, &call, &op) != COLL_OK)
    return false;
  const uint64_t until_ns = colli_now_ns() + limit_ns;
  colli_comm_wait_begin(comm);
  while (!op->done && colli_now_ns() < until_ns)
    colli_comm_wait_a_bit(comm, until_ns);
  const bool all = op->done && op->status == COLL_OK;
  if (op->done)
    colli_request_put(op); /* else it ends with the communicator */
  return all;
}
