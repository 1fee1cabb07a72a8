/* measure.c: one line: verify, warm up, and time, out of place and in place. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define EACH_MAX 100000 /* single operations whose times are kept */
#define TARGET_S 0.05   /* length of a measurement, unless the user sets the number of iterations */

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
static double bus_factor(const perf_options *options, int nranks) {
  double n = nranks;
  const perf_traits *traits = options->traits;
  if (options->what == PERF_ALLREDUCE || options->what == PERF_REDUCE_BROADCAST)
    return 2 * (n - 1) / n;
  bool blocks = traits->send == PERF_ALL_BLOCKS || traits->recv == PERF_ALL_BLOCKS;
  return blocks ? (n - 1) / n : 1;
}

/* Measures single operations. Of each figure the one of the slowest rank counts. */
static coll_status measure_spread(const perf_bench *b, bool in_place, perf_sample *sample) {
  int iters = b->options->launches ? b->options->launches : b->line->iters;
  iters = iters < EACH_MAX ? iters : EACH_MAX;
  double *us = calloc((size_t)iters, sizeof(*us));
  coll_status status = us ? perf_time_each(b, in_place, iters, us) : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK) {
    double share = perf_window_share(b);
    double found[4] = {us[0] / share, us[iters / 2] / share, us[(int)(0.99 * iters)] / share,
                       us[iters - 1] / share};
    status = coll_allreduce(found, found, 4, COLL_FLOAT64, COLL_MAX, b->comm);
    sample->least_us = found[0];
    sample->median_us = found[1];
    sample->p99_us = found[2];
    sample->most_us = found[3];
  }
  free(us);
  return status;
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
  double each = seconds / iters / perf_window_share(b);
  double ways = b->options->what == PERF_SENDRECV && b->options->pattern == PERF_BOTH ? 2 : 1;
  sample->us = each * 1e6;
  sample->algbw = each > 0 ? ways * (double)b->line->bytes / each / 1e9 : 0;
  sample->messages = b->options->window ? perf_window_messages(b) : 0;
  sample->busbw = sample->algbw * bus_factor(b->options, b->nranks);
  if (status == COLL_OK && b->options->percentiles)
    status = measure_spread(b, in_place, sample);
  return status;
}

coll_status perf_measure(const perf_options *options, coll_comm *comm, perf_line *line) {
  perf_bench b;
  coll_status status = perf_bench_open(&b, options, comm, line);
  if (options->traits->varying)
    line->bytes = b.total * b.bytes;
  if (status == COLL_OK)
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
          error.status != COLL_OK        ? error.message
          : status == COLL_ERR_NO_MEMORY ? "out of memory for the buffers"
                                         : "the GPU failed, as said above");
}
