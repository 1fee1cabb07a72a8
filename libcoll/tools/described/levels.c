/* levels.c: --levels: what messages cost on a network with levels. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/described/described.h"

/* Round numbers for 8 GPUs or cores a host that each have a port of 200 Gbit/s, and 16 hosts at a
 * switch. */
#define ASSUMED "8:500:0.01,128:2000:0.04,all:4000:0.04"

/* A number above 0 that ends with `end`; moves *at behind that. */
static bool take_number(const char **at, char end, double *number) {
  char *rest;
  *number = strtod(*at, &rest);
  if (rest == *at || *rest != end || !(*number > 0 && *number <= 1e12))
    return false;
  *at = rest + (end != '\0');
  return true;
}

/* Reads "RANKS:ALPHA:BETA" and what ends it; false: it is something else. */
static bool take_level(const char **at, colli_level *level) {
  double ranks = COLLI_MODEL_RANKS;
  const bool last = strncmp(*at, "all:", 4) == 0;
  if (last)
    *at += 4;
  else if (!take_number(at, ':', &ranks) || ranks > COLLI_MODEL_RANKS || ranks != (int)ranks)
    return false;
  level->ranks = (int)ranks;
  return take_number(at, ':', &level->alpha_ns) &&
         take_number(at, last ? '\0' : ',', &level->beta_ns_per_byte);
}

bool described_levels(const char *text, colli_network *network) {
  *network = (colli_network){0};
  const char *at = strcmp(text, "assumed") == 0 ? ASSUMED : text;
  while (network->nlevels < COLLI_NETWORK_LEVELS) {
    const bool last = strncmp(at, "all:", 4) == 0;
    colli_level *level = &network->level[network->nlevels];
    if (!take_level(&at, level))
      return false;
    const int before = network->nlevels++ > 0 ? level[-1].ranks : 1;
    if (last)
      return network->nlevels > 1;
    if (level->ranks % before != 0 || level->ranks <= before)
      return false;
  }
  return false;
}

bool described_set_groups(const described_network *net, answer *a) {
  if (colli_network_levels(&net->network, net->nranks) == 0)
    return true;
  a->group = malloc(COLLI_NETWORK_LEVELS * (size_t)net->nranks * sizeof(*a->group));
  if (a->group)
    colli_network_shape(&net->network, a->group, &a->shape);
  return a->group;
}

void described_set_costs(const described_network *net, const colli_calibration *calibration,
                         answer *a) {
  const colli_level *far = &net->network.level[colli_network_levels(&net->network, net->nranks)];
  colli_model_device(&a->model, calibration, far->alpha_ns, far->beta_ns_per_byte);
  colli_network_model(&net->network, net->nranks, &a->model);
}
