/* train.c: one run of training, from agreement between the ranks to the last epoch. */
#include "trainer/train.h"

#include "trainer/agree.h"
#include "trainer/buckets.h"
#include "trainer/checkpoint.h"
#include "trainer/clock.h"
#include "trainer/hash.h"
#include "trainer/loader.h"
#include "trainer/optim.h"
#include "trainer/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST_ROWS 256 /* at least so many samples go through the model at once in a test */

/* What a rank needs for a run. */
typedef struct trainer {
  const options *o;
  coll_comm *comm;
  int rank, nranks;
  const idx_data *data;
  model model;
  pass pass;
  loader loader;
  buckets buckets;
  float *params, *velocity;
  checkpoint_run run;
  uint64_t epochs_done;
  metrics metrics;
  progress progress;
} trainer;

/* Sums over samples that the ranks add up at the end of an epoch. */
typedef struct sums {
  double loss, correct, test_loss, test_correct, waited_s;
} sums;

/* Whether the model's ends fit the images. */
static bool check_sizes(const options *o, const idx_data *data, fail *why) {
  size_t pixels = data->train.rows * data->train.cols;
  if (o->sizes[0] == pixels)
    return true;
  return fail_set(why, "--layers begins with %zu, but the images of %s have %zu x %zu = %zu pixels",
                  o->sizes[0], o->data, data->train.rows, data->train.cols, pixels);
}

/* Takes all memory of the run. */
static bool take_memory(trainer *t, fail *why) {
  const options *o = t->o;
  size_t samples = t->data->train.count;
  size_t rows = shard_of(o->batch < samples ? o->batch : samples, 0, t->nranks).count;
  if (!model_init(&t->model, o->sizes, o->size_count, why) ||
      !pass_create(&t->pass, &t->model, rows > TEST_ROWS ? rows : TEST_ROWS, why) ||
      !loader_create(&t->loader, t->data, o->seed, o->batch, why) ||
      !buckets_create(&t->buckets, t->comm, &t->model, o->bucket_bytes, why))
    return false;
  t->params = matrix_alloc(1, t->model.params);
  t->velocity = matrix_alloc(1, t->model.params);
  if (!t->params || !t->velocity)
    return fail_memory(why, "the model");
  memset(t->params, 0, t->model.params * sizeof(float));
  memset(t->velocity, 0, t->model.params * sizeof(float));
  return true;
}

/* What a rank can do by itself before training; rank 0 also opens and reads the run's files. */
static bool prepare(trainer *t, fail *why) {
  const options *o = t->o;
  if (!check_sizes(o, t->data, why) || !take_memory(t, why))
    return false;
  t->run = (checkpoint_run){
      .model = &t->model, .seed = o->seed, .batch = o->batch, .data = t->data->fingerprint};
  if (t->rank != 0)
    return true;
  if (o->checkpoint && !checkpoint_check(o->checkpoint, why))
    return false;
  if (!o->resume)
    model_seed(&t->model, o->seed, t->params);
  else if (!checkpoint_read(o->checkpoint, &t->run, &t->epochs_done, t->params, t->velocity, why))
    return false;
  return metrics_open(&t->metrics, o->metrics, why);
}

/* The hash of this rank's weights, once all ranks were found to have the same. */
static bool check_weights(trainer *t, uint64_t *hash, fail *why) {
  *hash = hash_bytes(HASH_START, t->params, t->model.params * sizeof(float));
  return agree_weights(t->comm, *hash, why);
}

/* Gives all ranks the state of rank 0. */
static bool share_state(trainer *t, fail *why) {
  uint64_t hash;
  coll_status status = coll_broadcast(&t->epochs_done, &t->epochs_done, 1, COLL_UINT64, 0, t->comm);
  if (status == COLL_OK)
    status = coll_broadcast(t->params, t->params, t->model.params, COLL_FLOAT32, 0, t->comm);
  if (status == COLL_OK)
    status = coll_broadcast(t->velocity, t->velocity, t->model.params, COLL_FLOAT32, 0, t->comm);
  if (status != COLL_OK)
    return fail_coll(why, t->comm, status, "sharing the initial weights");
  return check_weights(t, &hash, why);
}

