/*
 * strategy.h: a way in which ranks train one model together. Each has a file of its own here, a
 * line at the end of this one, and one in strategies.c.
 */
#ifndef TRAINER_STRATEGIES_STRATEGY_H
#define TRAINER_STRATEGIES_STRATEGY_H

#include "trainer/worker.h"

/* What is true of a strategy. */
#define STRATEGY_EXACT   1u /* equal runs give equal bits, and a resumed run those of a whole one */
#define STRATEGY_ELASTIC 2u /* goes on without a lost rank */

typedef struct strategy {
  const char *name;
  const char *about; /* one line for --help */
  unsigned bits;

  /* Whether the worker's options, model and number of ranks go together; every rank looks by itself
   * before anything is sent, and finds the same. NULL: always. */
  bool (*check)(const worker *w, fail *why);

  size_t bytes; /* of w->state, which is all 0 when open() is called */

  /* Takes what the strategy needs, w->state above all, with worker_memory(), when w->params and
   * w->velocity are equal on all ranks; collective. It may free w->velocity and w->squares if it
   * keeps parts of its own; they are NULL then. */
  bool (*open)(worker *w, fail *why);

  /* Gives back what is not memory; also after an open() that failed, and when the communicator of
   * that time is revoked and w->comm is another one already. NULL: nothing. */
  void (*close)(worker *w);

  /* Trains from step w->step of the current epoch to the epoch's end; or, if it is NULL, step()
   * makes one step after the other. */
  bool (*epoch)(worker *w, fail *why);
  bool (*step)(worker *w, fail *why);

  /*
   * After an epoch, collective: the model so far, equal on every rank, which is then tested and
   * saved; w->velocity and w->squares of rank 0 are the optimizer's memory that belongs to it, and
   * needed if there is a checkpoint. Its result is NULL: see why. No function: w->params.
   */
  const float *(*settle)(worker *w, fail *why);

  /*
   * After ranks were lost, collective over those that are left, whose communicator w->comm is; the
   * one before it still exists. Makes w->epochs_done and w->step equal on all, and ready to go on.
   * NULL: close(), the weights and velocity of the rank that came furthest, open().
   */
  bool (*recover)(worker *w, fail *why);
} strategy;

/* The strategy of that name; NULL: see why. */
const strategy *strategy_find(const char *name, fail *why);

/* The index-th strategy, or NULL behind the last. */
const strategy *strategy_at(size_t index);

extern const strategy strategy_allreduce, strategy_zero1;
extern const strategy strategy_ps_sync, strategy_ps_async, strategy_ps_bounded, strategy_ps_sharded;
extern const strategy strategy_local_sgd, strategy_easgd, strategy_gossip;
extern const strategy strategy_pipeline, strategy_tensor, strategy_grid;

#endif
