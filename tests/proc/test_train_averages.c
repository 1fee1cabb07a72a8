/* test_train_averages.c: the strategies of the trainer that average weights. */
#include "support_train.h"
#include "trainer/base.h"
#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/strategies/strategy.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>

#define STEPS 7 /* of an epoch: 203 samples in batches of 32 */

/* As in test_train.c: how much a different grouping of float32 sums may change losses of order 1.
 * */
#define CURVE_TOLERANCE 2e-5

/* One worker of a simple reference implementation. */
typedef struct hand {
  dataset data;
  model m;
  pass p;
  loader ld;
  optim rule;
  size_t count;
  float *grads;
} hand;

/* Prepares for a job's model and data. */
static hand hand_make(const job *j) {
  hand h;
  fail why;
  cr_assert(dataset_load(&h.data, j->folder, 64, &why));
  cr_assert(model_perceptron(&h.m, j->o.sizes, j->o.size_count, &why) &&
            pass_create(&h.p, &h.m, j->o.batch, &why) &&
            loader_create(&h.ld, &h.data, j->o.seed, j->o.batch, &why));
  h.count = h.m.params;
  h.grads = calloc(h.count, sizeof(float));
  return h;
}

static void hand_drop(hand *h) {
  free(h->grads);
  loader_destroy(&h->ld);
  pass_destroy(&h->p);
  dataset_free(&h->data);
}

/* One step on `rows` samples from position `first` of the epoch's order. */
static void hand_step(hand *h, size_t first, size_t rows, float scale, float *w, float *v) {
  fail why;
  loader_train(&h->ld, first, rows, h->p.value[0], h->p.labels);
  model_forward(&h->m, w, &h->p, rows, &why);
  model_loss_delta(&h->m, &h->p, rows, scale);
  model_backward(&h->m, w, &h->p, rows, h->grads, NULL, (model_listener){NULL, NULL}, &why);
  optim_update(&h->rule, h->count, w, v, NULL, h->grads);
}

/* Compares the job's last epoch with the weights of the reference. */
static void check_hash(const job *j, const hand *h, const float *weights) {
  char hash[17];
  snprintf(hash, sizeof(hash), "%016" PRIx64,
           hash_bytes(HASH_START, weights, h->count * sizeof(float)));
  cr_assert_str_eq(job_curve(j).hash[j->o.epochs - 1], hash);
}

/* ---- local SGD ------------------------------------------------------------------------------- */

/* Two workers that average after every third step and an epoch's end, with an outer optimizer. */
Test(train_averages, local_sgd_does_what_its_definition_says) {
  job j = job_make("--strategy local-sgd --local-steps 3 --outer-momentum 0.9 --outer-lr 0.7");
  hand h = hand_make(&j);
  float *w[2], *v[2], *x = calloc(h.count, sizeof(float)), *u = calloc(h.count, sizeof(float));
  model_seed(&h.m, j.o.seed, x);
  for (int r = 0; r < 2; r++) {
    w[r] = calloc(h.count, sizeof(float));
    v[r] = calloc(h.count, sizeof(float));
    memcpy(w[r], x, h.count * sizeof(float));
  }
  for (uint64_t epoch = 0; epoch < j.o.epochs; epoch++) {
    h.rule = optim_rule(&j.o, (double)epoch, 0);
    loader_epoch(&h.ld, epoch);
    for (size_t step = 0; step < STEPS; step++) {
      size_t rows = loader_batch_size(&h.ld, step);
      for (int r = 0; r < 2; r++) {
        shard part = shard_of(rows, r, 2);
        hand_step(&h, step * 32 + part.first, part.count, 2.0f / (float)rows, w[r], v[r]);
      }
      for (size_t i = 0; i < h.count && ((step + 1) % 3 == 0 || step + 1 == STEPS); i++) {
        float change = x[i] - (w[0][i] + w[1][i]) / 2;
        u[i] = 0.9f * u[i] + change;
        x[i] -= 0.7f * (change + 0.9f * u[i]);
        w[0][i] = w[1][i] = x[i];
      }
    }
    memset(v[0], 0, h.count * sizeof(float));
    memset(v[1], 0, h.count * sizeof(float));
  }
  job_runs_well(&j, 2);
  check_hash(&j, &h, x);
  j.o.average = 1; /* the other way gives the same sum of two */
  job_runs_well(&j, 2);
  check_hash(&j, &h, x);
  for (int r = 0; r < 2; r++) {
    free(w[r]);
    free(v[r]);
  }
  free(x);
  free(u);
  hand_drop(&h);
  job_drop(&j);
}

