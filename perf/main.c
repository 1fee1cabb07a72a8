/* main.c: coll_perf: runs collectives over sizes, types and operations, on every rank. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "perf.h"

#define MAX_LINES 8192

/* One rank's run. */
typedef struct rank_run {
  const perf_options *options;
  coll_comm *comm;
  pthread_t thread;
  bool failed;
} rank_run;

/* The measurements of one rank: lines, cells with several variants each, or overlaps. */
typedef struct results {
  perf_line *lines;
  perf_cell *cells;
  perf_overlap *overlaps;
  int count;
  perf_variants variants;
} results;

/* Whether each size is measured in several variants. */
static bool has_cells(const perf_options *options) {
  return options->all_algos || options->deterministic == PERF_ALL;
}

/* Measures one size; false after a failure. */
static bool run_size(const perf_options *options, coll_comm *comm, int rank, perf_line line,
                     results *out) {
  if (options->overlap) {
    perf_overlap *overlap = &out->overlaps[out->count];
    overlap->line = line;
    coll_status status = perf_measure_overlap(options, comm, overlap);
    if (status != COLL_OK) {
      perf_complain(comm, status);
      return false;
    }
    if (rank == 0)
      perf_print_overlap(options, overlap);
  } else if (has_cells(options)) {
    perf_cell *cell = &out->cells[out->count];
    cell->line = line;
    if (!perf_measure_cell(&out->variants, cell))
      return false;
    if (rank == 0)
      perf_print_cell(options, cell);
  } else {
    coll_status status = perf_measure(options, comm, &line);
    if (status != COLL_OK) {
      perf_complain(comm, status);
      return false;
    }
    out->lines[out->count] = line;
    if (rank == 0)
      perf_print_line(options, &line);
  }
  out->count++;
  return true;
}

/* The size after `bytes`, when `done` sizes are measured; more than the largest one at the end. */
static size_t next_size(const perf_options *options, size_t bytes, int done) {
  if (options->nsizes > 1)
    return done < options->nsizes ? options->sizes[done] : SIZE_MAX;
  size_t next = options->step_bytes ? bytes + options->step_bytes
                                    : (size_t)((double)bytes * options->step_factor);
  return next > bytes ? next : bytes + 1;
}

/* Measures all sizes for one type and operation; false after a failure. */
static bool run_sizes(const perf_options *options, coll_comm *comm, int rank, int nranks, int type,
                      int op, results *out) {
  size_t elem = coll_type_bytes((coll_type)type);
  size_t bytes = options->nsizes > 1 ? options->sizes[0] : options->min_bytes;
  for (int done = 1; bytes <= options->max_bytes && out->count < MAX_LINES; done++) {
    perf_line line = {.type = type, .op = op, .root = options->root};
    line.count = perf_count_of(options->traits, bytes, elem, nranks);
    line.bytes = perf_bytes_of(options->traits, line.count, elem, nranks);
    if (!run_size(options, comm, rank, line, out)) {
      coll_comm_abort(comm);
      return false;
    }
    if (options->what == PERF_BARRIER)
      break;
    bytes = next_size(options, bytes, done);
  }
  return true;
}

/* Whether a type and operation are wanted; scans have no average. */
static bool is_wanted(const perf_options *options, int type, int op) {
  bool prefix = options->what == PERF_SCAN || options->what == PERF_EXSCAN;
  if (options->type != PERF_ALL && options->type != type)
    return false;
  if (!options->traits->reduces)
    return op == COLL_SUM;
  if (options->op != PERF_ALL && options->op != op)
    return false;
  return perf_takes(type, op) && (options->op == op || !prefix || op != COLL_AVG);
}

/* Prints the end of the table, and writes the file; false if that fails. */
static bool report_results(const perf_options *options, int nranks, const results *out) {
  int failed = 0;
  if (options->overlap) {
    perf_print_overlap_foot(options, out->overlaps, out->count);
    if (options->json)
      failed = perf_write_overlap_json(options, nranks, out->overlaps, out->count);
  } else if (has_cells(options)) {
    perf_print_cells_foot(options, out->cells, out->count);
    if (options->json)
      failed = perf_write_cells_json(options, nranks, out->cells, out->count);
  } else {
    perf_print_foot(out->lines, out->count, options->check);
    if (options->json)
      failed = perf_write_json(options, nranks, out->lines, out->count);
  }
  if (failed)
    fprintf(stderr, "coll_perf: cannot write %s: %s\n", options->json, strerror(errno));
  if (options->csv && perf_write_csv(options, nranks, out->lines, out->count) != 0) {
    fprintf(stderr, "coll_perf: cannot write %s: %s\n", options->csv, strerror(errno));
    failed = -1;
  }
  return !failed;
}

/* Whether every value was right. */
static bool is_right(const perf_options *options, const results *out) {
  for (int i = 0; i < out->count; i++) {
    if (options->overlap) {
      if (out->overlaps[i].wrong > 0)
        return false;
      continue;
    }
    if (!has_cells(options)) {
      if (out->lines[i].out_of_place.wrong > 0 || out->lines[i].in_place.wrong > 0)
        return false;
      continue;
    }
    for (int k = 0; k < out->cells[i].count; k++)
      if (out->cells[i].variant[k].wrong > 0)
        return false;
  }
  return true;
}

