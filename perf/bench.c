/* bench.c: buffers, one operation, and whether its result is right. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/*
 * The length of block k in a v-form: blocks have `count` elements on average, and the last is
 * nranks times as long as the first.
 */
static size_t uneven(size_t count, int k, int nranks) {
  return 2 * count * ((size_t)k + 1) / ((size_t)nranks + 1);
}

/* The block of rank `from` for rank `to` in an all-to-all. */
static size_t exchange_block(const perf_bench *b, int from, int to) {
  size_t count = b->line->count;
  return b->traits->varying ? uneven(count, (from + to) % b->nranks, b->nranks) : count;
}

/* The root of iteration `i`. */
static int root_of(const perf_bench *b, int i) {
  if (!b->traits->rooted)
    return 0;
  return b->line->root < 0 ? i % b->nranks : b->line->root;
}

/* Elements of a buffer. */
static size_t extent_of(const perf_bench *b, perf_extent extent) {
  return extent == PERF_NOTHING ? 0 : extent == PERF_ALL_BLOCKS ? b->total : b->counts[b->rank];
}

/* Fills in the lengths and displacements of blocks. */
static void set_blocks(perf_bench *b) {
  const perf_traits *traits = b->traits;
  bool both = traits->send == PERF_ALL_BLOCKS && traits->recv == PERF_ALL_BLOCKS;
  for (int k = 0; k < b->nranks; k++) {
    b->counts[k] = both              ? exchange_block(b, b->rank, k)
                   : traits->varying ? uneven(b->line->count, k, b->nranks)
                                     : b->line->count;
    b->displs[k] = b->total;
    b->total += b->counts[k];
  }
  b->nsend = extent_of(b, traits->send);
  b->nrecv = extent_of(b, traits->recv);
}

/*
 * A driver may allocate, free and make graphs only when streams are idle, also those of other
 * ranks that are threads. No rank may put anything into its stream that waits for one which is
 * still doing such things.
 */
static coll_status await_drivers(const perf_bench *b) {
  return coll_barrier(b->comm);
}

coll_status perf_bench_open(perf_bench *b, const perf_options *options, coll_comm *comm,
                            const perf_line *line) {
  *b = (perf_bench){
      .options = options, .traits = options->traits, .comm = comm, .owner = comm, .line = line};
  coll_comm_rank(comm, &b->rank);
  coll_comm_nranks(comm, &b->nranks);
  b->stream = perf_is_streamed(options) ? options->device->stream : NULL;
  b->bytes = coll_type_bytes((coll_type)line->type);
  b->counts = calloc((size_t)b->nranks, sizeof(*b->counts));
  b->displs = calloc((size_t)b->nranks, sizeof(*b->displs));
  if (!b->counts || !b->displs)
    return COLL_ERR_NO_MEMORY;
  set_blocks(b);
  b->room = (b->nsend > b->nrecv ? b->nsend : b->nrecv) * b->bytes;
  const coll_status status = perf_memory_open(b);
  return status == COLL_OK && b->stream ? await_drivers(b) : status;
}

void perf_bench_close(perf_bench *b) {
  perf_memory_close(b);
  free(b->counts);
  free(b->displs);
}

/* Chooses where the operation reads and writes; in place, both are in one buffer. */
static void choose_buffers(const perf_bench *b, bool in_place, char **send, char **recv) {
  size_t own = b->displs[b->rank] * b->bytes;
  *send = in_place ? b->recv : b->send;
  *recv = b->recv;
  if (in_place && b->traits->recv == PERF_ALL_BLOCKS && b->traits->send == PERF_ONE_BLOCK)
    *send += own;
  if (in_place && b->traits->send == PERF_ALL_BLOCKS && b->traits->recv == PERF_ONE_BLOCK)
    *recv += own;
}

