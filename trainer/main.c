/* main.c: coll_train, training with libcoll. */
#include "trainer/blas.h"
#include "trainer/dataset.h"
#include "trainer/options.h"
#include "trainer/train.h"

#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

/* Exit status: done; failed; the command line is wrong. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Says on one line what went wrong; what all ranks know alike is said by rank 0 only. */
static void report_failure(const coll_comm *comm, const fail *why) {
  int rank = 0, nranks = 1;
  if (comm) {
    coll_comm_rank(comm, &rank);
    coll_comm_nranks(comm, &nranks);
  }
  if (why->everywhere && rank != 0)
    return;
  if (why->everywhere || nranks == 1)
    fprintf(stderr, "coll_train: %s\n", why->text);
  else
    fprintf(stderr, "coll_train: rank %d: %s\n", rank, why->text);
}

/* Reads the data, joins the other ranks, trains. */
static int run_training(const options *o) {
  fail why = {.text = ""};
  dataset data;
  coll_comm *comm = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  setenv("COLL_LOG", "none", 0); /* errors are reported here, once */
  bool loaded = dataset_load(&data, o->data, o->context, &why);
  config.error = &error;
  coll_status status = coll_init_from_env(&comm, &config);
  if (status != COLL_OK) {
    if (!loaded)
      report_failure(NULL, &why);
    fprintf(stderr, "coll_train: joining the other ranks: %s: %s\n", coll_status_name(status),
            error.message);
    dataset_free(&data);
    return EXIT_FAILED;
  }
  bool ok = train(o, comm, loaded ? &data : NULL, &why);
  if (!ok)
    report_failure(comm, &why);
  if (!ok && why.everywhere)
    coll_barrier(comm); /* a launcher may end rank 0 when others leave: not before it has spoken */
  coll_comm_destroy(&comm);
  dataset_free(&data);
  return ok ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv) {
  options o;
  fail why = {.text = ""};
  switch (options_parse(&o, argc, argv, &why)) {
  case OPTIONS_HELP:
    options_help();
    return EXIT_DONE;
  case OPTIONS_VERSION: {
    int v = coll_version();
    printf("coll_train %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
    return EXIT_DONE;
  }
  case OPTIONS_BAD:
    fprintf(stderr, "coll_train: %s\n", why.text);
    return EXIT_USAGE;
  default:
    blas_setup(argv, (int)o.threads_per_rank);
    return run_training(&o);
  }
}
