/* main.c: coll_perf: runs collectives over sizes, types and operations, on every rank. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define MAX_LINES 8192

/* One rank's run. */
typedef struct rank_run {
  const perf_options *options;
  coll_comm *comm;
  pthread_t thread;
  bool failed;
} rank_run;

/* Says what went wrong on this rank. */
static void complain(const coll_comm *comm, int rank, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  fprintf(stderr, "coll_perf: rank %d: %s: %s\n", rank, coll_status_name(status),
          error.status == COLL_OK ? "out of memory for the buffers" : error.message);
}

/* Measures all sizes for one type and operation; false after a failure. */
static bool run_sizes(const perf_options *options, coll_comm *comm, int rank, int nranks, int type,
                      int op, perf_line *lines, int *nlines) {
  size_t elem = coll_type_bytes((coll_type)type);
  for (size_t bytes = options->min_bytes; bytes <= options->max_bytes && *nlines < MAX_LINES;) {
    size_t per_rank = options->what == PERF_ALLGATHER ? elem * (size_t)nranks : elem;
    perf_line line = {.type = type, .op = op, .root = options->root};
    line.count = options->what == PERF_BARRIER ? 0 : bytes / per_rank;
    line.bytes = line.count * per_rank;
    coll_status status = perf_measure(options, comm, &line);
    if (status != COLL_OK) {
      complain(comm, rank, status);
      coll_comm_abort(comm);
      return false;
    }
    lines[(*nlines)++] = line;
    if (rank == 0)
      perf_print_line(options, &line);
    if (options->what == PERF_BARRIER)
      break;
    size_t next = options->step_bytes ? bytes + options->step_bytes
                                      : (size_t)((double)bytes * options->step_factor);
    bytes = next > bytes ? next : bytes + 1;
  }
  return true;
}

/* One rank's whole run: true if everything went well and every value was right. */
static bool run_rank(const perf_options *options, coll_comm *comm) {
  int rank = 0, nranks = 1, nlines = 0;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  if (options->root >= nranks) {
    if (rank == 0)
      fprintf(stderr, "coll_perf: root %d is not in 0 .. %d\n", options->root, nranks - 1);
    return false;
  }
  perf_line *lines = calloc(MAX_LINES, sizeof(*lines));
  if (!lines)
    return false;
  if (rank == 0)
    perf_print_head(options, nranks);
  bool well = true;
  for (int type = 0; well && type < COLL_TYPE_COUNT; type++)
    for (int op = 0; well && op < COLL_OP_COUNT; op++)
      if ((options->type == PERF_ALL || options->type == type) &&
          (options->op == PERF_ALL ? options->what == PERF_ALLREDUCE || op == 0
                                   : options->op == op))
        well = run_sizes(options, comm, rank, nranks, type, op, lines, &nlines);
  if (rank == 0) {
    perf_print_foot(lines, nlines, options->check);
    if (options->json && perf_write_json(options, nranks, lines, nlines) != 0) {
      fprintf(stderr, "coll_perf: cannot write %s: %s\n", options->json, strerror(errno));
      well = false;
    }
  }
  for (int i = 0; i < nlines; i++)
    well = well && lines[i].out_of_place.wrong <= 0 && lines[i].in_place.wrong <= 0;
  free(lines);
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
      exit(1); /* the threads that run would wait for it */
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

int main(int argc, char **argv) {
  perf_options options;
  perf_options_read(&options, argc, argv);
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = options.timeout_ms;
  if (options.threads && getenv("COLL_NRANKS")) {
    fprintf(stderr, "coll_perf: -t makes all ranks in one process; leave it out under collrun\n");
    return 2;
  }
  if (options.threads)
    return run_threads(&options, &config);
  coll_comm *comm = NULL;
  if (coll_init_from_env(&comm, &config) != COLL_OK)
    return 1; /* the library has said why */
  bool well = run_rank(&options, comm);
  coll_comm_destroy(&comm);
  return !well;
}
