/* test_train.c: training with several ranks: the same curve, resumption, and every way to fail. */
#include "support_ranks.h"
#include "tests/unit/trainer_files.h"
#include "trainer/agree.h"
#include "trainer/hash.h"
#include "trainer/idx.h"
#include "trainer/loader.h"
#include "trainer/optim.h"
#include "trainer/strategies/buckets.h"
#include "trainer/train.h"

#include <cblas.h>
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MOST_RANKS  5
#define MOST_EPOCHS 64

/* What a job's ranks found; in memory that they share with the test. */
typedef struct outcome {
  fail why[MOST_RANKS];
} outcome;

/* One run of training. */
typedef struct job {
  options o;
  char folder[64], metrics[96], checkpoint[96];
  outcome *out;
  int odd_rank;  /* the rank that is treated otherwise, or -1 */
  uint64_t seed; /* its seed, if not 0 */
  bool bad_data; /* it has none */
  bool killed;   /* it is killed once there is a checkpoint */
} job;

/* The numbers of a run's metrics file. */
typedef struct curve {
  size_t epochs;
  double train_loss[MOST_EPOCHS], test_loss[MOST_EPOCHS], train_accuracy[MOST_EPOCHS];
  double test_accuracy;
  char hash[MOST_EPOCHS][17];
} curve;

