/* question.c: coll_explain's command line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/base/names.h"
#include "libcoll/base/param.h"

#define USAGE_STATUS 2
#define COLLECTIVES                                                                                \
  "allreduce, reduce, reduce_scatter, broadcast, allgather, gather, scatter, alltoall, scan, "     \
  "exscan, barrier, and the v-forms of those with blocks"

static const char help[] =
    "Usage: coll_explain COLLECTIVE -n RANKS [-b BYTES | -b FROM-TO] [options]\n"
    "\n"
    "Shows which algorithm is chosen for a collective, why, and how long it should take.\n"
    "COLLECTIVE is " COLLECTIVES ".\n"
    "\n"
    "  -n, --ranks N        number of ranks\n"
    "  -b, --bytes SIZE     size of the vector; suffixes K, M, G (with blocks: of one block; "
    "v-forms:\n"
    "                       of a typical one; not for the barrier). FROM-TO: which algorithm each\n"
    "                       size in this range gets\n"
    "      --type TYPE      int8 ... uint64, float8_e4m3, ..., float32 (default), float64,\n"
    "                       int32_loc ... float32_loc64\n"
    "      --root R         root of a rooted collective (default 0)\n"
    "      --deterministic  off (default), on or ordered: as COLL_DETERMINISTIC, for sums of "
    "floats\n"
    "      --in-place       an all-to-all in place\n"
    "      --rank R         also print what rank R does, step by step\n"
    "      --algo TEXT      force an algorithm: a name, or text as in COLL_ALGO\n" DESCRIBED_HELP
    "      --input FILE     instead of these: the cluster that coll_topo --save has described "
    "there\n"
    "      --table          a range of sizes as a table: what each eightfold size takes with each\n"
    "                       candidate; * chosen\n"
    "      --gpu N          calls in streams of N GPUs a host instead, with rank r on GPU r modulo "
    "N;\n"
    "                       --levels above hosts are between those, and --table has the times of "
    "a\n"
    "                       range of sizes\n"
    "      --threads        there the ranks are threads of one process\n"
    "      --no-peers       there the GPUs have no peer access to each other\n"
    "      --rdma           there InfiniBand or RoCE devices read and write the GPUs' memory\n"
    "      --captured       there the call is captured in a graph\n"
    "      --registered B   there buffers are registered on all ranks (coll_comm_register()): "
    "input,\n"
    "                       result or both; a call in place: both\n"
    "      --assume TEXT    what it costs there; nothing was measured on a GPU, so these are\n"
    "                       assumptions: launch=3,host=15,meet=3 (us), "
    "link=20,memory=500,copy=20,\n"
    "                       network=25 (GB/s)\n"
    "      --list           only list the algorithms of the collective\n"
    "  -h, --help           this text\n"
    "\n"
    "COLL_SLOT_BYTES, COLL_SLOT_COUNT, COLL_ALGO, COLL_TUNER, COLL_CALIBRATION, COLL_GPU_MODE and\n"
    "COLL_GPU_SLOT_BYTES work as in programs. Times come from this machine's calibration\n"
    "(coll_calibrate), or else from typical constants of each transport: compare them with each\n"
    "other, and measure with coll_perf.\n";

/* A size with an optional suffix, up to the end or a '-'. */
static size_t parse_bytes(const char *text, const char **end_of_size) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  const char *suffixes = "KMG", *suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
  int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
  end += suffix != NULL;
  bool digits = text[0] >= '0' && text[0] <= '9';
  if (!digits || errno || (*end && *end != '-') || value > (1ull << 46) >> shift)
    described_refuse("--bytes takes a size such as 4096, 64K or 1M, or a range, not '%s'", text);
  *end_of_size = end;
  return (size_t)(value << shift);
}

/* A size, or a range of sizes. */
static void parse_sizes(const char *text, question *q) {
  const char *end;
  q->bytes = parse_bytes(text, &end);
  if (!*end)
    return;
  q->last_bytes = parse_bytes(end + 1, &end);
  if (*end || q->last_bytes <= q->bytes)
    described_refuse("--bytes takes a range such as 4-16M, not '%s'", text);
}

