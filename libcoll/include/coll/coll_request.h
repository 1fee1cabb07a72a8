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
 * but the operation's own deadline). COLL_IN_PROGRESS: timeout_ms passed first; the operation
 * continues.
 */
COLL_API coll_status coll_wait(coll_request **request, int timeout_ms);

/*
 * Waits until one of `count` requests is complete, stores its index in *index, and releases it as
 * coll_test() does. Skips entries that are NULL. They may belong to several communicators; then no
 * other thread may use these. COLL_IN_PROGRESS: timeout_ms passed (as in coll_wait), *index is -1.
 * COLL_OK with *index -1: all were NULL. Errors: INVALID_ARGUMENT, and those of the operation.
 */
COLL_API coll_status coll_wait_any(coll_request **requests, int count, int *index, int timeout_ms);

/*
 * Starts a persistent operation that coll_<name>_init() made. Complete it by coll_test, coll_wait
 * or coll_wait_any, which keep a persistent request, so that it can be started again. Collective if
 * the operation is. Errors: INVALID_ARGUMENT (null, not persistent), INVALID_USAGE (not complete
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
