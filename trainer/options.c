/* options.c: parses the command line, with the table of options. */
#include "trainer/options.h"

#include "trainer/hash.h"
#include "trainer/options_table.h"
#include "trainer/strategies/strategy.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 64
enum { CODE_ROWS = 1000, CODE_HELP = 2000, CODE_VERSION };

/* The text of each option: its default, or what the user gave. */
typedef struct row_text {
  const char *text; /* NULL: none */
  bool given;
} row_text;

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
  *value = option_word(row->choices, text);
  return *value >= 0 || fail_set(why, "--%s %s: must be one of %s", row->name, text, row->choices);
}

/* Parses the text of an option and stores its value. */
static bool store_option(options *o, const option_row *row, const char *text, fail *why) {
  void *member = (char *)o + row->at;
  const char *end = "";
  switch (row->kind) {
  case OPTION_FLAG:
    *(bool *)member = true;
    return true;
  case OPTION_TEXT:
    *(const char **)member = text;
    return *text ? true : fail_set(why, "--%s: must not be empty", row->name);
  case OPTION_COUNT:
    if (option_count(text, row->least, row->most, member, &end) && *end == '\0')
      return true;
    return fail_set(why, "--%s %s: must be a whole number from %" PRIu64 " to %" PRIu64, row->name,
                    text, row->least, row->most);
  case OPTION_CHOICE:
    return parse_choice(row, text, member, why);
  case OPTION_PARSED:
    return row->parse(o, text, why);
  default:
    return parse_real(row, text, member, why);
  }
}

/* Stores the defaults, and fills in the list for getopt_long(). */
static bool set_defaults(options *o, row_text *texts, struct option *list, fail *why) {
  size_t count = 0;
  memset(o, 0, sizeof(*o));
  o->slow_factor = 1;
  for (const option_row *row = option_rows; row->name; row++) {
    int takes = row->kind == OPTION_FLAG ? no_argument : required_argument;
    list[count] = (struct option){row->name, takes, NULL, CODE_ROWS + (int)count};
    texts[count++] = (row_text){.text = row->initial};
    if (row->initial && !store_option(o, row, row->initial, why))
      return false;
  }
  list[count++] = (struct option){"help", no_argument, NULL, CODE_HELP};
  list[count++] = (struct option){"version", no_argument, NULL, CODE_VERSION};
  list[count] = (struct option){.name = NULL};
  return true;
}

/* Says why getopt_long() refused an argument. */
static bool refuse(const struct option *list, const char *argument, fail *why) {
  for (; optopt >= CODE_ROWS && list->name; list++)
    if (list->val == optopt)
      return fail_set(why, "--%s: takes no value", list->name);
  if (optopt != 0)
    return fail_set(why, "-%c: unknown option: see --help", optopt);
  return fail_set(why, "%s: unknown or ambiguous option: see --help", argument);
}

/* The index of the row of that name, which must exist. */
static size_t row_of(const char *name) {
  size_t i = 0;
  while (strcmp(option_rows[i].name, name) != 0)
    i++;
  return i;
}

/* Refuses an option that the user gave but nothing reads. */
static bool check_needs(const row_text *texts, fail *why) {
  for (size_t i = 0; option_rows[i].name; i++)
    for (int k = 0; k < OPTION_NEEDS && texts[i].given; k++) {
      const option_need *need = &option_rows[i].needs[k];
      if (!need->option)
        continue;
      const row_text *other = &texts[row_of(need->option)];
      if (!need->words && !other->given)
        return fail_set(why, "--%s: needs --%s", option_rows[i].name, need->option);
      if (need->words && option_word(need->words, other->text) < 0)
        return fail_set(why, "--%s: has no meaning with --%s %s, only with %s", option_rows[i].name,
                        need->option, other->text, need->words);
    }
  return true;
}

options_result options_parse(options *o, int argc, char **argv, fail *why) {
  struct option list[MOST_ROWS + 3];
  row_text texts[MOST_ROWS];
  int code;
  if (!set_defaults(o, texts, list, why))
    return OPTIONS_BAD;
  opterr = 0;
  optind = 0; /* resets getopt, for a second call */
  while ((code = getopt_long(argc, argv, ":", list, NULL)) != -1) {
    if (code == CODE_HELP)
      return OPTIONS_HELP;
    if (code == CODE_VERSION)
      return OPTIONS_VERSION;
    if (code == ':')
      return fail_set(why, "%s: needs a value", argv[optind - 1]), OPTIONS_BAD;
    if (code == '?')
      return refuse(list, argv[optind - 1], why), OPTIONS_BAD;
    texts[code - CODE_ROWS] = (row_text){.text = optarg, .given = true};
    if (!store_option(o, &option_rows[code - CODE_ROWS], optarg, why))
      return OPTIONS_BAD;
  }
  if (optind < argc)
    return fail_set(why, "%s: unexpected argument: see --help", argv[optind]), OPTIONS_BAD;
  return check_needs(texts, why) ? OPTIONS_RUN : OPTIONS_BAD;
}

void options_help(void) {
  puts("coll_train: trains a model on all ranks\n\n"
       "usage: collrun -n RANKS coll_train [options]");
  for (const option_row *row = option_rows; row->name; row++) {
    char head[64];
    snprintf(head, sizeof(head), "--%s %s", row->name, row->value ? row->value : "");
    printf("  %-22s ", head);
    if (row->needs[0].words)
      printf("with --%s %s: ", row->needs[0].option, row->needs[0].words);
    printf("%s", row->help);
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