/* Looks a type up. */
static void parse_type(const char *text, question *q) {
  for (int i = 0; i < COLL_TYPE_COUNT; i++) {
    if (strcmp(text, colli_type_name(i)) != 0)
      continue;
    q->type_name = colli_type_name(i);
    q->type = (coll_type)i;
    q->type_bytes = coll_type_bytes(q->type);
    return;
  }
  described_refuse("unknown type '%s'", text);
}

/* A level of determinism. */
static coll_determinism parse_level(const char *text) {
  for (int i = COLL_DETERMINISTIC_OFF; i <= COLL_DETERMINISTIC_ORDERED; i++)
    if (strcmp(text, colli_param_word(COLLI_PARAM_DETERMINISTIC, i)) == 0)
      return (coll_determinism)i;
  described_refuse("--deterministic takes off, on or ordered, not '%s'", text);
}

enum {
  OPT_TYPE = 256,
  OPT_ROOT,
  OPT_RANK,
  OPT_ALGO,
  OPT_TABLE,
  OPT_DETERMINISTIC,
  OPT_IN_PLACE,
  OPT_GPU,
  OPT_THREADS,
  OPT_NO_PEERS,
  OPT_RDMA,
  OPT_CAPTURED,
  OPT_REGISTERED,
  OPT_ASSUME,
  OPT_INPUT,
  OPT_LIST
};

/* Which buffers are registered. */
static unsigned parse_registered(const char *text) {
  static const char *const names[] = {"input", "result", "both"};
  for (unsigned i = 0; i < 3; i++)
    if (strcmp(text, names[i]) == 0)
      return i + EXPLAIN_INPUT;
  described_refuse("--registered takes input, result or both, not '%s'", text);
}

/* Reads an option about GPUs; false: it is none. */
static bool take_gpu_option(int option, question *q) {
  switch (option) {
  case OPT_GPU:
    q->gpus = described_number(optarg, "--gpu", 1, COLLI_MAX_RANKS);
    return true;
  case OPT_THREADS:
    q->threads = true;
    return true;
  case OPT_NO_PEERS:
    q->apart = true;
    return true;
  case OPT_RDMA:
    q->rdma = true;
    return true;
  case OPT_CAPTURED:
    q->captured = true;
    return true;
  case OPT_REGISTERED:
    q->registered = parse_registered(optarg);
    return true;
  case OPT_ASSUME:
    if (!explain_assume(optarg, &q->costs))
      described_refuse(
          "--assume takes launch, host, meet, link, memory, copy and network, each =NUMBER above "
          "0, with commas, not '%s'",
          optarg);
    q->assumes = true;
    return true;
  default:
    return false;
  }
}

/* Reads one option. */
static void take_option(int option, question *q, bool *has_bytes) {
  if (take_gpu_option(option, q) || described_take(option, optarg, &q->net))
    return;
  switch (option) {
  case 'b':
    parse_sizes(optarg, q);
    *has_bytes = true;
    break;
  case OPT_TYPE:
    parse_type(optarg, q);
    break;
  case OPT_ROOT:
    q->root = described_number(optarg, "--root", 0, COLLI_MODEL_RANKS - 1);
    break;
  case OPT_RANK:
    q->rank = described_number(optarg, "--rank", 0, COLLI_MODEL_RANKS - 1);
    break;
  case OPT_ALGO:
    q->algo = optarg;
    break;
  case OPT_TABLE:
    q->table = true;
    break;
  case OPT_INPUT:
    described_load(&q->net, optarg);
    break;
  case OPT_DETERMINISTIC:
    q->deterministic = parse_level(optarg);
    break;
  case OPT_IN_PLACE:
    q->in_place = true;
    break;
  case OPT_LIST:
    q->list = true;
    break;
  case 'h':
    fputs(help, stdout);
    exit(0);
  default:
    exit(USAGE_STATUS); /* getopt_long has printed why */
  }
}

/* Whether a type is rounded when it is summed. */
static bool rounds(coll_type type) {
  return type >= COLL_FLOAT16 && type <= COLL_FLOAT8_E5M2;
}

