/*
 * described.h: networks that options describe, for coll_explain and coll_topo: how many ranks and
 * hosts there are, what lies between them, and what programs there would choose.
 */
#ifndef COLLI_TOOLS_DESCRIBED_DESCRIBED_H
#define COLLI_TOOLS_DESCRIBED_DESCRIBED_H

#include "libcoll/cost/network.h"
#include "libcoll/cost/weights.h"
#include "libcoll/tools/described/cluster.h"
#include "libcoll/tuning/calibration.h"
#include "libcoll/tuning/choose.h"

/* What the options say. */
typedef struct described_network {
  int nranks;
  int hosts;
  int ranks_per_host; /* 0: not given */
  const char *transport;
  colli_link_kind link;    /* what it costs */
  colli_network network;   /* without levels: none was given */
  const char *link_speeds; /* NULL: not given */
  int cores;               /* of a host */
  bool cores_given;
  bool is_described; /* some option was given */
  cluster *cluster;  /* or NULL: none was read; it says all of this */
} described_network;

/* What programs on such a network know when they choose. */
typedef struct answer {
  colli_shape shape;
  int32_t *group;         /* or NULL */
  colli_weights *weights; /* or NULL */
  colli_limits limits;
  colli_model model;
  colli_corrections *corrections; /* or NULL */
  colli_calibration_origin origin;
  colli_chooser chooser;
} answer;

/* Ends the program because of a bad argument. */
void described_refuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* A whole number in min .. max, or ends the program. */
int described_number(const char *text, const char *option, int min, int max);

/* ---- options.c ------------------------------------------------------------------------------- */

/* The letters of getopt_long() for its long options; 'n' is --ranks. */
enum {
  DESCRIBED_TRANSPORT = 512,
  DESCRIBED_HOSTS,
  DESCRIBED_RANKS_PER_HOST,
  DESCRIBED_LINK_SPEEDS,
  DESCRIBED_LEVELS,
  DESCRIBED_CORES
};

/* clang-format off */
#define DESCRIBED_OPTIONS                                                                          \
    {"ranks", required_argument, NULL, 'n'},                                                       \
    {"transport", required_argument, NULL, DESCRIBED_TRANSPORT},                                   \
    {"hosts", required_argument, NULL, DESCRIBED_HOSTS},                                           \
    {"ranks-per-host", required_argument, NULL, DESCRIBED_RANKS_PER_HOST},                         \
    {"link-speeds", required_argument, NULL, DESCRIBED_LINK_SPEEDS},                               \
    {"levels", required_argument, NULL, DESCRIBED_LEVELS},                                         \
    {"cores", required_argument, NULL, DESCRIBED_CORES}
/* clang-format on */

/* What --help says of them. */
#define DESCRIBED_HELP                                                                             \
  "      --transport T    shm (default), tcp, or a plug-in of COLL_TRANSPORT_PATH; between\n"      \
  "                       hosts shm means tcp\n"                                                   \
  "      --hosts H        the ranks are spread over H hosts, in order (default 1)\n"               \
  "      --ranks-per-host R  with --hosts, instead of --ranks\n"                                   \
  "      --link-speeds S  with --hosts: the speeds of the hosts' links, as 100mbit,1gbit; the "    \
  "last\n"                                                                                         \
  "                       one holds for the hosts that follow\n"                                   \
  "      --levels TEXT    a network whose devices move messages, with what a message costs "       \
  "within\n"                                                                                       \
  "                       groups of ranks, the nearest (hosts) first: RANKS:ALPHA:BETA (ns, ns "   \
  "a\n"                                                                                            \
  "                       byte), with commas; RANKS of the last is all. assumed: typical of "      \
  "hosts\n"                                                                                        \
  "                       of 8 ranks with a port of 200 Gbit/s each, 16 hosts at a switch:\n"      \
  "                       8:500:0.01,128:2000:0.04,all:4000:0.04\n"                                \
  "      --cores C        cores that the ranks of a host share (default: those of this machine;\n" \
  "                       0, or with --levels: as many as ranks)\n"

/* A network without options. */
described_network described_default(void);

/* Reads an option; false: it is none of these. Ends the program if it is bad. */
bool described_take(int option, const char *text, described_network *net);

/* Reads the network from a file (cluster.h); ends the program if it is bad. */
void described_load(described_network *net, const char *path);
void described_unload(described_network *net);

/* Finds how many ranks and hosts there are, and checks that the options fit each other; ends the
 * program if they do not. */
void described_settle(described_network *net);

/* The transport between ranks that are furthest apart. */
const char *described_far_transport(const described_network *net);

/* ---- inputs.c -------------------------------------------------------------------------------- */

/*
 * Sets what programs with these settings would have, for the collective in answer->shape, with the
 * algorithm that `algo` (NULL: the settings) asks for. Ends the program if it cannot.
 */
void described_set_up(const described_network *net, const char *algo, answer *a);
void described_free(answer *a);

/* ---- levels.c -------------------------------------------------------------------------------- */

/* Reads "RANKS:ALPHA:BETA,...,all:ALPHA:BETA", or "assumed"; false: it is something else. */
bool described_levels(const char *text, colli_network *network);

/* Groups the ranks of a shape by the levels of a network, as COLL_LEVELS would. False: out of
 * memory. */
bool described_set_groups(const described_network *net, answer *a);

/* Sets what programs with such levels know of their costs. */
void described_set_costs(const described_network *net, const colli_calibration *calibration,
                         answer *a);

/* ---- speeds.c -------------------------------------------------------------------------------- */

/* Sets what hosts' links cost, as --link-speeds says, and their shares. */
void described_set_speeds(const described_network *net, answer *a);

#endif
