/* perf.h: declarations that the parts of coll_perf share. */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include <coll/coll.h>
#include <stdbool.h>
#include <stdio.h>

#include "device.h"

#define PERF_ALL        (-1)
#define PERF_VARIANTS   48  /* at most, of a cell */
#define PERF_SIZES      64  /* at most, in a list */
#define PERF_FINALISTS  5   /* at most, of a cell */
#define PERF_ROUNDS_MAX 128 /* of interleaved measurements */
#define PERF_WINDOW_MAX 256 /* messages in flight */
#define PERF_WITHIN     1.1 /* a good choice takes at most this many times the best time */

/* What is measured. */
typedef enum perf_what {
  PERF_ALLREDUCE,
  PERF_REDUCE,
  PERF_REDUCE_SCATTER,
  PERF_REDUCE_SCATTERV,
  PERF_SCAN,
  PERF_EXSCAN,
  PERF_BROADCAST,
  PERF_ALLGATHER,
  PERF_ALLGATHERV,
  PERF_GATHER,
  PERF_GATHERV,
  PERF_SCATTER,
  PERF_SCATTERV,
  PERF_ALLTOALL,
  PERF_ALLTOALLV,
  PERF_BARRIER,
  PERF_SENDRECV,         /* each rank sends to the next one and receives from the previous one */
  PERF_REDUCE_BROADCAST, /* an all-reduce composed of two operations, which must not be faster */
  PERF_WHAT_COUNT
} perf_what;

/* The contents of a collective's buffer. */
typedef enum perf_extent { PERF_NOTHING, PERF_ONE_BLOCK, PERF_ALL_BLOCKS } perf_extent;

/*
 * The properties of a collective. If it has no blocks, one block is the whole vector.
 */
typedef struct perf_traits {
  const char *name;
  const char *algo; /* its name in COLL_ALGO; NULL: it has no algorithms */
  bool reduces;
  bool rooted;
  bool varying;           /* blocks of uneven lengths */
  perf_extent send, recv; /* PERF_ALL_BLOCKS in one of them: it has blocks */
} perf_traits;
extern const perf_traits perf_collectives[PERF_WHAT_COUNT];

/* The kind of work behind which --overlap hides operations. */
typedef enum perf_overlap_kind {
  PERF_OVERLAP_NONE,
  PERF_OVERLAP_CPU,
  PERF_OVERLAP_DEVICE
} perf_overlap_kind;

/* Who sends to whom in sendrecv. */
typedef enum perf_pattern {
  PERF_RING,  /* each rank to the next one */
  PERF_PAIRS, /* rank 2k to rank 2k + 1, which answers each window with 4 bytes */
  PERF_BOTH   /* the two to each other */
} perf_pattern;

typedef struct perf_options {
  perf_what wanted[PERF_WHAT_COUNT]; /* what to measure, one after the other */
  int nwanted;
  perf_what what;            /* of them, the one that is measured now */
  const perf_traits *traits; /* of it */
  size_t min_bytes, max_bytes;
  size_t sizes[PERF_SIZES]; /* to measure, if there are two or more */
  int nsizes;
  size_t step_bytes; /* 0: multiply by step_factor */
  double step_factor;
  int iters; /* 0: as many as take about 50 ms */
  int warmup;
  bool check;
  int type, op, root; /* PERF_ALL: each; root: each rank in turn */
  int threads;        /* 0: ranks come from the launcher */
  const char *json;   /* file name, "-" for standard output, NULL */
  const char *csv;    /* the same */
  bool percentiles;   /* of single operations, beside the mean */
  int window;         /* messages in flight in sendrecv; 0: one blocking operation */
  perf_pattern pattern;
  int timeout_ms;
  bool registered;   /* buffers come from coll_mem_alloc() */
  bool all_algos;    /* measure every candidate */
  const char *algo;  /* COLL_ALGO's text, or NULL */
  int deterministic; /* coll_determinism; PERF_ALL: compare all levels */
  perf_overlap_kind overlap;
  bool cuda;                 /* buffers are in memory of GPUs */
  int blocking;              /* of GPU memory: 1: calls that wait; 0, -1 (not given): in a stream */
  int launches;              /* of a graph in which the operations are; 0: they are in none */
  perf_driver *driver;       /* if `cuda`, else NULL */
  const perf_device *device; /* of this rank; NULL: none */
} perf_options;

