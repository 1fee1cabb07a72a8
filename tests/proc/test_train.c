/* test_train.c: training with several ranks: the same curve, resumption, and every way to fail. */
#include "support_train.h"
#include "trainer/base.h"
#include "trainer/dataset.h"
#include "trainer/optim.h"
#include "trainer/program.h"
#include "trainer/ranks.h"
#include "trainer/strategies/buckets.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

/* The hash of the weights after the job's epochs, from the simplest loop for one rank. */
static uint64_t plain_training(const job *j) {
  const options *o = &j->o;
  fail why;
  dataset data;
  model m;
  pass p;
  loader ld;
  cr_assert(dataset_load(&data, j->folder, 64, &why));
  cr_assert(model_perceptron(&m, o->sizes, o->size_count, &why) &&
            pass_create(&p, &m, o->batch, &why) &&
            loader_create(&ld, &data, o->seed, o->batch, &why));
  float *w = calloc(m.params, sizeof(float)), *v = calloc(m.params, sizeof(float)),
        *g = calloc(m.params, sizeof(float));
  model_seed(&m, o->seed, w);
  for (uint64_t epoch = 0; epoch < o->epochs; epoch++) {
    optim rule = optim_rule(o, (double)epoch, 0);
    loader_epoch(&ld, epoch);
    for (size_t done = 0; done < FILES_TRAIN; done += o->batch) {
      size_t rows = done + o->batch < FILES_TRAIN ? o->batch : FILES_TRAIN - done;
      loader_train(&ld, done, rows, p.value[0], p.labels);
      model_forward(&m, w, &p, rows, &why);
      model_loss_delta(&m, &p, rows, 1.0f / (float)rows);
      model_backward(&m, w, &p, rows, g, NULL, (model_listener){NULL, NULL}, &why);
      optim_update(&rule, m.params, w, v, NULL, g);
    }
  }
  uint64_t hash = hash_bytes(HASH_START, w, m.params * sizeof(float));
  free(w);
  free(v);
  free(g);
  loader_destroy(&ld);
  pass_destroy(&p);
  dataset_free(&data);
  return hash;
}

Test(train, one_rank_does_what_the_plain_loop_does) {
  job j = job_make(NULL);
  char hash[17];
  job_runs_well(&j, 1);
  snprintf(hash, sizeof(hash), "%016" PRIx64, plain_training(&j));
  cr_assert_str_eq(job_curve(&j).hash[3], hash);
  job_drop(&j);
}

/*
 * n ranks must give the curve of one. They add the same float32 numbers, but grouped differently: a
 * gradient is a sum of up to 32 products, so it differs by a few units of 2^-24 = 6e-8. Momentum
 * sums about ten gradients, and an epoch has up to 41 steps, so after four epochs losses of order 1
 * differ by some 1e-6; 2e-5 leaves room, and is far below what one wrongly weighted sample makes (1
 * / 203 of the loss). Without hidden layers the loss is convex, and differences do not grow.
 */
#define CURVE_TOLERANCE  2e-5
#define CONVEX_TOLERANCE 1e-6

/* Compares 2 to `most` ranks with one; the right answers may differ by `samples` samples. */
static void compare_curves(const char *more, int most, double tolerance, double samples) {
  job j = job_make(more);
  job_runs_well(&j, 1);
  curve one = job_curve(&j);
  cr_assert_geq(one.epochs, 4);
  cr_assert_lt(one.train_loss[one.epochs - 1], 0.7 * one.train_loss[0], "it does not learn");
  cr_assert_gt(one.test_accuracy, 0.8);
  for (int n = 2; n <= most; n++) {
    job_runs_well(&j, n);
    curve c = job_curve(&j);
    cr_assert_eq(c.epochs, one.epochs);
    for (size_t e = 0; e < c.epochs; e++) {
      cr_assert_float_eq(c.train_loss[e], one.train_loss[e], tolerance,
                         "%s: %d ranks, epoch %zu: %.9g, one rank %.9g", more ? more : "", n, e,
                         c.train_loss[e], one.train_loss[e]);
      cr_assert_float_eq(c.test_loss[e], one.test_loss[e], tolerance);
      cr_assert_float_eq(c.train_accuracy[e], one.train_accuracy[e],
                         (samples + 0.01) / FILES_TRAIN);
    }
    cr_assert_float_eq(c.test_accuracy, one.test_accuracy, (samples + 0.01) / FILES_TEST);
  }
  job_drop(&j);
}

