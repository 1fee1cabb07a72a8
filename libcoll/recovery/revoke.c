/* revoke.c: coll_comm_revoke: ends a communicator on all ranks, so that they can shrink it. */
#include <poll.h>
#include <stdio.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/enter.h"

#define FLUSH_NS (100 * COLLI_NS_PER_MS) /* how long a revocation waits until it is sent */

/* Sends the queued messages of the control links; gives up after a moment. */
static void flush_notices(coll_comm *comm) {
  uint64_t until_ns = colli_now_ns() + FLUSH_NS;
  while (colli_ctrl_unsent(comm->family->ctrl) && colli_now_ns() < until_ns) {
    poll(&(struct pollfd){.fd = colli_ctrl_fd(comm->family->ctrl), .events = POLLIN}, 1, 5);
    colli_notice_poll(comm->family);
  }
}

coll_status coll_comm_revoke(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (comm->failure.status == COLL_OK) {
    coll_error record;
    colli_comm_record(comm, &record, COLL_ERR_ABORTED, comm->rank, comm->exec.oldest);
    snprintf(record.message, sizeof(record.message),
             "coll_comm_revoke() was called on rank %d (host %s, pid %d); coll_comm_shrink() makes "
             "a communicator to go on with",
             comm->rank, comm->host, record.peer_pid);
    colli_comm_fail_for(comm, &record, comm->family->rank);
    COLLI_ASSERT_RANK(comm->failure.status != COLL_OK, comm->rank);
  }
  if (comm->family->ctrl && comm->world.now_ns == colli_world_real.now_ns)
    flush_notices(comm);
  colli_call_leave(comm);
  return COLL_OK;
}
