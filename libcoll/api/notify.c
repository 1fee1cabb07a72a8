/* notify.c: what tells a program that waits elsewhere, or a thread that waits here. */
#include "libcoll/comm/comm.h"
#include "libcoll/progress/doorbell.h"

coll_status coll_wake(coll_comm *comm) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  atomic_store(&comm->entry.woken, true);
  atomic_fetch_add(&comm->family->wakes, 1);
  colli_doorbells_ring(comm->family);
  return COLL_OK;
}
