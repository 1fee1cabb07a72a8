/* coll_explain.c: tells which algorithm a collective gets, why, how long it should take, and what
 * each rank does. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/algo/algo.h"
#include "libcoll/base/param.h"

#define MAX_CANDIDATES 16
#define MAX_EVENTS     50e6 /* beyond this the event model would take more than some seconds */
#define USAGE_STATUS   2

/* What the user asked. */
typedef struct question {
  colli_coll coll;
  int nranks;
  size_t bytes;
  const char *type_name;
  size_t type_bytes;
  int root;
  int rank; /* -1: no schedule wanted */
  const char *algo;
  const char *transport;
  int cores;
} question;

static const struct {
  const char *name;
  coll_type type;
} types[COLL_TYPE_COUNT] = {
    {"int8", COLL_INT8},         {"uint8", COLL_UINT8},     {"int16", COLL_INT16},
    {"uint16", COLL_UINT16},     {"int32", COLL_INT32},     {"uint32", COLL_UINT32},
    {"int64", COLL_INT64},       {"uint64", COLL_UINT64},   {"float16", COLL_FLOAT16},
    {"bfloat16", COLL_BFLOAT16}, {"float32", COLL_FLOAT32}, {"float64", COLL_FLOAT64},
};

static const char help[] =
    "Usage: coll_explain COLLECTIVE -n RANKS [-b BYTES] [options]\n"
    "\n"
    "Tells which algorithm a collective gets, why, and how long it should take.\n"
    "COLLECTIVE is allreduce, broadcast, allgather or barrier.\n"
    "\n"
    "  -n, --ranks N        number of ranks\n"
    "  -b, --bytes SIZE     size of the vector; suffixes K, M, G (all-gather: of what each rank\n"
    "                       gives; not for the barrier)\n"
    "      --type TYPE      int8 ... uint64, float16, bfloat16, float32 (default), float64\n"
    "      --root R         root of the broadcast (default 0)\n"
    "      --rank R         also print what rank R does, step by step\n"
    "      --algo NAME      take this algorithm instead of the best\n"
    "      --transport T    shm (default) or tcp\n"
    "      --cores C        cores that the ranks share (default: those of this machine; 0: as "
    "many\n"
    "                       as ranks)\n"
    "  -h, --help           this text\n"
    "\n"
    "COLL_SLOT_BYTES and COLL_SLOT_COUNT count as they do for programs. Times come from typical\n"
    "constants of each transport: compare them with each other, and measure with coll_perf.\n";

/* Ends the program over a bad argument. */
static void __attribute__((noreturn, format(printf, 1, 2))) refuse(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("coll_explain: ", stderr);
  vfprintf(stderr, format, args);
  fputs(" (see coll_explain --help)\n", stderr);
  va_end(args);
  exit(USAGE_STATUS);
}

/* A whole number in min .. max. */
static int parse_int(const char *text, const char *option, int min, int max) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < min || value > max)
    refuse("%s takes a number from %d to %d, not '%s'", option, min, max, text);
  return (int)value;
}

/* A size with an optional suffix. */
static size_t parse_bytes(const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  const char *suffixes = "KMG", *suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
  int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
  bool digits = text[0] >= '0' && text[0] <= '9';
  if (!digits || errno || (*end && (!suffix || end[1])) || value > (1ull << 46) >> shift)
    refuse("--bytes takes a size such as 4096, 64K or 1M, not '%s'", text);
  return (size_t)(value << shift);
}

/* Looks a type up. */
static void parse_type(const char *text, question *q) {
  for (int i = 0; i < COLL_TYPE_COUNT; i++) {
    if (strcmp(text, types[i].name) != 0)
      continue;
    q->type_name = types[i].name;
    q->type_bytes = coll_type_bytes(types[i].type);
    return;
  }
  refuse("unknown type '%s'", text);
}

enum { OPT_TYPE = 256, OPT_ROOT, OPT_RANK, OPT_ALGO, OPT_TRANSPORT, OPT_CORES };

/* Reads one option. */
static void take_option(int option, question *q, bool *has_bytes) {
  switch (option) {
  case 'n':
    q->nranks = parse_int(optarg, "--ranks", 1, COLLI_MAX_RANKS);
    break;
  case 'b':
    q->bytes = parse_bytes(optarg);
    *has_bytes = true;
    break;
  case OPT_TYPE:
    parse_type(optarg, q);
    break;
  case OPT_ROOT:
    q->root = parse_int(optarg, "--root", 0, COLLI_MAX_RANKS - 1);
    break;
  case OPT_RANK:
    q->rank = parse_int(optarg, "--rank", 0, COLLI_MAX_RANKS - 1);
    break;
  case OPT_ALGO:
    q->algo = optarg;
    break;
  case OPT_TRANSPORT:
    q->transport = optarg;
    break;
  case OPT_CORES:
    q->cores = parse_int(optarg, "--cores", 0, COLLI_MAX_RANKS);
    break;
  case 'h':
    fputs(help, stdout);
    exit(0);
  default:
    exit(USAGE_STATUS); /* getopt_long has said why */
  }
}

