/* enter.c: what every public call on a communicator begins and ends with. */
#include "libcoll/comm/call.h"
#include "libcoll/comm/comm.h"

/* Begins a public call. */
coll_status colli_call_enter(coll_comm *comm) {
  return comm ? COLL_OK : COLL_ERR_INVALID_ARGUMENT;
}

/* Ends it. */
void colli_call_leave(coll_comm *comm) {
  (void)comm;
}
