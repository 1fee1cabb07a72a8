/*
 * train.c: one training run. Read it from the end upwards: train() starts, trains epoch after epoch
 * and continues when a rank is lost; train_epoch() trains one epoch; start() prepares this rank,
 * checks that all ranks agree and gives them the same model.
 */
#include "trainer/program.h"

#include "trainer/checkpoint.h"
#include "trainer/ranks.h"
#include "trainer/strategies/strategy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A worker and the files of its run. */
typedef struct trainer {
  worker w; /* first, so that step_done() finds the trainer */
  model_maker make;
  checkpoint_run run;
  metrics metrics;
  double begin_s;
  uint64_t written; /* epochs whose line and checkpoint this rank has written */
} trainer;

/* ---- preparing ----------------------------------------------------------------------------- */

/* Takes an array of 0, if it is needed. */
static bool take(float **array, bool needed, size_t count) {
  *array = needed ? matrix_zeroes(count) : NULL;
  return *array || !needed;
}

/* Allocates all memory of the run except the strategy's. */
static bool allocate(worker *w, fail *why) {
  const options *o = w->o;
  size_t count = w->model.params;
  bool squares = optim_has_squares(o);
  w->optimizer_bytes = (squares ? 2 : 1) * count * sizeof(float);
  if (!worker_fit(w, w->nranks, why) || !loader_create(&w->loader, w->data, o->seed, o->batch, why))
    return false;
  return (take(&w->params, true, count) && take(&w->velocity, true, count) &&
          take(&w->squares, squares, count) && take(&w->partial, o->accumulate > 1, count) &&
          take(&w->pending, o->wire.kind != WIRE_FLOAT32, count)) ||
         fail_memory(why, "the model");
}

/* What a checkpoint holds of a worker whose model has these parameters. */
static checkpoint_state state_of(const worker *w, float *params) {
  return (checkpoint_state){.epochs = w->epochs_done,
                            .step = w->step,
                            .updates = w->updates,
                            .params = params,
                            .velocity = w->velocity,
                            .squares = w->squares,
                            .pending = w->pending};
}

/* Continues from the checkpoint. */
static bool resume(trainer *t, fail *why) {
  worker *w = &t->w;
  checkpoint_state state = state_of(w, w->params);
  if (!checkpoint_read(w->o->checkpoint, &t->run, &state, why))
    return false;
  w->epochs_done = state.epochs;
  w->step = (size_t)state.step;
  w->updates = state.updates;
  return true;
}

/* Everything that a rank can do alone before training; rank 0 also opens and reads the files. */
static bool prepare(trainer *t, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  int all = 0;
  coll_comm_nranks(w->given, &all);
  if (!w->data || !t->make(&w->model, o, w->data, why) ||
      (o->strategy->check && !o->strategy->check(w, why)) || !allocate(w, why))
    return false;
  if (o->slow_factor > 1.0f && o->slow_rank >= all)
    return fail_set(why, "--slow %d:%g: there is no rank %d among %d", o->slow_rank,
                    (double)o->slow_factor, o->slow_rank, all);
  t->run = (checkpoint_run){
      .model = &w->model, .seed = o->seed, .batch = o->batch, .data = w->data->fingerprint};
  if (w->rank != 0)
    return true;
  if (o->checkpoint && !checkpoint_check(o->checkpoint, why))
    return false;
  if (!o->resume)
    model_seed(&w->model, o->seed, w->params);
  else if (!resume(t, why))
    return false;
  return metrics_open(&t->metrics, o, why);
}

/* Checks that all ranks have the same parameters, and gives their hash. */
static bool check_weights(worker *w, const float *params, uint64_t *hash, fail *why) {
  *hash = hash_bytes(HASH_START, params, w->model.params * sizeof(float));
  return agree_weights(w->comm, *hash, why);
}

/* Reports what is about to be trained. */
static void announce(worker *w) {
  progress_say(&w->progress,
               "%zu training and %zu test samples, %zu parameters, %d rank%s, strategy %s, "
               "gradients as %s, global batch %" PRIu64 ", %.2f MiB for the optimizer on each rank",
               w->data->train.count, w->data->test.count, w->model.params, w->nranks,
               w->nranks == 1 ? "" : "s", w->o->strategy->name, wire_name(&w->o->wire), w->o->batch,
               (double)w->optimizer_bytes / 0x1p20);
  if (w->epochs_done > 0 || w->step > 0)
    progress_say(&w->progress, "continuing after %zu steps of epoch %" PRIu64 " of %s", w->step,
                 w->epochs_done + 1, w->o->checkpoint);
  if (w->epochs_done >= w->o->epochs)
    progress_say(&w->progress, "nothing left to do: to train further, raise --epochs");
}

/* Frees what prepare() took. */
static void release(worker *w) {
  float **arrays[] = {&w->params, &w->velocity, &w->squares, &w->partial, &w->pending};
  for (int i = 0; i < 5; i++) {
    free(*arrays[i]);
    *arrays[i] = NULL;
  }
  loader_destroy(&w->loader);
  pass_destroy(&w->pass);
}