/* With an average after every step it is synchronous training, whatever the parts of the ranks. */
static void check_synchronous(const char *how) {
  job j = job_make(how);
  j.o.local_steps = 1;
  j.o.momentum = 0; /* which is reset at the start of an epoch */
  for (int n = 1; n <= 5; n++) {
    j.o.strategy = &strategy_allreduce;
    job_runs_well(&j, n);
    curve want = job_curve(&j);
    j.o.strategy = &strategy_local_sgd;
    job_runs_well(&j, n);
    curve c = job_curve(&j);
    for (int e = 0; e < 4; e++)
      cr_assert_float_eq(c.test_loss[e], want.test_loss[e], CURVE_TOLERANCE, "%d: %g, %g", n,
                         c.test_loss[e], want.test_loss[e]);
  }
  job_drop(&j);
}

Test(train_averages, one_local_step_is_synchronous_training) {
  check_synchronous("--strategy local-sgd --average allreduce");
}

Test(train_averages, one_local_step_with_a_master_is_synchronous_training) {
  check_synchronous("--strategy local-sgd --average master");
}

/* 13 batches of 16 samples: with H = 5 three averages instead of 13 sums of gradients. */
Test(train_averages, local_sgd_sends_less) {
  job j = job_make("--batch 16 --strategy local-sgd --local-steps 5");
  j.o.strategy = &strategy_allreduce;
  job_runs_well(&j, 3);
  double synchronous = job_curve(&j).sent_bytes[1];
  for (int average = 0; average < 2; average++) {
    j.o.strategy = &strategy_local_sgd;
    j.o.average = average;
    job_runs_well(&j, 3);
    cr_assert_float_eq(job_curve(&j).sent_bytes[1], synchronous * 3 / 13, 1);
  }
  job_drop(&j);
}

Test(train_averages, post_local_begins_synchronously) {
  job j = job_make("--strategy local-sgd --post-local 2");
  j.o.strategy = &strategy_allreduce;
  job_runs_well(&j, 3);
  curve synchronous = job_curve(&j);
  j.o.strategy = &strategy_local_sgd;
  job_runs_well(&j, 3);
  curve c = job_curve(&j);
  for (int e = 0; e < 4; e++)
    cr_assert((strcmp(c.hash[e], synchronous.hash[e]) == 0) == (e < 2), "epoch %d", e);
  cr_assert_gt(c.test_accuracy, 0.8);
  job_drop(&j);
}

/* Stopped and resumed, it ends with the same bits as an uninterrupted run. */
Test(train_averages, local_sgd_resumes_exactly) {
  job j = job_make("--strategy local-sgd --local-steps 2 --post-local 1 --outer-momentum 0.5 "
                   "--optimizer adam --lr 0.01");
  j.o.checkpoint = j.checkpoint;
  job_runs_well(&j, 3);
  curve whole = job_curve(&j);
  for (uint64_t stop = 1; stop < 4; stop++) {
    j.o.resume = false;
    j.o.epochs = stop;
    job_runs_well(&j, 3);
    j.o.resume = true;
    j.o.epochs = 4;
    job_runs_well(&j, 3);
    cr_assert_str_eq(job_curve(&j).hash[3], whole.hash[3]);
  }
  job_drop(&j);
}

/* ---- elastic averaging ----------------------------------------------------------------------- */

