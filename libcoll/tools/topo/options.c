/* options.c: coll_topo's command line. */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/topo/request.h"

static const char usage_text[] =
    "usage: coll_topo [--input MACHINE] [-n RANKS] [--json FILE | --xml FILE --svg FILE]\n"
    "       collrun -n N coll_topo [--json FILE | --xml FILE --svg FILE | --explain A,B]\n"
    "       collrun -n N coll_topo {--network FILE | --json FILE} [--messages COLLECTIVE:BYTES]\n"
    "       collrun -n N coll_topo --save FILE\n"
    "       coll_topo {--network FILE | --json FILE --messages COLLECTIVE:BYTES} -n RANKS\n"
    "                 [--hosts H ...]\n"
    "       coll_topo --explain A,B -n RANKS [--hosts H ...]\n"
    "       coll_topo --input FILE [{--json FILE | --network FILE} [--messages COLLECTIVE:BYTES] "
    "|\n"
    "                              --explain A,B]\n"
    "Shows this machine, and on which core each of RANKS ranks would run. Under collrun it also\n"
    "shows where the ranks are, and which transport each pair of them uses and why. If CUDA's\n"
    "driver is here: this machine's GPUs, their links, and how calls in streams run between them.\n"
    "  --input MACHINE  show another machine: an hwloc XML file, or \"numa:2 core:4 pu:1\"; or a\n"
    "                   cluster that --save has written\n"
    "  -n, --ranks RANKS  number of ranks to place (default: one for each core, or 8)\n"
    "  --json FILE      write what is shown as JSON, for programs\n"
    "  --xml FILE       write the machine as hwloc XML, for --input and COLL_TOPO_FILE\n"
    "  --svg FILE       write a picture of the machine, with the ranks if -n or collrun places "
    "them\n"
    "  --explain A,B    only say why these two ranks talk as they do, and how far they are apart;\n"
    "                   also with a space: A B\n"
    "  --network FILE   write a picture of the hosts, in their racks and sites, with the ranks "
    "and\n"
    "                   what they send each other\n"
    "  --messages COLLECTIVE:BYTES  in this collective (default: allreduce:1048576); with --json: "
    "also\n"
    "                   what the picture shows\n"
    "  --save FILE      under collrun: describe the whole cluster, for --input here and in "
    "coll_explain:\n"
    "                   each different machine, ranks, hosts, levels, and what messages cost\n"
    "A network that does not run, as coll_explain takes it, can be drawn or explained, "
    "too:\n" DESCRIBED_HELP
    "With --json, --xml or --svg nothing is printed. The FILE - is standard output.\n";

/* Reads "A,B", two numbers of ranks that differ, or "A" and the argument behind it. */
static void take_pair(int argc, char **argv, int pair[2]) {
  char text[64];
  const bool two = optind < argc && !strchr(optarg, ',') && isdigit((unsigned char)*argv[optind]);
  int end = 0;
  snprintf(text, sizeof(text), two ? "%s,%s" : "%s", optarg, two ? argv[optind++] : "");
  if (sscanf(text, "%6d,%6d%n", &pair[0], &pair[1], &end) != 2 || text[end] != '\0' ||
      pair[0] < 0 || pair[1] < 0 || pair[0] == pair[1])
    described_refuse("--explain takes two ranks, as 0,5 or 0 5, not '%s'", text);
}

/* Reads "COLLECTIVE:BYTES". */
static void take_messages(const char *text, request *asked) {
  char name[32], more;
  bool varying;
  if (sscanf(text, "%31[a-z_]:%zu%c", name, &asked->bytes, &more) != 2 ||
      !colli_coll_find(name, &asked->coll, &varying) || varying || asked->coll == COLLI_BARRIER ||
      asked->bytes > (size_t)1 << 40)
    described_refuse("--messages takes a collective and bytes, as allreduce:1048576, not '%s'",
                     text);
  asked->messages = true;
}

/* Reads one option. */
static void take_option(int letter, request *asked) {
  if (described_take(letter, optarg, &asked->net)) {
    asked->describes |= letter != 'n';
    return;
  }
  switch (letter) {
  case 'i':
    asked->source = optarg;
    break;
  case 'x':
    asked->xml = optarg;
    break;
  case 's':
    asked->svg = optarg;
    break;
  case 'j':
    asked->json = optarg;
    break;
  case 'w':
    asked->network = optarg;
    break;
  case 'a':
    asked->save = optarg;
    break;
  case 'm':
    take_messages(optarg, asked);
    break;
  case 'h':
    fputs(usage_text, stdout);
    exit(0);
  default:
    exit(2); /* getopt_long has printed why */
  }
}

/* Checks that the options go together. */
static void check_request(const request *asked) {
  const bool pair = asked->pair[0] >= 0, network = asked->network != NULL;
  const bool machine = asked->source != NULL && !asked->net.cluster;
  const bool other = asked->svg != NULL || asked->xml != NULL || machine;
  if ((pair && network) || ((pair || network) && other))
    described_refuse("--explain and --network stand alone");
  if (asked->json != NULL &&
      (pair || network || asked->save != NULL || asked->svg != NULL || asked->xml != NULL))
    described_refuse("--json stands alone, or with --input, -n and --messages");
  if (asked->save != NULL &&
      (asked->source != NULL || pair || network || other || asked->net.nranks > 0))
    described_refuse("--save stands alone");
  if (asked->net.cluster && (asked->svg != NULL || asked->xml != NULL))
    described_refuse("what --save has written is for --network and --explain, or to be shown");
  if (asked->messages && !network && (asked->json == NULL || machine))
    described_refuse("--messages is for --network, or --json of a cluster, network or run");
  if (asked->describes && !network && !pair && !asked->messages)
    described_refuse("--hosts and what else describes a network is for --network, --explain and "
                     "--messages");
}

bool topo_ask_writes(const request *asked) {
  return asked->json != NULL || asked->xml != NULL || asked->svg != NULL ||
         asked->network != NULL || asked->save != NULL;
}

request topo_ask(int argc, char **argv) {
  static const struct option names[] = {DESCRIBED_OPTIONS,
                                        {"input", required_argument, NULL, 'i'},
                                        {"xml", required_argument, NULL, 'x'},
                                        {"svg", required_argument, NULL, 's'},
                                        {"json", required_argument, NULL, 'j'},
                                        {"explain", required_argument, NULL, 'e'},
                                        {"network", required_argument, NULL, 'w'},
                                        {"messages", required_argument, NULL, 'm'},
                                        {"save", required_argument, NULL, 'a'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  request asked = {
      .pair = {-1, -1}, .coll = COLLI_ALLREDUCE, .bytes = 1 << 20, .net = described_default()};
  for (int letter; (letter = getopt_long(argc, argv, "n:h", names, NULL)) != -1;)
    if (letter == 'e')
      take_pair(argc, argv, asked.pair);
    else
      take_option(letter, &asked);
  if (optind < argc)
    described_refuse("unknown argument '%s'", argv[optind]);
  if (asked.source != NULL && cluster_is_file(asked.source))
    described_load(&asked.net, asked.source);
  check_request(&asked);
  const bool of_ranks = asked.network != NULL || asked.messages || asked.pair[0] >= 0;
  asked.describes |= asked.net.cluster || (of_ranks && asked.net.nranks > 0);
  if (asked.describes)
    described_settle(&asked.net);
  return asked;
}
