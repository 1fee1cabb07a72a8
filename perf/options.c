/* options.c: coll_perf's command line; the letters are those of nccl-tests. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

/* Ends the program because of bad usage. */
static void die(const char *what, const char *value) {
  fprintf(stderr, "coll_perf: %s '%s'; see coll_perf --help\n", what, value);
  exit(2);
}

/* Reads "64", "4K", "32M". */
static size_t read_size(const char *text) {
  char *end;
  double value = strtod(text, &end);
  double unit = 1;
  switch (*end) {
  case 'k':
  case 'K':
    unit = 1024, end++;
    break;
  case 'm':
  case 'M':
    unit = 1024 * 1024, end++;
    break;
  case 'g':
  case 'G':
    unit = 1024.0 * 1024 * 1024, end++;
    break;
  }
  if (end == text || (*end && strcmp(end, "B") != 0) || !(value >= 0) || value * unit > 1e15)
    die("not a size:", text);
  return (size_t)(value * unit);
}

/* Reads the smallest size, or a list of sizes. */
static void read_sizes(perf_options *options, const char *text) {
  options->nsizes = 0;
  for (const char *next = text; next; next = strchr(next, ',')) {
    char one[32];
    next += *next == ',';
    size_t length = strcspn(next, ",");
    if (length >= sizeof(one) || options->nsizes == PERF_SIZES)
      die("too long a list of sizes, or too long a size:", text);
    memcpy(one, next, length);
    one[length] = '\0';
    options->sizes[options->nsizes++] = read_size(one);
  }
  options->min_bytes = options->sizes[0];
}

static int read_int(const char *text, int min, int max) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < min || value > max)
    die("not a number in range:", text);
  return (int)value;
}

static int read_type(const char *text) {
  int type = perf_type_named(text);
  if (type == PERF_NO_NAME)
    die("unknown datatype", text);
  return type;
}

static int read_op(const char *text) {
  int op = perf_op_named(text);
  if (op == PERF_NO_NAME)
    die("unknown op", text);
  return op;
}

/* Reads a level of determinism. */
static int read_level(const char *text) {
  static const char *const levels[] = {"off", "on", "ordered"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, levels[i]) == 0)
      return COLL_DETERMINISTIC_OFF + i;
  if (strcmp(text, "all") != 0)
    die("--deterministic takes off, on, ordered or all, not", text);
  return PERF_ALL;
}

/* Reads a kind of work. */
static perf_overlap_kind read_work(const char *text) {
  if (strcmp(text, "cpu") == 0)
    return PERF_OVERLAP_CPU;
  if (strcmp(text, "device") != 0)
    die("--overlap takes cpu or device, not", text);
  return PERF_OVERLAP_DEVICE;
}

/* Reads who sends to whom. */
static perf_pattern read_pattern(const char *text) {
  static const char *const names[] = {"ring", "pairs", "both"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, names[i]) == 0)
      return (perf_pattern)i;
  die("--pattern takes ring, pairs or both, not", text);
  return PERF_RING;
}

/* Reads where buffers are: whether on a GPU. */
static bool read_memory(const char *text) {
  if (strcmp(text, "cuda") != 0 && strcmp(text, "host") != 0)
    die("--memory takes host or cuda, not", text);
  return *text == 'c';
}

/* Handles an option about sizes; false if it is another one. */
static bool read_size_option(perf_options *options, int letter, const char *value) {
  switch (letter) {
  case 'b':
    read_sizes(options, value);
    return true;
  case 'e':
    options->max_bytes = read_size(value);
    return true;
  case 'f':
    options->step_factor = strtod(value, NULL);
    if (!(options->step_factor > 1) || !isfinite(options->step_factor))
      die("the step factor must be more than 1, not", value);
    return true;
  case 'i':
    options->step_bytes = read_size(value);
    return true;
  default:
    return false;
  }
}

/* Handles an option about messages, or about what is reported of them; false if it is another one.
 */