static void check_same_curve(const char *more) {
  compare_curves(more, 5, CURVE_TOLERANCE, 1);
}

/* Softmax regression: even long runs differ only by rounding. */
Test(train, without_hidden_layers_differences_do_not_grow) {
  compare_curves("--layers 36,4 --epochs 24", 7, CONVEX_TOLERANCE, 0);
}

/* With hidden layers, ReLU and momentum, differences grow: default widths, many epochs. */
Test(train, with_hidden_layers_differences_grow) {
  compare_curves("--layers 36,256,128,4 --epochs 24 --batch 8", 4, 1e-2, 3);
}

Test(train, n_ranks_give_the_curve_of_one) {
  check_same_curve(NULL); /* the last batch has 11 samples: 203 = 6 * 32 + 11 */
}

Test(train, n_ranks_give_the_curve_of_one_when_some_have_no_sample) {
  check_same_curve("--batch 5"); /* the last batch has 3 samples, for up to 5 ranks */
}

Test(train, n_ranks_give_the_curve_of_one_with_other_optimizers) {
  check_same_curve("--clip 0.5");
  check_same_curve("--accumulate 3");
  check_same_curve("--optimizer adam --lr 0.01 --schedule cosine --warmup 0.5");
}

/* Parts of a step add up to the step, and a clip that is never reached changes nothing. */
Test(train, parts_of_a_step) {
  job whole = job_make("--epochs 2"), parts = job_make("--epochs 2 --accumulate 5 --clip 1000");
  for (int n = 1; n <= 2; n++) {
    job_runs_well(&whole, n);
    job_runs_well(&parts, n);
    curve a = job_curve(&whole), b = job_curve(&parts);
    for (int e = 0; e < 2; e++)
      cr_assert_float_eq(a.train_loss[e], b.train_loss[e], CURVE_TOLERANCE);
  }
  job_drop(&whole);
  job_drop(&parts);
}

/* A sum of two does not depend on the grouping: with two ranks buckets must not matter at all. */
Test(train, buckets_do_not_change_the_result) {
  static const size_t bytes[] = {1, 1000, 3000, 1u << 30};
  job j = job_make(NULL);
  char hash[17] = "";
  for (int i = 0; i < 4; i++) {
    j.o.bucket_bytes = bytes[i];
    job_runs_well(&j, 2);
    curve c = job_curve(&j);
    cr_assert(i == 0 || strcmp(hash, c.hash[3]) == 0, "%s, %s", hash, c.hash[3]);
    memcpy(hash, c.hash[3], sizeof(hash));
  }
  job_drop(&j);
}

Test(train, buckets_cover_the_model_last_layer_first) {
  static const size_t sizes[] = {10, 20, 5, 5, 3};
  model m;
  fail why;
  cr_assert(model_perceptron(&m, sizes, 5, &why));
  for (size_t bytes = 1; bytes < 3000; bytes += 7) {
    buckets b;
    buckets_cut(&b, &m, bytes);
    size_t end = m.params;
    for (size_t i = 0; i < b.count; i++) {
      size_t l = b.item[i].lowest_layer, before = i ? b.item[i - 1].lowest_layer : m.layers;
      cr_assert(b.item[i].first + b.item[i].count == end && b.item[i].first == m.layer[l].first);
      cr_assert(b.item[i].count * sizeof(float) <= bytes || l + 1 == before);
      /* The next layer would not fit. */
      cr_assert(l == 0 || (end - m.layer[l - 1].first) * sizeof(float) > bytes);
      end = b.item[i].first;
    }
    cr_assert_eq(end, 0);
  }
}

