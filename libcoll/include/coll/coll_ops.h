/*
 * coll_ops.h: the operations of libcoll, each in four forms. Included by coll.h.
 *
 * COLL_FORMS(name, arguments) declares for an operation
 *
 *   coll_<name>(arguments, comm)                  blocking: returns when this rank's part is done
 *   coll_i<name>(arguments, comm, &request)       nonblocking: starts it; complete the request with
 *                                                 coll_test, coll_wait or coll_wait_any
 *   coll_<name>_init(arguments, comm, &request)   persistent: coll_start() runs it, again and again
 *   coll_<name>_on_stream(arguments, comm, stream)  on a GPU stream: COLL_ERR_UNSUPPORTED so far
 *
 * Nonblocking operations must be started in the same order on every rank where they are collective,
 * and may be completed in any order. They move on while the rank is inside a libcoll call on the
 * communicator. Buffers must stay valid until completion; arrays of counts and displacements are
 * copied. Persistent: the arguments are checked and kept by _init; buffers may change between runs.
 *
 * Errors of every form: INVALID_ARGUMENT (found before anything is sent), INVALID_USAGE (more than
 * COLL_MAX_REQUESTS, another thread inside), NO_MEMORY, UNSUPPORTED (_on_stream), and, revoking the
 * communicator and leaving receive buffers undefined: TIMEOUT, PEER_LOST, MISMATCH, ABORTED,
 * PROTOCOL, SYSTEM, UNREACHABLE. Where a page below says "Errors", it lists what comes on top.
 *
 * Buffers are equal (in place, where a page says so) or disjoint, and may be NULL where they hold 0
 * elements. displs: for each rank the element of the buffer at which its block begins; NULL: the
 * blocks lie one after the other. Blocks must not overlap in a receive buffer.
 */
#ifndef COLL_COLL_OPS_H
#define COLL_COLL_OPS_H

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_FORMS(name, ...)                                                                      \
  COLL_API coll_status coll_##name(__VA_ARGS__, coll_comm *comm);                                  \
  COLL_API coll_status coll_i##name(__VA_ARGS__, coll_comm *comm, coll_request **request);         \
  COLL_API coll_status coll_##name##_init(__VA_ARGS__, coll_comm *comm, coll_request **request);   \
  COLL_API coll_status coll_##name##_on_stream(__VA_ARGS__, coll_comm *comm, void *stream)

/* ---- reductions --------------------------------------------------------------------------------
 */

/*
 * recvbuf[i] = op over all ranks of sendbuf[i], for i < count, on every rank, bit for bit the same.
 * sendbuf, recvbuf: count elements of type. In place: sendbuf == recvbuf.
 */
COLL_FORMS(allreduce, const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op);

/*
 * recvbuf[i] on rank root = op over all ranks of sendbuf[i], for i < count.
 * sendbuf: count elements. recvbuf: count elements on root, ignored elsewhere. In place on root:
 * sendbuf == recvbuf.
 */
COLL_FORMS(reduce, const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op,
           int root);

/*
 * recvbuf[i] on rank r = op over all ranks of sendbuf[r * count + i], for i < count.
 * sendbuf: nranks * count elements. recvbuf: count elements. In place: recvbuf == sendbuf + rank *
 * count elements (as in NCCL), or recvbuf == sendbuf (as in MPI: the result is at its beginning;
 * the rest of it is undefined in both cases).
 */
COLL_FORMS(reduce_scatter, const void *sendbuf, void *recvbuf, size_t count, coll_type type,
           coll_op op);

/*
 * As reduce_scatter, with a block of counts[r] elements for rank r.
 * counts: nranks numbers, the same on all ranks. sendbuf: their sum, one block after the other in
 * rank order. recvbuf: counts[rank] elements. In place: recvbuf == the rank's own block of sendbuf,
 * or recvbuf == sendbuf.
 */
COLL_FORMS(reduce_scatterv, const void *sendbuf, void *recvbuf, const size_t *counts,
           coll_type type, coll_op op);

