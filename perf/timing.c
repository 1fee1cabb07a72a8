/* timing.c: how long operations take: back to back, one by one, or as a CUDA graph. */
#include <stdlib.h>
#include <time.h>

#include "calls.h"

#define GRAPH_ITERS 20 /* in a graph, unless the user says how many; as in nccl-tests */

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The warm-up is not in a graph, as in nccl-tests: there the first launch is. */
coll_status perf_warm_up(const perf_bench *b, bool in_place) {
  return perf_run_all(b, in_place, b->options->warmup);
}

/* Makes a graph, and launches it once before that is timed: the first launch loads it. */
static coll_status prepare(const perf_bench *b, bool in_place, int iters, perf_graph *graph) {
  if (!b->options->launches)
    return COLL_OK;
  const coll_status status = perf_capture(b, in_place, iters, graph);
  return status == COLL_OK && b->options->warmup ? perf_launch_all(b, graph, 1) : status;
}

coll_status perf_time(const perf_bench *b, bool in_place, int iters, double *seconds) {
  const int launches = b->options->launches;
  perf_graph graph = {NULL, NULL, NULL};
  coll_status status = prepare(b, in_place, iters, &graph);
  if (status == COLL_OK)
    status = coll_barrier(b->comm);
  double start = now_s();
  if (status == COLL_OK)
    status = launches ? perf_launch_all(b, &graph, launches) : perf_run_all(b, in_place, iters);
  *seconds = (now_s() - start) / (launches ? launches : 1);
  perf_graph_free(&graph);
  if (status == COLL_OK)
    status = coll_allreduce(seconds, seconds, 1, COLL_FLOAT64, COLL_MAX, b->comm);
  return status;
}

static int by_time(const void *a, const void *b) {
  const double *left = a, *right = b;
  return (*left > *right) - (*left < *right);
}

coll_status perf_time_each(const perf_bench *b, bool in_place, int count, double *us) {
  const int iters = b->line->iters, share = b->options->launches ? iters : 1;
  perf_graph graph = {NULL, NULL, NULL};
  coll_status status = prepare(b, in_place, iters, &graph);
  if (status == COLL_OK)
    status = coll_barrier(b->comm);
  double before = now_s();
  for (int i = 0; i < count && status == COLL_OK; i++) {
    status = b->options->launches ? perf_graph_launch(&graph) : perf_run_once(b, in_place, i);
    if (status == COLL_OK)
      status = perf_finish(b);
    double after = now_s();
    us[i] = (after - before) * 1e6 / share;
    before = after;
  }
  perf_graph_free(&graph);
  if (status == COLL_OK)
    qsort(us, (size_t)count, sizeof(*us), by_time);
  return status;
}

/* Operations in a graph: no more than libcoll keeps copies of. */
static int graph_iters(const perf_bench *b) {
  const int wanted = b->options->iters ? b->options->iters : GRAPH_ITERS;
  const int most = perf_stream_calls(b);
  return wanted < most ? wanted : most;
}

coll_status perf_choose_iters(const perf_bench *b, double wanted, int *iters) {
  double seconds = 0;
  *iters = b->options->launches ? graph_iters(b) : b->options->iters;
  if (*iters)
    return COLL_OK;
  *iters = 4;
  for (;;) {
    coll_status status = perf_time(b, false, *iters, &seconds);
    if (status != COLL_OK)
      return status;
    if (seconds > wanted / 4 || *iters >= 1 << 22)
      break;
    *iters *= 4;
  }
  double fit = *iters * wanted / seconds;
  *iters = fit < 2 ? 2 : (int)fit;
  return COLL_OK;
}
