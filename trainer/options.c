/* options.c: all options of the command line, and how they are read. */
#include "trainer/options.h"

#include "trainer/strategies/strategy.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a whole number from `least` to `most`; what follows it in the text goes to *end. */
static bool option_count(const char *text, uint64_t least, uint64_t most, uint64_t *value,
                         const char **end) {
  char *stop = NULL;
  if (!isdigit((unsigned char)text[0]))
    return false;
  errno = 0;
  unsigned long long number = strtoull(text, &stop, 10);
  *end = stop;
  *value = number;
  return errno == 0 && number >= least && number <= most;
}

int option_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (int i = 0;; i++) {
    size_t has = strcspn(words, "|");
    if (has == length && memcmp(words, word, length) == 0)
      return i;
    if (words[has] == '\0')
      return -1;
    words += has + 1;
  }
}

/* --layers 784,256,10. */
static bool parse_layers(options *o, const char *text, fail *why) {
  const char *end = text;
  uint64_t size = 0;
  memset(o->sizes, 0, sizeof(o->sizes));
  for (o->size_count = 0; option_count(end, 1, INT_MAX, &size, &end); end++) {
    if (o->size_count == OPTIONS_MAX_SIZES)
      return fail_set(why, "--layers: at most %d sizes", OPTIONS_MAX_SIZES);
    o->sizes[o->size_count++] = (size_t)size;
    if (*end == '\0' && o->size_count >= 2)
      return true;
    if (*end != ',')
      break;
  }
  return fail_set(why,
                  "--layers %s: must be at least two whole numbers from 1 joined by commas, "
                  "such as 784,256,128,10",
                  text);
}

/* --slow rank:factor. */
static bool parse_slow(options *o, const char *text, fail *why) {
  uint64_t rank = 0;
  const char *end = "";
  int used = 0;
  if (option_count(text, 0, INT_MAX, &rank, &end) && *end == ':' &&
      sscanf(end + 1, "%f%n", &o->slow_factor, &used) == 1 && end[1 + used] == '\0' &&
      o->slow_factor >= 1.0f && o->slow_factor <= 1000.0f) {
    o->slow_rank = (int)rank;
    return true;
  }
  return fail_set(why, "--slow %s: must be a rank and a factor from 1 to 1000, such as 1:4", text);
}

/* --strategy NAME. */
static bool parse_strategy(options *o, const char *text, fail *why) {
  return (o->strategy = strategy_find(text, why));
}

/* --wire int8. */
static bool parse_wire(options *o, const char *text, fail *why) {
  return wire_parse(&o->wire, text, why);
}

#define AT(member)               .at = offsetof(options, member), .bytes = sizeof(((options *)0)->member)
#define FLAG(member)             .kind = OPTION_FLAG, AT(member)
#define TEXT(member)             .kind = OPTION_TEXT, AT(member)
#define COUNT(member, low, top)  .kind = OPTION_COUNT, AT(member), .least = (low), .most = (top)
#define REAL(member, top)        .kind = OPTION_REAL, AT(member), .high = (top)
#define ABOVE(member, top)       .kind = OPTION_ABOVE, AT(member), .high = (top)
#define CHOICE(member, words)    .kind = OPTION_CHOICE, AT(member), .choices = (words)
#define PARSED(member, function) .kind = OPTION_PARSED, AT(member), .parse = (function)
#define STRATEGIES(words)        .needs = {{"strategy", words}}
#define ELASTIC                                                                                    \
  { "strategy", "allreduce|zero1|ps-sync|ps-async|ps-bounded|ps-sharded|local-sgd|easgd|gossip" }

