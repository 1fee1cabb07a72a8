/* measure.c: one line: verify, warm up, and time, out of place and in place. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

#define TARGET_S 0.05 /* how long a measurement takes when the number of iterations is free */

/* What one rank needs for a line. */
typedef struct bench {
  const perf_options *options;
  coll_comm *comm;
  const perf_line *line;
  int rank, nranks;
  char *send, *recv;
  size_t send_count, recv_count;
} bench;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The root of iteration `i`. */
static int root_of(const bench *b, int i) {
  return b->line->root < 0 ? i % b->nranks : b->line->root;
}

/* Where this rank's input is when the operation is in place. */
static char *in_place_send(const bench *b) {
  size_t bytes = coll_type_bytes((coll_type)b->line->type);
  return b->options->what == PERF_ALLGATHER ? b->recv + (size_t)b->rank * b->send_count * bytes
                                            : b->recv;
}

/* Runs one operation. */
static coll_status run_once(const bench *b, bool in_place, int i) {
  const perf_line *line = b->line;
  const char *send = in_place ? in_place_send(b) : b->send;
  coll_type type = (coll_type)line->type;
  switch (b->options->what) {
  case PERF_ALLREDUCE:
    return coll_allreduce(send, b->recv, b->send_count, type, (coll_op)line->op, b->comm);
  case PERF_BROADCAST:
    return coll_broadcast(send, b->recv, b->send_count, type, root_of(b, i), b->comm);
  case PERF_ALLGATHER:
    return coll_allgather(send, b->recv, b->send_count, type, b->comm);
  case PERF_BARRIER:
    return coll_barrier(b->comm);
  default:
    break;
  }
  if (b->nranks == 1) {
    memcpy(b->recv, b->send, b->send_count * coll_type_bytes(type));
    return COLL_OK;
  }
  coll_request *requests[2] = {NULL, NULL};
  int next = (b->rank + 1) % b->nranks, before = (b->rank + b->nranks - 1) % b->nranks;
  coll_status status =
      coll_irecv(b->recv, b->recv_count, type, before, 0, NULL, b->comm, &requests[0]);
  if (status == COLL_OK)
    status = coll_isend(b->send, b->send_count, type, next, 0, b->comm, &requests[1]);
  for (int r = 0; r < 2 && status == COLL_OK; r++)
    status = coll_wait(&requests[r], -1);
  return status;
}

/* The elements of this rank's result that are wrong. */
static long long count_wrong(const bench *b) {
  const perf_line *line = b->line;
  size_t bytes = coll_type_bytes((coll_type)line->type);
  long long wrong = 0;
  switch (b->options->what) {
  case PERF_ALLREDUCE:
    return perf_wrong(b->recv, b->recv_count, line->type, line->op, b->nranks);
  case PERF_BROADCAST:
    return perf_wrong_copy(b->recv, b->recv_count, line->type, root_of(b, 0), b->nranks);
  case PERF_ALLGATHER:
    for (int r = 0; r < b->nranks; r++)
      wrong += perf_wrong_copy(b->recv + (size_t)r * b->send_count * bytes, b->send_count,
                               line->type, r, b->nranks);
    return wrong;
  case PERF_SENDRECV:
    return perf_wrong_copy(b->recv, b->recv_count, line->type,
                           (b->rank + b->nranks - 1) % b->nranks, b->nranks);
  default:
    return 0;
  }
}

/* Runs the operation once on known data and counts wrong elements over all ranks. */
static coll_status verify(const bench *b, bool in_place, long long *wrong) {
  const perf_line *line = b->line;
  size_t bytes = coll_type_bytes((coll_type)line->type);
  int op = b->options->what == PERF_ALLREDUCE ? line->op : COLL_SUM;
  memset(b->recv, 0xff, b->recv_count * bytes);
  perf_fill(in_place ? in_place_send(b) : b->send, b->send_count, line->type, op, b->rank,
            b->nranks);
  coll_status status = run_once(b, in_place, 0);
  int64_t mine = status == COLL_OK ? count_wrong(b) : 0, all = 0;
  if (status == COLL_OK)
    status = coll_allreduce(&mine, &all, 1, COLL_INT64, COLL_SUM, b->comm);
  *wrong = all;
  return status;
}

