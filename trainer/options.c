/* options.c: reads the command line by the table of options. */
#include "trainer/options.h"

#include "trainer/hash.h"
#include "trainer/options_table.h"
#include "trainer/strategies/strategy.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 64
enum { CODE_ROWS = 1000, CODE_HELP = 2000, CODE_VERSION };

/* A number from row->low to row->high; OPTION_ABOVE excludes the first. */
static bool parse_real(const option_row *row, const char *text, float *value, fail *why) {
  char *end = NULL;
  double number = strtod(text, &end);
  bool above = row->kind == OPTION_ABOVE;
  bool ok = end != text && *end == '\0' && isfinite(number) && number <= row->high &&
            (above ? (float)number > (float)row->low : number >= row->low);
  if (!ok)
    return fail_set(why, "--%s %s: must be a number %s %g and at most %g", row->name, text,
                    above ? "above" : "not below", row->low, row->high);
  *value = (float)number;
  return true;
}

/* One of the words of row->choices. */
static bool parse_choice(const option_row *row, const char *text, int *value, fail *why) {
  size_t length = strlen(text);
  const char *word = row->choices;
  for (int i = 0; word; i++) {
    const char *bar = strchr(word, '|');
    size_t has = bar ? (size_t)(bar - word) : strlen(word);
    if (has == length && memcmp(word, text, length) == 0) {
      *value = i;
      return true;
    }
    word = bar ? bar + 1 : NULL;
  }
  return fail_set(why, "--%s %s: must be one of %s", row->name, text, row->choices);
}

/* Stores the value that an option's text has. */
static bool store_option(options *o, const option_row *row, const char *text, fail *why) {
  void *member = (char *)o + row->at;
  const char *end = "";
  switch (row->kind) {
  case OPTION_FLAG:
    *(bool *)member = true;
    return true;
  case OPTION_TEXT:
    *(const char **)member = text;
    return *text ? true : fail_set(why, "--%s: needs a name", row->name);
  case OPTION_COUNT:
    if (option_count(text, row->low, row->high, member, &end) && *end == '\0')
      return true;
    return fail_set(why, "--%s %s: must be a whole number from %.0f to %.0f", row->name, text,
                    row->low, row->high);
  case OPTION_CHOICE:
    return parse_choice(row, text, member, why);
  case OPTION_PARSED:
    return row->parse(o, text, why);
  default:
    return parse_real(row, text, member, why);
  }
}

/* Fills in what every run starts from, and the list for getopt_long(). */
static bool set_defaults(options *o, struct option *list, fail *why) {
  size_t count = 0;
  memset(o, 0, sizeof(*o));
  o->slow_factor = 1;
  for (const option_row *row = option_rows; row->name; row++) {
    int takes = row->kind == OPTION_FLAG ? no_argument : required_argument;
    list[count] = (struct option){row->name, takes, NULL, CODE_ROWS + (int)count};
    count++;
    if (row->initial && !store_option(o, row, row->initial, why))
      return false;
  }
  list[count++] = (struct option){"help", no_argument, NULL, CODE_HELP};
  list[count++] = (struct option){"version", no_argument, NULL, CODE_VERSION};
  list[count] = (struct option){.name = NULL};
  return true;
}

/* Says what getopt_long() did not like about an argument. */
static bool refuse(const struct option *list, const char *argument, fail *why) {
  for (; optopt >= CODE_ROWS && list->name; list++)
    if (list->val == optopt)
      return fail_set(why, "--%s: takes no value", list->name);
  if (optopt != 0)
    return fail_set(why, "-%c: unknown option: see --help", optopt);
  return fail_set(why, "%s: unknown or ambiguous option: see --help", argument);
}

options_result options_parse(options *o, int argc, char **argv, fail *why) {
  struct option list[MOST_ROWS + 3];
  int code;
  if (!set_defaults(o, list, why))
    return OPTIONS_BAD;
  opterr = 0;
  optind = 0; /* start anew, also when called twice */
  while ((code = getopt_long(argc, argv, ":", list, NULL)) != -1) {
    if (code == CODE_HELP)
      return OPTIONS_HELP;
    if (code == CODE_VERSION)
      return OPTIONS_VERSION;
    if (code == ':')
      return fail_set(why, "%s: needs a value", argv[optind - 1]), OPTIONS_BAD;
    if (code == '?')
      return refuse(list, argv[optind - 1], why), OPTIONS_BAD;
    if (!store_option(o, &option_rows[code - CODE_ROWS], optarg, why))
      return OPTIONS_BAD;
  }
  if (optind < argc)
    return fail_set(why, "%s: unexpected argument: see --help", argv[optind]), OPTIONS_BAD;
  if (o->resume && !o->checkpoint)
    return fail_set(why, "--resume: needs --checkpoint FILE"), OPTIONS_BAD;
  return OPTIONS_RUN;
}

void options_help(void) {
  puts("coll_train: trains a model on all ranks together\n\n"
       "usage: collrun -n RANKS coll_train [options]");
  for (const option_row *row = option_rows; row->name; row++) {
    char head[64];
    snprintf(head, sizeof(head), "--%s %s", row->name, row->value ? row->value : "");
    printf("  %-22s %s", head, row->help);
    if (row->choices)
      printf(": %s", row->choices);
    if (row->initial)
      printf(" (%s)", row->initial);
    putchar('\n');
  }
  puts("  --help, --version\n\nstrategies:");
  for (size_t i = 0; strategy_at(i); i++)
    printf("  %-22s %s\n", strategy_at(i)->name, strategy_at(i)->about);
}

uint64_t options_fingerprint(const options *o) {
  uint64_t hash = HASH_START;
  for (const option_row *row = option_rows; row->name; row++)
    if (row->same && row->at != offsetof(options, strategy))
      hash = hash_bytes(hash, (const char *)o + row->at, row->bytes);
  return hash_bytes(hash, o->strategy->name, strlen(o->strategy->name));
}