/* With one worker and the centre, the result does not depend on timing. */
Test(train_averages, easgd_does_what_its_definition_says) {
  job j = job_make("--strategy easgd --local-steps 3 --moving-rate 0.6");
  hand h = hand_make(&j);
  float *x = calloc(h.count, sizeof(float)), *v = calloc(h.count, sizeof(float)),
        *c = calloc(h.count, sizeof(float));
  model_seed(&h.m, j.o.seed, x);
  memcpy(c, x, h.count * sizeof(float));
  for (uint64_t epoch = 0; epoch < j.o.epochs; epoch++) {
    h.rule = optim_rule(&j.o, (double)epoch, 0);
    loader_epoch(&h.ld, epoch);
    for (size_t step = 0; step <= STEPS; step++) {
      size_t rows = step < STEPS ? loader_batch_size(&h.ld, step) : 0;
      for (size_t i = 0; i < h.count && (step % 3 == 0 || step == STEPS); i++) {
        float d = 0.6f * (x[i] - c[i]);
        x[i] -= d;
        c[i] += d;
      }
      if (rows > 0)
        hand_step(&h, step * 32, rows, 1.0f / (float)rows, x, v);
    }
  }
  job_runs_well(&j, 2);
  check_hash(&j, &h, c);
  free(x);
  free(v);
  free(c);
  hand_drop(&h);
  job_drop(&j);
}

/* ---- the optimizer's memory split over the ranks --------------------------------------------- */

/* The same bits as allreduce if sums are formed in the same order; checkpoints are equal, too. */
static void check_zero(const char *how, int nranks) {
  job j = job_make(how);
  uint8_t *file[2];
  size_t bytes[2];
  curve c[2];
  j.o.checkpoint = j.checkpoint;
  for (int i = 0; i < 2; i++) {
    j.o.strategy = strategy_find(i ? "zero1" : "allreduce", NULL);
    job_runs_well(&j, nranks);
    c[i] = job_curve(&j);
    file[i] = files_read(j.folder, "checkpoint", &bytes[i]);
  }
  for (int e = 0; e < 4; e++)
    cr_assert_str_eq(c[0].hash[e], c[1].hash[e], "%s, %d ranks, epoch %d", how, nranks, e);
  cr_assert_eq(bytes[0], bytes[1]);
  cr_assert_arr_eq(file[0], file[1], bytes[0]);
  free(file[0]);
  free(file[1]);
  job_drop(&j);
}

Test(train_averages, zero1_equals_allreduce_bit_for_bit) {
  check_zero(NULL, 1);
  check_zero(NULL, 2);
  setenv("COLL_DETERMINISTIC", "ordered", 1);
  check_zero(NULL, 3);
  check_zero("--bucket-bytes 1", 5);
  check_zero("--optimizer adam --lr 0.01 --accumulate 2", 3);
}

/* A run of one strategy can resume from the other's checkpoint, with the same bits. */
Test(train_averages, zero1_goes_on_from_a_checkpoint) {
  static const char *const names[] = {"allreduce", "zero1"};
  job j = job_make("--optimizer adam --lr 0.01");
  j.o.checkpoint = j.checkpoint;
  setenv("COLL_DETERMINISTIC", "ordered", 1);
  job_runs_well(&j, 3);
  curve whole = job_curve(&j);
  for (int first = 0; first < 2; first++) {
    j.o.resume = false;
    j.o.epochs = 2;
    j.o.strategy = strategy_find(names[first], NULL);
    job_runs_well(&j, 3);
    j.o.resume = true;
    j.o.epochs = 4;
    j.o.strategy = strategy_find(names[1 - first], NULL);
    job_runs_well(&j, 3);
    cr_assert_str_eq(job_curve(&j).hash[3], whole.hash[3]);
  }
  job_drop(&j);
}

/* The norm is summed in other parts, so it may round differently; nothing else may. */
Test(train_averages, zero1_clips_by_the_norm_of_all) {
  job j = job_make("--clip 0.3 --strategy zero1"), k = job_make("--clip 0.3");
  job free_one = job_make(NULL);
  job_runs_well(&k, 3);
  job_runs_well(&j, 3);
  job_runs_well(&free_one, 3);
  double want = job_curve(&k).test_loss[3];
  cr_assert_float_eq(job_curve(&j).test_loss[3], want, CURVE_TOLERANCE);
  cr_assert_gt(fabs(job_curve(&free_one).test_loss[3] - want), 100 * CURVE_TOLERANCE);
  job_drop(&j);
  job_drop(&k);
  job_drop(&free_one);
}

