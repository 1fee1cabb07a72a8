/* program.c: a whole program that trains. */
#include "trainer/program.h"

#include "trainer/blas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Exit status: done; failed; the command line is wrong. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Says on one line what went wrong; rank 0 alone says what all ranks found. */
static void report_failure(const coll_comm *comm, const fail *why) {
  const char *name = program_invocation_short_name;
  int rank = 0, nranks = 1;
  if (comm) {
    coll_comm_rank(comm, &rank);
    coll_comm_nranks(comm, &nranks);
  }
  if (why->everywhere && rank != 0)
    return;
  if (why->everywhere || nranks == 1)
    fprintf(stderr, "%s: %s\n", name, why->text);
  else
    fprintf(stderr, "%s: rank %d: %s\n", name, rank, why->text);
}

/* Loads the data, joins the other ranks, trains. */
static int run_training(const options *o, data_loader load, model_maker make) {
  fail why = {.text = ""};
  dataset data = {.files = 0};
  coll_comm *comm = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  setenv("COLL_LOG", "none", 0); /* errors are reported here, once */
  bool loaded = load(&data, o, &why);
  config.error = &error;
  coll_status status = coll_init_from_env(&comm, &config);
  if (status != COLL_OK) {
    if (!loaded)
      report_failure(NULL, &why);
    fprintf(stderr, "%s: joining the other ranks: %s: %s\n", program_invocation_short_name,
            coll_status_name(status), error.message);
    dataset_free(&data);
    return EXIT_FAILED;
  }
  bool ok = train(o, make, comm, loaded ? &data : NULL, &why);
  if (!ok)
    report_failure(comm, &why);
  if (!ok && why.everywhere)
    coll_barrier(comm); /* a launcher may end rank 0 when others leave: not before it has spoken */
  coll_comm_destroy(&comm);
  dataset_free(&data);
  return ok ? EXIT_DONE : EXIT_FAILED;
}

int program_run(int argc, char **argv, data_loader load, model_maker make) {
  options o;
  fail why = {.text = ""};
  switch (options_parse(&o, argc, argv, &why)) {
  case OPTIONS_HELP:
    options_help();
    return EXIT_DONE;
  case OPTIONS_VERSION: {
    int v = coll_version();
    printf("%s %d.%d.%d\n", program_invocation_short_name, v / 10000, v / 100 % 100, v % 100);
    return EXIT_DONE;
  }
  case OPTIONS_BAD:
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.text);
    return EXIT_USAGE;
  default:
    blas_setup(argv, (int)o.threads_per_rank);
    return run_training(&o, load, make);
  }
}