/* One measured half of a line. */
typedef struct perf_sample {
  double us; /* of an operation: the mean on the slowest rank */
  double algbw, busbw;
  double least_us, median_us, p99_us, most_us; /* of single operations; 0: not measured */
  double messages; /* in flight in one operation, of all ranks; 0 but in windows */
  long long wrong; /* elements; -1: not checked */
} perf_sample;

typedef struct perf_line {
  size_t bytes, count; /* count: of a block, or of the vector */
  int type, op, root;
  int iters;
  perf_sample out_of_place, in_place;
} perf_line;

/* One variant of a cell: an algorithm, or a level of determinism. */
typedef struct perf_variant {
  char name[24];       /* as in coll_candidate */
  double predicted_us; /* algorithms only */
  bool chosen;
  double us;      /* in the final, or in the best of the heats */
  double of_best; /* its time over that of the fastest */
  long long wrong;
} perf_variant;

/* A size, type and operation, measured in several variants. */
typedef struct perf_cell {
  perf_line line;
  int count;
  perf_variant variant[PERF_VARIANTS];
} perf_cell;

/* An operation alone, work alone, and the operation behind the work: medians. */
typedef struct perf_overlap {
  perf_line line;
  double comm_us, work_us, both_us;
  double hidden; /* of the shorter of the two: 1 is all of it */
  long long wrong;
} perf_overlap;

/* What one rank needs to measure a line. */
typedef struct perf_bench {
  const perf_options *options;
  const perf_traits *traits;
  coll_comm *comm;  /* on which the next operations run */
  coll_comm *owner; /* of registered buffers */
  const perf_line *line;
  int rank, nranks;
  size_t bytes;        /* of an element */
  char *send, *recv;   /* both are as large as the larger one */
  size_t room;         /* bytes of each */
  char *image;         /* of one of them, on the host; NULL: they are there themselves */
  void *stream;        /* where operations go; NULL: they are not in a stream */
  size_t *counts;      /* nranks: the blocks of this rank's buffers */
  size_t *displs;      /* nranks: and where they begin */
  size_t total;        /* of all blocks */
  size_t nsend, nrecv; /* elements */
} perf_bench;

/* ---- usage.c --------------------------------------------------------------------------------- */

extern const char perf_usage[];

/* ---- options.c ------------------------------------------------------------------------------- */

/* Reads the command line; exits with a message on bad usage. */
void perf_options_read(perf_options *options, int argc, char **argv);

/* ---- names.c --------------------------------------------------------------------------------- */

#define PERF_NO_NAME (-2)

const char *perf_type_name(int type);
const char *perf_op_name(int op);

/* The number of a type or operation, PERF_ALL for "all", or PERF_NO_NAME. */
int perf_type_named(const char *name);
int perf_op_named(const char *name);

/* ---- bench.c --------------------------------------------------------------------------------- */

/* Prepares to measure a line. Call perf_bench_close() in any case. */
coll_status perf_bench_open(perf_bench *bench, const perf_options *options, coll_comm *comm,
                            const perf_line *line);
void perf_bench_close(perf_bench *bench);

/* Runs the operation once on known data and counts wrong elements over all ranks. */
coll_status perf_verify(const perf_bench *bench, bool in_place, long long *wrong);

/* Elements per block, or of the vector, that make a buffer of `bytes` bytes. */
size_t perf_count_of(const perf_traits *traits, size_t bytes, size_t elem_bytes, int nranks);
/* Bytes of the larger buffer for that count. */
size_t perf_bytes_of(const perf_traits *traits, size_t count, size_t elem_bytes, int nranks);

/* ---- timing.c -------------------------------------------------------------------------------- */

/* Runs the warm-up operations. */
coll_status perf_warm_up(const perf_bench *bench, bool in_place);
/* How many operations a measurement has: as many as the user says, or as take `seconds`, or as a
 * graph holds. All ranks get the same number. */
coll_status perf_choose_iters(const perf_bench *bench, double seconds, int *iters);

/* Runs `iters` operations back to back; seconds of the slowest rank. As a graph: those of a launch,
 * on average. */
coll_status perf_time(const perf_bench *bench, bool in_place, int iters, double *seconds);

/* The times of `count` single operations in microseconds, sorted; those of this rank. As a graph:
 * of single launches, over the operations in it. */
coll_status perf_time_each(const perf_bench *bench, bool in_place, int count, double *us);

/* ---- measure.c ------------------------------------------------------------------------------- */

/* One rank's part in measuring one line. The same on all ranks; COLL_OK or a failed status. */
coll_status perf_measure(const perf_options *options, coll_comm *comm, perf_line *line);

