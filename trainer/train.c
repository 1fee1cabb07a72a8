/* train.c: one run of training, from agreement between the ranks to the last epoch. */
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
  worker w;
  const strategy *strategy;
  checkpoint_run run;
  metrics metrics;
} trainer;

/* `count` floats of 0, or NULL. */
static float *zeroes(size_t count) {
  float *memory = matrix_alloc(1, count);
  if (memory)
    memset(memory, 0, count * sizeof(float));
  return memory;
}

/* Takes all memory of the run but the strategy's. */
static bool take_memory(worker *w, fail *why) {
  const options *o = w->o;
  if (!worker_fit(w, why) || !loader_create(&w->loader, w->data, o->seed, o->batch, why))
    return false;
  size_t count = w->model.params;
  w->params = zeroes(count);
  w->velocity = zeroes(count);
  w->squares = optim_has_squares(o) ? zeroes(count) : NULL;
  w->optimizer_bytes = (optim_has_squares(o) ? 2 : 1) * count * sizeof(float);
  w->partial = o->accumulate > 1 ? zeroes(count) : NULL;
  w->pending = o->wire.kind != WIRE_FLOAT32 ? zeroes(count) : NULL;
  bool ok = w->params && w->velocity && (w->squares || !optim_has_squares(o)) &&
            (w->partial || o->accumulate == 1) && (w->pending || o->wire.kind == WIRE_FLOAT32);
  return ok || fail_memory(why, "the model");
}

/* What a checkpoint holds of a worker whose model has these parameters. */
static checkpoint_state state_of(const worker *w, float *params) {
  return (checkpoint_state){.epochs = w->epochs_done,
                            .updates = w->updates,
                            .params = params,
                            .velocity = w->velocity,
                            .squares = w->squares,
                            .pending = w->pending};
}

/* Goes on where a checkpoint ended. */
static bool resume(trainer *t, fail *why) {
  worker *w = &t->w;
  checkpoint_state state = state_of(w, w->params);
  if (!checkpoint_read(w->o->checkpoint, &t->run, &state, why))
    return false;
  w->epochs_done = state.epochs;
  w->updates = state.updates;
  return true;
}

/* Whether the strategy can do what the options ask for. */
static bool check_strategy(const trainer *t, fail *why) {
  const options *o = t->w.o;
  if (o->wire.kind != WIRE_FLOAT32 && !(t->strategy->bits & STRATEGY_WIRE))
    return fail_set(why,
                    "--wire %s: --strategy %s sends no gradients over the ranks; leave out --wire, "
                    "or take allreduce, zero1 or one of ps-...",
                    wire_name(&o->wire), t->strategy->name);
  return !t->strategy->check || t->strategy->check(&t->w, why);
}

/* What a rank can do by itself before training; rank 0 also opens and reads the run's files. */
static bool prepare(trainer *t, model_maker make, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  if (!make(&w->model, o, w->data, why) || !check_strategy(t, why) || !take_memory(w, why))
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

/* The hash of a model's parameters, once all ranks were found to have the same. */
static bool check_weights(worker *w, const float *params, uint64_t *hash, fail *why) {
  *hash = hash_bytes(HASH_START, params, w->model.params * sizeof(float));
  return agree_weights(w->comm, *hash, why);
}

/* Gives all ranks the state of rank 0. */
static bool share_state(worker *w, fail *why) {
  uint64_t hash;
  coll_status status = coll_broadcast(&w->epochs_done, &w->epochs_done, 1, COLL_UINT64, 0, w->comm);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "sharing the initial weights");
  return worker_share_model(w, 0, why) && check_weights(w, w->params, &hash, why);
}

/* Makes ready for the current epoch, or for what is left of it. */
static void begin_epoch(worker *w) {
  loader_epoch(&w->loader, w->epochs_done);
  worker_rule(w, 0);
  w->notes[0] = '\0';
  if (w->step > 0)
    return;
  memset(&w->sums, 0, sizeof(w->sums));
  w->begin_s = clock_s();
}

/* This rank's part of the test set. */
static bool test_model(worker *w, const float *params, fail *why) {
  shard part = shard_of(w->data->test.count, w->rank, w->nranks);
  for (size_t done = 0; done < part.count;) {
    size_t left = part.count - done;
    shard piece = {part.first + done, left < w->pass.rows ? left : w->pass.rows};
    loader_test(&w->loader, piece, w->pass.value[0], w->pass.labels);
    if (!model_forward(&w->model, params, &w->pass, piece.count, why))
      return false;
    w->sums.test_loss += model_loss(&w->model, &w->pass, piece.count, &w->sums.test_correct);
    done += piece.count;
  }
  return true;
}

/* Adds up the ranks' sums and makes means of them. */
static bool summarise(worker *w, double seconds, epoch_result *result, fail *why) {
  sums all;
  coll_status status =
      coll_allreduce(&w->sums, &all, sizeof(all) / sizeof(double), COLL_FLOAT64, COLL_SUM, w->comm);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "summing losses");
  double tests = (double)w->data->test.count, whole = seconds * w->nranks;
  *result = (epoch_result){.epoch = w->epochs_done + 1,
                           .ranks = w->nranks,
                           .train_loss = all.loss / all.samples,
                           .train_accuracy = all.correct / all.samples,
                           .test_loss = all.test_loss / tests,
                           .test_accuracy = all.test_correct / tests,
                           .seconds = seconds,
                           .samples_per_s = seconds > 0 ? all.samples / seconds : 0.0,
                           .wait_share = seconds > 0 ? all.waited_s / whole : 0.0,
                           .compute_share = seconds > 0 ? all.compute_s / whole : 0.0,
                           .sent_bytes = all.sent_bytes,
                           .optimizer_bytes = w->optimizer_bytes,
                           .notes = w->notes};
  if (isfinite(result->train_loss) && isfinite(result->test_loss))
    return true;
  why->everywhere = true;
  return fail_set(why, "the loss is not a number after epoch %" PRIu64 ": use a smaller --lr",
                  result->epoch);
}