/* Times `iters` operations back to back: seconds on this rank. */
static coll_status time_loop(const bench *b, bool in_place, int iters, double *seconds) {
  coll_status status = coll_barrier(b->comm);
  double start = now_s();
  for (int i = 0; i < iters && status == COLL_OK; i++)
    status = run_once(b, in_place, i);
  *seconds = now_s() - start;
  return status;
}

/* The largest of the ranks' numbers. */
static coll_status slowest(const bench *b, double *seconds) {
  return coll_allreduce(seconds, seconds, 1, COLL_FLOAT64, COLL_MAX, b->comm);
}

/* How many operations take about TARGET_S: the same number on all ranks. */
static coll_status choose_iters(const bench *b, int *iters) {
  double seconds = 0;
  *iters = 4;
  for (;;) {
    coll_status status = time_loop(b, false, *iters, &seconds);
    if (status == COLL_OK)
      status = slowest(b, &seconds);
    if (status != COLL_OK)
      return status;
    if (seconds > TARGET_S / 4 || *iters >= 1 << 22)
      break;
    *iters *= 4;
  }
  double fit = *iters * TARGET_S / seconds;
  *iters = fit < 2 ? 2 : (int)fit;
  return COLL_OK;
}

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
static double bus_factor(perf_what what, int nranks) {
  double n = nranks;
  return what == PERF_ALLREDUCE ? 2 * (n - 1) / n : what == PERF_ALLGATHER ? (n - 1) / n : 1;
}

/* Measures one half of a line. */
static coll_status measure_half(const bench *b, bool in_place, int iters, perf_sample *sample) {
  double seconds = 0;
  sample->wrong = -1;
  coll_status status = COLL_OK;
  if (b->options->check)
    status = verify(b, in_place, &sample->wrong);
  for (int i = 0; i < b->options->warmup && status == COLL_OK; i++)
    status = run_once(b, in_place, i);
  if (status == COLL_OK)
    status = time_loop(b, in_place, iters, &seconds);
  if (status == COLL_OK)
    status = slowest(b, &seconds);
  sample->us = seconds / iters * 1e6;
  sample->algbw = seconds > 0 ? (double)b->line->bytes * iters / seconds / 1e9 : 0;
  sample->busbw = sample->algbw * bus_factor(b->options->what, b->nranks);
  return status;
}

coll_status perf_measure(const perf_options *options, coll_comm *comm, perf_line *line) {
  bench b = {.options = options, .comm = comm, .line = line};
  coll_comm_rank(comm, &b.rank);
  coll_comm_nranks(comm, &b.nranks);
  size_t bytes = coll_type_bytes((coll_type)line->type);
  b.send_count = b.recv_count = line->count;
  if (options->what == PERF_ALLGATHER)
    b.recv_count = line->count * (size_t)b.nranks;
  void *send = NULL, *recv = NULL;
  if (posix_memalign(&send, 4096, b.send_count * bytes + 64) != 0)
    return COLL_ERR_NO_MEMORY;
  if (posix_memalign(&recv, 4096, b.recv_count * bytes + 64) != 0) {
    free(send);
    return COLL_ERR_NO_MEMORY;
  }
  b.send = send;
  b.recv = recv;
  memset(send, 0, b.send_count * bytes);
  memset(recv, 0, b.recv_count * bytes);
  line->iters = options->iters;
  coll_status status = options->iters ? COLL_OK : choose_iters(&b, &line->iters);
  if (status == COLL_OK)
    status = measure_half(&b, false, line->iters, &line->out_of_place);
  line->in_place = line->out_of_place;
  if (status == COLL_OK && options->what != PERF_BARRIER && options->what != PERF_SENDRECV)
    status = measure_half(&b, true, line->iters, &line->in_place);
  free(send);
  free(recv);
  return status;
}