/* The learning rate of the current epoch. By multiplication, which rounds alike on every machine.
 */
static float learning_rate(const trainer *t) {
  float lr = t->o->lr;
  for (uint64_t i = 0; i < t->epochs_done; i++)
    lr *= t->o->lr_decay;
  return lr;
}

/* One step: this rank's part of the global batch, gradients of all, new weights. */
static bool step(trainer *t, size_t index, const sgd *rule, sums *s, fail *why) {
  size_t batch = loader_batch_size(&t->loader, index), correct = 0;
  shard part = shard_of(batch, t->rank, t->nranks);
  loader_train(&t->loader, index, part, t->pass.value[0], t->pass.labels);
  model_forward(&t->model, t->params, &t->pass, part.count);
  s->loss += model_loss(&t->model, &t->pass, part.count, &correct);
  s->correct += (double)correct;
  if (!model_backward(&t->model, t->params, &t->pass, part.count, 1.0f / (float)batch,
                      t->buckets.grads, buckets_listener(&t->buckets), why))
    return false;
  for (size_t i = 0; i < t->buckets.count; i++) {
    const bucket *b = &t->buckets.item[i];
    if (!buckets_wait(&t->buckets, i, why))
      return false;
    sgd_update(rule, b->count, t->params + b->first, t->velocity + b->first,
               t->buckets.grads + b->first);
    if (!buckets_poll(&t->buckets, why))
      return false;
  }
  return true;
}

/* Shows how far the epoch is. `samples` were done over all ranks, `mine` by this one. */
static void show(trainer *t, size_t samples, size_t mine, const sums *s, double begin_s) {
  double seconds = clock_s() - begin_s, n = mine ? (double)mine : 1.0;
  progress_state state = {.epoch = t->epochs_done + 1,
                          .samples = samples,
                          .loss = s->loss / n,
                          .accuracy = s->correct / n,
                          .wait_share = seconds > 0 ? t->buckets.waited_s / seconds : 0.0};
  progress_step(&t->progress, &state);
}

/* All steps of an epoch. */
static bool train_epoch(trainer *t, sums *s, double *seconds, fail *why) {
  double begin = clock_s();
  size_t steps = loader_steps(&t->loader), samples = 0, mine = 0;
  const sgd rule = {learning_rate(t), t->o->momentum, t->o->weight_decay};
  t->buckets.waited_s = 0;
  loader_epoch(&t->loader, t->epochs_done);
  for (size_t i = 0; i < steps; i++) {
    if (!step(t, i, &rule, s, why))
      return false;
    size_t batch = loader_batch_size(&t->loader, i);
    samples += batch;
    mine += shard_of(batch, t->rank, t->nranks).count;
    show(t, samples, mine, s, begin);
  }
  s->waited_s = t->buckets.waited_s;
  *seconds = clock_s() - begin;
  return true;
}

/* This rank's part of the test set. */
static void test(trainer *t, sums *s) {
  shard part = shard_of(t->data->test.count, t->rank, t->nranks);
  for (size_t done = 0; done < part.count;) {
    size_t left = part.count - done, correct = 0;
    shard piece = {part.first + done, left < t->pass.rows ? left : t->pass.rows};
    loader_test(&t->loader, piece, t->pass.value[0], t->pass.labels);
    model_forward(&t->model, t->params, &t->pass, piece.count);
    s->test_loss += model_loss(&t->model, &t->pass, piece.count, &correct);
    s->test_correct += (double)correct;
    done += piece.count;
  }
}

