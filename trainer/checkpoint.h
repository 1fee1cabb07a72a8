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

/* Whether a file can be made beside `path` at all: better to know before hours of training. */
bool checkpoint_check(const char *path, fail *why);

/*
 * Writes parameters and velocity after `epochs` finished epochs. The file under `path` is at any
 * moment, also after a crash or power cut, either the one before or the new one.
 */
bool checkpoint_write(const char *path, const checkpoint_run *run, uint64_t epochs,
                      const float *params, const float *velocity, fail *why);

/* Reads it back. On failure params and velocity are untouched. */
bool checkpoint_read(const char *path, const checkpoint_run *run, uint64_t *epochs, float *params,
                     float *velocity, fail *why);

#endif