/* Measures one collective: true if everything went well and every value was right. */
static bool run_collective(const perf_options *options, coll_comm *comm) {
  int rank = 0, nranks = 1;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  if (options->root >= nranks) {
    if (rank == 0)
      fprintf(stderr, "coll_perf: root %d is not in 0 .. %d\n", options->root, nranks - 1);
    return false;
  }
  results out = {.variants = {.options = options, .base = comm}};
  if (options->overlap)
    out.overlaps = calloc(MAX_LINES, sizeof(*out.overlaps));
  else if (has_cells(options))
    out.cells = calloc(MAX_LINES, sizeof(*out.cells));
  else
    out.lines = calloc(MAX_LINES, sizeof(*out.lines));
  bool well = out.lines || out.cells || out.overlaps;
  if (rank == 0) {
    perf_print_head(options, nranks);
    if (options->overlap)
      perf_print_overlap_head(options);
    else if (has_cells(options))
      perf_print_cells_head(options);
  }
  for (int type = 0; well && type < COLL_TYPE_COUNT; type++)
    for (int op = 0; well && op < COLL_OP_COUNT; op++)
      if (is_wanted(options, type, op))
        well = run_sizes(options, comm, rank, nranks, type, op, &out);
  if (well && rank == 0)
    well = report_results(options, nranks, &out);
  well = well && is_right(options, &out);
  perf_variants_close(&out.variants);
  free(out.lines);
  free(out.cells);
  free(out.overlaps);
  return well;
}

/* Lets calls in streams stay in GPU memory where that is possible; false after a failure. */
static bool share_gpus(const perf_options *options, coll_comm *comm, perf_device *device) {
  coll_status status = perf_is_streamed(options) ? coll_comm_use_gpu(comm) : COLL_ERR_UNSUPPORTED;
  device->direct = status == COLL_OK;
  if (status == COLL_OK || status == COLL_ERR_UNSUPPORTED)
    return true;
  perf_complain(comm, status);
  return false;
}

/* Runs one rank: true if everything went well and every value was right. */
static bool run_rank(const perf_options *options, coll_comm *comm) {
  perf_options one = *options;
  perf_device device;
  int rank = 0;
  coll_comm_rank(comm, &rank);
  if (options->driver && !perf_device_open(&device, options->driver, rank)) {
    coll_comm_abort(comm);
    return false;
  }
  one.device = options->driver ? &device : NULL;
  bool well = !options->driver || share_gpus(&one, comm, &device);
  for (int i = 0; well && i < options->nwanted; i++) {
    one.what = options->wanted[i];
    one.traits = &perf_collectives[one.what];
    well = run_collective(&one, comm);
  }
  if (one.device)
    perf_device_close(&device);
  return well;
}

static void *thread_main(void *arg) {
  rank_run *run = arg;
  run->failed = !run_rank(run->options, run->comm);
  coll_comm_destroy(&run->comm);
  return NULL;
}

/* Runs all ranks as threads of this process; the exit status. */
static int run_threads(const perf_options *options, const coll_config *config) {
  int n = options->threads;
  coll_comm **comms = calloc((size_t)n, sizeof(*comms));
  rank_run *runs = calloc((size_t)n, sizeof(*runs));
  int failed = !comms || !runs || coll_comm_create_local(comms, n, config) != COLL_OK;
  for (int r = 0; r < n && !failed; r++) {
    runs[r] = (rank_run){.options = options, .comm = comms[r]};
    if (pthread_create(&runs[r].thread, NULL, thread_main, &runs[r]) != 0) {
      fprintf(stderr, "coll_perf: cannot start thread %d of %d\n", r, n);
      exit(1); /* the threads that already run would wait forever */
    }
  }
  for (int r = 0; r < n && !failed; r++)
    pthread_join(runs[r].thread, NULL);
  for (int r = 0; r < n && runs; r++)
    failed |= runs[r].failed;
  free(comms);
  free(runs);
  return failed;
}

/* Runs this process's rank; the exit status. */
static int run_process(const perf_options *options, const coll_config *config) {
  coll_comm *comm = NULL;
  if (coll_init_from_env(&comm, config) != COLL_OK)
    return 1; /* libcoll has printed why */
  bool well = run_rank(options, comm);
  coll_comm_destroy(&comm);
  return !well;
}

int main(int argc, char **argv) {
  perf_options options;
  perf_options_read(&options, argc, argv);
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = options.timeout_ms;
  config.algo = options.algo;
  config.deterministic =
      options.deterministic == PERF_ALL ? 0 : (coll_determinism)options.deterministic;
  if (options.threads && getenv("COLL_NRANKS")) {
    fprintf(stderr, "coll_perf: -t makes all ranks in one process; leave it out under collrun\n");
    return 2;
  }
  if (options.cuda && !(options.driver = perf_driver_open()))
    return 1;
  int failed = options.threads ? run_threads(&options, &config) : run_process(&options, &config);
  perf_driver_close(options.driver);
  return failed;
}
