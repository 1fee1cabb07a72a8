/*
 * coll_collectives.h: the collectives. Included by coll.h, which explains the four forms, the rules
 * for buffers, and the errors that every operation can return. docs/collectives has a page for each
 * operation, with its algorithms.
 *
 * docs/operations.py --write derives the nonblocking, persistent and stream forms from the blocking
 * one; a test checks that they match.
 */
#ifndef COLL_COLL_COLLECTIVES_H
#define COLL_COLL_COLLECTIVES_H

#include <stddef.h>

#include "coll/coll_base.h"
#include "coll/coll_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reductions ---------------------------------------------------------------------------- */

/*
 * recvbuf[i] = op over all ranks of sendbuf[i], for i < count, on every rank, bit for bit the same.
 * sendbuf, recvbuf: count elements of type. In place: sendbuf == recvbuf.
 */
COLL_API coll_status coll_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_op op, coll_comm *comm);
/* Starts coll_allreduce(); complete the request. */
COLL_API coll_status coll_iallreduce(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, coll_op op, coll_comm *comm,
                                     coll_request **request);
/* Makes a persistent request of coll_allreduce(), for coll_start(). */
COLL_API coll_status coll_allreduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                         coll_type type, coll_op op, coll_comm *comm,
                                         coll_request **request);
/* coll_allreduce() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_allreduce_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                              coll_type type, coll_op op, coll_comm *comm,
                                              void *stream);

/*
 * recvbuf[i] on rank root = op over all ranks of sendbuf[i], for i < count.
 * sendbuf: count elements. recvbuf: count elements on root, ignored elsewhere. In place on root:
 * sendbuf == recvbuf.
 */
COLL_API coll_status coll_reduce(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                 coll_op op, int root, coll_comm *comm);
/* Starts coll_reduce(); complete the request. */
COLL_API coll_status coll_ireduce(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                  coll_op op, int root, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_reduce(), for coll_start(). */
COLL_API coll_status coll_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                      coll_type type, coll_op op, int root, coll_comm *comm,
                                      coll_request **request);
/* coll_reduce() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_reduce_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                           coll_type type, coll_op op, int root, coll_comm *comm,
                                           void *stream);

/*
 * recvbuf[i] on rank r = op over all ranks of sendbuf[r * count + i], for i < count.
 * sendbuf: nranks * count elements. recvbuf: count elements. In place: recvbuf == sendbuf + rank *
 * count elements (as in NCCL), or recvbuf == sendbuf (as in MPI: the result is at its beginning).
 * Either way the rest of the buffer is undefined afterwards.
 */
COLL_API coll_status coll_reduce_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                         coll_type type, coll_op op, coll_comm *comm);
/* Starts coll_reduce_scatter(); complete the request. */
COLL_API coll_status coll_ireduce_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                          coll_type type, coll_op op, coll_comm *comm,
                                          coll_request **request);
/* Makes a persistent request of coll_reduce_scatter(), for coll_start(). */
COLL_API coll_status coll_reduce_scatter_init(const void *sendbuf, void *recvbuf, size_t count,
                                              coll_type type, coll_op op, coll_comm *comm,
                                              coll_request **request);
/* coll_reduce_scatter() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_reduce_scatter_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                                   coll_type type, coll_op op, coll_comm *comm,
                                                   void *stream);

/*
 * As reduce_scatter, with a block of counts[r] elements for rank r.
 * counts: nranks numbers, the same on all ranks. sendbuf: their sum, one block after the other in
 * rank order. recvbuf: counts[rank] elements. In place: recvbuf == this rank's block of sendbuf, or
 * recvbuf == sendbuf.
 */
COLL_API coll_status coll_reduce_scatterv(const void *sendbuf, void *recvbuf, const size_t *counts,
                                          coll_type type, coll_op op, coll_comm *comm);
/* Starts coll_reduce_scatterv(); complete the request. */
COLL_API coll_status coll_ireduce_scatterv(const void *sendbuf, void *recvbuf, const size_t *counts,
                                           coll_type type, coll_op op, coll_comm *comm,
                                           coll_request **request);
/* Makes a persistent request of coll_reduce_scatterv(), for coll_start(). */
COLL_API coll_status coll_reduce_scatterv_init(const void *sendbuf, void *recvbuf,
                                               const size_t *counts, coll_type type, coll_op op,
                                               coll_comm *comm, coll_request **request);
