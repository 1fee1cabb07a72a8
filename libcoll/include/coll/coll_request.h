/*
 * coll_request.h: completing nonblocking operations, running persistent ones, and groups of
 * blocking ones. Included by coll.h, which explains the forms of an operation.
 */
#ifndef COLL_COLL_REQUEST_H
#define COLL_COLL_REQUEST_H

#include "coll/coll_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- requests ------------------------------------------------------------------------------ */

/*
 * Polls the communicator and checks a request. COLL_OK or an error: the operation is complete;
 * unless it is persistent, the request is released and *request is NULL. A persistent request that
 * is not started, or whose completion was reported before, counts as complete. COLL_IN_PROGRESS:
 * not complete yet. Errors: those of the operation; INVALID_ARGUMENT (request is NULL or points to
 * NULL).
 */
COLL_API coll_status coll_test(coll_request **request);

/*
 * As coll_test(), but waits up to timeout_ms for completion (0: does not wait; negative: no limit
 * but the operation's own deadline). COLL_IN_PROGRESS: timeout_ms passed first, or coll_wake() was
 * called; the operation continues.
 */
COLL_API coll_status coll_wait(coll_request **request, int timeout_ms);

/*
 * Waits until one of `count` requests is complete, stores its index in *index, and releases it as
 * coll_test() does. Skips entries that are NULL, and persistent ones that are not started. They may
 * belong to several communicators; then no other thread may use these. COLL_IN_PROGRESS: as in
 * coll_wait, *index is -1. COLL_OK with *index -1: all entries were skipped. Errors:
 * INVALID_ARGUMENT, NO_MEMORY (more than 16 communicators), and those of the operation.
 */
COLL_API coll_status coll_wait_any(coll_request **requests, int count, int *index, int timeout_ms);

/*
 * Waits as coll_wait_any(), and then releases all requests that are complete. *completed receives
 * how many these are; indices[0 .. *completed - 1] their indices, in no particular order; statuses
 * how they ended, in the same order. indices: `count` entries. statuses: NULL, or `count` entries.
 * COLL_IN_PROGRESS: as in coll_wait, *completed is 0. COLL_OK with *completed 0: all entries were
 * skipped. Otherwise returns COLL_OK, or the error of the failed one with the lowest index. Errors:
 * as coll_wait_any().
 */
COLL_API coll_status coll_wait_some(coll_request **requests, int count, int *indices,
                                    coll_status *statuses, int *completed, int timeout_ms);

/*
 * Waits until all of `count` requests are complete, also if some have failed, and then releases
 * them all as coll_test() does. Entries as in coll_wait_any(). statuses: NULL, or `count` entries:
 * how each ended; COLL_OK of those that were skipped. Returns COLL_OK, or the error of the failed
 * one with the lowest index. COLL_IN_PROGRESS: as in coll_wait; then none is released, and nothing
 * is lost: call it again. Errors: as coll_wait_any(). INVALID_USAGE because another thread uses a
 * communicator: those not released have COLL_IN_PROGRESS in `statuses`.
 */
COLL_API coll_status coll_wait_all(coll_request **requests, int count, coll_status *statuses,
                                   int timeout_ms);

/*
 * Wakes the thread that waits on `comm` in coll_wait, coll_wait_any, coll_wait_some, coll_wait_all
 * or coll_probe, for example because there is new work for it: the call returns COLL_IN_PROGRESS
 * unless what it waits for has happened, and may be repeated. For several requests, a wake of any
 * of their communicators counts.
 *
 * No wake is lost: if no thread waits so, the next such call on `comm` that would have to wait
 * returns at once, once, however many wakes there were. A call with timeout_ms 0, or one that
 * returns for another reason, leaves the wake to the next. Blocking operations are not ended. From
 * any thread; does not block. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_wake(coll_comm *comm);

/*
 * Starts a persistent operation that coll_<name>_init() made. Complete it by coll_test or one of
 * the waits, which keep a persistent request, so that it can be started again. Collective if the
 * operation is. Errors: INVALID_ARGUMENT (null, not persistent), INVALID_USAGE (not complete
 * yet), and those of the operation's start.
 */
COLL_API coll_status coll_start(coll_request *request);

/* Releases a persistent request that is not in flight. Errors: INVALID_ARGUMENT, INVALID_USAGE. */
COLL_API coll_status coll_request_free(coll_request **request);

/* ---- groups -------------------------------------------------------------------------------- */

/*
 * Opens a group. Until coll_group_end() blocking operations on `comm` only check their arguments
 * and return; coll_group_end() runs them all together. So sends and receives may come in any order,
 * and many small operations share their waits. Buffers and arrays of counts must stay valid until
 * then. Groups nest: the outermost end runs the operations. Nonblocking operations may be started
 * inside a group, but are not part of it. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_group_start(coll_comm *comm);

/*
 * Closes a group: starts its operations all at once, in the order in which they were called, and
 * waits until all are complete. If any call in the group was refused, starts nothing and returns
 * that error. (If the communicator is destroyed inside a group, nothing is started either.) Errors:
 * INVALID_ARGUMENT, INVALID_USAGE (no group is open), NO_MEMORY, and those of the operations: the
 * first one.
 */
COLL_API coll_status coll_group_end(coll_comm *comm);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_REQUEST_H */
