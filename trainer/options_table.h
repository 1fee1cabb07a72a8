/* options_table.h: the table of command line options. */
#ifndef TRAINER_OPTIONS_TABLE_H
#define TRAINER_OPTIONS_TABLE_H

#include "trainer/options.h"

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
  bool same;                       /* all ranks must be given the same */
  size_t at, bytes;                /* its member of struct options */
  option_need needs[OPTION_NEEDS]; /* without these the option is refused */
  uint64_t least, most;
  double low, high;
  const char *choices;
  bool (*parse)(options *o, const char *text, fail *why);
} option_row;

/* All options in the order of the help; the last has no name. */
extern const option_row option_rows[];

/* Reads a whole number from `least` to `most`; what follows it in the text goes to *end. */
bool option_count(const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  const char **end);

/* The index of a word in `words`, which '|' separates, or -1. */
int option_word(const char *words, const char *word);

#endif
