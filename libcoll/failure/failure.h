/* failure.h: records the first failure of a communicator and reports it to all its ranks. */
#ifndef COLLI_FAILURE_FAILURE_H
#define COLLI_FAILURE_FAILURE_H

#include "libcoll/comm/comm.h"

/* Revokes the communicator for the reason in `record` (the first one wins) and tells all ranks. No
 * single rank is to blame, or nobody need know who it is in other communicators. */
void colli_comm_fail(coll_comm *comm, const coll_error *record);

/* The same if rank `root` of the base is to blame (-1: no single one). */
void colli_comm_fail_for(coll_comm *comm, const coll_error *record, int root);

/* The same without telling the other ranks, which already know. */
void colli_comm_note_failure(coll_comm *comm, const coll_error *record, int root);

/* Fails a communicator with levels if one of its parts has failed, for the same reason. */
void colli_comm_check_levels(coll_comm *comm);

/* How long a failure may be the cause of others. */
uint64_t colli_cause_window_ns(const colli_family *family);

/* Keeps who caused a failure of a communicator of the family: what follows may follow from it. */
void colli_comm_note_cause(colli_family *family, int root, const char *name,
                           const coll_error *record);

/* The caller learns that the communicator has failed. Tells the family once, if somebody may wait
 * for this rank in another communicator, where it perhaps no longer comes. */
void colli_comm_admit(coll_comm *comm);

/* Fills in a record with this rank, operation and peer. The caller completes it and gives it to
 * colli_comm_fail(). `op` may be NULL, `peer` -1. */
void colli_comm_record(const coll_comm *comm, coll_error *record, coll_status status, int peer,
                       const coll_request *op);

/* Fills in which operation a record is about. */
void colli_comm_record_operation(coll_error *record, const coll_request *op);

#endif
