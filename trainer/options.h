/* options.h: what the command line asks for. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "trainer/fail.h"
#include "trainer/wire.h"

#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX_SIZES 64

struct strategy;

/* In the order of --model. */
enum { MODEL_PERCEPTRON, MODEL_LENET, MODEL_TRANSFORMER };

/* The values of all options; options_table.c explains them. */
typedef struct options {
  const char *data;
  const char *checkpoint;    /* NULL: none */
  uint64_t checkpoint_steps; /* 0: only after epochs */
  const char *metrics;       /* NULL: none */
  const struct strategy *strategy;
  int model;
  uint64_t context, width, heads, blocks; /* of the transformer */
  size_t sizes[OPTIONS_MAX_SIZES];
  size_t size_count;
  uint64_t epochs;
  uint64_t batch; /* over all ranks */
  int optimizer, schedule;
  float lr, lr_decay, warmup, momentum, square_decay, weight_decay, clip;
  uint64_t accumulate;
  uint64_t tensor, pipeline; /* of the strategy grid */
  uint64_t micro_batches;    /* of stages */
  int pipeline_schedule;
  uint64_t seed;
  uint64_t bucket_bytes;
  wire wire;
  bool staleness_lr;
  uint64_t staleness;
  uint64_t servers;
  uint64_t local_steps, post_local;
  int average;
  float outer_momentum, outer_lr, moving_rate;
  uint64_t threads_per_rank;
  int slow_rank; /* works slow_factor times as long as it needs */
  float slow_factor;
  bool resume, quiet, json;
} options;

typedef enum options_result {
  OPTIONS_RUN,
  OPTIONS_HELP,
  OPTIONS_VERSION,
  OPTIONS_BAD
} options_result;

/* Fills in the defaults, then the arguments. OPTIONS_BAD: `why` says what is wrong. */
options_result options_parse(options *o, int argc, char **argv, fail *why);

/* Prints the options with their defaults. */
void options_help(void);

/* A hash of the options that must be the same on all ranks. */
uint64_t options_fingerprint(const options *o);

#endif
