/* check_finite.c: looks for NaN and infinity in the input of a collective. */
#include "libcoll/run/check_finite.h"

#include <stdio.h>
#include <unistd.h>

#include "libcoll/exec/finite.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/op_text.h"

/* Looks through the blocks of a v-form, between which may be anything. */
static bool find_in_blocks(const coll_comm *comm, const colli_call *call, const size_t *counts,
                           const size_t *displs, size_t *index) {
  size_t bytes = coll_type_bytes((coll_type)call->type), end = 0;
  for (int rank = 0; rank < comm->nranks; rank++) {
    size_t first = displs ? displs[rank] : end, at;
    end = first + counts[rank];
    if (colli_find_nonfinite(call->type, (const char *)call->sendbuf + first * bytes, counts[rank],
                             &at)) {
      *index = first + at;
      return true;
    }
  }
  return false;
}

/* Looks through all that this rank puts in. */
static bool find(const coll_comm *comm, const colli_call *call, size_t *index) {
  size_t reads, writes;
  colli_call_extent(&comm->calls, call, &reads, &writes);
  if (reads == 0)
    return false;
  if (call->varying && (call->coll == COLLI_ALLTOALL || call->coll == COLLI_SCATTER))
    return find_in_blocks(comm, call, call->in_counts, call->in_displs, index);
  return colli_find_nonfinite(call->type, call->sendbuf, reads, index);
}

void colli_check_finite(coll_comm *comm, const colli_call *call, const coll_request *op) {
  size_t index;
  bool fails = comm->calls.check_finite == COLLI_CHECK_FINITE_ERROR;
  if (comm->failure.status != COLL_OK || comm->calls.found_nonfinite || !find(comm, call, &index))
    return;
  comm->calls.found_nonfinite = true;
  coll_error record;
  char text[COLLI_OP_TEXT];
  colli_comm_record(comm, &record, COLL_ERR_INVALID_ARGUMENT, comm->rank, op);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) puts %s into %s: element %zu of its sendbuf; see how it was "
           "computed there%s",
           comm->rank, comm->host, (int)getpid(),
           colli_nonfinite_text(call->type, call->sendbuf, index), colli_op_text(op, text), index,
           fails ? "" : " (rank and operation with the lowest number come first; logged once)");
  if (fails)
    colli_comm_fail(comm, &record);
  else
    colli_log_write(&comm->log, COLLI_LOG_WARN, "%s", record.message);
}