Test(train_averages, zero1_needs_less_memory) {
  const double params = 36 * 16 + 16 + 16 * 12 + 12 + 12 * 4 + 4;
  job j = job_make("--optimizer adam --lr 0.01 --strategy zero1");
  for (int n = 1; n <= 5; n++) {
    job_runs_well(&j, n);
    double bytes = job_number(&j, 3, "optimizer_bytes"), whole = params * 2 * sizeof(float);
    cr_assert(bytes >= whole / n && bytes <= whole / n + 2 * sizeof(float) * MODEL_MAX_LAYERS);
    cr_assert(n > 1 || bytes == whole);
  }
  job_drop(&j);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The samples on which all ranks together trained in an epoch. */
static double samples(const job *j, size_t epoch) {
  return job_number(j, epoch, "samples_per_s") * job_number(j, epoch, "seconds");
}

/* Training works with any number of ranks, and uses each sample once (plus at most `more`). */
static void check_learns(const char *how, double more) {
  job j = job_make(how);
  j.o.epochs = 12;
  for (int n = 1; n <= 5; n += n > 2 ? 2 : 1) {
    job_runs_well(&j, n);
    curve c = job_curve(&j);
    cr_assert_eq(c.epochs, 12);
    cr_assert_gt(c.test_accuracy, 0.8, "%s, %d ranks: %g", how, n, c.test_accuracy);
    cr_assert_lt(c.train_loss[11], c.train_loss[0] / 2);
    for (size_t e = 0; e < 12; e++) {
      cr_assert_geq(samples(&j, e), FILES_TRAIN - 0.1);
      cr_assert_leq(samples(&j, e), FILES_TRAIN + 0.1 + more, "%s, %d ranks: %g", how, n,
                    samples(&j, e));
    }
  }
  job_drop(&j);
}

Test(train_averages, local_sgd_learns) {
  check_learns("--strategy local-sgd --local-steps 4", 0);
}

Test(train_averages, easgd_learns) {
  check_learns("--strategy easgd --local-steps 2", 0);
}

Test(train_averages, easgd_learns_with_fewer_samples_than_ranks) {
  check_learns("--strategy easgd --local-steps 1 --batch 3 --lr 0.01", 0);
}

Test(train_averages, zero1_learns) {
  check_learns("--strategy zero1", 0);
}

/* A rank may do a whole epoch alone before it hears from the others. */
Test(train_averages, gossip_learns) {
  check_learns("--strategy gossip --local-steps 2", 4 * FILES_TRAIN);
}

/* Messages cross in all ways: ranks do nearly nothing but offer. */
Test(train_averages, gossip_learns_with_many_offers) {
  check_learns("--strategy gossip --local-steps 1 --batch 3 --lr 0.01", 4 * FILES_TRAIN);
}

Test(train_averages, gossip_with_a_slow_rank) {
  check_learns("--strategy gossip --local-steps 1 --slow 0:4", 4 * FILES_TRAIN);
}

Test(train_averages, local_sgd_without_a_rank) {
  job_survives_as_well_trained("--strategy local-sgd --outer-momentum 0.3", 4, 1);
}

Test(train_averages, easgd_without_a_worker) {
  job_survives_as_well_trained("--strategy easgd --local-steps 2", 4, 0);
}

Test(train_averages, easgd_without_its_centre) {
  job_survives_as_well_trained("--strategy easgd --local-steps 2", 4, 3);
}

Test(train_averages, gossip_without_a_rank) {
  job_survives_as_well_trained("--strategy gossip --local-steps 2", 4, 2);
}

Test(train_averages, zero1_without_a_rank) {
  job_survives_as_well_trained("--strategy zero1", 4, 1);
  job_survives_as_well_trained("--strategy zero1", 4, 0);
}