/* Checks what only makes sense together. */
static void check_question(question *q, bool has_bytes) {
  if (q->nranks == 0)
    refuse("--ranks is missing");
  if (!has_bytes && q->coll != COLLI_BARRIER)
    refuse("--bytes is missing");
  if (has_bytes && q->coll == COLLI_BARRIER)
    refuse("a barrier has no --bytes");
  if (q->bytes % q->type_bytes)
    refuse("%zu bytes are no whole number of %s (%zu bytes each)", q->bytes, q->type_name,
           q->type_bytes);
  if (q->root >= q->nranks)
    refuse("--root %d is not a rank: there are %d", q->root, q->nranks);
  if (q->root && q->coll != COLLI_BROADCAST)
    refuse("only a broadcast has a --root");
  if (q->rank >= q->nranks)
    refuse("--rank %d is not a rank: there are %d", q->rank, q->nranks);
  if (strcmp(q->transport, "shm") != 0 && strcmp(q->transport, "tcp") != 0)
    refuse("--transport is shm or tcp, not '%s'", q->transport);
  if (!q->algo[0] || colli_algo_find(q->coll, q->algo))
    return;
  char names[256] = "";
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    if ((*algo)->coll == q->coll)
      snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] ? ", " : "",
               (*algo)->name);
  refuse("%s has no algorithm '%s'; it has %s", colli_coll_name(q->coll), q->algo, names);
}