/* A run that was stopped and resumed ends with the same bits as one that was not. */
static void check_resumed(const char *more) {
  job j = job_make(more);
  for (int n = 1; n <= 3; n += 2) {
    size_t bytes, again;
    j.o.checkpoint = j.checkpoint;
    j.o.resume = false;
    j.o.epochs = 5;
    job_runs_well(&j, n);
    curve whole = job_curve(&j);
    uint8_t *first = files_read(j.folder, "checkpoint", &bytes);
    j.o.epochs = 2;
    job_runs_well(&j, n);
    j.o.resume = true;
    j.o.epochs = 5;
    job_runs_well(&j, n);
    curve parts = job_curve(&j);
    uint8_t *second = files_read(j.folder, "checkpoint", &again);
    cr_assert_eq(parts.epochs, 5, "lines are added to the metrics");
    for (int e = 0; e < 5; e++)
      cr_assert(whole.train_loss[e] == parts.train_loss[e] &&
                whole.test_loss[e] == parts.test_loss[e] &&
                strcmp(whole.hash[e], parts.hash[e]) == 0);
    cr_assert_eq(bytes, again);
    cr_assert_arr_eq(first, second, bytes);
    job_runs_well(&j, n); /* nothing is left to do, which is not an error */
    free(first);
    free(second);
  }
  job_drop(&j);
}

Test(train, resumed_run_equals_undisturbed_run) {
  check_resumed(NULL);
  check_resumed("--optimizer adam --lr 0.01 --warmup 3");
}

/* If one rank cannot start, all fail at once, with the same text. */
Test(train, bad_data_on_one_rank) {
  job j = job_make(NULL);
  j.odd_rank = 2;
  j.bad_data = true;
  job_runs_badly(&j, 3);
  for (int r = 0; r < 3; r++) {
    cr_assert_str_eq(j.out->why[r].text, "rank 2: some-file: is bad");
    cr_assert(j.out->why[r].everywhere);
  }
  files_unlink(j.folder, "t10k-labels-idx1-ubyte.gz"); /* now all have the same trouble */
  j.odd_rank = -1;
  job_runs_badly(&j, 3);
  for (int r = 0; r < 3; r++)
    cr_assert(strncmp(j.out->why[r].text, j.folder, strlen(j.folder)) == 0, "%s",
              j.out->why[r].text);
  job_drop(&j);
}

Test(train, other_options_on_one_rank) {
  job j = job_make(NULL);
  j.odd_rank = 1;
  j.seed = 77;
  job_runs_badly(&j, 2);
  cr_assert(strstr(j.out->why[0].text, "rank 1 was started with different options"), "%s",
            j.out->why[0].text);
  job_drop(&j);
}

Test(train, model_that_does_not_fit_the_images) {
  job j = job_make(NULL);
  j.o.sizes[0] = 35;
  job_runs_badly(&j, 2);
  cr_assert(strstr(j.out->why[1].text, "--layers begins with 35"), "%s", j.out->why[1].text);
  job_drop(&j);
}

Test(train, damaged_checkpoint_is_refused_on_all_ranks) {
  job j = job_make(NULL);
  size_t bytes;
  j.o.checkpoint = j.checkpoint;
  j.o.epochs = 1;
  job_runs_well(&j, 2);
  curve before = job_curve(&j);
  uint8_t *data = files_read(j.folder, "checkpoint", &bytes);
  data[bytes / 2] ^= 4;
  files_write(j.folder, "checkpoint", data, bytes);
  free(data);
  j.o.resume = true;
  job_runs_badly(&j, 2);
  for (int r = 0; r < 2; r++)
    cr_assert(strstr(j.out->why[r].text, "checksum"), "%s", j.out->why[r].text);
  cr_assert_eq(job_curve(&j).epochs, before.epochs, "the metrics were touched");
  job_drop(&j);
}

