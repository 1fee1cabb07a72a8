/* checkpoint.h: saves the state of a training run in a file, and loads it again. */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "trainer/model.h"

/* What must be the same in the run that wrote a checkpoint and the one that resumes from it. */
typedef struct checkpoint_run {
  const model *model;
  uint64_t seed;
  uint64_t batch;
  uint64_t data; /* fingerprint of the data set */
} checkpoint_run;

/* How far a run has come. */
typedef struct checkpoint_state {
  uint64_t epochs;  /* finished */
  uint64_t step;    /* finished steps of the next epoch */
  uint64_t updates; /* made by the optimizer */
  float *params, *velocity;
  float *squares; /* NULL: the optimizer has none */
  float *pending; /* gradients still to be sent (error feedback); NULL: gradients are sent whole */
} checkpoint_state;

/* Whether a checkpoint can be written at `path`: found out before hours of training. */
bool checkpoint_check(const char *path, fail *why);

/*
 * Writes a state to a file beside `path`, one for each rank that may write, and syncs it to disk;
 * checkpoint_publish() then renames it to `path`. After a crash or power cut, `path` holds either
 * the old file or the new one.
 */
bool checkpoint_write(const char *path, int rank, const checkpoint_run *run,
                      const checkpoint_state *state, fail *why);
bool checkpoint_publish(const char *path, int rank, fail *why);

/* Removes what the ranks [first, end) have written but not published: a rank that the others gave
 * up cannot publish it any more. */
void checkpoint_withdraw(const char *path, int first, int end);

/* Reads a state into the arrays of *state. If only the file or only *state has `pending`, it is
 * skipped. On failure *state and its arrays are unchanged. */
bool checkpoint_read(const char *path, const checkpoint_run *run, checkpoint_state *state,
                     fail *why);

#endif