/* Reads the command line. */
static question ask(int argc, char **argv) {
  static const struct option longs[] = {
      {"ranks", required_argument, NULL, 'n'},
      {"bytes", required_argument, NULL, 'b'},
      {"type", required_argument, NULL, OPT_TYPE},
      {"root", required_argument, NULL, OPT_ROOT},
      {"rank", required_argument, NULL, OPT_RANK},
      {"algo", required_argument, NULL, OPT_ALGO},
      {"transport", required_argument, NULL, OPT_TRANSPORT},
      {"cores", required_argument, NULL, OPT_CORES},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  question q = {.rank = -1, .algo = "", .transport = "shm", .cores = cores > 0 ? (int)cores : 1};
  bool has_bytes = false;
  parse_type("float32", &q);
  int option;
  while ((option = getopt_long(argc, argv, "n:b:h", longs, NULL)) != -1)
    take_option(option, &q, &has_bytes);
  if (optind >= argc)
    refuse("which collective? allreduce, broadcast, allgather or barrier");
  if (optind + 1 < argc)
    refuse("one collective at a time, not also '%s'", argv[optind + 1]);
  int coll = colli_coll_parse(argv[optind]);
  if (coll < 0 || coll == COLLI_SENDRECV)
    refuse("unknown collective '%s'; there are allreduce, broadcast, allgather, barrier",
           argv[optind]);
  q.coll = (colli_coll)coll;
  check_question(&q, has_bytes);
  return q;
}

/* Writes a time as "12.3 us". */
static void time_text(char text[32], double ns) {
  if (ns < 1e3)
    snprintf(text, 32, "%.0f ns", ns);
  else if (ns < 1e6)
    snprintf(text, 32, "%.2f us", ns / 1e3);
  else
    snprintf(text, 32, "%.2f ms", ns / 1e6);
}

/* The schedules of all ranks; NULL without memory. */
static colli_sched **make_all(const colli_algo *algo, const question *q) {
  colli_sched **scheds = calloc((size_t)q->nranks, sizeof(*scheds));
  for (int rank = 0; scheds && rank < q->nranks; rank++) {
    colli_shape shape = {.coll = q->coll, .nranks = q->nranks, .rank = rank, .root = q->root};
    if (algo->emit(&shape, &scheds[rank]) == COLL_OK)
      continue;
    while (rank-- > 0)
      colli_sched_free(scheds[rank]);
    free(scheds);
    scheds = NULL;
  }
  return scheds;
}

/* The event model's time for a candidate as text; "-" where it would take too long. */
static void event_text(char text[32], const colli_choice *choice, const question *q,
                       const colli_limits *limits, const colli_model *model) {
  const colli_partition *part = &choice->partition;
  double slices = part->slice ? (double)part->piece / (double)part->slice + 1 : 1;
  colli_shape shape = {.coll = q->coll, .nranks = q->nranks, .rank = 0, .root = q->root};
  colli_sched *first = NULL;
  strcpy(text, "-");
  if (choice->algo->emit(&shape, &first) != COLL_OK)
    return;
  double events = (double)first->nsteps * q->nranks * part->passes * slices;
  colli_sched_free(first);
  colli_sched **scheds = events < MAX_EVENTS ? make_all(choice->algo, q) : NULL;
  if (!scheds)
    return;
  double ns = colli_predict((const colli_sched *const *)scheds, q->nranks, part, q->type_bytes,
                            limits->slot_count, model);
  if (ns >= 0)
    time_text(text, ns);
  for (int rank = 0; rank < q->nranks; rank++)
    colli_sched_free(scheds[rank]);
  free(scheds);
}

/* Prints the question and the model. */
static void print_question(const question *q, const colli_limits *limits,
                           const colli_model *model) {
  printf("%s", colli_coll_name(q->coll));
  if (q->coll != COLLI_BARRIER)
    printf(" of %zu bytes (%zu %s)%s", q->bytes, q->bytes / q->type_bytes, q->type_name,
           q->coll == COLLI_ALLGATHER ? " from each" : "");
  if (q->coll == COLLI_BROADCAST)
    printf(" from rank %d", q->root);
  printf(", %d ranks over %s", q->nranks, q->transport);
  if (model->core_share < 1)
    printf(" on %d cores", q->cores);
  printf("\nmodel: alpha %.0f ns a message, beta %.3g ns a byte, gamma %.3g ns a byte reduced, "
         "%.0f ns "
         "a step; %u slots of %zu bytes\n\n",
         model->alpha_ns, model->beta_ns_per_byte, model->gamma_ns_per_byte, model->step_ns,
         limits->slot_count, limits->slot_bytes);
}

/* Prints the candidates, best first. */
static void print_candidates(const colli_choice *list, int count, const colli_choice *chosen,
                             const question *q, const colli_limits *limits,
                             const colli_model *model) {
  printf("  %-14s %12s %12s %12s %10s %8s\n", "algorithm", "formula", "events", "chunk", "slice",
         "passes");
  for (int i = 0; i < count; i++) {
    const colli_partition *part = &list[i].partition;
    char formula[32], events[32];
    time_text(formula, list[i].predicted_ns);
    event_text(events, &list[i], q, limits, model);
    size_t slice = part->slice < part->piece ? part->slice : part->piece;
    printf("%c %-14s %12s %12s %10zu B %8zu B %8d\n", list[i].algo == chosen->algo ? '*' : ' ',
           list[i].algo->name, formula, events, part->piece * q->type_bytes, slice * q->type_bytes,
           part->passes);
  }
}

/* Prints the choice and its reason. */
static void print_reason(const colli_choice *list, int count, const colli_choice *chosen,
                         const question *q) {
  printf("\nchosen: %s, best for %s\n", chosen->algo->name, chosen->algo->when);
  printf("source: %s\n", chosen->algo->source);
  if (q->algo[0] && list[0].algo != chosen->algo)
    printf("why: --algo asks for it; %s would take %.2f of its time\n", list[0].algo->name,
           list[0].predicted_ns / chosen->predicted_ns);
  else if (count > 1 && list[0].predicted_ns > 0)
    printf("why: lowest cost by formula; the next, %s, takes %.2f times as long\n",
           list[1].algo->name, list[1].predicted_ns / list[0].predicted_ns);
  else
    printf("why: nothing else comes into question for %d ranks\n", q->nranks);
}

/* Prints what one rank does. */
static int print_rank(const colli_choice *chosen, const question *q) {
  colli_shape shape = {.coll = q->coll, .nranks = q->nranks, .rank = q->rank, .root = q->root};
  colli_sched *sched = NULL;
  if (chosen->algo->emit(&shape, &sched) != COLL_OK) {
    fprintf(stderr, "coll_explain: no memory for the schedule\n");
    return 1;
  }
  putchar('\n');
  colli_sched_dump(sched, stdout);
  colli_sched_free(sched);
  return 0;
}

int main(int argc, char **argv) {
  question q = ask(argc, argv);
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK)
    refuse("%s", error.message);
  colli_limits limits = {.slot_count = (unsigned)params.number[COLLI_PARAM_SLOT_COUNT]};
  colli_limits_default(q.transport, &limits);
  if (params.from_env[COLLI_PARAM_SLOT_BYTES])
    limits.slot_bytes = (size_t)params.number[COLLI_PARAM_SLOT_BYTES];
  colli_model model;
  colli_model_default(q.transport, q.nranks, q.cores, &model);
  colli_shape shape = {
      .coll = q.coll, .nranks = q.nranks, .rank = q.rank < 0 ? 0 : q.rank, .root = q.root};
  size_t count = q.bytes / q.type_bytes;
  colli_choice chosen, best, list[MAX_CANDIDATES];
  int listed =
      colli_select(&shape, count, q.type_bytes, &limits, &model, "", &best, list, MAX_CANDIDATES);
  colli_select(&shape, count, q.type_bytes, &limits, &model, q.algo, &chosen, NULL, 0);
  bool listed_too = false;
  for (int i = 0; i < listed; i++)
    listed_too |= list[i].algo == chosen.algo;
  if (!listed_too && listed < MAX_CANDIDATES)
    list[listed++] = chosen; /* asked for by name only */
  print_question(&q, &limits, &model);
  print_candidates(list, listed, &chosen, &q, &limits, &model);
  print_reason(list, listed, &chosen, &q);
  return q.rank < 0 ? 0 : print_rank(&chosen, &q);
}