/* Reduces to a root, and broadcasts its result. */
static coll_status run_reduce_broadcast(const perf_bench *b, const char *send, char *recv,
                                        int root) {
  coll_type type = (coll_type)b->line->type;
  size_t count = b->line->count;
  coll_status status = coll_reduce(send, recv, count, type, (coll_op)b->line->op, root, b->comm);
  return status == COLL_OK ? coll_broadcast(recv, recv, count, type, root, b->comm) : status;
}

/* Runs one operation, and waits for it. */
static coll_status run_blocking(const perf_bench *b, const char *send, char *recv, int root) {
  coll_type type = (coll_type)b->line->type;
  coll_op op = (coll_op)b->line->op;
  size_t count = b->line->count, *counts = b->counts, own = counts[b->rank];
  switch (b->options->what) {
  case PERF_ALLREDUCE:
    return coll_allreduce(send, recv, count, type, op, b->comm);
  case PERF_REDUCE:
    return coll_reduce(send, recv, count, type, op, root, b->comm);
  case PERF_REDUCE_SCATTER:
    return coll_reduce_scatter(send, recv, count, type, op, b->comm);
  case PERF_REDUCE_SCATTERV:
    return coll_reduce_scatterv(send, recv, counts, type, op, b->comm);
  case PERF_SCAN:
    return coll_scan(send, recv, count, type, op, b->comm);
  case PERF_EXSCAN:
    return coll_exscan(send, recv, count, type, op, b->comm);
  case PERF_BROADCAST:
    return coll_broadcast(send, recv, count, type, root, b->comm);
  case PERF_ALLGATHER:
    return coll_allgather(send, recv, count, type, b->comm);
  case PERF_ALLGATHERV:
    return coll_allgatherv(send, recv, counts, b->displs, type, b->comm);
  case PERF_GATHER:
    return coll_gather(send, recv, count, type, root, b->comm);
  case PERF_GATHERV:
    return coll_gatherv(send, own, recv, counts, b->displs, type, root, b->comm);
  case PERF_SCATTER:
    return coll_scatter(send, recv, count, type, root, b->comm);
  case PERF_SCATTERV:
    return coll_scatterv(send, counts, b->displs, recv, own, type, root, b->comm);
  case PERF_ALLTOALL:
    return coll_alltoall(send, recv, count, type, b->comm);
  case PERF_ALLTOALLV:
    return coll_alltoallv(send, counts, b->displs, recv, counts, b->displs, type, b->comm);
  case PERF_BARRIER:
    return coll_barrier(b->comm);
  case PERF_REDUCE_BROADCAST:
    return run_reduce_broadcast(b, send, recv, root);
  default:
    return perf_run_window(b, send, recv);
  }
}

coll_status perf_run_once(const perf_bench *b, bool in_place, int i) {
  char *send, *recv;
  choose_buffers(b, in_place, &send, &recv);
  int root = root_of(b, i);
  return b->stream ? perf_run_on_stream(b, send, recv, root) : run_blocking(b, send, recv, root);
}

coll_status perf_run_all(const perf_bench *b, bool in_place, int count) {
  coll_status status = COLL_OK;
  int left = perf_stream_calls(b);
  for (int i = 0; i < count && status == COLL_OK; i++) {
    status = perf_run_once(b, in_place, i);
    if (--left == 0 && status == COLL_OK) {
      status = perf_finish(b);
      left = perf_stream_calls(b);
    }
  }
  return status == COLL_OK ? perf_finish(b) : status;
}

coll_status perf_capture(const perf_bench *b, bool in_place, int count, perf_graph *graph) {
  coll_status status = perf_graph_begin(b->options->device, graph);
  if (status != COLL_OK)
    return status;
  for (int i = 0; i < count && status == COLL_OK; i++)
    status = perf_run_once(b, in_place, i);
  const coll_status ended = perf_graph_end(graph, status == COLL_OK);
  status = status == COLL_OK ? ended : status;
  return status == COLL_OK ? await_drivers(b) : status;
}