static bool read_report_option(perf_options *options, int letter, const char *value) {
  switch (letter) {
  case 'J':
    options->json = value;
    return true;
  case 'C':
    options->csv = value;
    return true;
  case 'P':
    options->percentiles = true;
    return true;
  case 'W':
    options->window = read_int(value, 1, PERF_WINDOW_MAX);
    return true;
  case 'Q':
    options->pattern = read_pattern(value);
    return true;
  default:
    return false;
  }
}

/* Handles an option about memory; false if it is another one. */
static bool read_memory_option(perf_options *options, int letter, const char *value) {
  switch (letter) {
  case 'M':
    options->cuda = read_memory(value);
    return true;
  case 'R':
    options->registered = read_int(value, 0, 1);
    return true;
  case 'z':
    options->blocking = read_int(value, 0, 1);
    return true;
  case 'G':
    options->launches = read_int(value, 0, 1000000);
    return true;
  default:
    return false;
  }
}

/* Handles any other option. */
static void read_option(perf_options *options, int letter, const char *value) {
  switch (letter) {
  case 'n':
    options->iters = read_int(value, 1, 100000000);
    break;
  case 'w':
    options->warmup = read_int(value, 0, 100000000);
    break;
  case 'c':
    options->check = read_int(value, 0, 1);
    break;
  case 'd':
    options->type = read_type(value);
    break;
  case 'o':
    options->op = read_op(value);
    break;
  case 'r':
    options->root = read_int(value, -1, 65535);
    break;
  case 't':
    options->threads = read_int(value, 1, 4096);
    break;
  case 'T':
    options->timeout_ms = 1000 * read_int(value, 1, 1000000);
    break;
  case 'A':
    options->all_algos = strcmp(value, "all") == 0;
    options->algo = options->all_algos ? NULL : value;
    break;
  case 'D':
    options->deterministic = read_level(value);
    break;
  case 'O':
    options->overlap = read_work(value);
    break;
  case 'h':
    fputs(perf_usage, stdout);
    exit(0);
  default:
    fputs("see coll_perf --help\n", stderr);
    exit(2);
  }
}

/* Adds a collective, and refuses options that do not apply to it. */
static void add_collective(perf_options *options, const char *name) {
  static char text[128];
  for (options->what = 0; options->what < PERF_WHAT_COUNT; options->what++)
    if (strcmp(name, perf_collectives[options->what].name) == 0)
      break;
  if (options->what == PERF_WHAT_COUNT)
    die("unknown collective", name);
  if (options->nwanted == PERF_WHAT_COUNT)
    die("too many collectives:", name);
  if (options->nwanted > 0 && (options->json || options->csv || options->algo))
    die("--json, --csv and --algo take one collective, not also", name);
  options->wanted[options->nwanted++] = options->what;
  const perf_traits *traits = options->traits = &perf_collectives[options->what];
  if ((options->all_algos || options->algo) && !traits->algo)
    die("there are no algorithms for", name);
  if (options->deterministic == PERF_ALL && options->all_algos)
    die("--algo all and --deterministic all do not go together:", name);
  if (options->overlap && !perf_can_overlap(options->what))
    die("--overlap is for allreduce, reduce_scatter, broadcast, allgather and alltoall, not", name);
  if (options->overlap && (options->all_algos || options->deterministic == PERF_ALL))
    die("--overlap measures one algorithm and level of determinism:", name);
  if (traits->reduces && options->type != PERF_ALL && options->op != PERF_ALL &&
      !perf_takes(options->type, options->op))
    die("the operation does not take type", perf_type_name(options->type));
  if ((options->window || options->pattern) && options->what != PERF_SENDRECV)
    die("--window and --pattern are for sendrecv, not", name);
  if ((options->csv || options->percentiles) &&
      (options->overlap || options->all_algos || options->deterministic == PERF_ALL))
    die("--csv and --percentiles do not go with --overlap or a comparison:", name);
  if (options->deterministic == PERF_ALL && !traits->reduces)
    die("--deterministic all is for reductions, not", name);
  if (options->algo && !strchr(options->algo, ':')) {
    snprintf(text, sizeof(text), "%s:%s", traits->algo, options->algo);
    options->algo = text;
  }
}