/* coll_reduce_scatterv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_reduce_scatterv_on_stream(const void *sendbuf, void *recvbuf,
                                                    const size_t *counts, coll_type type,
                                                    coll_op op, coll_comm *comm, void *stream);

/*
 * recvbuf[i] on rank r = sendbuf[i] of rank 0 op ... op sendbuf[i] of rank r, for i < count: the
 * inclusive prefix reduction, combined in rank order. COLL_AVG is not supported. sendbuf, recvbuf:
 * count elements. In place: sendbuf == recvbuf.
 */
COLL_API coll_status coll_scan(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                               coll_op op, coll_comm *comm);
/* Starts coll_scan(); complete the request. */
COLL_API coll_status coll_iscan(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                coll_op op, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_scan(), for coll_start(). */
COLL_API coll_status coll_scan_init(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_op op, coll_comm *comm,
                                    coll_request **request);
/* coll_scan() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_scan_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                         coll_type type, coll_op op, coll_comm *comm, void *stream);

/* As scan, but without the rank itself: ranks 0 .. r-1. recvbuf of rank 0 is left unchanged. */
COLL_API coll_status coll_exscan(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                 coll_op op, coll_comm *comm);
/* Starts coll_exscan(); complete the request. */
COLL_API coll_status coll_iexscan(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                  coll_op op, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_exscan(), for coll_start(). */
COLL_API coll_status coll_exscan_init(const void *sendbuf, void *recvbuf, size_t count,
                                      coll_type type, coll_op op, coll_comm *comm,
                                      coll_request **request);
/* coll_exscan() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_exscan_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                           coll_type type, coll_op op, coll_comm *comm,
                                           void *stream);

/* ---- moving data --------------------------------------------------------------------------- */

/*
 * recvbuf on every rank = sendbuf of rank root.
 * sendbuf: count elements, read on root only. recvbuf: count elements. In place on root: sendbuf ==
 * recvbuf.
 */
COLL_API coll_status coll_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, int root, coll_comm *comm);
/* Starts coll_broadcast(); complete the request. */
COLL_API coll_status coll_ibroadcast(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, int root, coll_comm *comm,
                                     coll_request **request);
/* Makes a persistent request of coll_broadcast(), for coll_start(). */
COLL_API coll_status coll_broadcast_init(const void *sendbuf, void *recvbuf, size_t count,
                                         coll_type type, int root, coll_comm *comm,
                                         coll_request **request);
/* coll_broadcast() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_broadcast_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                              coll_type type, int root, coll_comm *comm,
                                              void *stream);

/*
 * recvbuf on every rank = the sendbufs of all ranks, one after the other in rank order.
 * sendbuf: count elements. recvbuf: nranks * count elements. In place: sendbuf == recvbuf + rank *
 * count elements.
 */
COLL_API coll_status coll_allgather(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_comm *comm);
/* Starts coll_allgather(); complete the request. */
COLL_API coll_status coll_iallgather(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_allgather(), for coll_start(). */
COLL_API coll_status coll_allgather_init(const void *sendbuf, void *recvbuf, size_t count,
                                         coll_type type, coll_comm *comm, coll_request **request);
/* coll_allgather() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_allgather_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                              coll_type type, coll_comm *comm, void *stream);

/*
 * As allgather, with counts[r] elements from rank r, which go to recvbuf + displs[r].
 * counts, displs: nranks numbers each, the same counts on all ranks. sendbuf: counts[rank]
 * elements. In place: sendbuf == recvbuf + displs[rank].
 */
COLL_API coll_status coll_allgatherv(const void *sendbuf, void *recvbuf, const size_t *counts,
                                     const size_t *displs, coll_type type, coll_comm *comm);
/* Starts coll_allgatherv(); complete the request. */
COLL_API coll_status coll_iallgatherv(const void *sendbuf, void *recvbuf, const size_t *counts,
                                      const size_t *displs, coll_type type, coll_comm *comm,
                                      coll_request **request);
/* Makes a persistent request of coll_allgatherv(), for coll_start(). */
COLL_API coll_status coll_allgatherv_init(const void *sendbuf, void *recvbuf, const size_t *counts,
                                          const size_t *displs, coll_type type, coll_comm *comm,
                                          coll_request **request);
/* coll_allgatherv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_allgatherv_on_stream(const void *sendbuf, void *recvbuf,
                                               const size_t *counts, const size_t *displs,
                                               coll_type type, coll_comm *comm, void *stream);

/*
 * recvbuf on rank root = the sendbufs of all ranks, one after the other in rank order.
 * sendbuf: count elements. recvbuf: nranks * count elements on root, ignored elsewhere. In place on
 * root: sendbuf == recvbuf + root * count elements.
 */
COLL_API coll_status coll_gather(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                 int root, coll_comm *comm);
/* Starts coll_gather(); complete the request. */
COLL_API coll_status coll_igather(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                  int root, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_gather(), for coll_start(). */
COLL_API coll_status coll_gather_init(const void *sendbuf, void *recvbuf, size_t count,
                                      coll_type type, int root, coll_comm *comm,
                                      coll_request **request);
/* coll_gather() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_gather_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                           coll_type type, int root, coll_comm *comm, void *stream);

/*
 * As gather, with counts[r] elements from rank r, which go to recvbuf + displs[r].
 * sendbuf: sendcount elements; sendcount must be the root's counts[rank]. recvbuf, counts, displs:
 * used on root only. In place on root: sendbuf == recvbuf + displs[root].
 */
COLL_API coll_status coll_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                  const size_t *counts, const size_t *displs, coll_type type,
                                  int root, coll_comm *comm);
/* Starts coll_gatherv(); complete the request. */
COLL_API coll_status coll_igatherv(const void *sendbuf, size_t sendcount, void *recvbuf,
                                   const size_t *counts, const size_t *displs, coll_type type,
                                   int root, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_gatherv(), for coll_start(). */
COLL_API coll_status coll_gatherv_init(const void *sendbuf, size_t sendcount, void *recvbuf,
                                       const size_t *counts, const size_t *displs, coll_type type,
                                       int root, coll_comm *comm, coll_request **request);
/* coll_gatherv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_gatherv_on_stream(const void *sendbuf, size_t sendcount, void *recvbuf,
                                            const size_t *counts, const size_t *displs,
                                            coll_type type, int root, coll_comm *comm,
                                            void *stream);

/*
 * recvbuf on rank r = block r of sendbuf on rank root.
 * sendbuf: nranks * count elements on root, ignored elsewhere. recvbuf: count elements. In place on
 * root: recvbuf == sendbuf + root * count elements.
 */
COLL_API coll_status coll_scatter(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                  int root, coll_comm *comm);
/* Starts coll_scatter(); complete the request. */
COLL_API coll_status coll_iscatter(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                   int root, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_scatter(), for coll_start(). */
COLL_API coll_status coll_scatter_init(const void *sendbuf, void *recvbuf, size_t count,
                                       coll_type type, int root, coll_comm *comm,
                                       coll_request **request);
/* coll_scatter() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_scatter_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                            coll_type type, int root, coll_comm *comm,
                                            void *stream);

/*
 * As scatter, with counts[r] elements for rank r, from sendbuf + displs[r].
 * sendbuf, counts, displs: used on root only. recvbuf: recvcount elements; recvcount must be the
 * root's counts[rank]. In place on root: recvbuf == sendbuf + displs[root].
 */
COLL_API coll_status coll_scatterv(const void *sendbuf, const size_t *counts, const size_t *displs,
                                   void *recvbuf, size_t recvcount, coll_type type, int root,
                                   coll_comm *comm);
/* Starts coll_scatterv(); complete the request. */
COLL_API coll_status coll_iscatterv(const void *sendbuf, const size_t *counts, const size_t *displs,
                                    void *recvbuf, size_t recvcount, coll_type type, int root,
                                    coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_scatterv(), for coll_start(). */
COLL_API coll_status coll_scatterv_init(const void *sendbuf, const size_t *counts,
                                        const size_t *displs, void *recvbuf, size_t recvcount,
                                        coll_type type, int root, coll_comm *comm,
                                        coll_request **request);
/* coll_scatterv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_scatterv_on_stream(const void *sendbuf, const size_t *counts,
                                             const size_t *displs, void *recvbuf, size_t recvcount,
                                             coll_type type, int root, coll_comm *comm,
                                             void *stream);

/*
 * Block s of recvbuf on rank d = block d of sendbuf on rank s.
 * sendbuf, recvbuf: nranks * count elements, count for each rank. In place: sendbuf == recvbuf,
 * which allocates memory for a copy.
 */
COLL_API coll_status coll_alltoall(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                                   coll_comm *comm);
/* Starts coll_alltoall(); complete the request. */
COLL_API coll_status coll_ialltoall(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_alltoall(), for coll_start(). */
COLL_API coll_status coll_alltoall_init(const void *sendbuf, void *recvbuf, size_t count,
                                        coll_type type, coll_comm *comm, coll_request **request);
/* coll_alltoall() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_alltoall_on_stream(const void *sendbuf, void *recvbuf, size_t count,
                                             coll_type type, coll_comm *comm, void *stream);

/*
 * As alltoall, with blocks of any length: sendcounts[d] elements from sendbuf + sdispls[d] go to
 * rank d, recvcounts[s] elements from rank s go to recvbuf + rdispls[s]. What s sends to d must be
 * as long as d expects. In place: sendbuf == recvbuf, with equal counts and displacements.
 */
COLL_API coll_status coll_alltoallv(const void *sendbuf, const size_t *sendcounts,
                                    const size_t *sdispls, void *recvbuf, const size_t *recvcounts,
                                    const size_t *rdispls, coll_type type, coll_comm *comm);
/* Starts coll_alltoallv(); complete the request. */
COLL_API coll_status coll_ialltoallv(const void *sendbuf, const size_t *sendcounts,
                                     const size_t *sdispls, void *recvbuf, const size_t *recvcounts,
                                     const size_t *rdispls, coll_type type, coll_comm *comm,
                                     coll_request **request);
/* Makes a persistent request of coll_alltoallv(), for coll_start(). */
COLL_API coll_status coll_alltoallv_init(const void *sendbuf, const size_t *sendcounts,
                                         const size_t *sdispls, void *recvbuf,
                                         const size_t *recvcounts, const size_t *rdispls,
                                         coll_type type, coll_comm *comm, coll_request **request);
/* coll_alltoallv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_alltoallv_on_stream(const void *sendbuf, const size_t *sendcounts,
                                              const size_t *sdispls, void *recvbuf,
                                              const size_t *recvcounts, const size_t *rdispls,
                                              coll_type type, coll_comm *comm, void *stream);

/*
 * As alltoallv, with a type for each rank: sendcounts[d] elements of sendtypes[d] at byte
 * sdispls[d] of sendbuf go to rank d, recvcounts[s] elements of recvtypes[s] from rank s go to byte
 * rdispls[s] of recvbuf. NULL displacements: each block begins where the one before ends. What s
 * sends to d must have as many bytes as d expects; the types may differ, also in place, where
 * sendbuf == recvbuf and both sides have the same blocks. It moves bytes: records name it alltoallv
 * of elements of 1 byte, buffers need no alignment, and COLL_CHECK_FINITE does not look at them.
 * Memory for 4 * nranks numbers is allocated (NO_MEMORY).
 */
COLL_API coll_status coll_alltoallw(const void *sendbuf, const size_t *sendcounts,
                                    const size_t *sdispls, const coll_type *sendtypes,
                                    void *recvbuf, const size_t *recvcounts, const size_t *rdispls,
                                    const coll_type *recvtypes, coll_comm *comm);
/* Starts coll_alltoallw(); complete the request. */
COLL_API coll_status coll_ialltoallw(const void *sendbuf, const size_t *sendcounts,
                                     const size_t *sdispls, const coll_type *sendtypes,
                                     void *recvbuf, const size_t *recvcounts, const size_t *rdispls,
                                     const coll_type *recvtypes, coll_comm *comm,
                                     coll_request **request);
/* Makes a persistent request of coll_alltoallw(), for coll_start(). */
COLL_API coll_status coll_alltoallw_init(const void *sendbuf, const size_t *sendcounts,
                                         const size_t *sdispls, const coll_type *sendtypes,
                                         void *recvbuf, const size_t *recvcounts,
                                         const size_t *rdispls, const coll_type *recvtypes,
                                         coll_comm *comm, coll_request **request);
/* coll_alltoallw() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_alltoallw_on_stream(const void *sendbuf, const size_t *sendcounts,
                                              const size_t *sdispls, const coll_type *sendtypes,
                                              void *recvbuf, const size_t *recvcounts,
                                              const size_t *rdispls, const coll_type *recvtypes,
                                              coll_comm *comm, void *stream);

/* Waits until every rank has called it. */
COLL_API coll_status coll_barrier(coll_comm *comm);
/* Starts coll_barrier(); complete the request. */
COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_barrier(), for coll_start(). */
COLL_API coll_status coll_barrier_init(coll_comm *comm, coll_request **request);
/* coll_barrier() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_barrier_on_stream(coll_comm *comm, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_COLLECTIVES_H */
