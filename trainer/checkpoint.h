/* checkpoint.h: the state of a training run in a file that is always whole. */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "trainer/fail.h"
#include "trainer/model.h"

/* What must agree between the run that wrote a checkpoint and the one that goes on from it. */
typedef struct checkpoint_run {
  const model *model;
  uint64_t seed;
  uint64_t batch;
  uint64_t data; /* fingerprint of the data set */
} checkpoint_run;

/* What a run has come to. */
typedef struct checkpoint_state {
  uint64_t epochs;  /* finished */
  uint64_t step;    /* steps of the next one that are done */
  uint64_t updates; /* made by the optimizer */
  float *params, *velocity;
  float *squares; /* NULL: the optimizer has none */
  float *pending; /* gradients that packets still have to bring; NULL: gradients are sent whole */
} checkpoint_state;

/* Whether a file can be made beside `path` at all: better to know before hours of training. */
bool checkpoint_check(const char *path, fail *why);

/*
 * Writes a state. The file under `path` is at any moment, also after a crash or power cut, either
 * the one before or the new one.
 */
bool checkpoint_write(const char *path, const checkpoint_run *run, const checkpoint_state *state,
                      fail *why);

/* Reads it back into the arrays of *state. `pending` may be on either side alone: it is left as it
 * is, or not read. On failure *state and its arrays are untouched. */
bool checkpoint_read(const char *path, const checkpoint_run *run, checkpoint_state *state,
                     fail *why);

#endif