/* Checks that the options fit each other. */
static void check_question(const question *q, bool has_bytes) {
  if (!has_bytes && q->coll != COLLI_BARRIER)
    described_refuse("--bytes is missing");
  if (has_bytes && q->coll == COLLI_BARRIER)
    described_refuse("a barrier has no --bytes");
  if (q->bytes % q->type_bytes && !q->last_bytes)
    described_refuse("%zu bytes are not a whole number of %s (%zu bytes each)", q->bytes,
                     q->type_name, q->type_bytes);
  if (q->root >= q->net.nranks)
    described_refuse("--root %d is not a rank: there are %d", q->root, q->net.nranks);
  if (q->root && !colli_rooted(q->coll))
    described_refuse("%s has no --root", q->name);
  if (q->rank >= q->net.nranks)
    described_refuse("--rank %d is not a rank: there are %d", q->rank, q->net.nranks);
  if (q->rank >= 0 && q->last_bytes)
    described_refuse("--rank takes one size, not a range");
  if (q->table && !q->last_bytes)
    described_refuse("--table takes a range of --bytes such as 4K-1G");
  if (q->deterministic > COLL_DETERMINISTIC_OFF && (!colli_reduces(q->coll) || !rounds(q->type)))
    described_refuse(
        "--deterministic is for reductions of floats; all other collectives are deterministic");
  if (q->in_place && q->coll != COLLI_ALLTOALL)
    described_refuse("--in-place makes a difference for alltoall only");
}

/* Checks the options about GPUs. */
static void check_gpus(const question *q) {
  const bool other =
      q->threads || q->apart || q->rdma || q->captured || q->registered || q->assumes;
  if (!q->gpus && other)
    described_refuse(
        "--threads, --no-peers, --rdma, --captured, --registered and --assume need --gpu");
  if (q->gpus && ((q->last_bytes && !q->table) || q->rank >= 0))
    described_refuse("--gpu takes one size, or a range with --table, and no --rank");
  if (q->net.cluster && q->gpus)
    described_refuse("--input is not for --gpu");
  if (q->net.network.nlevels && q->gpus > 0 && q->net.nranks % q->net.network.level[0].ranks != 0)
    described_refuse(
        "--gpu with --levels needs full hosts: -n a multiple of the first level's ranks");
  if (q->net.network.nlevels && q->rdma)
    described_refuse("--rdma has no --levels: --assume network= says what messages of GPUs cost");
  if (q->threads && q->net.hosts > 1)
    described_refuse("--threads are on one host");
}

static const struct option longs[] = {
    DESCRIBED_OPTIONS,
    {"bytes", required_argument, NULL, 'b'},
    {"type", required_argument, NULL, OPT_TYPE},
    {"root", required_argument, NULL, OPT_ROOT},
    {"rank", required_argument, NULL, OPT_RANK},
    {"algo", required_argument, NULL, OPT_ALGO},
    {"table", no_argument, NULL, OPT_TABLE},
    {"input", required_argument, NULL, OPT_INPUT},
    {"deterministic", required_argument, NULL, OPT_DETERMINISTIC},
    {"in-place", no_argument, NULL, OPT_IN_PLACE},
    {"gpu", required_argument, NULL, OPT_GPU},
    {"threads", no_argument, NULL, OPT_THREADS},
    {"no-peers", no_argument, NULL, OPT_NO_PEERS},
    {"rdma", no_argument, NULL, OPT_RDMA},
    {"captured", no_argument, NULL, OPT_CAPTURED},
    {"registered", required_argument, NULL, OPT_REGISTERED},
    {"assume", required_argument, NULL, OPT_ASSUME},
    {"list", no_argument, NULL, OPT_LIST},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Reads the command line. */
question explain_ask(int argc, char **argv) {
  question q = {.rank = -1, .net = described_default(), .costs = explain_costs};
  bool has_bytes = false;
  parse_type("float32", &q);
  int option;
  while ((option = getopt_long(argc, argv, "n:b:h", longs, NULL)) != -1)
    take_option(option, &q, &has_bytes);
  if (optind >= argc)
    described_refuse("no collective given; there are %s", COLLECTIVES);
  if (optind + 1 < argc)
    described_refuse("one collective at a time, not also '%s'", argv[optind + 1]);
  q.name = argv[optind];
  if (!colli_coll_find(q.name, &q.coll, &q.varying))
    described_refuse("unknown collective '%s'; there are %s", q.name, COLLECTIVES);
  if (q.list)
    return q;
  described_settle(&q.net);
  check_question(&q, has_bytes);
  check_gpus(&q);
  return q;
}