/*
 * recvbuf[i] on rank r = sendbuf[i] of rank 0 op ... op sendbuf[i] of rank r, for i < count: the
 * inclusive prefix reduction, combined in rank order. AVG is not among the operations. sendbuf,
 * recvbuf: count elements. In place: sendbuf == recvbuf.
 */
COLL_FORMS(scan, const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op);

/* As scan, but without the rank's own part: ranks 0 .. r-1. recvbuf of rank 0 is left as it was. */
COLL_FORMS(exscan, const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op);

/* ---- moving data -------------------------------------------------------------------------------
 */

/*
 * recvbuf on every rank = sendbuf of rank root.
 * sendbuf: count elements, read on root only. recvbuf: count elements. In place on root: sendbuf ==
 * recvbuf.
 */
COLL_FORMS(broadcast, const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root);

/*
 * recvbuf on every rank = the sendbufs of all ranks, one after the other in rank order.
 * sendbuf: count elements. recvbuf: nranks * count elements. In place: sendbuf == recvbuf + rank *
 * count elements.
 */
COLL_FORMS(allgather, const void *sendbuf, void *recvbuf, size_t count, coll_type type);

/*
 * As allgather, with counts[r] elements from rank r, which go to recvbuf + displs[r].
 * counts, displs: nranks numbers each, the same counts on all ranks. sendbuf: counts[rank]
 * elements. In place: sendbuf == recvbuf + displs[rank].
 */
COLL_FORMS(allgatherv, const void *sendbuf, void *recvbuf, const size_t *counts,
           const size_t *displs, coll_type type);

/*
 * recvbuf on rank root = the sendbufs of all ranks, one after the other in rank order.
 * sendbuf: count elements. recvbuf: nranks * count elements on root, ignored elsewhere. In place on
 * root: sendbuf == recvbuf + root * count elements.
 */
COLL_FORMS(gather, const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root);

/*
 * As gather, with counts[r] elements from rank r, which go to recvbuf + displs[r].
 * sendbuf: sendcount elements, as many as counts[rank] on root says. recvbuf, counts, displs: read
 * on root only. In place on root: sendbuf == recvbuf + displs[root].
 */
COLL_FORMS(gatherv, const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *counts,
           const size_t *displs, coll_type type, int root);

/*
 * recvbuf on rank r = block r of sendbuf on rank root.
 * sendbuf: nranks * count elements on root, ignored elsewhere. recvbuf: count elements. In place on
 * root: recvbuf == sendbuf + root * count elements.
 */
COLL_FORMS(scatter, const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root);

/*
 * As scatter, with counts[r] elements for rank r, from sendbuf + displs[r].
 * sendbuf, counts, displs: read on root only. recvbuf: recvcount elements, as many as counts[rank]
 * on root says. In place on root: recvbuf == sendbuf + displs[root].
 */
COLL_FORMS(scatterv, const void *sendbuf, const size_t *counts, const size_t *displs, void *recvbuf,
           size_t recvcount, coll_type type, int root);

/*
 * Block s of recvbuf on rank d = block d of sendbuf on rank s.
 * sendbuf, recvbuf: nranks * count elements, count for each rank. In place: sendbuf == recvbuf,
 * which takes memory for a copy.
 */
COLL_FORMS(alltoall, const void *sendbuf, void *recvbuf, size_t count, coll_type type);

/*
 * As alltoall, with blocks of any length: sendcounts[d] elements from sendbuf + sdispls[d] go to
 * rank d, recvcounts[s] elements from rank s go to recvbuf + rdispls[s]. What s sends to d must be
 * as long as what d expects of s. In place: sendbuf == recvbuf, with equal counts and displacements
 * for both.
 */
COLL_FORMS(alltoallv, const void *sendbuf, const size_t *sendcounts, const size_t *sdispls,
           void *recvbuf, const size_t *recvcounts, const size_t *rdispls, coll_type type);

