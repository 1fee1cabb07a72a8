/* forms.c: the four forms of each operation of coll_collectives.h and coll_p2p.h. */
#include "libcoll/api/message.h"
#include "libcoll/api/typed.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/on_stream.h"

/* Blocking form: `run_call` is colli_call_run or colli_typed_run. */
static inline coll_status run_blocking(coll_comm *comm, const colli_call *call,
                                       coll_status (*run_call)(coll_comm *, const colli_call *)) {
  coll_status status = colli_call_enter(comm);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  status = run_call(comm, call);
  colli_call_leave(comm);
  return status;
}

/* Nonblocking and persistent form: `begin_call` launches a call, or keeps it. */
static inline coll_status
begin_request(coll_comm *comm, const colli_call *call, coll_request **request,
              coll_status (*begin_call)(coll_comm *, const colli_call *, coll_request **)) {
  if (request)
    *request = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (request)
    status = begin_call(comm, call, request);
  else
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name, "request is NULL");
  colli_call_leave(comm);
  return status;
}

/* Stream-ordered form. */
static coll_status run_on_stream(coll_comm *comm, const colli_call *call, void *stream,
                                 colli_keep_fn *keep) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_stream_call(comm, call, stream, keep);
  colli_call_leave(comm);
  return status;
}

#define ARGS(...) __VA_ARGS__

/* Defines two forms of an operation, which keep a call: `params` in parentheses. */
#define KEEPING_FORMS(keep_call, id, params, call)                                                 \
  coll_status coll_##id##_init(ARGS params, coll_comm *comm, coll_request **request) {             \
    return begin_request(comm, call, request, keep_call);                                          \
  }                                                                                                \
  coll_status coll_##id##_on_stream(ARGS params, coll_comm *comm, void *stream) {                  \
    return run_on_stream(comm, call, stream, keep_call);                                           \
  }

/* All four: also how it is run and launched. */
#define FORMS_OF(run_call, launch_call, keep_call, id, params, call)                               \
  coll_status coll_##id(ARGS params, coll_comm *comm) {                                            \
    return run_blocking(comm, call, run_call);                                                     \
  }                                                                                                \
  coll_status coll_i##id(ARGS params, coll_comm *comm, coll_request **request) {                   \
    return begin_request(comm, call, request, launch_call);                                        \
  }                                                                                                \
  KEEPING_FORMS(keep_call, id, params, call)

