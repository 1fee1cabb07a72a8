/* failure.h: records the first failure of a communicator and reports it to all its ranks. */
#ifndef COLLI_FAILURE_FAILURE_H
#define COLLI_FAILURE_FAILURE_H

#include "libcoll/comm/comm.h"

/* Revokes the communicator for the reason in `record` (the first one wins) and tells all ranks. */
void colli_comm_fail(coll_comm *comm, const coll_error *record);

/* The same without telling the other ranks, which already know. */
void colli_comm_note_failure(coll_comm *comm, const coll_error *record);

/* Fills in a record with this rank, operation and peer. The caller completes it and gives it to
 * colli_comm_fail(). `op` may be NULL, `peer` -1. */
void colli_comm_record(const coll_comm *comm, coll_error *record, coll_status status, int peer,
                       const coll_request *op);

/* Fills in which operation a record is about. */
void colli_comm_record_operation(coll_error *record, const coll_request *op);

#endif
