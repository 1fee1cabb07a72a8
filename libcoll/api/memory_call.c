/* memory_call.c: the public calls for memory of a communicator. */
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/stream/direct_register.h"

coll_status coll_mem_alloc(coll_comm *comm, size_t bytes, void **ptr) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_memory_allocate(comm, bytes, ptr);
  colli_call_leave(comm);
  return status;
}

coll_status coll_mem_free(coll_comm *comm, void *ptr) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_direct_owns(comm, ptr) ? colli_direct_mem_free(comm, ptr)
                                        : colli_memory_release(comm, ptr);
  colli_call_leave(comm);
  return status;
}
