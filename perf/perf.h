/* perf.h: what the parts of coll_perf share. */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include <coll/coll.h>
#include <stdbool.h>
#include <stdio.h>

#define PERF_ALL (-1)

/* What is measured. */
typedef enum perf_what {
  PERF_ALLREDUCE,
  PERF_BROADCAST,
  PERF_ALLGATHER,
  PERF_BARRIER,
  PERF_SENDRECV, /* each rank sends to the next one and receives from the one before */
  PERF_WHAT_COUNT
} perf_what;

typedef struct perf_options {
  perf_what what;
  size_t min_bytes, max_bytes;
  size_t step_bytes; /* 0: multiply by step_factor */
  double step_factor;
  int iters; /* 0: as many as take about target_ms */
  int warmup;
  bool check;
  int type, op, root; /* PERF_ALL: each; root PERF_ALL: another one for each iteration */
  int threads;        /* 0: ranks come from the launcher */
  const char *json;   /* file name, "-" for standard output, NULL */
  int timeout_ms;
} perf_options;

/* One measured half of a line. */
typedef struct perf_sample {
  double us; /* an operation on the slowest rank, mean */
  double algbw, busbw;
  long long wrong; /* elements; -1: not checked */
} perf_sample;

typedef struct perf_line {
  size_t bytes, count;
  int type, op, root;
  int iters;
  perf_sample out_of_place, in_place;
} perf_line;

/* options.c: reads the command line; exits with a message on bad usage. */
void perf_options_read(perf_options *options, int argc, char **argv);
const char *perf_what_name(perf_what what);
const char *perf_type_name(int type);
const char *perf_op_name(int op);

/* measure.c: one rank's part in measuring one line. The same on all ranks; 0 or a failed status. */
coll_status perf_measure(const perf_options *options, coll_comm *comm, perf_line *line);

/* data.c: inputs whose reduction is exact in any order, so that the tolerance is zero. */
void perf_fill(void *buf, size_t count, int type, int op, int rank, int nranks);
/* How many elements of buf are not what the reduction over all ranks must give. */
long long perf_wrong(const void *buf, size_t count, int type, int op, int nranks);
/* How many are not what perf_fill gave `rank` (with COLL_SUM). */
long long perf_wrong_copy(const void *buf, size_t count, int type, int rank, int nranks);

/* report.c: nccl-tests' columns, and JSON. */
void perf_print_head(const perf_options *options, int nranks);
void perf_print_line(const perf_options *options, const perf_line *line);
void perf_print_foot(const perf_line *lines, int nlines, bool check);
int perf_write_json(const perf_options *options, int nranks, const perf_line *lines, int nlines);

#endif
