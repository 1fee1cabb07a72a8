/* main.c: gpu_probe: asks a GPU and its driver what libcoll relies on, and how fast they are. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

static const char usage[] =
    "usage: gpu_probe PART [options]; perf/gpu/run runs all parts and explains them\n"
    "  devices      the driver and its GPUs\n"
    "  ipc          a process writes and reads memory of another one\n"
    "  memops       streams wait for words that another process's stream writes: --which\n"
    "               host, write (in memory of the other process), wait (for a word there)\n"
    "  queues       how many streams may be blocked while another one still runs\n"
    "  switch       what it costs that two processes use a GPU\n"
    "  jit          how long the driver takes to load libcoll's kernels\n"
    "  limits       a copy, and an empty launch with an event; --which peers: copies between GPUs\n"
    "  nccl         NCCL's all-reduce, ranks as threads\n"
    "  --bytes N,...   sizes (default 8)           --ms N       per measurement (default 50)\n"
    "  --ranks N       number of ranks (default 2) --device N   (default 0)\n"
    "  --peer N        the other process's device  --library F  NCCL (default libnccl.so.2)\n";

static const struct {
  const char *name;
  void (*run)(const probe_options *options);
} parts[] = {{"devices", probe_devices}, {"ipc", probe_ipc},       {"memops", probe_memops},
             {"queues", probe_queues},   {"switch", probe_switch}, {"jit", probe_jit},
             {"limits", probe_limits},   {"nccl", probe_nccl}};

/* Ends the program because of bad usage. */
static void refuse(const char *what) {
  fprintf(stderr, "gpu_probe: bad usage: '%s'\n%s", what, usage);
  exit(2);
}

/* Reads a number that is at least `least`. */
static long long read_number(const char *text, long long least) {
  char *end;
  const long long value = strtoll(text, &end, 10);
  if (end == text || (*end && *end != ',') || value < least)
    refuse(text);
  return value;
}

/* Reads a list of sizes. */
static void read_sizes(probe_options *options, const char *text) {
  options->nbytes = 0;
  for (const char *next = text; next; next = strchr(next, ',')) {
    next += *next == ',';
    const long long bytes = read_number(next, 4);
    if (options->nbytes == PROBE_SIZES || bytes % 4)
      refuse(text);
    options->bytes[options->nbytes++] = (size_t)bytes;
  }
}

/* Reads the options behind the part's name. */
static void read_options(probe_options *options, int argc, char **argv) {
  static const struct option names[] = {
      {"bytes", required_argument, NULL, 'b'},   {"ranks", required_argument, NULL, 'r'},
      {"ms", required_argument, NULL, 'm'},      {"device", required_argument, NULL, 'd'},
      {"peer", required_argument, NULL, 'p'},    {"which", required_argument, NULL, 'w'},
      {"library", required_argument, NULL, 'l'}, {NULL, 0, NULL, 0}};
  int letter;
  while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
    switch (letter) {
    case 'b':
      read_sizes(options, optarg);
      break;
    case 'r':
      options->ranks = (int)read_number(optarg, 1);
      break;
    case 'm':
      options->ms = (int)read_number(optarg, 1);
      break;
    case 'd':
      options->device = (int)read_number(optarg, 0);
      break;
    case 'p':
      options->peer = (int)read_number(optarg, 0);
      break;
    case 'w':
      options->which = optarg;
      break;
    case 'l':
      options->library = optarg;
      break;
    default:
      exit(2);
    }
  }
  if (optind < argc)
    refuse(argv[optind]);
}

int main(int argc, char **argv) {
  probe_options options = {
      .bytes = {8}, .nbytes = 1, .ranks = 2, .ms = 50, .which = "host", .library = "libnccl.so.2"};
  if (argc > 1 && strcmp(argv[1], "--help") == 0) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc < 2)
    refuse("no part");
  read_options(&options, argc - 1, argv + 1);
  for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
    if (strcmp(argv[1], parts[i].name) == 0) {
      parts[i].run(&options);
      fflush(stdout);
      return 0;
    }
  }
  refuse(argv[1]);
  return 2;
}
