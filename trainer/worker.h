/* worker.h: one rank of a run, and what strategies ask of it. */
#ifndef TRAINER_WORKER_H
#define TRAINER_WORKER_H

#include "trainer/loader.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/progress.h"

#include <coll/coll.h>

/* What a rank has done in the current epoch; the ranks add theirs up at its end. All doubles. */
typedef struct sums {
  double loss, correct, samples; /* of training, before each step */
  double compute_s;              /* time in the model and the optimizer */
  double waited_s;               /* time waiting for other ranks */
  double slowed_s;               /* time slept because of --slow; counted in neither of these */
  double sent_bytes;             /* handed to libcoll, as the strategy's definition counts them */
  double test_loss, test_correct, tested; /* of the test after the epoch, and its samples */
} sums;

typedef struct worker {
  const options *o;
  coll_comm *given; /* the caller's, of all ranks */
  coll_comm *comm;  /* of those that are left */
  coll_comm **old;  /* those before it, while the strategy may have memory of them */
  size_t olds;
  int rank, nranks;
  const dataset *data;
  model model;
  pass pass;
  loader loader;
  float *params, *velocity; /* this rank's, of the whole model */
  float *squares;           /* ... of optimizers that have them, else NULL */
  size_t optimizer_bytes;   /* of velocity and squares, as much of them as this rank has */
  float *partial;           /* gradients of a part of a step, with --accumulate, else NULL */
  float *pending;           /* gradients that packets still have to bring, of the whole model; NULL
                               with --wire float32 */
  uint64_t updates;         /* made so far by the optimizer, in the whole run */
  optim rule;               /* of the next update */
  uint64_t epochs_done;
  size_t step;    /* the next one of the current epoch */
  uint64_t begun; /* epochs that this rank has begun: sums and begin_s are of the last one */
  sums sums;
  double begin_s;
  void *state;       /* the strategy's own */
  bool keeper;       /* of those that came equally far, recover() takes the model of this rank */
  char notes[12288]; /* of the current epoch: what the strategy adds to its line of the metrics */
  progress progress;
  bool (*step_done)(struct worker *w, fail *why); /* collective, after a step within the epoch */
} worker;

/* The most samples that a batch has for each of so many workers. */
size_t worker_rows(const worker *w, int workers);

/* Takes memory for passes over this rank's part of a batch, by its number among the ranks. */
bool worker_fit(worker *w, fail *why);

/* The same for parts that are as large as those of `workers` ranks. */
bool worker_fit_parts(worker *w, int workers, fail *why);

/*
 * The gradient of the samples at these positions of the epoch's order: that of `scale` times the
 * sum of their losses, at w->params. Counts loss, answers and time; slows down if asked to.
 */
bool worker_gradient(worker *w, shard samples, float scale, float *grads, model_listener listener,
                     fail *why);

/* Counts time that was spent computing, and spends more if this rank is to be slow. */
void worker_slow(worker *w, double spent_s);

/* How much of the epoch is done when step w->step is, from 0 to less than 1. */
double worker_done(const worker *w);

/* The rule of an update when `done` (0 to 1) of the current epoch is done. */
void worker_rule(worker *w, double done);

/* With --clip: shortens the gradients of the whole model if their norm is larger. */
void worker_clip(const worker *w, float *grads);

/* The optimizer's update of parameters [first, first + count); grads[0] belongs to the first. */
void worker_update(worker *w, size_t first, size_t count, const float *grads);

/* The same with the optimizer's memory of just these parameters. */
void worker_update_with(worker *w, size_t first, size_t count, float *velocity, float *squares,
                        const float *grads);

/* What is sent instead of the gradients of `count` parameters from `first` (grads[0] is the first
 * one's): with --wire a packet of them and of what earlier packets lacked, written to `packet`;
 * without, the gradients themselves. wire_bytes() says how long it is. */
const void *worker_pack(worker *w, size_t first, size_t count, const float *grads, void *packet);

/* With --wire, collective: rank 0 takes over what all ranks' packets lack; so a checkpoint has it
 * for any number of ranks. */
bool worker_gather_pending(worker *w, fail *why);

/* With --clip, cuts all gradients to length; then updates all parameters, and counts the update. */
void worker_update_all(worker *w, float *grads);

/* Runs step() and what follows it for each step of the epoch that is left, and shows how far it is.
 */
bool worker_each_step(worker *w, bool (*step)(worker *w, fail *why), fail *why);

/* The samples of step w->step: where they begin in the epoch's order, and how many. */
shard worker_batch(const worker *w);

/* Shows that `samples` samples of this epoch are done over all ranks. */
void worker_show(worker *w, size_t samples);

/* Adds members of a JSON object to the epoch's line of the metrics; rank 0's count. */
void worker_note(worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gives all ranks the numbers that rank `from` has, and counts the time. */
bool worker_share(worker *w, int from, float *data, size_t count, fail *why);

/* ... the weights and the optimizer's memory of `count` parameters from `first`. */
bool worker_share_part(worker *w, int from, size_t first, size_t count, fail *why);

/* ... of the whole model, and the number of updates. */
bool worker_share_model(worker *w, int from, fail *why);

/* What a rank sends in the best all-reduce of `bytes` bytes: 2 (n - 1) / n of them. */
double worker_allreduce_bytes(const worker *w, size_t bytes);

/* Waits for a request, and counts the time; `doing` is for the message if it fails. */
bool worker_wait(worker *w, coll_request **request, const char *doing, fail *why);

#endif