/* Writes the checkpoint of a finished epoch. */
static bool save_checkpoint(trainer *t, const float *params, fail *why) {
  checkpoint_state state = state_of(&t->w, (float *)(uintptr_t)params);
  return checkpoint_write(t->w.o->checkpoint, &t->run, &state, why);
}

/* One epoch, or what is left of it, with all that belongs to it. */
static bool train_epoch(trainer *t, epoch_result *result, fail *why) {
  worker *w = &t->w;
  uint64_t hash;
  begin_epoch(w);
  if (!t->strategy->epoch(w, why))
    return false;
  double seconds = clock_s() - w->begin_s;
  const float *params = t->strategy->settle(w, why);
  if (!params || !worker_gather_pending(w, why) || !test_model(w, params, why) ||
      !summarise(w, seconds, result, why) || !check_weights(w, params, &hash, why))
    return false;
  result->weights_hash = hash;
  w->epochs_done++;
  w->step = 0;
  if (w->rank != 0)
    return true;
  progress_epoch(&w->progress, result);
  return metrics_epoch(&t->metrics, result, why) &&
         (!w->o->checkpoint || save_checkpoint(t, params, why));
}

/* Goes on without lost ranks, if that is what `why` is about and the strategy can. */
static bool survive(trainer *t, fail *why) {
  worker *w = &t->w;
  do {
    if (!why->lost || !(t->strategy->bits & STRATEGY_ELASTIC))
      return false;
  } while (!recover(w, why));
  return w->rank != 0 || metrics_open(&t->metrics, w->o, why);
}

/* Says what is about to happen. */
static void announce(const worker *w, progress *p) {
  progress_say(p,
               "%zu training and %zu test samples, %zu parameters, %d rank%s, strategy %s, "
               "gradients as %s, global batch %" PRIu64 ", %.2f MiB for the optimizer on each rank",
               w->data->train.count, w->data->test.count, w->model.params, w->nranks,
               w->nranks == 1 ? "" : "s", w->o->strategy->name, wire_name(&w->o->wire), w->o->batch,
               (double)w->optimizer_bytes / 0x1p20);
  if (w->epochs_done > 0)
    progress_say(p, "going on after epoch %" PRIu64 " of %s", w->epochs_done,
                 w->rank == 0 ? w->o->checkpoint : "");
}

/* All epochs that are left. */
static bool run_epochs(trainer *t, fail *why) {
  worker *w = &t->w;
  const options *o = w->o;
  double begin = clock_s();
  epoch_result last = {.epoch = 0};
  if (!share_state(w, why) || (!o->resume && !metrics_restart(&t->metrics, why)))
    return false;
  progress_open(&w->progress, w->rank, o->quiet || o->json, o->epochs, w->epochs_done,
                w->data->train.count);
  if (w->epochs_done >= o->epochs) {
    announce(w, &w->progress);
    progress_say(&w->progress, "nothing left to do: ask for more with --epochs");
    return true;
  }
  bool ok = t->strategy->open(w, why);
  if (ok)
    announce(w, &w->progress);
  while (ok && w->epochs_done < o->epochs)
    ok = train_epoch(t, &last, why) || survive(t, why);
  t->strategy->close(w);
  if (!ok)
    return false;
  double seconds = clock_s() - begin;
  progress_say(&w->progress,
               "test accuracy %.2f %% after %" PRIu64 " epochs, %.1f s, weights %016" PRIx64,
               100 * last.test_accuracy, last.epoch, seconds, last.weights_hash);
  return w->rank != 0 || metrics_final(&t->metrics, o, &last, seconds, why);
}

/* Frees all that a rank took. */
static void release(trainer *t) {
  metrics_close(&t->metrics);
  free(t->w.params);
  free(t->w.velocity);
  free(t->w.squares);
  free(t->w.partial);
  free(t->w.pending);
  loader_destroy(&t->w.loader);
  pass_destroy(&t->w.pass);
  if (t->w.comm != t->w.given)
    coll_comm_destroy(&t->w.comm);
}

bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why) {
  trainer t = {.w = {.o = o, .comm = comm, .given = comm, .data = data}, .strategy = o->strategy};
  coll_status status = coll_comm_rank(comm, &t.w.rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(comm, &t.w.nranks);
  if (status != COLL_OK)
    return fail_coll(why, comm, status, "asking for the rank");
  bool ok = data && prepare(&t, make, why);
  ok = agree_start(comm, ok, options_fingerprint(o), data ? data->fingerprint : 0, why);
  ok = ok && run_epochs(&t, why);
  if (!ok && !why->everywhere)
    coll_comm_abort(t.w.comm); /* the others must not wait for what this rank no longer does */
  release(&t);
  return ok;
}
