/* options.h: what the command line asks for. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "trainer/wire.h"

#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX_SIZES 64

struct strategy;

/* In the order of --model. */
enum { MODEL_PERCEPTRON, MODEL_LENET, MODEL_TRANSFORMER };

/* The values; each is explained where it is defined, in options.c. */
typedef struct options {
  const char *data;
  const char *checkpoint;    /* NULL: none */
  uint64_t checkpoint_steps; /* 0: only after epochs */
  const char *metrics;       /* NULL: none */
  const char *join_file;     /* NULL: nobody can join */
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
  bool resume, join, quiet, json;
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

/* ---- the table ----------------------------------------------------------------------------- */

/* How an option's text becomes a value. */
typedef enum option_kind {
  OPTION_FLAG,   /* bool: it takes no value */
  OPTION_TEXT,   /* const char *: must not be empty */
  OPTION_COUNT,  /* uint64_t in [least, most] */
  OPTION_REAL,   /* float in [low, high] */
  OPTION_ABOVE,  /* float in (low, high] */
  OPTION_CHOICE, /* int: index of one of the words in `choices`, which '|' separates */
  OPTION_PARSED, /* parse() reads it */
} option_kind;

/* An option that is required for this one to have an effect. */
typedef struct option_need {
  const char *option; /* NULL: nothing */
  const char *words;  /* one of these, which '|' separates; NULL: any, but it must be given */
} option_need;

#define OPTION_NEEDS 2

typedef struct option_row {
  const char *name;    /* as the user writes it, without "--" */
  const char *value;   /* its value's name in the help; NULL: a flag */
  const char *initial; /* its default, as text; NULL: none, the member is 0 */
  const char *help;    /* one line */
  option_kind kind;
  size_t at, bytes;                /* its member of struct options */
  bool own;                        /* ranks may be given different ones */
  option_need needs[OPTION_NEEDS]; /* without these the option is refused */
  uint64_t least, most;
  double low, high;
  const char *choices;
  bool (*parse)(options *o, const char *text, fail *why);
} option_row;

/* All options in the order of the help; the last has no name. */
extern const option_row option_rows[];

/* The index of a word in `words`, which '|' separates, or -1. */
int option_word(const char *words, const char *word);

/* A hash of the options that must be the same on all ranks. */
uint64_t options_fingerprint(const options *o);

#endif
