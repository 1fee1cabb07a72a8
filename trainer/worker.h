/* worker.h: one rank of a run, and the functions that strategies use. */
#ifndef TRAINER_WORKER_H
#define TRAINER_WORKER_H

#include "trainer/loader.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/progress.h"

#include <coll/coll.h>

/* What a rank has done in the current epoch. At its end an all-reduce adds them up, so all members
 * are doubles. */
typedef struct sums {
  double loss, correct, samples; /* of training, before each step */
  double compute_s;              /* time in the model and the optimizer */
  double waited_s;               /* time waiting for other ranks */
  double slowed_s;               /* time asleep because of --slow; in neither of the above */
  double sent_bytes;             /* passed to libcoll, counted as the strategy defines it */
  double test_loss, test_correct, tested; /* of the test after the epoch, and its samples */
} sums;

typedef struct worker {
  const options *o;
  coll_comm *given; /* the caller's, of all ranks */
  coll_comm *comm;  /* of the ranks that are left */
  coll_comm **old;  /* earlier ones; the strategy may still use their memory */
  size_t olds;
  int rank, nranks;
  const dataset *data;
  model model;
  pass pass;
  loader loader;
  float *params, *velocity; /* this rank's, of the whole model */
  float *squares;           /* the same; NULL if the optimizer has none */
  size_t optimizer_bytes;   /* this rank's part of velocity and squares */
  float *partial;           /* gradients of a part of a step, with --accumulate, else NULL */
  float *pending;           /* gradients still to be sent, of the whole model; NULL with
                               --wire float32 */
  uint64_t updates;         /* made so far by the optimizer, in the whole run */
  optim rule;               /* of the next update */
  uint64_t epochs_done;
  size_t step;    /* the next one of the current epoch */
  uint64_t begun; /* epochs that this rank has begun; sums and begin_s are of the last one */
  sums sums;
  double begin_s;
  void *state;       /* the strategy's own */
  bool keeper;       /* of the ranks furthest ahead, recover() prefers this one's model */
  char notes[12288]; /* of the current epoch: what the strategy adds to its metrics line */
  progress progress;
  bool (*step_done)(struct worker *w, fail *why); /* collective, after a step within the epoch */
} worker;

/* The most samples of a batch that one of `workers` workers gets. */
size_t worker_rows(const worker *w, int workers);

/* Allocates memory for passes over this rank's part of a batch. */
bool worker_fit(worker *w, fail *why);

/* The same for a batch that is split among `workers` ranks. */
bool worker_fit_parts(worker *w, int workers, fail *why);

/*
 * The gradient, at w->params, of `scale` times the summed losses of the samples at these positions
 * of the epoch's order. Counts loss, right answers and time; sleeps with --slow.
 */
bool worker_gradient(worker *w, shard samples, float scale, float *grads, model_listener listener,
                     fail *why);

/* Counts computing time, and sleeps in proportion with --slow. */
void worker_slow(worker *w, double spent_s);

/* The fraction of the epoch that is done after step w->step, in (0, 1). */
double worker_done(const worker *w);

/* Sets w->rule for an update when the fraction `done` of the current epoch is done. */
void worker_rule(worker *w, double done);

/* With --clip: scales the gradients of the whole model down if their norm is larger. */
void worker_clip(const worker *w, float *grads);

/* The optimizer's update of parameters [first, first + count); grads[0] belongs to the first. */
void worker_update(worker *w, size_t first, size_t count, const float *grads);

/* The same with the optimizer's memory of just these parameters. */
void worker_update_with(worker *w, size_t first, size_t count, float *velocity, float *squares,
                        const float *grads);

/* What to send for the gradients of `count` parameters from `first` (grads[0] is the first one's):
 * with --wire a packet of them and of earlier packets' errors, written to `packet`; without, the
 * gradients themselves. wire_bytes() says how long it is. */
const void *worker_pack(worker *w, size_t first, size_t count, const float *grads, void *packet);

/* With --wire, collective: rank 0 collects the pending gradients of all ranks, so that a checkpoint
 * can be resumed with any number of ranks. */
bool worker_gather_pending(worker *w, fail *why);

/* Clips the gradients (--clip), updates all parameters, and counts the update. */
void worker_update_all(worker *w, float *grads);

/* Runs step(), then w->step_done(), for each remaining step of the epoch; shows the progress. */
bool worker_each_step(worker *w, bool (*step)(worker *w, fail *why), fail *why);

/* The samples of step w->step: where they begin in the epoch's order, and how many. */
shard worker_batch(const worker *w);

/* Shows the progress: `samples` samples of this epoch are done, over all ranks. */
void worker_show(worker *w, size_t samples);

/* Adds members of a JSON object to the epoch's metrics line, which rank 0 writes. */
void worker_note(worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Broadcasts numbers from rank `from`, and counts the time. */
bool worker_share(worker *w, int from, float *data, size_t count, fail *why);

/* Broadcasts weights and optimizer memory of `count` parameters from `first`. */
bool worker_share_part(worker *w, int from, size_t first, size_t count, fail *why);

/* Broadcasts those of the whole model, and the number of updates. */
bool worker_share_model(worker *w, int from, fail *why);

/* What a rank sends in the best all-reduce of `bytes` bytes: 2 (n - 1) / n of them. */
double worker_allreduce_bytes(const worker *w, size_t bytes);

/* Waits for a request, and counts the time; `doing` is for the message if it fails. */
bool worker_wait(worker *w, coll_request **request, const char *doing, fail *why);

#endif
