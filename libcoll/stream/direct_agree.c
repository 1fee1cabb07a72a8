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

/* Gives every rank what each has, and serves the others meanwhile, or not (NULL). */
static coll_status gather(coll_comm *comm, const colli_direct_matter *matter, const void *mine,
                          void *all, size_t bytes, const colli_direct_service *service) {
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
  colli_comm_wait_begin(comm);
  while (service && !op->done) {
    service->work(service->context);
    colli_comm_wait_a_bit(comm, colli_now_ns() + service->every_ns);
  }
  status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

coll_status colli_direct_gather(coll_comm *comm, const colli_direct_matter *matter,
                                const void *mine, void *all, size_t bytes) {
  return gather(comm, matter, mine, all, bytes, NULL);
}

coll_status colli_direct_refuse(coll_comm *comm, const colli_direct_matter *matter,
                                coll_status status, int rank, const char *reason) {
  return colli_comm_refuse(comm, status, matter->name, "%s, says rank %d: %s", matter->otherwise,
                           rank, reason);
}

/* The first rank that has failed, which others have not left alone if possible; or -1. */
static int find_first(verdict *all, int nranks) {
  int alone = -1;
  for (int rank = nranks - 1; rank >= 0; rank--)
    if (all[rank].failed == COLL_ERR_PEER_LOST)
      alone = rank;
  for (int rank = 0; rank < nranks; rank++)
    if (all[rank].failed != COLL_OK && all[rank].failed != COLL_ERR_PEER_LOST)
      return rank;
  return alone;
}

coll_status colli_direct_agree_serving(coll_comm *comm, const colli_direct_matter *matter,
                                       coll_status mine, const coll_error *error, coll_status as,
                                       const colli_direct_service *service) {
  verdict own = {.failed = (int32_t)mine};
  verdict *all = malloc((size_t)comm->nranks * sizeof(*all));
  snprintf(own.reason, sizeof(own.reason), "%.150s", mine == COLL_OK ? "" : error->message);
  if (!all)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, matter->name, "out of memory");
  coll_status status = gather(comm, matter, &own, all, sizeof(own), service);
  const int first = status == COLL_OK ? find_first(all, comm->nranks) : -1;
  if (first >= 0 && service && all[first].failed == COLL_ERR_PEER_LOST) {
    /* Who left it alone may have failed as it served, after its verdict: now it says why. */
    status = colli_direct_agree_serving(comm, matter, error->status, error, as, NULL);
  } else if (first >= 0) {
    verdict *it = &all[first];
    it->reason[sizeof(it->reason) - 1] = 0;
    status = colli_direct_refuse(comm, matter, as == COLL_OK ? (coll_status)it->failed : as, first,
                                 it->reason);
  }
  free(all);
  return status;
}

coll_status colli_direct_agree(coll_comm *comm, const colli_direct_matter *matter, coll_status mine,
                               const coll_error *error, coll_status as) {
  return colli_direct_agree_serving(comm, matter, mine, error, as, NULL);
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
