/*
 * train.c: one training run. Read it from the end upwards: train() prepares this rank and checks
 * that all ranks agree, run_epochs() trains epoch after epoch, train_epoch() trains one, and
 * go_on() decides what happens if it fails.
 */
#include "trainer/train.h"

#include "trainer/agree.h"
#include "trainer/checkpoint.h"
#include "trainer/clock.h"
#include "trainer/hash.h"
#include "trainer/recover.h"
#include "trainer/strategies/strategy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A worker and the files of its run. */
typedef struct trainer {
  worker w; /* first, so that step_done() finds the trainer */
  const strategy *strategy;
  checkpoint_run run;
  metrics metrics;
  double begin_s;
  uint64_t written; /* epochs whose line and checkpoint this rank has written */
} trainer;

/* ---- preparing ----------------------------------------------------------------------------- */

/* `count` floats of 0, or NULL. */
static float *zeroes(size_t count) {
  float *memory = matrix_alloc(1, count);
  if (memory)
    memset(memory, 0, count * sizeof(float));
  return memory;
}

/* Allocates all memory of the run except the strategy's. */
static bool allocate(worker *w, fail *why) {
  const options *o = w->o;
  if (!worker_fit(w, why) || !loader_create(&w->loader, w->data, o->seed, o->batch, why))
    return false;
  size_t count = w->model.params;
  bool squares = optim_has_squares(o), parts = o->accumulate > 1;
  bool packets = o->wire.kind != WIRE_FLOAT32;
  w->params = zeroes(count);
  w->velocity = zeroes(count);
  w->squares = squares ? zeroes(count) : NULL;
  w->optimizer_bytes = (squares ? 2 : 1) * count * sizeof(float);
  w->partial = parts ? zeroes(count) : NULL;
  w->pending = packets ? zeroes(count) : NULL;
  bool ok = w->params && w->velocity && (w->squares || !squares) && (w->partial || !parts) &&
            (w->pending || !packets);
  return ok || fail_memory(why, "the model");
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
static bool prepare(trainer *t, model_maker make, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  if (!make(&w->model, o, w->data, why) || (t->strategy->check && !t->strategy->check(w, why)) ||
      !allocate(w, why))
    return false;
  if (o->slow_factor > 1.0f && o->slow_rank >= w->nranks)
    return fail_set(why, "--slow %d:%g: there is no rank %d among %d", o->slow_rank,
                    (double)o->slow_factor, o->slow_rank, w->nranks);
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

/* Gives all ranks the state of rank 0. */
static bool share_state(worker *w, fail *why) {
  uint64_t hash, place[] = {w->epochs_done, w->step};
  coll_status status = coll_broadcast(place, place, 2, COLL_UINT64, 0, w->comm);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "sharing the initial weights");
  w->epochs_done = place[0];
  w->step = (size_t)place[1];
  return worker_share_model(w, 0, why) && check_weights(w, w->params, &hash, why);
}

/* ---- one epoch ----------------------------------------------------------------------------- */

/* Prepares for the current epoch, or for the rest of it. */
static void begin_epoch(worker *w) {
  loader_epoch(&w->loader, w->epochs_done);
  worker_rule(w, 0);
  w->notes[0] = '\0';
  if (w->begun == w->epochs_done + 1)
    return; /* the epoch continues after a loss */
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
static bool summarise(worker *w, double seconds, epoch_result *result, fail *why) {
  sums all;
  coll_status status =
      coll_allreduce(&w->sums, &all, sizeof(all) / sizeof(double), COLL_FLOAT64, COLL_SUM, w->comm);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "summing losses");
  /* After a loss, the ranks that are left may have trained on none of the epoch's samples. */
  double trained = all.samples > 0 ? all.samples : 1, whole = seconds * w->nranks;
  *result = (epoch_result){.epoch = w->epochs_done + 1,
                           .ranks = w->nranks,
                           .train_loss = all.loss / trained,
                           .train_accuracy = all.correct / trained,
                           .test_loss = all.test_loss / all.tested,
                           .test_accuracy = all.test_correct / all.tested,
                           .seconds = seconds,
                           .samples_per_s = seconds > 0 ? all.samples / seconds : 0.0,
                           .wait_share = seconds > 0 ? all.waited_s / whole : 0.0,
                           .slowed_share = seconds > 0 ? all.slowed_s / whole : 0.0,
                           .compute_share = seconds > 0 ? all.compute_s / whole : 0.0,
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

/* Writes a checkpoint of the current state. */
static bool save_checkpoint(trainer *t, const float *params, fail *why) {
  checkpoint_state state = state_of(&t->w, (float *)(uintptr_t)params);
  return checkpoint_write(t->w.o->checkpoint, &t->run, &state, why);
}

/* Called after each step within an epoch: writes a checkpoint if --checkpoint-steps says so. */
static bool step_done(worker *w, fail *why) {
  if (w->o->checkpoint_steps == 0 || w->step % w->o->checkpoint_steps != 0)
    return true;
  const strategy *s = w->o->strategy;
  const float *params = s->settle(w, why);
  w->notes[0] = '\0';
  return params && worker_gather_pending(w, why) &&
         (w->rank != 0 || save_checkpoint((trainer *)w, params, why));
}

/* Reports the end of the run. */
static bool report_end(trainer *t, const epoch_result *last, fail *why) {
  double seconds = clock_s() - t->begin_s;
  progress_say(&t->w.progress,
               "test accuracy %.2f %% after %" PRIu64 " epochs, %.1f s, weights %016" PRIx64,
               100 * last->test_accuracy, last->epoch, seconds, last->weights_hash);
  return metrics_final(&t->metrics, t->w.o, last, seconds, why);
}

/* Rank 0 shows and writes the result of a finished epoch, unless it has already done so. */
static bool write_epoch(trainer *t, const float *params, const epoch_result *result, fail *why) {
  worker *w = &t->w;
  if (t->written == w->epochs_done)
    return true;
  progress_epoch(&w->progress, result);
  if (!metrics_epoch(&t->metrics, result, why) ||
      (w->o->checkpoint && !save_checkpoint(t, params, why)) ||
      (w->epochs_done == w->o->epochs && !report_end(t, result, why)))
    return false;
  t->written = w->epochs_done;
  return true;
}

/*
 * The end of an epoch, collective: rank 0 writes the run's files, and all wait for it. If rank 0 is
 * lost before that, the others are still in this epoch, and the next rank writes them. So no rank
 * leaves the run while another may still need it.
 */
static bool finish_epoch(trainer *t, const float *params, const epoch_result *result, fail *why) {
  worker *w = &t->w;
  size_t step = w->step;
  w->epochs_done++;
  w->step = 0;
  bool ok = w->rank != 0 || write_epoch(t, params, result, why);
  coll_status status = ok ? coll_barrier(w->comm) : COLL_OK;
  if (ok && status == COLL_OK)
    return true;
  w->epochs_done--;
  w->step = step;
  return ok && fail_coll(why, w->comm, status, "ending an epoch");
}

/* One epoch, or the rest of it: training, test, checkpoint and report. */
static bool train_epoch(trainer *t, fail *why) {
  worker *w = &t->w;
  epoch_result result;
  size_t steps = loader_steps(&w->loader);
  begin_epoch(w);
  if (w->step < steps && !t->strategy->epoch(w, why))
    return false;
  w->step = steps; /* if a rank is lost from here on, no step is repeated */
  double seconds = clock_s() - w->begin_s;
  const float *params = t->strategy->settle(w, why);
  return params && worker_gather_pending(w, why) && test_model(w, params, why) &&
         summarise(w, seconds, &result, why) &&
         check_weights(w, params, &result.weights_hash, why) &&
         finish_epoch(t, params, &result, why);
}

/* ---- the run ------------------------------------------------------------------------------- */

/* Continues without lost ranks, if `why` is about a loss and the strategy can. */
static bool go_on(trainer *t, fail *why) {
  return recover(&t->w, why) && (t->w.rank != 0 || metrics_open(&t->metrics, t->w.o, why));
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
}

/* Trains all epochs that are left. */
static bool run_epochs(trainer *t, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  t->begin_s = clock_s();
  if (!share_state(w, why) || (!o->resume && !metrics_restart(&t->metrics, why)))
    return false;
  progress_open(&w->progress, w->rank, o->quiet || o->json, o->epochs, w->epochs_done,
                w->data->train.count);
  if (w->epochs_done >= o->epochs) {
    announce(w);
    progress_say(&w->progress, "nothing left to do: to train further, raise --epochs");
    return true;
  }
  bool ok = t->strategy->open(w, why);
  if (ok)
    announce(w);
  while (ok && w->epochs_done < o->epochs)
    ok = train_epoch(t, why) || go_on(t, why);
  t->strategy->close(w);
  return ok;
}

/* Frees all memory of a rank. */
static void release(trainer *t) {
  worker *w = &t->w;
  metrics_close(&t->metrics);
  free(w->params);
  free(w->velocity);
  free(w->squares);
  free(w->partial);
  free(w->pending);
  loader_destroy(&w->loader);
  pass_destroy(&w->pass);
  recover_forget(w);
  if (w->comm != w->given)
    coll_comm_destroy(&w->comm);
}

bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why) {
  trainer t = {.w = {.o = o, .comm = comm, .given = comm, .data = data, .step_done = step_done},
               .strategy = o->strategy};
  coll_status status = coll_comm_rank(comm, &t.w.rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(comm, &t.w.nranks);
  if (status != COLL_OK)
    return fail_coll(why, comm, status, "asking for the rank");
  bool ok = data && prepare(&t, make, why);
  ok = agree_start(comm, ok, options_fingerprint(o), data ? data->fingerprint : 0, why);
  ok = ok && run_epochs(&t, why);
  if (!ok && !why->everywhere)
    coll_comm_abort(t.w.comm); /* so that the others do not wait for this rank */
  release(&t);
  return ok;
}