/* Prints why an operation on a communicator failed. */
void perf_complain(const coll_comm *comm, coll_status status);

/* ---- variants.c ------------------------------------------------------------------------------ */

/* Communicators of the same ranks with other settings; belongs to one rank. */
typedef struct perf_variants {
  const perf_options *options;
  coll_comm *base;
  char name[PERF_VARIANTS][24];
  coll_comm *comm[PERF_VARIANTS];
  int count;
} perf_variants;

/*
 * Measures the cell's line in every variant of --algo all or --deterministic all, interleaved in
 * several rounds. False after a failure, which is printed.
 */
bool perf_measure_cell(perf_variants *variants, perf_cell *cell);
void perf_variants_close(perf_variants *variants);

/* The chosen variant of a cell; -1 if there is none. */
int perf_chosen(const perf_cell *cell);

/* ---- rounds.c: ways that take turns, compared round by round --------------------------------- */

/* The time of each variant in each round, in microseconds. */
typedef struct perf_rounds {
  int ways;
  int count; /* of rounds; a multiple of 4 when any function below is called */
  double us[PERF_FINALISTS][PERF_ROUNDS_MAX];
} perf_rounds;

/* The time of a variant. */
double perf_rounds_us(const perf_rounds *rounds, int way);

/*
 * The time of a variant over that of the fastest one. The fastest of many was also lucky, so it is
 * found in one half of the rounds and compared in the other half, and vice versa. The ratio may be
 * a little below 1.
 */
double perf_rounds_of_best(const perf_rounds *rounds, int way);

/* Whether it is clear that a variant is within PERF_WITHIN of the fastest, or that it is not. */
bool perf_rounds_settled(const perf_rounds *rounds, int way);

/* ---- overlap.c ------------------------------------------------------------------------------- */

/* Whether --overlap knows the nonblocking form of a collective. */
bool perf_can_overlap(perf_what what);

/* One rank's part in measuring out->line behind work. */
coll_status perf_measure_overlap(const perf_options *options, coll_comm *comm, perf_overlap *out);

void perf_print_overlap_head(const perf_options *options);
void perf_print_overlap(const perf_options *options, const perf_overlap *overlap);
void perf_print_overlap_foot(const perf_options *options, const perf_overlap *all, int count);
int perf_write_overlap_json(const perf_options *options, int nranks, const perf_overlap *all,
                            int count);

/* ---- data.c: inputs whose reduction is exact in any order, so that the tolerance is zero ----- */

/* Whether an operation takes a type. */
bool perf_takes(int type, int op);

/* Fills in the input of rank `rank`. */
void perf_fill(void *buf, size_t count, int type, int op, int rank, int nranks);
/*
 * Counts the elements of buf that are not the reduction over ranks 0 .. upto-1. buf begins at
 * element `first` of the inputs.
 */
long long perf_wrong(const void *buf, size_t count, size_t first, int type, int op, int upto,
                     int nranks);
/* Counts the elements that are not perf_fill()'s input of rank `rank` (for COLL_SUM) from element
 * `first` on. */
long long perf_wrong_copy(const void *buf, size_t count, size_t first, int type, int rank,
                          int nranks);

/* ---- report.c: nccl-tests' columns, and JSON ------------------------------------------------- */

void perf_print_head(const perf_options *options, int nranks);
void perf_print_line(const perf_options *options, const perf_line *line);
void perf_print_foot(const perf_line *lines, int nlines, bool check);
int perf_write_json(const perf_options *options, int nranks, const perf_line *lines, int nlines);

/* Writes them as comma-separated values, a row for each half: 0, or -1 with errno. */
int perf_write_csv(const perf_options *options, int nranks, const perf_line *lines, int nlines);

/* ---- report_cells.c: the same for cells ------------------------------------------------------ */

void perf_print_cells_head(const perf_options *options);
void perf_print_cell(const perf_options *options, const perf_cell *cell);
void perf_print_cells_foot(const perf_options *options, const perf_cell *cells, int ncells);
int perf_write_cells_json(const perf_options *options, int nranks, const perf_cell *cells,
                          int ncells);

/* Begins a JSON object: what was measured, and in which memory. */
void perf_json_head(FILE *out, const perf_options *options, int nranks);

/* Prints size, count, type, operation and root of a line; its beginning in JSON. */
void perf_print_question(const perf_options *options, const perf_line *line);
void perf_json_question(FILE *out, const perf_options *options, const perf_line *line);

#endif