/* A small job in a fresh folder. */
static job make(void) {
  job j = {.odd_rank = -1};
  char *argv[] = {"coll_train", "--layers", "36,16,12,4", "--epochs",   "4",   "--batch",
                  "32",         "--lr",     "0.05",       "--lr-decay", "0.9", "--bucket-bytes",
                  "1000",       "--quiet",  NULL};
  fail why;
  cr_assert_eq(options_parse(&j.o, 14, argv, &why), OPTIONS_RUN, "%s", why.text);
  files_folder(j.folder);
  files_make(j.folder, ".gz");
  snprintf(j.metrics, sizeof(j.metrics), "%s/metrics", j.folder);
  snprintf(j.checkpoint, sizeof(j.checkpoint), "%s/checkpoint", j.folder);
  j.out = mmap(NULL, sizeof(*j.out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(j.out, MAP_FAILED);
  openblas_set_num_threads(1);
  return j;
}

static void drop(job *j) {
  files_remove(j->folder);
  munmap(j->out, sizeof(*j->out));
}

/* A rank that is to be killed looks for this file. */
static char awaited[96];

/* Kills this process if the file is there. */
static void die_if_there(int number) {
  (void)number;
  if (access(awaited, F_OK) == 0)
    kill(getpid(), SIGKILL);
}

/* Lets this process be killed in the middle of training, soon after the first checkpoint. */
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
  idx_data data;
  bool odd = rank == j->odd_rank;
  (void)nranks;
  *why = (fail){.text = ""};
  o.metrics = j->metrics;
  if (odd && j->seed)
    o.seed = j->seed;
  if (odd && j->killed)
    die_after_checkpoint(j->checkpoint);
  bool loaded = odd && j->bad_data ? fail_set(why, "some-file: is bad")
                                   : idx_load(&data, j->folder, FILES_CLASSES, why);
  bool ok = train(&o, comm, loaded ? &data : NULL, why);
  if (loaded)
    idx_free(&data);
  return ok ? 0 : 1;
}

/* Runs a job that must succeed. */
static void run_well(const job *j, int nranks) {
  int result = run_processes(nranks, NULL, rank_main, (void *)(uintptr_t)j, 60, NULL);
  cr_assert_eq(result, 0, "%d ranks: %d: %s", nranks, result, j->out->why[0].text);
}

/* Runs a job that must fail on all ranks (but one that is killed), in time. */
static void run_badly(const job *j, int nranks) {
  int results[MOST_RANKS];
  double begin = now_s();
  run_processes(nranks, NULL, rank_main, (void *)(uintptr_t)j, 60, results);
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

/* The number behind "name": in a line. */
static double number(const char *line, const char *name) {
  const char *at = strstr(line, name);
  cr_assert(at, "'%s' lacks %s", line, name);
  return strtod(at + strlen(name), NULL);
}

/* Reads a metrics file. */
static curve read_curve(const job *j) {
  static char line[4096];
  curve c = {.epochs = 0};
  FILE *file = fopen(j->metrics, "r");
  cr_assert(file);
  while (fgets(line, sizeof(line), file)) {
    if (strstr(line, "\"type\":\"final\"")) {
      c.test_accuracy = number(line, "\"test_accuracy\":");
      continue;
    }
    cr_assert_lt(c.epochs, MOST_EPOCHS);
    c.train_loss[c.epochs] = number(line, "\"train_loss\":");
    c.test_loss[c.epochs] = number(line, "\"test_loss\":");
    c.train_accuracy[c.epochs] = number(line, "\"train_accuracy\":");
    snprintf(c.hash[c.epochs], 17, "%s", strstr(line, "\"weights_hash\":\"") + 16);
    c.epochs++;
  }
  fclose(file);
  return c;
}

/* The hash of the weights after the job's epochs, by the plainest loop for one rank. */
static uint64_t plain_training(const job *j) {
  const options *o = &j->o;
  fail why;
  idx_data data;
  model m;
  pass p;
  loader ld;
  cr_assert(idx_load(&data, j->folder, FILES_CLASSES, &why));
  cr_assert(model_perceptron(&m, o->sizes, o->size_count, &why) &&
            pass_create(&p, &m, o->batch, &why) &&
            loader_create(&ld, &data, o->seed, o->batch, &why));
  float *w = calloc(m.params, sizeof(float)), *v = calloc(m.params, sizeof(float)),
        *g = calloc(m.params, sizeof(float));
  sgd rule = {o->lr, o->momentum, o->weight_decay};
  model_seed(&m, o->seed, w);
  for (uint64_t epoch = 0; epoch < o->epochs; epoch++, rule.lr *= o->lr_decay) {
    loader_epoch(&ld, epoch);
    for (size_t done = 0; done < FILES_TRAIN; done += o->batch) {
      size_t rows = done + o->batch < FILES_TRAIN ? o->batch : FILES_TRAIN - done;
      loader_train(&ld, done, rows, p.value[0], p.labels);
      model_forward(&m, w, &p, rows, &why);
      model_loss_delta(&m, &p, rows, 1.0f / (float)rows);
      model_backward(&m, w, &p, rows, g, NULL, (model_listener){NULL, NULL}, &why);
      sgd_update(&rule, m.params, w, v, g);
    }
  }
  uint64_t hash = hash_bytes(HASH_START, w, m.params * sizeof(float));
  free(w);
  free(v);
  free(g);
  loader_destroy(&ld);
  pass_destroy(&p);
  idx_free(&data);
  return hash;
}

Test(train, one_rank_does_what_the_plain_loop_does) {
  job j = make();
  char hash[17];
  run_well(&j, 1);
  snprintf(hash, sizeof(hash), "%016" PRIx64, plain_training(&j));
  cr_assert_str_eq(read_curve(&j).hash[3], hash);
  drop(&j);
}

/*
 * n ranks must give the curve of one. They add the same float32 numbers, but grouped otherwise: a
 * gradient is a sum of up to 32 products, so it differs by a few units of 2^-24 = 6e-8. Momentum
 * sums about ten gradients, and an epoch has up to 41 steps, so after four epochs losses of order 1
 * may differ by some 1e-6; 2e-5 leaves room, and is far below what one wrongly weighted sample
 * makes (1 / 203 of the loss).
 */
#define CURVE_TOLERANCE 2e-5

static void check_same_curve(size_t batch) {
  job j = make();
  j.o.batch = batch;
  run_well(&j, 1);
  curve one = read_curve(&j);
  cr_assert_eq(one.epochs, 4);
  cr_assert_lt(one.train_loss[3], one.train_loss[0] / 2, "it does not learn");
  cr_assert_gt(one.test_accuracy, 0.8);
  for (int n = 2; n <= MOST_RANKS; n++) {
    run_well(&j, n);
    curve c = read_curve(&j);
    cr_assert_eq(c.epochs, 4);
    for (int e = 0; e < 4; e++) {
      cr_assert_float_eq(c.train_loss[e], one.train_loss[e], CURVE_TOLERANCE,
                         "%d ranks, epoch %d: %.9g, one rank %.9g", n, e, c.train_loss[e],
                         one.train_loss[e]);
      cr_assert_float_eq(c.test_loss[e], one.test_loss[e], CURVE_TOLERANCE);
      cr_assert_float_eq(c.train_accuracy[e], one.train_accuracy[e], 1.01 / FILES_TRAIN);
    }
    cr_assert_float_eq(c.test_accuracy, one.test_accuracy, 1.01 / FILES_TEST);
  }
  drop(&j);
}

Test(train, n_ranks_give_the_curve_of_one) {
  check_same_curve(32); /* the last batch has 11 samples: 203 = 6 * 32 + 11 */
}

Test(train, n_ranks_give_the_curve_of_one_when_some_have_no_sample) {
  check_same_curve(5); /* the last batch has 3 samples, for up to 5 ranks */
}

/* A sum of two does not depend on the grouping: with two ranks buckets must not matter at all. */
Test(train, buckets_do_not_change_the_result) {
  static const size_t bytes[] = {1, 1000, 3000, 1u << 30};
  job j = make();
  char hash[17] = "";
  for (int i = 0; i < 4; i++) {
    j.o.bucket_bytes = bytes[i];
    run_well(&j, 2);
    curve c = read_curve(&j);
    cr_assert(i == 0 || strcmp(hash, c.hash[3]) == 0, "%s, %s", hash, c.hash[3]);
    memcpy(hash, c.hash[3], sizeof(hash));
  }
  drop(&j);
}

static int cut_main(coll_comm *comm, int rank, int nranks, void *arg) {
  static const size_t sizes[] = {10, 20, 5, 5, 3};
  (void)nranks;
  (void)arg;
  model m;
  fail why = {.text = ""};
  RANK_CHECK(model_perceptron(&m, sizes, 5, &why));
  for (size_t bytes = 1; bytes < 3000; bytes += 7) {
    buckets b;
    RANK_CHECK(buckets_create(&b, comm, &m, bytes, &why));
    size_t end = m.params;
    for (size_t i = 0; i < b.count; i++) {
      size_t l = b.item[i].lowest_layer, before = i ? b.item[i - 1].lowest_layer : m.layers;
      RANK_CHECK(b.item[i].first + b.item[i].count == end && b.item[i].first == m.layer[l].first);
      RANK_CHECK(b.item[i].count * sizeof(float) <= bytes || l + 1 == before);
      /* The next layer would not have fitted. */
      RANK_CHECK(l == 0 || (end - m.layer[l - 1].first) * sizeof(float) > bytes);
      end = b.item[i].first;
    }
    RANK_CHECK(end == 0);
    buckets_destroy(&b);
  }
  return 0;
}

Test(train, buckets_cover_the_model_last_layer_first) {
  cr_assert_eq(run_threads(1, NULL, cut_main, NULL), 0);
}

/* A run that was stopped and resumed ends with the bits of one that was not. */
Test(train, resumed_run_equals_undisturbed_run) {
  job j = make();
  for (int n = 1; n <= 3; n += 2) {
    size_t bytes, again;
    j.o.checkpoint = j.checkpoint;
    j.o.resume = false;
    j.o.epochs = 5;
    run_well(&j, n);
    curve whole = read_curve(&j);
    uint8_t *first = files_read(j.folder, "checkpoint", &bytes);
    j.o.epochs = 2;
    run_well(&j, n);
    j.o.resume = true;
    j.o.epochs = 5;
    run_well(&j, n);
    curve parts = read_curve(&j);
    uint8_t *second = files_read(j.folder, "checkpoint", &again);
    cr_assert_eq(parts.epochs, 5, "lines are added to the metrics");
    for (int e = 0; e < 5; e++)
      cr_assert(whole.train_loss[e] == parts.train_loss[e] &&
                whole.test_loss[e] == parts.test_loss[e] &&
                strcmp(whole.hash[e], parts.hash[e]) == 0);
    cr_assert_eq(bytes, again);
    cr_assert_arr_eq(first, second, bytes);
    run_well(&j, n); /* nothing is left to do: no harm */
    free(first);
    free(second);
  }
  drop(&j);
}

/* A rank is killed: the others say so, take over its part, and end as well trained. */
Test(train, killed_rank) {
  job j = make();
  j.o.checkpoint = j.checkpoint;
  j.o.epochs = 60;
  j.o.lr_decay = 1;
  run_well(&j, 3);
  double undisturbed = read_curve(&j).test_accuracy;
  unlink(j.checkpoint);
  j.odd_rank = 1;
  j.killed = true;
  int results[MOST_RANKS];
  run_processes(3, NULL, rank_main, (void *)(uintptr_t)&j, 60, results);
  cr_assert_eq(results[1], 128 + SIGKILL);
  cr_assert(results[0] == 0 && results[2] == 0, "%d, %d: %s", results[0], results[2],
            j.out->why[0].text);
  curve c = read_curve(&j);
  cr_assert_eq(c.epochs, 60);
  cr_assert_float_eq(c.test_accuracy, undisturbed, 0.005 + 1.01 / FILES_TEST);
  drop(&j);
}

/* What is left of a run whose rank 0 was killed goes on with another rank that writes its files. */
Test(train, killed_first_rank) {
  job j = make();
  j.o.checkpoint = j.checkpoint;
  j.o.epochs = 60;
  j.odd_rank = 0;
  j.killed = true;
  int results[MOST_RANKS];
  run_processes(3, NULL, rank_main, (void *)(uintptr_t)&j, 60, results);
  cr_assert_eq(results[0], 128 + SIGKILL);
  cr_assert(results[1] == 0 && results[2] == 0, "%d, %d: %s", results[1], results[2],
            j.out->why[1].text);
  curve c = read_curve(&j);
  cr_assert(c.epochs == 60 || c.epochs == 59, "the line of the epoch in which it died may lack");
  cr_assert_gt(c.test_accuracy, 0.8);
  drop(&j);
}

/* What one rank cannot do, all say, with the same words, and at once. */
Test(train, bad_data_on_one_rank) {
  job j = make();
  j.odd_rank = 2;
  j.bad_data = true;
  run_badly(&j, 3);
  for (int r = 0; r < 3; r++) {
    cr_assert_str_eq(j.out->why[r].text, "rank 2: some-file: is bad");
    cr_assert(j.out->why[r].everywhere);
  }
  files_unlink(j.folder, "t10k-labels-idx1-ubyte.gz"); /* now all have the same trouble */
  j.odd_rank = -1;
  run_badly(&j, 3);
  for (int r = 0; r < 3; r++)
    cr_assert(strncmp(j.out->why[r].text, j.folder, strlen(j.folder)) == 0, "%s",
              j.out->why[r].text);
  drop(&j);
}

Test(train, other_options_on_one_rank) {
  job j = make();
  j.odd_rank = 1;
  j.seed = 77;
  run_badly(&j, 2);
  cr_assert(strstr(j.out->why[0].text, "rank 1 was started with other options"), "%s",
            j.out->why[0].text);
  drop(&j);
}

Test(train, model_that_does_not_fit_the_images) {
  job j = make();
  j.o.sizes[0] = 35;
  run_badly(&j, 2);
  cr_assert(strstr(j.out->why[1].text, "--layers begins with 35"), "%s", j.out->why[1].text);
  drop(&j);
}

Test(train, damaged_checkpoint_is_refused_on_all_ranks) {
  job j = make();
  size_t bytes;
  j.o.checkpoint = j.checkpoint;
  j.o.epochs = 1;
  run_well(&j, 2);
  curve before = read_curve(&j);
  uint8_t *data = files_read(j.folder, "checkpoint", &bytes);
  data[bytes / 2] ^= 4;
  files_write(j.folder, "checkpoint", data, bytes);
  free(data);
  j.o.resume = true;
  run_badly(&j, 2);
  for (int r = 0; r < 2; r++)
    cr_assert(strstr(j.out->why[r].text, "checksum"), "%s", j.out->why[r].text);
  cr_assert_eq(read_curve(&j).epochs, before.epochs, "the metrics were touched");
  drop(&j);
}

/* Only rank 0 writes; if it cannot, the others end with it and know why. */
Test(train, checkpoint_that_cannot_be_written) {
  job j = make();
  char temporary[128];
  j.o.checkpoint = j.checkpoint;
  snprintf(temporary, sizeof(temporary), "%s.tmp", j.checkpoint);
  cr_assert_eq(mkdir(temporary, 0700), 0);
  run_badly(&j, 3);
  cr_assert(strstr(j.out->why[0].text, temporary), "%s", j.out->why[0].text);
  for (int r = 1; r < 3; r++)
    cr_assert(strstr(j.out->why[r].text, "COLL_ERR_ABORTED"), "%s", j.out->why[r].text);
  drop(&j);
}

Test(train, divergence_is_noticed) {
  job j = make();
  j.o.lr = 1000;
  run_badly(&j, 2);
  for (int r = 0; r < 2; r++)
    cr_assert(strstr(j.out->why[r].text, "not a number"), "%s", j.out->why[r].text);
  drop(&j);
}

/* One rank's weights are not like the others'. */
static int odd_weights_main(coll_comm *comm, int rank, int nranks, void *arg) {
  int odd = *(int *)arg;
  char want[64];
  fail why = {.text = ""};
  RANK_CHECK(agree_weights(comm, 42, &why));
  RANK_CHECK(!agree_weights(comm, rank == odd ? 43 : 42, &why));
  snprintf(want, sizeof(want), "weights of rank %d differ from those of rank %d",
           nranks == 2 ? 1 : odd, odd == 0 && nranks > 2 ? 1 : 0);
  RANK_CHECK(strstr(why.text, want) && why.everywhere);
  return 0;
}

Test(train, rank_with_other_weights_is_named) {
  for (int n = 2; n <= 4; n++)
    for (int odd = 0; odd < n; odd++)
      cr_assert_eq(run_threads(n, NULL, odd_weights_main, &odd), 0);
}