/* Refuses options about memory that do not go together. */
static void check_memory(const perf_options *options) {
  if (options->blocking >= 0 && !options->cuda)
    die("--blocking needs --memory cuda, not", "host");
  if (options->blocking == 0 && options->overlap)
    die("--overlap measures nonblocking calls, which are in no stream: --blocking", "0");
  if (options->launches && (!options->cuda || options->blocking == 1 || options->overlap))
    die("--graph needs calls in a stream: --memory cuda, no --blocking 1, no --overlap, not", "-G");
  if (options->registered && options->cuda)
    die("--local_register is for --memory host, not", "cuda");
}

/* Sets the smallest and the largest size. */
static void settle_range(perf_options *options) {
  if (options->nsizes > 1)
    options->max_bytes = 0;
  for (int i = 0; options->nsizes > 1 && i < options->nsizes; i++) {
    if (options->sizes[i] < options->min_bytes)
      options->min_bytes = options->sizes[i];
    if (options->sizes[i] > options->max_bytes)
      options->max_bytes = options->sizes[i];
  }
  if (options->max_bytes < options->min_bytes)
    options->max_bytes = options->min_bytes;
}

/* A letter that is not in getopt_long()'s list only stands for a word. */
static const struct option longs[] = {{"minbytes", 1, NULL, 'b'},
                                      {"maxbytes", 1, NULL, 'e'},
                                      {"stepfactor", 1, NULL, 'f'},
                                      {"stepbytes", 1, NULL, 'i'},
                                      {"iters", 1, NULL, 'n'},
                                      {"warmup_iters", 1, NULL, 'w'},
                                      {"check", 1, NULL, 'c'},
                                      {"datatype", 1, NULL, 'd'},
                                      {"op", 1, NULL, 'o'},
                                      {"root", 1, NULL, 'r'},
                                      {"nthreads", 1, NULL, 't'},
                                      {"timeout", 1, NULL, 'T'},
                                      {"json", 1, NULL, 'J'},
                                      {"algo", 1, NULL, 'A'},
                                      {"deterministic", 1, NULL, 'D'},
                                      {"overlap", 1, NULL, 'O'},
                                      {"local_register", 1, NULL, 'R'},
                                      {"memory", 1, NULL, 'M'},
                                      {"blocking", 1, NULL, 'z'},
                                      {"graph", 1, NULL, 'G'},
                                      {"csv", 1, NULL, 'C'},
                                      {"percentiles", 0, NULL, 'P'},
                                      {"window", 1, NULL, 'W'},
                                      {"pattern", 1, NULL, 'Q'},
                                      {"help", 0, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

/* Reads the command line. */
void perf_options_read(perf_options *options, int argc, char **argv) {
  *options = (perf_options){.min_bytes = 4,
                            .max_bytes = 32 << 20,
                            .step_factor = 4,
                            .warmup = 5,
                            .check = true,
                            .blocking = -1,
                            .type = COLL_FLOAT32,
                            .op = COLL_SUM};
  int letter;
  while ((letter = getopt_long(argc, argv, "b:e:f:i:n:w:c:d:o:r:R:z:G:t:T:h", longs, NULL)) != -1)
    if (!read_size_option(options, letter, optarg) &&
        !read_report_option(options, letter, optarg) &&
        !read_memory_option(options, letter, optarg))
      read_option(options, letter, optarg);
  if (optind == argc) {
    fputs(perf_usage, stderr);
    exit(2);
  }
  while (optind < argc)
    add_collective(options, argv[optind++]);
  check_memory(options);
  settle_range(options);
}