/* Adds up the ranks' sums and makes means of them. */
static bool summarise(trainer *t, const sums *s, double seconds, epoch_result *result, fail *why) {
  sums all;
  coll_status status =
      coll_allreduce(s, &all, sizeof(all) / sizeof(double), COLL_FLOAT64, COLL_SUM, t->comm);
  if (status != COLL_OK)
    return fail_coll(why, t->comm, status, "summing losses");
  double samples = (double)t->data->train.count, tests = (double)t->data->test.count;
  result->epoch = t->epochs_done;
  result->train_loss = all.loss / samples;
  result->train_accuracy = all.correct / samples;
  result->test_loss = all.test_loss / tests;
  result->test_accuracy = all.test_correct / tests;
  result->seconds = seconds;
  result->samples_per_s = seconds > 0 ? samples / seconds : 0.0;
  result->wait_share = seconds > 0 ? all.waited_s / t->nranks / seconds : 0.0;
  if (isfinite(result->train_loss) && isfinite(result->test_loss))
    return true;
  why->everywhere = true;
  return fail_set(why, "the loss is not a number after epoch %" PRIu64 ": use a smaller --lr",
                  t->epochs_done);
}

/* One epoch with all that belongs to it. */
static bool epoch(trainer *t, epoch_result *result, fail *why) {
  sums s = {.loss = 0};
  double seconds = 0;
  if (!train_epoch(t, &s, &seconds, why))
    return false;
  t->epochs_done++;
  test(t, &s);
  if (!summarise(t, &s, seconds, result, why) || !check_weights(t, &result->weights_hash, why))
    return false;
  if (t->rank != 0)
    return true;
  progress_epoch(&t->progress, result);
  return metrics_epoch(&t->metrics, result, why) &&
         (!t->o->checkpoint ||
          checkpoint_write(t->o->checkpoint, &t->run, t->epochs_done, t->params, t->velocity, why));
}

/* All epochs that are left. */
static bool run(trainer *t, fail *why) {
  const options *o = t->o;
  double begin = clock_s();
  epoch_result last = {.epoch = 0};
  if (!share_state(t, why) || (!o->resume && !metrics_restart(&t->metrics, why)))
    return false;
  progress_open(&t->progress, t->rank, o->quiet, o->epochs, t->epochs_done, t->data->train.count);
  progress_say(&t->progress,
               "%zu training and %zu test samples, %zu parameters in %zu buckets, %d rank%s, "
               "global batch %zu",
               t->data->train.count, t->data->test.count, t->model.params, t->buckets.count,
               t->nranks, t->nranks == 1 ? "" : "s", o->batch);
  if (t->epochs_done > 0)
    progress_say(&t->progress, "going on after epoch %" PRIu64 " of %s", t->epochs_done,
                 t->rank == 0 ? o->checkpoint : "");
  if (t->epochs_done >= o->epochs) {
    progress_say(&t->progress, "nothing left to do: ask for more with --epochs");
    return true;
  }
  while (t->epochs_done < o->epochs)
    if (!epoch(t, &last, why))
      return false;
  double seconds = clock_s() - begin;
  progress_say(&t->progress,
               "test accuracy %.2f %% after %" PRIu64 " epochs, %.1f s, weights %016" PRIx64,
               100 * last.test_accuracy, last.epoch, seconds, last.weights_hash);
  return t->rank != 0 || metrics_final(&t->metrics, o, t->nranks, &last, seconds, why);
}

/* Frees all that a rank took. */
static void release(trainer *t) {
  metrics_close(&t->metrics);
  free(t->params);
  free(t->velocity);
  buckets_destroy(&t->buckets);
  loader_destroy(&t->loader);
  pass_destroy(&t->pass);
}

bool train(const options *o, coll_comm *comm, const idx_data *data, fail *why) {
  trainer t = {.o = o, .comm = comm, .data = data};
  coll_status status = coll_comm_rank(comm, &t.rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(comm, &t.nranks);
  if (status != COLL_OK)
    return fail_coll(why, comm, status, "asking for the rank");
  bool ok = data && prepare(&t, why);
  ok = agree_start(comm, ok, options_fingerprint(o), data ? data->fingerprint : 0, why);
  ok = ok && run(&t, why);
  if (!ok && !why->everywhere)
    coll_comm_abort(comm); /* the others must not wait for what this rank no longer does */
  release(&t);
  return ok;
}
