/* on_stream.c: operations in a stream of a GPU, as nccl-tests times them. */
#include <limits.h>

#include "calls.h"

/*
 * Until a stream has passed a call, libcoll keeps copies of its buffers on the host, and the
 * driver's queue has a few entries of it. Both are limited, so the host waits now and then.
 */
#define CALLS_MAX 64
#define BYTES_MAX ((size_t)512 << 20)

bool perf_is_streamed(const perf_options *options) {
  return options->device && options->blocking != 1 && !options->overlap;
}

int perf_stream_calls(const perf_bench *b) {
  if (!b->stream)
    return INT_MAX;
  size_t each = 2 * (b->room + 1) * (size_t)(b->options->window ? b->options->window : 1);
  size_t fit = BYTES_MAX / each;
  return fit > CALLS_MAX ? CALLS_MAX : fit > 0 ? (int)fit : 1;
}

coll_status perf_finish(const perf_bench *b) {
  if (!b->stream)
    return COLL_OK;
  coll_status status = perf_device_wait(b->options->device);
  return status == COLL_OK ? coll_comm_async_error(b->comm) : status;
}

/* Reduces to a root, and broadcasts its result. */
static coll_status reduce_broadcast(const perf_bench *b, const char *send, char *recv, int root) {
  void *stream = b->stream;
  coll_type type = (coll_type)b->line->type;
  coll_op op = (coll_op)b->line->op;
  size_t count = b->line->count;
  coll_status status = coll_reduce_on_stream(send, recv, count, type, op, root, b->comm, stream);
  if (status == COLL_OK)
    status = coll_broadcast_on_stream(recv, recv, count, type, root, b->comm, stream);
  return status;
}

coll_status perf_run_on_stream(const perf_bench *b, const char *send, char *recv, int root) {
  void *stream = b->stream;
  coll_type type = (coll_type)b->line->type;
  coll_op op = (coll_op)b->line->op;
  size_t count = b->line->count, *counts = b->counts, own = counts[b->rank];
  switch (b->options->what) {
  case PERF_ALLREDUCE:
    return coll_allreduce_on_stream(send, recv, count, type, op, b->comm, stream);
  case PERF_REDUCE:
    return coll_reduce_on_stream(send, recv, count, type, op, root, b->comm, stream);
  case PERF_REDUCE_SCATTER:
    return coll_reduce_scatter_on_stream(send, recv, count, type, op, b->comm, stream);
  case PERF_REDUCE_SCATTERV:
    return coll_reduce_scatterv_on_stream(send, recv, counts, type, op, b->comm, stream);
  case PERF_SCAN:
    return coll_scan_on_stream(send, recv, count, type, op, b->comm, stream);
  case PERF_EXSCAN:
    return coll_exscan_on_stream(send, recv, count, type, op, b->comm, stream);
  case PERF_BROADCAST:
    return coll_broadcast_on_stream(send, recv, count, type, root, b->comm, stream);
  case PERF_ALLGATHER:
    return coll_allgather_on_stream(send, recv, count, type, b->comm, stream);
  case PERF_ALLGATHERV:
    return coll_allgatherv_on_stream(send, recv, counts, b->displs, type, b->comm, stream);
  case PERF_GATHER:
    return coll_gather_on_stream(send, recv, count, type, root, b->comm, stream);
  case PERF_GATHERV:
    return coll_gatherv_on_stream(send, own, recv, counts, b->displs, type, root, b->comm, stream);
  case PERF_SCATTER:
    return coll_scatter_on_stream(send, recv, count, type, root, b->comm, stream);
  case PERF_SCATTERV:
    return coll_scatterv_on_stream(send, counts, b->displs, recv, own, type, root, b->comm, stream);
  case PERF_ALLTOALL:
    return coll_alltoall_on_stream(send, recv, count, type, b->comm, stream);
  case PERF_ALLTOALLV:
    return coll_alltoallv_on_stream(send, counts, b->displs, recv, counts, b->displs, type, b->comm,
                                    stream);
  case PERF_BARRIER:
    return coll_barrier_on_stream(b->comm, stream);
  case PERF_REDUCE_BROADCAST:
    return reduce_broadcast(b, send, recv, root);
  default:
    return perf_run_window_on_stream(b, send, recv);
  }
}
