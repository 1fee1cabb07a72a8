/* network.c: tells shapes and models of a network's levels. */
#include "libcoll/cost/network.h"

int colli_network_levels(const colli_network *network, int nranks) {
  int levels = 0;
  while (levels + 1 < network->nlevels && network->level[levels].ranks < nranks)
    levels++;
  return levels;
}

void colli_network_shape(const colli_network *network, int32_t *memory, colli_shape *shape) {
  const int n = shape->nranks, levels = colli_network_levels(network, n);
  for (int level = 0; level < levels; level++, memory += n) {
    const int size = network->level[level].ranks;
    for (int rank = 0; rank < n; rank++)
      memory[rank] = rank / size;
    if (level + 1 < levels)
      shape->inner[shape->ninner++] = memory;
    else
      shape->group = memory;
    shape->ngroups = (n + size - 1) / size;
  }
}

/* What a message costs at a level. */
static colli_pair_cost cost_at(const colli_network *network, int level) {
  return (colli_pair_cost){network->level[level].alpha_ns, network->level[level].beta_ns_per_byte};
}

void colli_network_model(const colli_network *network, int nranks, colli_model *model) {
  const int levels = colli_network_levels(network, nranks);
  const colli_pair_cost far = cost_at(network, levels),
                        near = cost_at(network, levels > 0 ? levels - 1 : 0);
  model->alpha_ns = far.alpha_ns;
  model->beta_ns_per_byte = far.beta_ns_per_byte;
  model->near_alpha_ns = near.alpha_ns;
  model->near_beta_ns_per_byte = near.beta_ns_per_byte;
  model->host_step_ns = 0;
  model->sites = levels > 0 && colli_model_is_far(far.alpha_ns);
  for (int level = 0; level + 1 < levels; level++)
    model->inner[level] = cost_at(network, level);
}