/* Everything before the first epoch; from the beginning if a rank was lost meanwhile. */
static bool start(trainer *t, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  release(w);
  w->epochs_done = w->step = w->updates = w->begun = 0;
  t->begin_s = clock_s();
  bool ok = prepare(t, why);
  if (!agree_start(w->comm, ok, w->asked, w->data ? w->data->fingerprint : 0, why) ||
      !agree_state(w, why) || (!o->resume && !metrics_restart(&t->metrics, why)) ||
      (w->epochs_done < o->epochs && !worker_open(w, why)))
    return false;
  worker_open_progress(w);
  announce(w);
  w->ready = true;
  return join_offer(w, why);
}

/* ---- one epoch ----------------------------------------------------------------------------- */

/* Prepares for the current epoch, or for the rest of it. */
static void begin_epoch(worker *w) {
  loader_epoch(&w->loader, w->epochs_done);
  worker_rule(w, 0);
  w->notes[0] = '\0';
  if (w->begun == w->epochs_done + 1) /* the epoch continues after a loss */
    return;
  w->begun = w->epochs_done + 1;
  w->sums = (sums){.loss = 0};
  w->begin_s = clock_s();
}

/* Tests this rank's part of the test set. Starts over if an earlier try was interrupted. */
static bool test_model(worker *w, const float *params, fail *why) {
  shard part = shard_of(w->data->test.count, w->rank, w->nranks);
  w->sums.test_loss = w->sums.test_correct = w->sums.tested = 0;
  for (size_t done = 0; done < part.count;) {
    size_t left = part.count - done;
    shard piece = {part.first + done, left < w->pass.rows ? left : w->pass.rows};
    loader_test(&w->loader, piece, w->pass.value[0], w->pass.labels);
    if (!model_forward(&w->model, params, &w->pass, piece.count, why))
      return false;
    w->sums.test_loss += model_loss(&w->model, &w->pass, piece.count, &w->sums.test_correct);
    w->sums.tested += (double)piece.count;
    done += piece.count;
  }
  return true;
}

/* Adds up the sums of all ranks and computes means. */
static bool summarise(worker *w, epoch_result *result, fail *why) {
  sums all;
  coll_status status =
      coll_allreduce(&w->sums, &all, sizeof(all) / sizeof(double), COLL_FLOAT64, COLL_SUM, w->comm);
  if (!succeeded(why, w->comm, status, "summing losses"))
    return false;
  /* After a loss, the ranks that are left may have trained on none of the epoch's samples. */
  double trained = all.samples > 0 ? all.samples : 1, whole = all.epoch_s;
  *result =
      (epoch_result){.epoch = w->epochs_done + 1,
                     .ranks = w->nranks,
                     .train_loss = all.loss / trained,
                     .train_accuracy = all.correct / trained,
                     .test_loss = all.test_loss / all.tested,
                     .test_accuracy = all.test_correct / all.tested,
                     .seconds = w->sums.epoch_s,
                     .samples_per_s = w->sums.epoch_s > 0 ? all.samples / w->sums.epoch_s : 0.0,
                     .wait_share = whole > 0 ? all.waited_s / whole : 0.0,
                     .slowed_share = whole > 0 ? all.slowed_s / whole : 0.0,
                     .compute_share = whole > 0 ? all.compute_s / whole : 0.0,
                     .sent_bytes = all.sent_bytes,
                     .optimizer_bytes = w->optimizer_bytes,
                     .notes = w->notes};
  why->everywhere = true; /* all ranks have the same sums */
  if (all.tested != (double)w->data->test.count)
    return fail_set(why, "%.0f of %zu test samples were tested: a bug in the trainer", all.tested,
                    w->data->test.count);
  if (!isfinite(result->train_loss) || !isfinite(result->test_loss))
    return fail_set(why, "the loss is not a number after epoch %" PRIu64 ": use a smaller --lr",
                    result->epoch);
  why->everywhere = false;
  return true;
}

/* Waits until all ranks are here. */
static bool meet(worker *w, fail *why) {
  return succeeded(why, w->comm, coll_barrier(w->comm), "meeting after an epoch");
}

/* Rank 0 shows and writes the result of a finished epoch, and of the run after the last one. */
static bool write_epoch(trainer *t, const epoch_result *result, fail *why) {
  worker *w = &t->w;
  double seconds = clock_s() - t->begin_s;
  t->written = w->epochs_done;
  progress_epoch(&w->progress, result);
  if (!metrics_epoch(&t->metrics, result, why))
    return false;
  if (w->epochs_done < w->o->epochs)
    return true;
  progress_say(&w->progress,
               "test accuracy %.2f %% after %" PRIu64 " epochs, %.1f s, weights %016" PRIx64,
               100 * result->test_accuracy, result->epoch, seconds, result->weights_hash);
  return metrics_final(&t->metrics, w->o, result, seconds, why);
}

