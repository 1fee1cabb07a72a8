/* program.c: a complete training program. */
#include "trainer/program.h"

#include <cblas.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/strategies/strategy.h"

#define CORETYPE "OPENBLAS_CORETYPE"

/* Whether the processor has all features that OpenBLAS's SkylakeX kernels use. */
static bool has_avx512(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

/*
 * Sets the number of threads. If OpenBLAS does not recognise the processor and so does not use its
 * AVX-512, restarts the program with OPENBLAS_CORETYPE set, which OpenBLAS reads only while it is
 * being loaded. Does so at most once, and never if the user has set the variable.
 */
static void set_up_blas(char **argv, int threads) {
  const char *core = openblas_get_corename();
  bool older = strcmp(core, "Haswell") == 0 || strcmp(core, "Zen") == 0 ||
               strcmp(core, "Prescott") == 0 || strcmp(core, "Sandybridge") == 0;
  if (older && has_avx512() && !getenv(CORETYPE) && setenv(CORETYPE, "SkylakeX", 1) == 0)
    execv("/proc/self/exe", argv); /* if this fails, use the slower kernels */
  openblas_set_num_threads(threads);
}

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Prints one line that says what went wrong; if all ranks have the same text, only on rank 0. */
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

/* ---- joining a run -------------------------------------------------------------------------- */

#define OFFER_S 30.0 /* how long a process that joins waits for a new --join-file */
#define EARLY_S 5.0  /* how long one that was started again waits for the first */

/* Reads what --join-file says. */
static bool read_offer(const char *path, coll_id *id, fail *why) {
  file_bytes file;
  if (!file_map(&file, path, why))
    return false;
  bool whole = file.bytes == sizeof(*id);
  if (whole)
    memcpy(id, file.data, sizeof(*id));
  file_free(&file);
  return whole || fail_set(why, "%s: was not written by --join-file", path);
}

/* Waits until another rank 0 has written the file. False: there is no file, or none was written in
 * time. */
static bool await_offer(const char *path, coll_id *id, fail *why) {
  const struct timespec pause = {.tv_nsec = 50000000};
  const double until = clock_s() + OFFER_S;
  for (coll_id next; read_offer(path, &next, why); nanosleep(&pause, NULL)) {
    if (memcmp(&next, id, sizeof(next)) != 0) {
      *id = next;
      return true;
    }
    if (clock_s() >= until)
      return fail_set(why, "%s: the run that wrote this is gone", path);
  }
  return fail_set(why, "%s: is not there any more: the run has ended", path);
}

/* Reads the file as soon as it is there: a process that was started again may be early. */
static bool first_offer(const char *path, coll_id *id, fail *why) {
  const struct timespec pause = {.tv_nsec = 50000000};
  const double until = clock_s() + (getenv("COLL_RESPAWN") ? EARLY_S : 0);
  for (; !read_offer(path, id, why); nanosleep(&pause, NULL))
    if (clock_s() >= until)
      return false;
  why->text[0] = '\0';
  return true;
}

bool join_run(const options *o, coll_comm **comm, fail *why) {
  coll_id id;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_status status = COLL_ERR_TIMEOUT;
  config.error = &error;
  if (!first_offer(o->join_file, &id, why))
    return false;
  /* TIMEOUT: no epoch ended in that time. */
  while (status == COLL_ERR_TIMEOUT ||
         (status == COLL_ERR_PEER_LOST && await_offer(o->join_file, &id, why)))
    if ((status = coll_comm_join(comm, &id, &config)) == COLL_OK)
      return true;
  if (!why->text[0])
    fail_set(why, "joining the run: %s: %s", coll_status_name(status), error.message);
  return false;
}

/* What collrun --respawn says: others can join through its file, and a process that it has started
 * again does. */
static void take_respawn(options *o) {
  const option_row *row = option_rows;
  while (strcmp(row->name, "join-file") != 0)
    row++;
  if (!o->join_file && option_word(row->needs[0].words, o->strategy->name) >= 0)
    o->join_file = getenv("COLL_JOIN_FILE");
  o->join = o->join || (o->join_file && getenv("COLL_RESPAWN"));
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Loads the data, joins the other ranks, trains. */
static int run_training(const options *o, data_loader load, model_maker make) {
  fail why = {.text = ""};
  dataset data = {.files = 0};
  coll_comm *comm = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  setenv("COLL_LOG", "none", 0); /* report_failure() reports errors, once */
  bool loaded = load(&data, o, &why);
  config.error = &error;
  if (o->join && (!loaded || !join_run(o, &comm, &why))) {
    report_failure(NULL, &why);
    dataset_free(&data);
    return EXIT_FAILED;
  }
  coll_status status = o->join ? COLL_OK : coll_init_from_env(&comm, &config);
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
    coll_barrier(comm); /* a launcher may kill rank 0 when others exit: wait until it has printed */
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
    take_respawn(&o);
    set_up_blas(argv, (int)o.threads_per_rank);
    return run_training(&o, load, make);
  }
}
