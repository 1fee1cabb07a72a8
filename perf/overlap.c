/*
 * overlap.c: how much of an operation is hidden behind work that the program does meanwhile:
 * compares the time of start, work and wait with the times of the operation and the work alone. The
 * work takes about as long as the operation. "cpu" computes in registers, on the rank's core;
 * "device" leaves the core idle, like a program that waits for a GPU.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

#define ROUNDS   9    /* the three are interleaved, so that a disturbance does not hit only one */
#define TARGET_S 0.02 /* length of a turn, unless the user sets the number of iterations */

/* Work of a certain length. */
typedef struct work {
  perf_overlap_kind kind;
  long steps; /* cpu */
  double us;  /* device */
} work;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Arithmetic without memory access; each step depends on the previous one. */
static void compute(long steps) {
  double x = 1;
  for (long i = 0; i < steps; i++) {
    x = x * 0.999999 + 1e-6;
    __asm__ volatile("" : "+x"(x)); /* so that the compiler keeps the loop */
  }
}

static void do_work(const work *w) {
  if (w->kind == PERF_OVERLAP_CPU) {
    compute(w->steps);
  } else {
    double ns = w->us * 1e3;
    struct timespec length = {.tv_sec = (time_t)(ns / 1e9), .tv_nsec = (long)ns % 1000000000};
    nanosleep(&length, NULL);
  }
}

/* Starts one operation, out of place. */
static coll_status start_operation(const perf_bench *b, coll_request **request) {
  coll_type type = (coll_type)b->line->type;
  coll_op op = (coll_op)b->line->op;
  size_t count = b->line->count;
  int root = b->line->root < 0 ? 0 : b->line->root;
  switch (b->options->what) {
  case PERF_ALLREDUCE:
    return coll_iallreduce(b->send, b->recv, count, type, op, b->comm, request);
  case PERF_REDUCE_SCATTER:
    return coll_ireduce_scatter(b->send, b->recv, count, type, op, b->comm, request);
  case PERF_ALLGATHER:
    return coll_iallgather(b->send, b->recv, count, type, b->comm, request);
  case PERF_ALLTOALL:
    return coll_ialltoall(b->send, b->recv, count, type, b->comm, request);
  default:
    return coll_ibroadcast(b->send, b->recv, count, type, root, b->comm, request);
  }
}

/* Times `iters` rounds of operation, work, or both; microseconds of one on the slowest rank. */
static coll_status time_turn(const perf_bench *b, bool with_comm, const work *w, int iters,
                             double *us) {
  coll_status status = coll_barrier(b->comm);
  double began = now_s();
  for (int i = 0; i < iters && status == COLL_OK; i++) {
    coll_request *request = NULL;
    if (with_comm)
      status = start_operation(b, &request);
    if (w && status == COLL_OK)
      do_work(w);
    if (request)
      status = coll_wait(&request, -1);
  }
  *us = (now_s() - began) / iters * 1e6;
  if (status == COLL_OK)
    status = coll_allreduce(us, us, 1, COLL_FLOAT64, COLL_MAX, b->comm);
  return status;
}

/* Makes work that takes about as long as the operation; each rank measures its own speed. */
static work make_work(perf_overlap_kind kind, double us) {
  const long trial = 1000000;
  work w = {.kind = kind, .us = us};
  double best_s = 0;
  for (int i = 0; i < 3 && kind == PERF_OVERLAP_CPU; i++) {
    double began = now_s();
    compute(trial);
    double taken_s = now_s() - began;
    best_s = i == 0 || taken_s < best_s ? taken_s : best_s;
  }
  if (kind == PERF_OVERLAP_CPU)
    w.steps = (long)(us * 1e-6 / best_s * (double)trial);
  return w;
}

static int by_size(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof(*values), by_size);
  return values[ROUNDS / 2];
}

/* Iterations of a turn, the same on all ranks. */
static coll_status choose_iters(const perf_bench *b, int *iters) {
  double us = 0;
  coll_status status = time_turn(b, true, NULL, 4, &us);
  if (status == COLL_OK)
    status = time_turn(b, true, NULL, 4, &us);
  double fit = us > 0 ? TARGET_S * 1e6 / us : 2;
  *iters = b->options->iters ? b->options->iters : fit < 2 ? 2 : fit > 1e6 ? 1000000 : (int)fit;
  return status;
}

