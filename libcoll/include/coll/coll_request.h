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
 * returns for another reason, leaves the wake to the next. Blocking operations are not ended. A
 * wake also makes coll_comm_fd() readable. From any thread, also from a coll_request_fn; does not
 * block. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_wake(coll_comm *comm);

/*
 * Limits one nonblocking or started persistent operation: it fails with COLL_ERR_TIMEOUT if it is
 * not complete timeout_ms after this call, whether it moves or not. This replaces the
 * communicator's timeout_ms for this operation on this rank, and may be shorter or longer; 0 takes
 * the limit back. Time from the call, because that is what a program knows that must answer in
 * time; that between calls counts too. The limit of a persistent operation lasts until it is
 * complete: set it after each coll_start(). A group's (coll_group_iend) holds for all operations in
 * it. A request with a callback gets its limit before.
 *
 * A receive that no message has matched ends alone: it is taken back, its buffer and coll_message
 * are untouched, and the communicator stays usable. Its message, if it comes, waits for another
 * receive. All others (collectives, sends, sendrecv, receives whose message arrives) revoke the
 * communicator as its own timeout does, because other ranks have seen a part of them; all ranks get
 * the same record, which names who has not come. So the earliest limit of any rank counts.
 *
 * Limits are looked at while the rank waits or tests and nothing moves, or by its progress thread;
 * so the end may come some 50 ms late, that of a collective up to a quarter of a second, in which
 * other ranks are asked where they are (with more than 32 ranks longer). No effect on a complete
 * request. From the threads that may test it. Errors: INVALID_ARGUMENT (request is NULL, negative),
 * INVALID_USAGE (a persistent request that is not started; one of coll_comm_isplit() or
 * coll_comm_idup(), whose limit is the communicator's).
 */
COLL_API coll_status coll_request_set_timeout(coll_request *request, int timeout_ms);

/* What coll_request_set_callback() calls; see there. status: how the operation ended. */
typedef void (*coll_request_fn)(void *context, coll_status status);

/*
 * Hands a nonblocking request over to libcoll, which calls callback(context, status) once when the
 * operation is complete, and releases the request; *request becomes NULL. The call comes exactly
 * once, also if the operation fails or is aborted, and with COLL_ERR_ABORTED from
 * coll_comm_destroy(). Its results are in place then.
 *
 * It comes from this call if the operation is complete; then the callback may call anything.
 * Otherwise it comes from whichever thread notices the end: one that is in a libcoll call of this
 * process, on any communicator, or the progress thread (COLL_PROGRESS). There the callback must
 * return soon, and may call coll_wake(), coll_comm_abort(), coll_version() and coll_status_name(),
 * no other libcoll function. It must not wait for what a thread may hold while it is in a libcoll
 * call: a mutex, or the lock of an interpreter. So it should note the end and wake a thread: by
 * coll_wake(), a semaphore, or a descriptor of the program.
 *
 * Callbacks of one communicator come in the order in which operations end, one at a time. Without
 * a progress thread they come only while some thread waits or tests. Errors: INVALID_ARGUMENT
 * (null), INVALID_USAGE (a persistent request); then the request stays the caller's.
 */
COLL_API coll_status coll_request_set_callback(coll_request **request, coll_request_fn callback,
                                               void *context);

/*
 * A descriptor for event loops (poll, epoll, libuv), an eventfd. It becomes readable when an
 * operation on `comm` that has no callback is complete, when `comm` fails, and by coll_wake(), and
 * is readable when it is made. Now and then it is readable for nothing.
 *
 * When it is readable, first read its 8 bytes, then look at all requests (coll_wait_some() with
 * timeout_ms 0, until it returns COLL_IN_PROGRESS). What ends after the read makes it readable
 * again, so nothing is missed; in the other order an end in between would be. Edge-triggered epoll
 * needs no read. The descriptor belongs to `comm`: do not close it, and remove it from the loop
 * before coll_comm_destroy(). Each call gives the same one.
 *
 * It needs the progress thread, which makes progress while the program sleeps in its loop. (Not
 * with a single rank.) Until it is asked for it costs nothing; then one system call for the first
 * operation that ends after a call. Errors: INVALID_ARGUMENT, INVALID_USAGE (no progress thread:
 * COLL_PROGRESS=on or coll_config.progress), SYSTEM (too few descriptors).
 */
COLL_API coll_status coll_comm_fd(coll_comm *comm, int *fd);

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

/*
 * Closes a group without waiting: starts its operations as coll_group_end() does, and makes one
 * request that is complete when all of them are. Its status is that of the first operation that
 * failed. Buffers must stay valid until then. It is completed as any nonblocking request. If an
 * operation cannot be started, waits for those before it, makes no request (*request is NULL) and
 * returns the error. Another rank may close the same group with coll_group_end(). Errors:
 * INVALID_ARGUMENT, INVALID_USAGE (no group is open, or this one is inside another and remains
 * open), NO_MEMORY, and those of the start of operations.
 */
COLL_API coll_status coll_group_iend(coll_comm *comm, coll_request **request);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_REQUEST_H */