/*
 * Collective: if it `writes`, rank 0 writes a checkpoint of the current state, and the epoch's
 * lines unless `result` is NULL. Before the checkpoint is published, the others are told that it is
 * written, and confirm that: so a rank 0 that the others gave up never gets there, or finds that
 * they have withdrawn its file (go_on).
 */
static bool save(trainer *t, bool writes, const float *params, const epoch_result *result,
                 fail *why) {
  worker *w = &t->w;
  const char *path = writes ? w->o->checkpoint : NULL;
  checkpoint_state state = state_of(w, (float *)(uintptr_t)params);
  if (path && !checkpoint_write(path, w->number, &t->run, &state, why))
    return false;
  bool ok = join_ask(w, why) && meet(w, why) && (!writes || !result || write_epoch(t, result, why));
  if (path && !ok)
    checkpoint_withdraw(path, w->number, w->number + 1);
  return ok && (!path || checkpoint_publish(path, w->number, why));
}

/* The model so far. */
static const float *settle(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  return s->settle ? s->settle(w, why) : w->params;
}

/* Called after each step within an epoch: writes a checkpoint if --checkpoint-steps says so. */
static bool step_done(worker *w, fail *why) {
  if (w->o->checkpoint_steps == 0 || w->step % w->o->checkpoint_steps != 0)
    return true;
  const float *params = settle(w, why);
  w->notes[0] = '\0';
  return params && worker_gather_pending(w, why) &&
         save((trainer *)w, w->rank == 0, params, NULL, why) && join_nobody(w, why);
}

/*
 * The end of an epoch, collective: rank 0 writes the run's files, unless it has already done so,
 * and all wait for it. If rank 0 is lost before that, the others are still in this epoch, and the
 * next rank writes them. So no rank leaves the run while another may still need it.
 */
static bool finish_epoch(trainer *t, const float *params, const epoch_result *result, fail *why) {
  worker *w = &t->w;
  size_t step = w->step;
  w->epochs_done++;
  w->step = 0;
  bool writes = w->rank == 0 && t->written != w->epochs_done;
  if (save(t, writes, params, result, why) && meet(w, why))
    return w->epochs_done == w->o->epochs || join_nobody(w, why);
  w->epochs_done--;
  w->step = step;
  return false;
}

/* One epoch, or the rest of it: training, test, checkpoint and report. */
static bool train_epoch(trainer *t, fail *why) {
  worker *w = &t->w;
  const strategy *s = w->o->strategy;
  epoch_result result;
  size_t steps = loader_steps(&w->loader);
  begin_epoch(w);
  if (w->step < steps && !(s->epoch ? s->epoch(w, why) : worker_each_step(w, s->step, why)))
    return false;
  w->step = steps; /* if a rank is lost from here on, no step is repeated */
  w->sums.epoch_s = clock_s() - w->begin_s;
  const float *params = settle(w, why);
  return params && worker_gather_pending(w, why) && test_model(w, params, why) &&
         summarise(w, &result, why) && check_weights(w, params, &result.weights_hash, why) &&
         finish_epoch(t, params, &result, why);
}

/* ---- the run ------------------------------------------------------------------------------- */

/* Continues without lost ranks, if `why` is about a loss and the strategy can. The first rank
 * that is left writes the files, and none of the lost ones before it any more. */
static bool go_on(trainer *t, fail *why) {
  worker *w = &t->w;
  if (!recover(w, why))
    return false;
  if (w->rank == 0 && w->o->checkpoint)
    checkpoint_withdraw(w->o->checkpoint, 0, w->number);
  return w->rank != 0 || metrics_open(&t->metrics, w->o, why);
}

/* A process that joins the run prepares itself, then gets the others' state. */
static bool join(trainer *t, fail *why) {
  t->begin_s = clock_s();
  return prepare(t, why) && recover_joined(&t->w, why);
}

bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why) {
  trainer t = {.w = {.o = o, .comm = comm, .given = comm, .data = data, .step_done = step_done},
               .make = make};
  worker *w = &t.w;
  w->asked = options_fingerprint(o);
  coll_comm_rank(comm, &w->rank);
  coll_comm_nranks(comm, &w->nranks);
  coll_comm_origin_rank(comm, w->rank, &w->number);
  bool ok = !o->join || join(&t, why), in = ok || !o->join;
  while (ok && (!w->ready || w->epochs_done < o->epochs))
    ok = (w->ready ? train_epoch(&t, why) : start(&t, why)) || go_on(&t, why);
  worker_close(w);
  if (!ok && in && !why->everywhere)
    coll_comm_abort(w->comm); /* so that the others do not wait for this rank */
  join_end(w);
  release(w);
  metrics_close(&t.metrics);
  recover_forget(w);
  if (w->comm != w->given)
    coll_comm_destroy(&w->comm);
  return ok;
}