coll_status perf_launch_all(const perf_bench *b, const perf_graph *graph, int launches) {
  coll_status status = COLL_OK;
  for (int i = 0; i < launches && status == COLL_OK; i++)
    status = perf_graph_launch(graph);
  return status == COLL_OK ? perf_finish(b) : status;
}

/* Runs the first operations of a measurement, in a graph if it has one, and waits for them. */
static coll_status run(const perf_bench *b, bool in_place, int count) {
  perf_graph graph = {NULL, NULL, NULL};
  if (!b->options->launches)
    return perf_run_all(b, in_place, count);
  coll_status status = perf_capture(b, in_place, count, &graph);
  if (status == COLL_OK)
    status = perf_launch_all(b, &graph, 1);
  perf_graph_free(&graph);
  return status;
}

/* Counts the wrong elements of an all-gather, gather or all-to-all, block by block. */
static long long wrong_blocks(const perf_bench *b, const char *recv) {
  bool exchange = b->traits->send == PERF_ALL_BLOCKS;
  long long wrong = 0;
  for (int from = 0; from < b->nranks; from++) {
    size_t first = 0;
    for (int to = 0; exchange && to < b->rank; to++)
      first += exchange_block(b, from, to);
    wrong += perf_wrong_copy(recv + b->displs[from] * b->bytes, b->counts[from], first,
                             b->line->type, from, b->nranks);
  }
  return wrong;
}

/* Counts the wrong elements of this rank's result. */
static long long count_wrong(const perf_bench *b, const char *recv) {
  const perf_line *line = b->line;
  int n = b->nranks, root = root_of(b, 0);
  size_t first = b->traits->send == PERF_ALL_BLOCKS ? b->displs[b->rank] : 0;
  switch (b->options->what) {
  case PERF_ALLREDUCE:
  case PERF_REDUCE_BROADCAST:
  case PERF_REDUCE_SCATTER:
  case PERF_REDUCE_SCATTERV:
    return perf_wrong(recv, b->nrecv, first, line->type, line->op, n, n);
  case PERF_REDUCE:
    return b->rank == root ? perf_wrong(recv, b->nrecv, 0, line->type, line->op, n, n) : 0;
  case PERF_SCAN:
    return perf_wrong(recv, b->nrecv, 0, line->type, line->op, b->rank + 1, n);
  case PERF_EXSCAN:
    return b->rank ? perf_wrong(recv, b->nrecv, 0, line->type, line->op, b->rank, n) : 0;
  case PERF_BROADCAST:
  case PERF_SCATTER:
  case PERF_SCATTERV:
    return perf_wrong_copy(recv, b->nrecv, first, line->type, root, n);
  case PERF_GATHER:
  case PERF_GATHERV:
    return b->rank == root ? wrong_blocks(b, recv) : 0;
  case PERF_ALLGATHER:
  case PERF_ALLGATHERV:
  case PERF_ALLTOALL:
  case PERF_ALLTOALLV:
    return wrong_blocks(b, recv);
  case PERF_SENDRECV:
    return perf_source(b) < 0 ? 0
                              : perf_wrong_copy(recv, b->nrecv, 0, line->type, perf_source(b), n);
  default:
    return 0;
  }
}

coll_status perf_verify(const perf_bench *b, bool in_place, long long *wrong) {
  const char *result = NULL;
  char *send, *recv;
  choose_buffers(b, in_place, &send, &recv);
  coll_status status = perf_put_input(b, send);
  if (status == COLL_OK)
    status = run(b, in_place, 1);
  if (status == COLL_OK)
    status = perf_get_result(b, recv, &result);
  int64_t mine = status == COLL_OK ? count_wrong(b, result) : 0, all = 0;
  if (status == COLL_OK)
    status = coll_allreduce(&mine, &all, 1, COLL_INT64, COLL_SUM, b->comm);
  *wrong = all;
  return status;
}