/* The same, with the call's fields. */
#define FORMS(id, params, ...)                                                                     \
  FORMS_OF(colli_call_run, colli_call_launch, colli_call_keep, id, params,                         \
           (&(colli_call){.name = #id, __VA_ARGS__}))
#define TYPED(id, params, ...)                                                                     \
  FORMS_OF(colli_typed_run, colli_typed_launch, colli_typed_keep, id, params,                      \
           (&(colli_typed_call){.call.name = #id, __VA_ARGS__}.call))

/* A send or receive, which mostly needs no call (message.c). */
#define MESSAGE(id, params, args)                                                                  \
  coll_status coll_##id(ARGS params, coll_comm *comm) {                                            \
    return colli_##id##_run(ARGS args, comm);                                                      \
  }                                                                                                \
  coll_status coll_i##id(ARGS params, coll_comm *comm, coll_request **request) {                   \
    return colli_##id##_launch(ARGS args, comm, request);                                          \
  }                                                                                                \
  KEEPING_FORMS(colli_call_keep, id, params, ((colli_call[1]){colli_##id##_call args}))

#define BUFFERS .sendbuf = sendbuf, .recvbuf = recvbuf, .type = (int)type

FORMS(allreduce, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op),
      .coll = COLLI_ALLREDUCE, BUFFERS, .count = count, .op = op)

FORMS(reduce,
      (const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op, int root),
      .coll = COLLI_REDUCE, BUFFERS, .count = count, .op = op, .root = root)

FORMS(reduce_scatter,
      (const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op),
      .coll = COLLI_REDUCE_SCATTER, BUFFERS, .count = count, .op = op)

FORMS(reduce_scatterv,
      (const void *sendbuf, void *recvbuf, const size_t *counts, coll_type type, coll_op op),
      .coll = COLLI_REDUCE_SCATTER, BUFFERS, .op = op, .varying = true, .in_counts = counts,
      .out_counts = counts)

FORMS(scan, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op),
      .coll = COLLI_SCAN, BUFFERS, .count = count, .op = op)

FORMS(exscan, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, coll_op op),
      .coll = COLLI_EXSCAN, BUFFERS, .count = count, .op = op)

FORMS(broadcast, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root),
      .coll = COLLI_BROADCAST, BUFFERS, .count = count, .root = root)

FORMS(allgather, (const void *sendbuf, void *recvbuf, size_t count, coll_type type),
      .coll = COLLI_ALLGATHER, BUFFERS, .count = count)

FORMS(allgatherv,
      (const void *sendbuf, void *recvbuf, const size_t *counts, const size_t *displs,
       coll_type type),
      .coll = COLLI_ALLGATHER, BUFFERS, .varying = true, .in_counts = counts, .in_displs = displs,
      .out_counts = counts, .out_displs = displs)

FORMS(gather, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root),
      .coll = COLLI_GATHER, BUFFERS, .count = count, .root = root)

FORMS(gatherv,
      (const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *counts,
       const size_t *displs, coll_type type, int root),
      .coll = COLLI_GATHER, BUFFERS, .count = sendcount, .root = root, .varying = true,
      .out_counts = counts, .out_displs = displs)

FORMS(scatter, (const void *sendbuf, void *recvbuf, size_t count, coll_type type, int root),
      .coll = COLLI_SCATTER, BUFFERS, .count = count, .root = root)

FORMS(scatterv,
      (const void *sendbuf, const size_t *counts, const size_t *displs, void *recvbuf,
       size_t recvcount, coll_type type, int root),
      .coll = COLLI_SCATTER, BUFFERS, .count = recvcount, .root = root, .varying = true,
      .in_counts = counts, .in_displs = displs)

FORMS(alltoall, (const void *sendbuf, void *recvbuf, size_t count, coll_type type),
      .coll = COLLI_ALLTOALL, BUFFERS, .count = count)

FORMS(alltoallv,
      (const void *sendbuf, const size_t *sendcounts, const size_t *sdispls, void *recvbuf,
       const size_t *recvcounts, const size_t *rdispls, coll_type type),
      .coll = COLLI_ALLTOALL, BUFFERS, .varying = true, .in_counts = sendcounts,
      .in_displs = sdispls, .out_counts = recvcounts, .out_displs = rdispls)

TYPED(alltoallw,
      (const void *sendbuf, const size_t *sendcounts, const size_t *sdispls,
       const coll_type *sendtypes, void *recvbuf, const size_t *recvcounts, const size_t *rdispls,
       const coll_type *recvtypes),
      .call.coll = COLLI_ALLTOALL, .call.sendbuf = sendbuf, .call.recvbuf = recvbuf,
      .call.varying = true, .call.in_counts = sendcounts, .call.in_displs = sdispls,
      .call.out_counts = recvcounts, .call.out_displs = rdispls, .in_types = sendtypes,
      .out_types = recvtypes)

MESSAGE(send, (const void *sendbuf, size_t count, coll_type type, int peer, int tag),
        (sendbuf, count, type, peer, tag))

MESSAGE(recv,
        (void *recvbuf, size_t count, coll_type type, int peer, int tag, coll_message *message),
        (recvbuf, count, type, peer, tag, message))

FORMS(sendrecv,
      (const void *sendbuf, size_t sendcount, int dest, int sendtag, void *recvbuf,
       size_t recvcount, int source, int recvtag, coll_type type, coll_message *message),
      .coll = COLLI_SENDRECV, .p2p = COLLI_P2P_SENDRECV, BUFFERS, .count = sendcount, .dest = dest,
      .send_tag = sendtag, .recv_count = recvcount, .source = source, .recv_tag = recvtag,
      .message = message)

FORMS(put,
      (const void *sendbuf, size_t count, coll_type type, int peer, size_t offset,
       coll_window *window),
      .coll = COLLI_SENDRECV, .p2p = COLLI_P2P_PUT, .sendbuf = sendbuf, .count = count,
      .type = (int)type, .dest = peer, .offset = offset, .window = window)

FORMS(signal, (int peer, coll_window *window), .coll = COLLI_SENDRECV, .p2p = COLLI_P2P_SIGNAL,
      .dest = peer, .window = window)

FORMS(wait_signal, (int peer, uint64_t count, coll_window *window), .coll = COLLI_SENDRECV,
      .p2p = COLLI_P2P_WAIT_SIGNAL, .source = peer, .signals = count, .window = window)

/* ---- barrier, which has no arguments --------------------------------------------------------- */

static const colli_call barrier_call = {.name = "barrier", .coll = COLLI_BARRIER};

coll_status coll_barrier(coll_comm *comm) {
  return run_blocking(comm, &barrier_call, colli_call_run);
}

coll_status coll_ibarrier(coll_comm *comm, coll_request **request) {
  return begin_request(comm, &barrier_call, request, colli_call_launch);
}

coll_status coll_barrier_init(coll_comm *comm, coll_request **request) {
  return begin_request(comm, &barrier_call, request, colli_call_keep);
}

coll_status coll_barrier_on_stream(coll_comm *comm, void *stream) {
  return run_on_stream(comm, &barrier_call, stream, colli_call_keep);
}