/* Measures the three, interleaved. */
static coll_status measure_overlap(const perf_bench *b, perf_overlap *out) {
  double comm_us[ROUNDS], work_us[ROUNDS], both_us[ROUNDS];
  int iters = 0;
  coll_status status = choose_iters(b, &iters);
  if (status == COLL_OK)
    status = time_turn(b, true, NULL, iters, &comm_us[0]);
  work w = make_work(b->options->overlap, comm_us[0]);
  for (int i = 0; i < ROUNDS && status == COLL_OK; i++) {
    status = time_turn(b, true, NULL, iters, &comm_us[i]);
    if (status == COLL_OK)
      status = time_turn(b, false, &w, iters, &work_us[i]);
    if (status == COLL_OK)
      status = time_turn(b, true, &w, iters, &both_us[i]);
  }
  if (status != COLL_OK)
    return status;
  out->line.iters = iters;
  out->comm_us = median(comm_us);
  out->work_us = median(work_us);
  out->both_us = median(both_us);
  double shorter = out->comm_us < out->work_us ? out->comm_us : out->work_us;
  out->hidden = (out->comm_us + out->work_us - out->both_us) / shorter;
  return COLL_OK;
}

coll_status perf_measure_overlap(const perf_options *options, coll_comm *comm, perf_overlap *out) {
  perf_bench b;
  out->wrong = -1;
  coll_status status = perf_bench_open(&b, options, comm, &out->line);
  if (status == COLL_OK && options->check)
    status = perf_verify(&b, false, &out->wrong);
  if (status == COLL_OK)
    status = perf_warm_up(&b, false);
  if (status == COLL_OK)
    status = measure_overlap(&b, out);
  perf_bench_close(&b);
  return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

void perf_print_overlap_head(const perf_options *options) {
  printf("#\n#%11s %12s %9s %7s %7s %11s %11s %11s %9s %6s\n", "size", "count", "type", "redop",
         "root", "operation", options->overlap == PERF_OVERLAP_CPU ? "cpu work" : "device work",
         "both", "overlap", "#wrong");
  printf("#%11s %12s %9s %7s %7s %11s %11s %11s %9s\n", "(B)", "(elements)", "", "", "", "(us)",
         "(us)", "(us)", "(%)");
  fflush(stdout);
}

void perf_print_overlap(const perf_options *options, const perf_overlap *o) {
  perf_print_question(options, &o->line);
  printf(" %11.2f %11.2f %11.2f %9.1f", o->comm_us, o->work_us, o->both_us, 100 * o->hidden);
  if (o->wrong < 0)
    printf(" %6s\n", "N/A");
  else
    printf(" %6lld\n", o->wrong);
  fflush(stdout);
}

void perf_print_overlap_foot(const perf_options *options, const perf_overlap *all, int count) {
  long long wrong = 0;
  for (int i = 0; i < count; i++)
    wrong += all[i].wrong > 0 ? all[i].wrong : 0;
  if (options->check)
    printf("# Out of bounds values : %lld %s\n", wrong, wrong ? "FAILED" : "OK");
}

int perf_write_overlap_json(const perf_options *options, int nranks, const perf_overlap *all,
                            int count) {
  bool standard = strcmp(options->json, "-") == 0;
  FILE *out = standard ? stdout : fopen(options->json, "w");
  if (!out)
    return -1;
  perf_json_head(out, options, nranks);
  fprintf(out, "\"work\": \"%s\", ", options->overlap == PERF_OVERLAP_CPU ? "cpu" : "device");
  fprintf(out, "\"results\": [");
  for (int i = 0; i < count; i++) {
    fprintf(out, "%s\n  {", i ? "," : "");
    perf_json_question(out, options, &all[i].line);
    fprintf(out, "\"operation_us\": %.4f, \"work_us\": %.4f, \"both_us\": %.4f, \"overlap\": %.4f}",
            all[i].comm_us, all[i].work_us, all[i].both_us, all[i].hidden);
  }
  fprintf(out, "\n]}\n");
  int failed = ferror(out);
  if (!standard && fclose(out) != 0)
    failed = 1;
  return failed ? -1 : 0;
}
