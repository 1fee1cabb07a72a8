/* measure.c: one line: verify, warm up, and time, out of place and in place. */
#include <string.h>

#include "perf.h"

#define TARGET_S 0.05 /* length of a measurement, unless the user sets the number of iterations */

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
static double bus_factor(const perf_options *options, int nranks) {
  double n = nranks;
  const perf_traits *traits = options->traits;
  if (options->what == PERF_ALLREDUCE || options->what == PERF_REDUCE_BROADCAST)
    return 2 * (n - 1) / n;
  bool blocks = traits->send == PERF_ALL_BLOCKS || traits->recv == PERF_ALL_BLOCKS;
  return blocks ? (n - 1) / n : 1;
}

/* Measures one half of a line. */
static coll_status measure_half(const perf_bench *b, bool in_place, perf_sample *sample) {
  int iters = b->line->iters;
  double seconds = 0;
  sample->wrong = -1;
  coll_status status = COLL_OK;
  if (b->options->check)
    status = perf_verify(b, in_place, &sample->wrong);
  if (status == COLL_OK)
    status = perf_warm_up(b, in_place);
  if (status == COLL_OK)
    status = perf_time(b, in_place, iters, &seconds);
  sample->us = seconds / iters * 1e6;
  sample->algbw = seconds > 0 ? (double)b->line->bytes * iters / seconds / 1e9 : 0;
  sample->busbw = sample->algbw * bus_factor(b->options, b->nranks);
  return status;
}

coll_status perf_measure(const perf_options *options, coll_comm *comm, perf_line *line) {
  perf_bench b;
  coll_status status = perf_bench_open(&b, options, comm, line);
  line->iters = options->iters;
  if (options->traits->varying)
    line->bytes = b.total * b.bytes;
  if (status == COLL_OK && !options->iters)
    status = perf_choose_iters(&b, TARGET_S, &line->iters);
  if (status == COLL_OK)
    status = measure_half(&b, false, &line->out_of_place);
  line->in_place = line->out_of_place;
  if (status == COLL_OK && options->what != PERF_BARRIER && options->what != PERF_SENDRECV)
    status = measure_half(&b, true, &line->in_place);
  perf_bench_close(&b);
  return status;
}

void perf_complain(const coll_comm *comm, coll_status status) {
  int rank = -1;
  coll_error error = COLL_ERROR_INIT;
  coll_comm_rank(comm, &rank);
  coll_last_error(comm, &error);
  fprintf(stderr, "coll_perf: rank %d: %s: %s\n", rank, coll_status_name(status),
          error.status == COLL_OK ? "out of memory for the buffers" : error.message);
}