/* Returns on no rank before every rank has called it. The four forms as for all others. */
COLL_API coll_status coll_barrier(coll_comm *comm);
COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **request);
COLL_API coll_status coll_barrier_init(coll_comm *comm, coll_request **request);
COLL_API coll_status coll_barrier_on_stream(coll_comm *comm, void *stream);

/* ---- point to point ----------------------------------------------------------------------------
 */

#define COLL_ANY_SOURCE (-1)
#define COLL_ANY_TAG    (-1)

/* What a receive got. */
typedef struct coll_message {
  int source;   /* rank that sent it */
  int tag;      /* the tag that it carries */
  size_t count; /* elements */
} coll_message;

/*
 * Sends count elements to rank peer, which may be this rank. tag: 0 or more, chosen freely; a
 * receive takes the first message that fits its peer and tag, in the order sent. Complete when
 * sendbuf may be used again: short messages at once, long ones when the receiver has called. Short
 * is what fits a slot (COLL_SLOT_BYTES). Of one sender the receiver keeps 64 messages or 4 MiB that
 * it has not called for, and the sender as many that cannot go off yet: sends beyond that wait for
 * receives. What a sender keeps goes off in its later calls, coll_comm_destroy() included.
 */
COLL_FORMS(send, const void *sendbuf, size_t count, coll_type type, int peer, int tag);

/*
 * Receives a message from rank peer, or from any with COLL_ANY_SOURCE, that carries tag, or any
 * with COLL_ANY_TAG. message: NULL, or receives what came, at completion (and must live so long).
 * With it the message may have fewer than count elements; without it exactly count. Another type,
 * or another number of elements, is a MISMATCH. Messages of one sender that both fit a receive are
 * taken in the order sent, and by receives in the order called.
 */
COLL_FORMS(recv, void *recvbuf, size_t count, coll_type type, int peer, int tag,
           coll_message *message);

/* A send to rank dest and a receive from rank source at once; arguments as in coll_send, coll_recv.
 */
COLL_FORMS(sendrecv, const void *sendbuf, size_t sendcount, int dest, int sendtag, void *recvbuf,
           size_t recvcount, int source, int recvtag, coll_type type, coll_message *message);

/* ---- one-sided ---------------------------------------------------------------------------------
 */

/*
 * Makes `bytes` bytes at `base` writable by the other ranks of `comm`, collectively; each rank
 * gives memory of its own, of any size. The memory belongs to the caller and must outlive the
 * window. What is put arrives while the owner is inside libcoll calls on `comm`, or at any time if
 * it has a progress thread, and may be read after coll_wait_signal() (or any other word from the
 * sender that it has called coll_put and a signal). Errors: INVALID_ARGUMENT, NO_MEMORY, and those
 * of a collective.
 */
COLL_API coll_status coll_window_create(coll_comm *comm, void *base, size_t bytes,
                                        coll_window **window);

/*
 * Ends a window, collectively: returns when no rank can write to this rank's memory any more. A
 * window that is not destroyed goes with its communicator. Errors: INVALID_ARGUMENT; INVALID_USAGE
 * (this rank's operations on it are in flight, or a group is open), which leaves it as it was; and
 * those of a collective, which end it here.
 */
COLL_API coll_status coll_window_destroy(coll_window **window);

/*
 * Writes count elements to rank peer's memory of the window, `offset` bytes from its base. Complete
 * when sendbuf may be used again. Errors: INVALID_ARGUMENT also if it does not fit the peer's
 * memory.
 */
COLL_FORMS(put, const void *sendbuf, size_t count, coll_type type, int peer, size_t offset,
           coll_window *window);

/* Adds 1 to the peer's count of this rank's signals, after all earlier puts of this rank to it. */
COLL_FORMS(signal, int peer, coll_window *window);

/* Waits until peer has signalled `count` times more than earlier waits have taken. */
COLL_FORMS(wait_signal, int peer, uint64_t count, coll_window *window);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_OPS_H */
