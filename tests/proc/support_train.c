/* support_train.c: small jobs of the trainer on several ranks, and their files. */
#include "support_train.h"

#include "trainer/dataset.h"
#include "trainer/program.h"

#include <cblas.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>

/* Replaces defaults that are too large for the small data, unless `more` sets them. */
static void suit_small_data(options *o) {
  static const size_t sizes[] = {36, 16, 12, 4};
  if (o->sizes[0] == 784)
    memcpy(o->sizes, sizes, sizeof(sizes));
  if (o->bucket_bytes == 262144)
    o->bucket_bytes = 1000;
  if (o->lr_decay == 0.6f)
    o->lr_decay = 0.9f;
}

job job_make(const char *more) {
  static char words[256];
  job j = {.odd_rank = -1};
  char *argv[64] = {"coll_train", "--epochs", "4", "--batch", "32", "--quiet"};
  int argc = 6;
  fail why;
  snprintf(words, sizeof(words), "%s", more ? more : "");
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
    argv[argc++] = word;
  cr_assert_eq(options_parse(&j.o, argc, argv, &why), OPTIONS_RUN, "%s", why.text);
  suit_small_data(&j.o);
  files_folder(j.folder);
  files_make(j.folder, ".gz");
  snprintf(j.metrics, sizeof(j.metrics), "%s/metrics", j.folder);
  snprintf(j.checkpoint, sizeof(j.checkpoint), "%s/checkpoint", j.folder);
  j.out = mmap(NULL, sizeof(*j.out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(j.out, MAP_FAILED);
  openblas_set_num_threads(1);
  return j;
}

void job_drop(job *j) {
  files_remove(j->folder);
  munmap(j->out, sizeof(*j->out));
}

/* A rank that shall be killed waits for this file. */
static char awaited[96];

/* Kills this process if the file exists. */
static void die_if_there(int number) {
  (void)number;
  if (access(awaited, F_OK) == 0)
    kill(getpid(), SIGKILL);
}

/* Arranges that this process is killed in the middle of training, soon after the first checkpoint.
 * */
static void die_after_checkpoint(const char *path) {
  struct sigaction action = {.sa_handler = die_if_there, .sa_flags = SA_RESTART};
  snprintf(awaited, sizeof(awaited), "%s", path);
  sigaction(SIGALRM, &action, NULL);
  ualarm(20000, 20000);
}

/* One rank of a job. */
static int rank_main(coll_comm *comm, int rank, int nranks, void *arg) {
  const job *j = arg;
  options o = j->o;
  fail *why = &j->out->why[rank];
  dataset data;
  bool odd = rank == j->odd_rank;
  (void)nranks;
  *why = (fail){.text = ""};
  o.metrics = j->metrics;
  if (odd && j->seed)
    o.seed = j->seed;
  if (j->before)
    j->before(rank);
  if (odd && j->killed)
    die_after_checkpoint(j->checkpoint);
  bool loaded = odd && j->bad_data ? fail_set(why, "some-file: is bad")
                                   : dataset_load(&data, j->folder, 64, why);
  bool ok = train(&o, model_asked_for, comm, loaded ? &data : NULL, why);
  if (loaded)
    dataset_free(&data);
  return ok ? 0 : 1;
}

void job_run(const job *j, int nranks, int results[JOB_MOST_RANKS]) {
  run_processes(nranks, j->config, rank_main, (void *)(uintptr_t)j, 60, results);
}

void job_runs_well(const job *j, int nranks) {
  int results[JOB_MOST_RANKS];
  job_run(j, nranks, results);
  for (int r = 0; r < nranks; r++)
    cr_assert_eq(results[r], 0, "rank %d of %d: %d: %s", r, nranks, results[r],
                 j->out->why[r].text);
}

void job_runs_badly(const job *j, int nranks) {
  int results[JOB_MOST_RANKS];
  double begin = now_s();
  job_run(j, nranks, results);
  cr_assert_lt(now_s() - begin, 30);
  for (int r = 0; r < nranks; r++) {
    if (r == j->odd_rank && j->killed) {
      cr_assert_eq(results[r], 128 + SIGKILL);
      continue;
    }
    cr_assert_eq(results[r], 1, "rank %d: %d", r, results[r]);
    cr_assert_neq(j->out->why[r].text[0], '\0');
    cr_assert_null(strchr(j->out->why[r].text, '\n'));
  }
}

/* The number after "name": in a line. */
static double number(const char *line, const char *name) {
  const char *at = strstr(line, name);
  cr_assert(at, "'%s' lacks %s", line, name);
  return strtod(at + strlen(name), NULL);
}

void job_survives(const job *j, int nranks) {
  int results[JOB_MOST_RANKS];
  job_run(j, nranks, results);
  for (int r = 0; r < nranks; r++)
    cr_assert_eq(results[r], r == j->odd_rank ? 128 + SIGKILL : 0, "rank %d: %d: %s", r, results[r],
                 j->out->why[r].text);
}

curve job_curve(const job *j) {
  static char line[16384];
  curve c = {.epochs = 0};
  FILE *file = fopen(j->metrics, "r");
  cr_assert(file);
  while (fgets(line, sizeof(line), file)) {
    if (strstr(line, "\"type\":\"final\"")) {
      c.test_accuracy = number(line, "\"test_accuracy\":");
      continue;
    }
    cr_assert_lt(c.epochs, JOB_MOST_EPOCHS);
    c.train_loss[c.epochs] = number(line, "\"train_loss\":");
    c.test_loss[c.epochs] = number(line, "\"test_loss\":");
    c.train_accuracy[c.epochs] = number(line, "\"train_accuracy\":");
    c.sent_bytes[c.epochs] = number(line, "\"sent_bytes\":");
    snprintf(c.hash[c.epochs], 17, "%s", strstr(line, "\"weights_hash\":\"") + 16);
    c.epochs++;
  }
  fclose(file);
  return c;
}

double job_number(const job *j, size_t epoch, const char *name) {
  static char line[16384];
  char quoted[64];
  snprintf(quoted, sizeof(quoted), "\"%s\":", name);
  FILE *file = fopen(j->metrics, "r");
  cr_assert(file);
  for (size_t i = 0; i <= epoch; i++)
    cr_assert(fgets(line, sizeof(line), file), "no line of epoch %zu", epoch);
  fclose(file);
  return number(line, quoted);
}

void job_survives_as_well_trained(const char *how, int nranks, int killed) {
  job j = job_make(how);
  j.o.epochs = 60;
  j.o.lr_decay = 1;
  job_runs_well(&j, nranks);
  double undisturbed = job_curve(&j).test_accuracy;
  j.o.checkpoint = j.checkpoint;
  j.odd_rank = killed;
  j.killed = true;
  job_survives(&j, nranks);
  curve c = job_curve(&j);
  cr_assert(c.epochs == 60 || (c.epochs == 61 && killed == 0)); /* a line may come twice */
  cr_assert_float_eq(c.test_accuracy, undisturbed, 0.005 + 1.01 / FILES_TEST, "%s: %g, %g", how,
                     c.test_accuracy, undisturbed);
  job_drop(&j);
}