static char blocked[96]; /* a checkpoint that cannot be written */

/* Puts a folder where rank 0 is going to write the checkpoint first. */
static void block_checkpoint(int rank) {
  char temporary[128];
  snprintf(temporary, sizeof(temporary), "%s.0.tmp", blocked);
  if (rank == 0 && mkdir(temporary, 0700) != 0)
    abort();
}

/* Only rank 0 writes; if it cannot, the others end too, with the reason. */
Test(train, checkpoint_that_cannot_be_written) {
  job j = job_make(NULL);
  j.o.checkpoint = j.checkpoint;
  j.before = block_checkpoint;
  snprintf(blocked, sizeof(blocked), "%s", j.checkpoint);
  job_runs_badly(&j, 3);
  cr_assert(strstr(j.out->why[0].text, j.checkpoint) && strstr(j.out->why[0].text, "File exists"),
            "%s", j.out->why[0].text);
  for (int r = 1; r < 3; r++)
    cr_assert(strstr(j.out->why[r].text, "COLL_ERR_ABORTED"), "%s", j.out->why[r].text);
  job_drop(&j);
}

Test(train, divergence_is_noticed) {
  job j = job_make(NULL);
  j.o.lr = 1000;
  job_runs_badly(&j, 2);
  for (int r = 0; r < 2; r++)
    cr_assert(strstr(j.out->why[r].text, "not a number"), "%s", j.out->why[r].text);
  job_drop(&j);
}

/* One rank's weights differ from the others'. */
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

/* ---- models that are split over the ranks -----------------------------------------------------
 */

/* A job must give the curve of one rank of the strategy allreduce. */
static void check_curve(const char *more, const char *strategy, int nranks) {
  char both[512];
  job one = job_make(more);
  snprintf(both, sizeof(both), "%s %s", more, strategy);
  job parts = job_make(both);
  job_runs_well(&one, 1);
  job_runs_well(&parts, nranks);
  curve a = job_curve(&one), b = job_curve(&parts);
  cr_assert_eq(a.epochs, b.epochs);
  for (size_t e = 0; e < a.epochs; e++) {
    cr_assert_float_eq(a.train_loss[e], b.train_loss[e], CURVE_TOLERANCE,
                       "%s, %d ranks, epoch %zu: %.9g, one rank %.9g", strategy, nranks, e,
                       b.train_loss[e], a.train_loss[e]);
    cr_assert_float_eq(a.test_loss[e], b.test_loss[e], CURVE_TOLERANCE);
  }
  job_drop(&one);
  job_drop(&parts);
}

Test(train_parallel, pipeline_gives_the_curve_of_one_rank) {
  static const char *const schedules[] = {"gpipe", "1f1b"};
  static const int micro[] = {1, 2, 5, 40}; /* 40: more than there are samples in a batch */
  char strategy[128];
  for (int s = 0; s < 2; s++)
    for (int m = 0; m < 4; m++)
      for (int n = 1; n <= 3; n++) {
        snprintf(strategy, sizeof(strategy),
                 "--strategy pipeline --pipeline-schedule %s --micro-batches %d", schedules[s],
                 micro[m]);
        check_curve("--epochs 2", strategy, n);
      }
}

Test(train_parallel, pipeline_of_five_stages) {
  check_curve("--epochs 2 --layers 36,20,16,12,8,4", "--strategy pipeline --micro-batches 7", 5);
  check_curve("--epochs 2 --layers 36,20,16,12,8,4 --optimizer adam --lr 0.001",
              "--strategy pipeline --micro-batches 3 --pipeline-schedule gpipe", 5);
}

