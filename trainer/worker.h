/* worker.h: one rank of a run, and the functions that strategies use. */
#ifndef TRAINER_WORKER_H
#define TRAINER_WORKER_H

#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/report.h"

#include <coll/coll.h>

#include <sys/stat.h>

/* What a rank has done in the current epoch. At its end an all-reduce adds them up, so all members
 * are doubles. */
typedef struct sums {
  double loss, correct, samples; /* of training, before each step */
  double compute_s;              /* time in the model and the optimizer */
  double waited_s;               /* time waiting for other ranks */
  double slowed_s;               /* time asleep because of --slow; in neither of the above */
  double epoch_s;                /* time since the epoch began, by this rank's clock */
  double sent_bytes;             /* passed to libcoll, counted as the strategy defines it */
  double test_loss, test_correct, tested; /* of the test after the epoch, and its samples */
} sums;

/* Memory of the strategy. */
typedef struct holding {
  void *memory;
  coll_comm *comm; /* from coll_mem_alloc() of this one; NULL: from the heap */
} holding;

typedef struct worker {
  const options *o;
  uint64_t asked;   /* their fingerprint */
  coll_comm *given; /* the caller's, of all ranks */
  coll_comm *comm;  /* of the ranks that are left */
  coll_comm **old;  /* earlier ones; the strategy may still use their memory */
  size_t olds;
  int rank, nranks;  /* in comm */
  int number;        /* of this rank, in the whole run */
  int waiting;       /* processes that wait to join, as rank 0 told all ranks */
  struct stat offer; /* of the file that this rank wrote for them; st_ino 0: it wrote none */
  bool serves;       /* ps-sharded: this rank is a server and nothing else */
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
  bool ready;     /* all have the same model, and the strategy is open */
  uint64_t begun; /* epochs that this rank has begun; sums and begin_s are of the last one */
  sums sums;
  double begin_s;
  void *state;   /* the strategy's own, in memory of worker_memory() */
  holding *held; /* all that it took */
  size_t holdings;
  bool keeper;       /* of the ranks furthest ahead, recover() prefers this one's model */
  char notes[12288]; /* of the current epoch: what the strategy adds to its metrics line */
  progress progress;
  bool (*step_done)(struct worker *w, fail *why); /* collective, after a step within the epoch */
} worker;

/* The most samples of a batch that one of `workers` workers gets. */
size_t worker_rows(const worker *w, int workers);

/* Takes memory for passes over parts of a batch that are as large as those of `workers` ranks. */
bool worker_fit(worker *w, int workers, fail *why);

/* Memory of the strategy: `bytes` bytes of 0, aligned for vector instructions, until the strategy
 * is closed. NULL: see why. */
void *worker_memory(worker *w, size_t bytes, fail *why);

/* The same, but other ranks of w->comm may read it in place: for what is sent and received. */
void *worker_shared_memory(worker *w, size_t bytes, fail *why);

/* Opens the strategy, and gives back all that it has. */
bool worker_open(worker *w, fail *why);
void worker_close(worker *w);

/*
 * The gradient, at w->params, of `scale` times the summed losses of the samples at these positions
 * of the epoch's order. Counts loss, right answers and time; sleeps with --slow.
 */
bool worker_gradient(worker *w, shard samples, float scale, float *grads, model_listener listener,
                     fail *why);

/* The gradient of the mean loss of the batch of step w->step, as far as it comes from one of
 * `parts` parts of its samples. */
bool worker_batch_gradient(worker *w, int part, int parts, float *grads, model_listener listener,
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

/* The same where all arrays begin with the first of these parameters. */
void worker_update_arrays(worker *w, size_t count, float *params, float *velocity, float *squares,
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

/* Makes ready to show, on rank 0, how far the run is. */
void worker_open_progress(worker *w);

/* Shows the progress: `samples` samples of this epoch are done, over all ranks. */
void worker_show(worker *w, size_t samples);

/* Adds members of a JSON object to the epoch's metrics line, which rank 0 writes. */
void worker_note(worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- what ranks exchange: bytes and time are counted ----------------------------------------- */

/* Gives all ranks the numbers that rank `from` has. */
bool worker_share(worker *w, int from, float *data, size_t count, fail *why);

/* Broadcasts weights and optimizer memory of `count` parameters from `first`. */
bool worker_share_part(worker *w, int from, size_t first, size_t count, fail *why);

/* Broadcasts those of the whole model, and the number of updates. */
bool worker_share_model(worker *w, int from, fail *why);

/* Sums or averages numbers over the ranks of a communicator. */
bool worker_allreduce(worker *w, coll_comm *comm, const float *in, float *out, size_t count,
                      coll_op op, const char *doing, fail *why);

/* What a rank sends in the best all-reduce of `bytes` bytes: 2 (n - 1) / n of them. */
double allreduce_bytes(int nranks, size_t bytes);

/* Sends `bytes` bytes, and waits until they are off. */
bool worker_send(worker *w, const void *data, size_t bytes, int to, int tag, fail *why);

/* Starts to send; worker_wait() ends it. */
bool worker_start_send(worker *w, const void *data, size_t bytes, int to, int tag,
                       coll_request **request, fail *why);

/* Waits for a message of `bytes` bytes. *source, unless NULL: the rank that sent it, which is
 * `from` unless that is COLL_ANY_SOURCE. */
bool worker_receive(worker *w, void *data, size_t bytes, int from, int tag, int *source, fail *why);

/* Waits for a request, if there is one; `doing` is for the message if it fails. */
bool worker_wait(worker *w, coll_request **request, const char *doing, fail *why);

/* Waits for what was just started, if `status` says that it could be. */
bool worker_finish(worker *w, coll_status status, coll_request **request, const char *doing,
                   fail *why);

#endif
