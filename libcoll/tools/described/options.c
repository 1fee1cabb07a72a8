/* options.c: the options that describe a network. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/param.h"
#include "libcoll/cost/links.h"
#include "libcoll/tools/described/described.h"
#include "transports/registry.h"

/* Ends the program because of a bad argument. */
void described_refuse(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s: ", program_invocation_short_name);
  vfprintf(stderr, format, args);
  fprintf(stderr, " (see %s --help)\n", program_invocation_short_name);
  va_end(args);
  exit(2);
}

/* A whole number in min .. max. */
int described_number(const char *text, const char *option, int min, int max) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < min || value > max)
    described_refuse("%s takes a number from %d to %d, not '%s'", option, min, max, text);
  return (int)value;
}

described_network described_default(void) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return (described_network){.transport = "shm", .hosts = 1, .cores = cores > 0 ? (int)cores : 1};
}

/* Reads an option; false: it is none of these. */
static bool take(int option, const char *text, described_network *net) {
  switch (option) {
  case 'n':
    net->nranks = described_number(text, "--ranks", 1, COLLI_MODEL_RANKS);
    return true;
  case DESCRIBED_TRANSPORT:
    net->transport = text;
    return true;
  case DESCRIBED_CORES:
    net->cores = described_number(text, "--cores", 0, COLLI_MAX_RANKS);
    net->cores_given = true;
    return true;
  case DESCRIBED_HOSTS:
    net->hosts = described_number(text, "--hosts", 1, COLLI_MODEL_RANKS);
    return true;
  case DESCRIBED_RANKS_PER_HOST:
    net->ranks_per_host = described_number(text, "--ranks-per-host", 1, COLLI_MODEL_RANKS);
    return true;
  case DESCRIBED_LINK_SPEEDS:
    net->link_speeds = text;
    return true;
  case DESCRIBED_LEVELS:
    if (!described_levels(text, &net->network))
      described_refuse(
          "--levels takes 'assumed', or 2 to %d of RANKS:ALPHA:BETA with commas, the "
          "nearest first, each RANKS a multiple of the one before, the last 'all', not "
          "'%s'",
          COLLI_NETWORK_LEVELS, text);
    return true;
  default:
    return false;
  }
}

bool described_take(int option, const char *text, described_network *net) {
  const bool taken = take(option, text, net);
  net->is_described |= taken;
  return taken;
}

/* The transport that COLL_TRANSPORT_PATH adds with that name, or NULL. */
static const coll_transport_ops *find_plugin(const char *name) {
  colli_params params;
  colli_transport_list list;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = colli_params_load(&params, &error);
  if (status == COLL_OK)
    status = colli_transports_list(params.text[COLLI_PARAM_TRANSPORT_PATH], "", &list, &error);
  if (status != COLL_OK)
    described_refuse("%s", error.message);
  int i = COLLI_TRANSPORTS_BUILT_IN;
  while (list.ops[i] && strcmp(list.ops[i]->name, name) != 0)
    i++;
  return list.ops[i];
}

/* The kind of link of a transport; refuses unknown transports. */
static colli_link_kind link_of(const char *transport) {
  int link = colli_link_parse(transport);
  if (link >= 0)
    return (colli_link_kind)link;
  const coll_transport_ops *plugin = find_plugin(transport);
  if (!plugin)
    described_refuse("--transport is shm or tcp, or one that COLL_TRANSPORT_PATH adds, not '%s'",
                     transport);
  return colli_link_kind_of(plugin->caps);
}

const char *described_far_transport(const described_network *net) {
  return net->hosts > 1 && net->link == COLLI_LINK_SHM ? "tcp" : net->transport;
}

/* Finds how many ranks and hosts there are. */
static void settle_ranks(described_network *net) {
  const int near = net->network.nlevels ? net->network.level[0].ranks : 0;
  if (net->ranks_per_host && (net->nranks || net->hosts > COLLI_MODEL_RANKS / net->ranks_per_host))
    described_refuse("--ranks-per-host is for at most %d ranks, and stands instead of --ranks",
                     COLLI_MODEL_RANKS);
  if (net->ranks_per_host)
    net->nranks = net->hosts * net->ranks_per_host;
  if (near && net->hosts == 1)
    net->hosts = (net->nranks + near - 1) / near;
  if (near && net->hosts != (net->nranks + near - 1) / near)
    described_refuse("--levels has %d ranks a host, which is not %d ranks on %d hosts", near,
                     net->nranks, net->hosts);
  if (near && !net->cores_given)
    net->cores = 0;
}

void described_load(described_network *net, const char *path) {
  coll_error error = COLL_ERROR_INIT;
  if (net->cluster)
    described_refuse("--input is given twice");
  net->cluster = malloc(sizeof(*net->cluster));
  if (!net->cluster)
    described_refuse("out of memory");
  if (cluster_read(path, net->cluster, &error) != COLL_OK)
    described_refuse("%s", error.message);
}

void described_unload(described_network *net) {
  if (net->cluster)
    cluster_free(net->cluster);
  free(net->cluster);
  net->cluster = NULL;
}

/* Takes the numbers of a cluster. */
static void settle_cluster(described_network *net) {
  if (net->is_described)
    described_refuse("--input says what the network is: no --ranks, --hosts or other");
  net->nranks = net->cluster->nranks;
  net->hosts = net->cluster->nhosts;
  net->cores = 0;
}

void described_settle(described_network *net) {
  if (net->cluster) {
    settle_cluster(net);
    return;
  }
  settle_ranks(net);
  if (net->nranks == 0)
    described_refuse("--ranks is missing");
  if (net->link_speeds && (net->hosts == 1 || net->network.nlevels))
    described_refuse("--link-speeds needs --hosts, and no --levels");
  if (net->hosts > net->nranks)
    described_refuse("--hosts %d: there are only %d ranks", net->hosts, net->nranks);
  net->link = link_of(net->transport);
}
