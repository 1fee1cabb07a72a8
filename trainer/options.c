/* options.c: what the command line asks for. */
#include "trainer/options.h"

#include "trainer/hash.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  OPT_DATA = 1000,
  OPT_LAYERS,
  OPT_EPOCHS,
  OPT_BATCH,
  OPT_LR,
  OPT_LR_DECAY,
  OPT_MOMENTUM,
  OPT_DECAY,
  OPT_SEED,
  OPT_BUCKET,
  OPT_CHECKPOINT,
  OPT_RESUME,
  OPT_METRICS,
  OPT_QUIET,
  OPT_THREADS,
  OPT_HELP,
  OPT_VERSION
};

static const struct option table[] = {
    {"data", required_argument, NULL, OPT_DATA},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"epochs", required_argument, NULL, OPT_EPOCHS},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"lr", required_argument, NULL, OPT_LR},
    {"lr-decay", required_argument, NULL, OPT_LR_DECAY},
    {"momentum", required_argument, NULL, OPT_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPT_DECAY},
    {"seed", required_argument, NULL, OPT_SEED},
    {"bucket-bytes", required_argument, NULL, OPT_BUCKET},
    {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"threads-per-rank", required_argument, NULL, OPT_THREADS},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

/* The option's name as the user writes it. */
static const char *name_of(int code) {
  for (const struct option *o = table; o->name; o++)
    if (o->val == code)
      return o->name;
  return "?";
}

/* Reads a whole number from `low` to `high`; what follows it in the text goes to *end. */
static bool read_count(const char *text, uint64_t low, uint64_t high, uint64_t *value,
                       const char **end) {
  char *stop = NULL;
  if (!isdigit((unsigned char)text[0]))
    return false;
  errno = 0;
  unsigned long long number = strtoull(text, &stop, 10);
  *end = stop;
  *value = number;
  return errno == 0 && number >= low && number <= high;
}

/* A whole number that is the value of an option. */
static bool parse_count(int code, const char *text, uint64_t low, uint64_t high, uint64_t *value,
                        fail *why) {
  const char *end = "";
  if (read_count(text, low, high, value, &end) && *end == '\0')
    return true;
  return fail_set(why, "--%s %s: must be a whole number from %llu to %llu", name_of(code), text,
                  (unsigned long long)low, (unsigned long long)high);
}

/* A number from low to high; `open_low` excludes low itself. */
static bool parse_real(int code, const char *text, double low, bool open_low, double high,
                       float *value, fail *why) {
  char *end = NULL;
  double number = strtod(text, &end);
  bool ok = end != text && *end == '\0' && isfinite(number) && number <= high &&
            (open_low ? (float)number > (float)low : number >= low);
  if (!ok)
    return fail_set(why, "--%s %s: must be a number %s %g and at most %g", name_of(code), text,
                    open_low ? "above" : "not below", low, high);
  *value = (float)number;
  return true;
}

/* A list such as 784,256,10. */
static bool parse_layers(options *o, const char *text, fail *why) {
  const char *p = text;
  o->size_count = 0;
  for (;;) {
    uint64_t size = 0;
    const char *end = "";
    if (o->size_count == MODEL_MAX_SIZES)
      return fail_set(why, "--layers: at most %d sizes", MODEL_MAX_SIZES);
    if (!read_count(p, 1, INT_MAX, &size, &end) || (*end != ',' && *end != '\0'))
      break;
    o->sizes[o->size_count++] = (size_t)size;
    if (*end == '\0' && o->size_count >= 2)
      return true;
    if (*end == '\0')
      break;
    p = end + 1;
  }
  return fail_set(why,
                  "--layers %s: must be at least two whole numbers from 1 joined by commas, "
                  "such as 784,256,128,10",
                  text);
}

/* The value of an option that is a text, which must not be empty. */
static bool parse_text(int code, const char *text, const char **value, fail *why) {
  *value = text;
  return *text ? true : fail_set(why, "--%s: needs a name", name_of(code));
}