const option_row option_rows[] = {
    {"data", "DIR", "/usr/share/datasets/fashion-mnist",
     "folder of IDX files (plain or .gz) or CIFAR-10 files, or a text file", TEXT(data),
     .own = true},
    {"model", "NAME", "perceptron", "what to train", CHOICE(model, "perceptron|lenet|transformer")},
    {"layers", "N,N,...", "784,256,128,10", "sizes of all layers: inputs first, classes last",
     PARSED(sizes, parse_layers), .needs = {{"model", "perceptron"}}},
    {"context", "N", "64", "bytes per sample", COUNT(context, 1, 65536),
     .needs = {{"model", "transformer"}}},
    {"width", "N", "64", "numbers per position", COUNT(width, 1, 65536),
     .needs = {{"model", "transformer"}}},
    {"heads", "N", "4", "attention heads per block", COUNT(heads, 1, 1024),
     .needs = {{"model", "transformer"}}},
    {"blocks", "N", "2", "transformer blocks", COUNT(blocks, 1, 32),
     .needs = {{"model", "transformer"}}},
    {"strategy", "NAME", "allreduce", "how the ranks train together; see below",
     PARSED(strategy, parse_strategy)},
    {"epochs", "N", "5", "passes over the training set", COUNT(epochs, 1, 1000000)},
    {"batch", "N", "128", "samples per step, over all ranks together", COUNT(batch, 1, INT_MAX)},
    {"accumulate", "N", "1", "a rank computes its samples of a step in N parts",
     COUNT(accumulate, 1, INT_MAX), .needs = {ELASTIC}},
    {"optimizer", "NAME", "sgd", "the update rule", CHOICE(optimizer, "sgd|adam")},
    {"lr", "X", "0.05", "learning rate", ABOVE(lr, 1000)},
    {"schedule", "NAME", "decay", "of the learning rate", CHOICE(schedule, "decay|cosine")},
    {"warmup", "EPOCHS", "0", "the learning rate first rises from 0 for this long",
     REAL(warmup, 1000000)},
    {"clip", "X", "0",
     "largest norm of all gradients together; larger ones are scaled down; 0: any", REAL(clip, 1e9),
     STRATEGIES("allreduce|zero1|ps-sync|ps-async|local-sgd|easgd|gossip")},
    {"lr-decay", "X", "0.6", "factor of the learning rate after each epoch", ABOVE(lr_decay, 1),
     .needs = {{"schedule", "decay"}}},
    {"square-decay", "X", "0.999", "decay of the running mean of squared gradients",
     REAL(square_decay, 1), .needs = {{"optimizer", "adam"}}},
    {"momentum", "X", "0.9", "of the optimizer", REAL(momentum, 1)},
    {"weight-decay", "X", "0.0001", "of the optimizer", REAL(weight_decay, 1000)},
    {"seed", "N", "1", "initial weights and order of samples", COUNT(seed, 0, UINT64_MAX)},
    {"bucket-bytes", "N", "262144",
     "size of a bucket of gradients, which are reduced together; at least one layer",
     COUNT(bucket_bytes, 1, UINT64_MAX), STRATEGIES("allreduce|zero1|local-sgd")},
    {"wire", "FORM", "float32",
     "how gradients are sent: float32, float16, bfloat16, int8, topk, topk:PART",
     PARSED(wire, parse_wire),
     STRATEGIES("allreduce|zero1|ps-sync|ps-async|ps-bounded|ps-sharded")},
    {"staleness-lr", NULL, NULL, "divide the learning rate of an update by its staleness + 1",
     FLAG(staleness_lr), STRATEGIES("ps-async")},
    {"staleness", "N", "1", "batches that a worker may be ahead of the slowest",
     COUNT(staleness, 0, 1000), STRATEGIES("ps-bounded")},
    {"servers", "N", "0", "the last N ranks are servers; 0: every rank is worker and server",
     COUNT(servers, 0, 1000000), STRATEGIES("ps-sharded")},
    {"tensor", "N", "1", "ranks that share each layer", COUNT(tensor, 1, 1024), STRATEGIES("grid")},
    {"pipeline", "N", "1", "pipeline stages", COUNT(pipeline, 1, 1024), STRATEGIES("grid")},
    {"micro-batches", "N", "4", "parts into which a batch is cut", COUNT(micro_batches, 1, 65536),
     STRATEGIES("pipeline|grid")},
    {"pipeline-schedule", "NAME", "1f1b", "the order of the passes",
     CHOICE(pipeline_schedule, "gpipe|1f1b"), STRATEGIES("pipeline|grid")},
    {"local-steps", "N", "16", "steps between two exchanges", COUNT(local_steps, 1, UINT64_MAX),
     STRATEGIES("local-sgd|easgd|gossip")},
    {"average", "HOW", "allreduce", "who averages", CHOICE(average, "allreduce|master"),
     STRATEGIES("local-sgd")},
    {"post-local", "N", "0", "the first N epochs are synchronous", COUNT(post_local, 0, 1000000),
     STRATEGIES("local-sgd")},
    {"outer-momentum", "X", "0", "Nesterov momentum over the averages", REAL(outer_momentum, 1),
     STRATEGIES("local-sgd")},
    {"outer-lr", "X", "1", "outer learning rate: the part of an average's change that is taken",
     ABOVE(outer_lr, 1000), STRATEGIES("local-sgd")},
    {"moving-rate", "X", "0.9", "how far weights move to the centre, times the workers (alpha * p)",
     ABOVE(moving_rate, 1), STRATEGIES("easgd")},
    {"slow", "RANK:FACTOR", NULL, "this rank takes FACTOR times as long for its gradients",
     PARSED(slow_factor, parse_slow), .own = true},
    {"checkpoint", "FILE", NULL, "written after every epoch", TEXT(checkpoint), .own = true},
    {"checkpoint-steps", "N", "0", "also write it after every N steps of an epoch; 0: never",
     COUNT(checkpoint_steps, 0, UINT64_MAX),
     .needs = {{"strategy", "allreduce|zero1|ps-sharded|pipeline|tensor|grid"},
               {"checkpoint", NULL}}},
    {"resume", NULL, NULL, "continue from the checkpoint", FLAG(resume), .own = true,
     .needs = {{"checkpoint", NULL}}},
    {"join", NULL, NULL, "join the run of --join-file", FLAG(join), .own = true,
     .needs = {ELASTIC, {"join-file", NULL}}},
    {"join-file", "FILE", NULL, "rank 0 writes here how others can join", TEXT(join_file),
     .own = true, .needs = {ELASTIC}},
    {"metrics", "FILE", NULL, "write JSON lines: one for each epoch, one for the run",
     TEXT(metrics), .own = true},
    {"json", NULL, NULL, "print these lines instead of text", FLAG(json), .own = true},
    {"threads-per-rank", "N", "1", "threads for matrix products", COUNT(threads_per_rank, 1, 1024),
     .own = true},
    {"quiet", NULL, NULL, "print errors only", FLAG(quiet), .own = true},
    {.name = NULL},
};

/* ---- reading -------------------------------------------------------------------------------- */

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
    *(int *)member = option_word(row->choices, text);
    return *(int *)member >= 0 ||
           fail_set(why, "--%s %s: must be one of %s", row->name, text, row->choices);
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
    if (!row->own && row->at != offsetof(options, strategy))
      hash = hash_bytes(hash, (const char *)o + row->at, row->bytes);
  return hash_bytes(hash, o->strategy->name, strlen(o->strategy->name));
}
