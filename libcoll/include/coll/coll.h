/*
 * coll.h: the public interface of libcoll, collective communication for C programs.
 *
 *   coll_base.h         version, status codes, the record of a failure
 *   coll_types.h        element types, reduction operations, user-defined operations
 *   coll_comm.h         communicators: settings, creation, split and shrink
 *   coll_memory.h       memory that other ranks read where it is, of the host and of GPUs
 *   coll_request.h      completing nonblocking and persistent operations; groups
 *   coll_collectives.h  all-reduce, broadcast, all-gather and so on
 *   coll_p2p.h          point-to-point messages, one-sided writes
 *
 * A program includes this header alone. coll_transport.h, coll_tuner.h and coll_profiler.h are for
 * plug-ins.
 *
 * A *communicator* (coll_comm) is one rank's membership in a group of `nranks` ranks, numbered
 * 0 .. nranks-1. A collective is called by every rank of the communicator, in the same order, with
 * the same count, type, operation and root. Ranks that disagree get COLL_ERR_MISMATCH, which names
 * both calls, instead of a hang.
 *
 * Rules that hold for every call unless it says otherwise:
 *  - Every call returns a coll_status. After a failure coll_last_error() has the details.
 *  - Counts are in elements of `type`; sizes called "bytes" are in bytes; times are in
 *    milliseconds.
 *  - Buffers belong to the caller. Between the start and the completion of an operation the program
 *    must not write to a send buffer, nor read or write a receive buffer.
 *  - One thread at a time uses a communicator. A call that finds another thread inside the same
 *    communicator returns COLL_ERR_INVALID_USAGE and does nothing. Only coll_comm_abort() may be
 *    called from any thread at any time. Different communicators, including ones that were split
 *    from each other, may be used from different threads at the same time.
 *  - A communicator belongs to the process that created it. In a child of fork(), every call on an
 *    inherited communicator, or on its requests and windows, returns COLL_ERR_INVALID_USAGE and
 *    does nothing, coll_comm_destroy() included; coll_last_error() says why. The child may create
 *    communicators of its own. It does not disturb the job: its parent's death is noticed at once
 *    although the child lives on, and it may end in any way. This needs the handlers of
 *    pthread_atfork(): a child of clone(2) or _Fork() must call exec or _exit() and nothing else
 *    (docs/failures.md).
 *  - Nothing waits forever: an operation times out when it makes no progress for
 *    coll_config.timeout_ms. This time counts only while the rank, or its progress thread, works on
 *    the operation. A transfer that makes progress does not time out, however long it takes. A
 *    program that must answer in time limits single operations: coll_request_set_timeout().
 *  - If an operation fails with COLL_ERR_PEER_LOST, _TIMEOUT, _MISMATCH, _ABORTED, _PROTOCOL or
 *    _SYSTEM, the communicator is *revoked*: each later operation on it returns that first error
 *    again, at once. Only a receive that is over its own limit (coll_request_set_timeout()), or
 *    that gets a message of another type or length, ends alone. COLL_ERR_INVALID_ARGUMENT and
 *    _INVALID_USAGE are found before anything is sent and do not affect the communicator.
 *
 * Each operation of coll_collectives.h and coll_p2p.h has four forms:
 *
 *   coll_<name>(arguments, comm)                    blocking: returns when this rank's part is done
 *   coll_i<name>(arguments, comm, &request)         nonblocking: starts the operation; complete it
 *                                                   with coll_test or one of the waits
 *   coll_<name>_init(arguments, comm, &request)     persistent: makes a request that coll_start()
 *                                                   can run any number of times
 *   coll_<name>_on_stream(arguments, comm, stream)  in a stream of CUDA (cudaStream_t, CUstream;
 *                                                   NULL: the default one): returns at once
 *
 * Every rank starts its nonblocking collectives in the same order and may complete them in any
 * order. They make progress while the rank is inside a libcoll call on the communicator. Buffers
 * must stay valid until completion; arrays of counts and displacements are copied. The _init form
 * checks and keeps its arguments; the contents of the buffers may change between runs.
 *
 * Buffers may be in GPU memory, in every form, if the program has called CUDA before it creates the
 * communicator. Blocking, nonblocking and persistent forms work on what is there when the operation
 * starts: synchronise with the kernels that write a buffer first.
 *
 * A stream-ordered operation begins when the stream comes to it, and the stream goes on when its
 * result is there, also after a failure: coll_comm_async_error() tells, after the stream was
 * synchronised. Ranks make such calls in the same order, whatever their streams. Later calls
 * without a stream wait until earlier ones have begun; if a stream does not come, such a later call
 * returns TIMEOUT and nothing else happens. All calls of a group are in one stream. The first
 * stream-ordered call starts the progress thread. A captured call is made each time that its graph
 * is launched; destroy graphs before the communicator. docs/gpu.md has the rest.
 *
 * Errors of every form: INVALID_ARGUMENT (found before anything is sent), INVALID_USAGE (another
 * thread inside), NO_MEMORY, UNSUPPORTED (_on_stream, without a CUDA driver). The others do not
 * learn of these, and wait: call again, or coll_comm_revoke(). These revoke the communicator and
 * leave receive buffers undefined: TIMEOUT, PEER_LOST, MISMATCH (not of a receive), ABORTED,
 * PROTOCOL, SYSTEM, UNREACHABLE, and NO_MEMORY after something was sent. If an operation lists
 * errors, they are additional to these.
 *
 * Send and receive buffers are disjoint, or equal where an operation says "in place". They may be
 * NULL if they hold 0 elements. displs[r] is the element of the buffer at which rank r's block
 * begins; displs NULL means that the blocks follow each other. Blocks must not overlap in a receive
 * buffer.
 */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include "coll/coll_base.h"
#include "coll/coll_collectives.h"
#include "coll/coll_comm.h"
#include "coll/coll_memory.h"
#include "coll/coll_p2p.h"
#include "coll/coll_request.h"
#include "coll/coll_types.h"

#endif /* COLL_COLL_H */