/* Takes in one option. */
static bool take(options *o, int code, const char *text, fail *why) {
  uint64_t n = 0;
  bool ok = true;
  switch (code) {
  case OPT_DATA:
    return parse_text(code, text, &o->data, why);
  case OPT_LAYERS:
    return parse_layers(o, text, why);
  case OPT_EPOCHS:
    return parse_count(code, text, 1, 1000000, &o->epochs, why);
  case OPT_BATCH:
    ok = parse_count(code, text, 1, INT_MAX, &n, why);
    o->batch = (size_t)n;
    return ok;
  case OPT_LR:
    return parse_real(code, text, 0.0, true, 1000.0, &o->lr, why);
  case OPT_LR_DECAY:
    return parse_real(code, text, 0.0, true, 1.0, &o->lr_decay, why);
  case OPT_MOMENTUM:
    return parse_real(code, text, 0.0, false, 1.0, &o->momentum, why);
  case OPT_DECAY:
    return parse_real(code, text, 0.0, false, 1000.0, &o->weight_decay, why);
  case OPT_SEED:
    return parse_count(code, text, 0, UINT64_MAX, &o->seed, why);
  case OPT_BUCKET:
    ok = parse_count(code, text, 1, SIZE_MAX, &n, why);
    o->bucket_bytes = (size_t)n;
    return ok;
  case OPT_CHECKPOINT:
    return parse_text(code, text, &o->checkpoint, why);
  case OPT_METRICS:
    return parse_text(code, text, &o->metrics, why);
  case OPT_THREADS:
    ok = parse_count(code, text, 1, 1024, &n, why);
    o->threads_per_rank = (int)n;
    return ok;
  case OPT_RESUME:
    o->resume = true;
    return true;
  default:
    o->quiet = true;
    return true;
  }
}

/* What every run starts from. */
static void defaults(options *o) {
  static const size_t sizes[] = {784, 256, 128, 10};
  memset(o, 0, sizeof(*o));
  o->data = "/usr/share/datasets/fashion-mnist";
  memcpy(o->sizes, sizes, sizeof(sizes));
  o->size_count = 4;
  o->epochs = 5;
  o->batch = 128;
  o->lr = 0.05f;
  o->lr_decay = 0.6f;
  o->momentum = 0.9f;
  o->weight_decay = 1e-4f;
  o->seed = 1;
  o->bucket_bytes = 256 * 1024;
  o->threads_per_rank = 1;
}

/* Says what getopt_long() did not like about an argument. */
static bool refuse(const char *argument, fail *why) {
  if (optopt >= OPT_DATA)
    return fail_set(why, "--%s: takes no value", name_of(optopt));
  if (optopt != 0)
    return fail_set(why, "-%c: unknown option: see --help", optopt);
  return fail_set(why, "%s: unknown or ambiguous option: see --help", argument);
}

options_result options_parse(options *o, int argc, char **argv, fail *why) {
  int code;
  defaults(o);
  opterr = 0;
  optind = 0; /* start anew, also when called twice */
  while ((code = getopt_long(argc, argv, ":", table, NULL)) != -1) {
    if (code == OPT_HELP)
      return OPTIONS_HELP;
    if (code == OPT_VERSION)
      return OPTIONS_VERSION;
    if (code == ':')
      return fail_set(why, "%s: needs a value", argv[optind - 1]), OPTIONS_BAD;
    if (code == '?')
      return refuse(argv[optind - 1], why), OPTIONS_BAD;
    if (!take(o, code, optarg, why))
      return OPTIONS_BAD;
  }
  if (optind < argc)
    return fail_set(why, "%s: unexpected argument: see --help", argv[optind]), OPTIONS_BAD;
  if (o->resume && !o->checkpoint)
    return fail_set(why, "--resume: needs --checkpoint FILE"), OPTIONS_BAD;
  return OPTIONS_RUN;
}

void options_help(void) {
  puts("coll_train: trains a multi-layer perceptron on IDX images, data parallel over all ranks\n"
       "\n"
       "usage: collrun -n RANKS coll_train [options]\n"
       "  --data DIR             folder of the four IDX files, plain or .gz\n"
       "                         (/usr/share/datasets/fashion-mnist)\n"
       "  --layers N,N,...       sizes, inputs first, classes last (784,256,128,10)\n"
       "  --epochs N             passes over the training set (5)\n"
       "  --batch N              samples of a step, over all ranks together (128)\n"
       "  --lr X                 learning rate (0.05)\n"
       "  --lr-decay X           after each epoch the learning rate is multiplied by this (0.6)\n"
       "  --momentum X           (0.9)\n"
       "  --weight-decay X       (0.0001)\n"
       "  --seed N               initial weights and order of samples (1)\n"
       "  --bucket-bytes N       gradients reduced together, at least one layer (262144)\n"
       "  --checkpoint FILE      written after every epoch\n"
       "  --resume               go on from the checkpoint\n"
       "  --metrics FILE         one JSON object a line: each epoch and the end\n"
       "  --threads-per-rank N   threads of the matrix products (1)\n"
       "  --quiet                print errors only\n"
       "  --help, --version");
}

uint64_t options_fingerprint(const options *o) {
  uint64_t words[] = {o->epochs, o->batch, o->seed, o->bucket_bytes, o->size_count};
  float rates[] = {o->lr, o->lr_decay, o->momentum, o->weight_decay};
  uint64_t hash = hash_bytes(HASH_START, words, sizeof(words));
  hash = hash_bytes(hash, rates, sizeof(rates));
  for (size_t i = 0; i < o->size_count; i++) {
    uint64_t size = o->sizes[i];
    hash = hash_bytes(hash, &size, sizeof(size));
  }
  return hash;
}