/* Both schedules add up the same numbers in the same order. */
Test(train_parallel, schedules_give_the_same_bits) {
  job a = job_make("--strategy pipeline --pipeline-schedule gpipe --micro-batches 6");
  job b = job_make("--strategy pipeline --pipeline-schedule 1f1b --micro-batches 6");
  job_runs_well(&a, 3);
  job_runs_well(&b, 3);
  curve first = job_curve(&a), second = job_curve(&b);
  for (size_t e = 0; e < first.epochs; e++)
    cr_assert_str_eq(first.hash[e], second.hash[e]);
  cr_assert_float_eq(job_number(&a, 0, "bubble_formula"), 2.0 / 8, 1e-3);
  cr_assert_gt(job_number(&a, 0, "bubble"), 0);
  job_drop(&a);
  job_drop(&b);
}

/* A checkpoint has the whole model: any strategy can resume from it. */
Test(train_parallel, checkpoint_of_a_pipeline) {
  job j = job_make("--strategy pipeline --epochs 2"), other = job_make("--epochs 4");
  j.o.checkpoint = j.checkpoint;
  job_runs_well(&j, 3);
  job whole = job_make("--epochs 4");
  job_runs_well(&whole, 1);
  other.o.checkpoint = j.checkpoint;
  other.o.resume = true;
  job_runs_well(&other, 2);
  curve a = job_curve(&whole), b = job_curve(&other);
  cr_assert_eq(b.epochs, 2);
  for (size_t e = 0; e < 2; e++)
    cr_assert_float_eq(a.train_loss[e + 2], b.train_loss[e], CURVE_TOLERANCE);
  job_drop(&j);
  job_drop(&other);
  job_drop(&whole);
}

Test(train_parallel, tensor_gives_the_curve_of_one_rank) {
  for (int n = 1; n <= 5; n++) {
    check_curve("--epochs 2", "--strategy tensor", n);
    check_curve("--epochs 2 --layers 36,4", "--strategy tensor", n);
    check_curve("--epochs 2 --layers 36,17,13,11,4 --optimizer adam --lr 0.01", "--strategy tensor",
                n);
  }
}

Test(train_parallel, products_give_the_curve_of_one_rank) {
  static const struct {
    int ranks, tensor, pipeline;
  } grids[] = {{8, 2, 2}, {4, 2, 1}, {4, 1, 2}, {6, 3, 2}, {6, 1, 3}, {6, 2, 3}, {3, 1, 1}};
  char strategy[128];
  for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
    snprintf(strategy, sizeof(strategy), "--strategy grid --tensor %d --pipeline %d",
             grids[i].tensor, grids[i].pipeline);
    check_curve("--epochs 2 --layers 36,16,12,8,4", strategy, grids[i].ranks);
  }
}

/* Batches of which some copies have no sample, and some micro-batches none. */
Test(train_parallel, small_batches) {
  check_curve("--epochs 1 --batch 3 --lr 0.005", "--strategy grid --tensor 2 --pipeline 2", 8);
  check_curve("--epochs 1 --batch 1 --lr 0.002", "--strategy grid --pipeline 2 --micro-batches 3",
              4);
}

/* Such a job ends with that text on every rank: none continues and gets an abort instead. */
static void check_impossible(const char *how, int nranks, const char *text) {
  job j = job_make(how);
  job_runs_badly(&j, nranks);
  for (int r = 0; r < nranks; r++) {
    cr_assert(strstr(j.out->why[r].text, text), "rank %d: %s", r, j.out->why[r].text);
    cr_assert(j.out->why[r].everywhere);
  }
  job_drop(&j);
}

Test(train_parallel, impossible_pipelines) {
  check_impossible("--strategy pipeline", 4, "4 stages, but the model has only 3 layers");
  check_impossible("--strategy tensor --layers 36,3,4", 4,
                   "a layer of 3 outputs cannot be split into 4");
  check_impossible("--strategy grid --tensor 2 --pipeline 2", 6,
                   "6 ranks are no multiple of --tensor 2");
}
