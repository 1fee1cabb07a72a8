/* distance.c: averages of a network's levels over the links that an algorithm uses. */
#include "libcoll/algo/distance.h"

#include "libcoll/base/assert.h"

/* A sum over links. */
typedef struct tally {
  double alpha_ns, beta_ns_per_byte; /* of all */
  double largest;                    /* beta */
  double links;
} tally;

/* Adds a number of links of one level. */
static void add_links(tally *t, const colli_level *level, double links) {
  t->alpha_ns += links * level->alpha_ns;
  t->beta_ns_per_byte += links * level->beta_ns_per_byte;
  t->links += links;
  if (level->beta_ns_per_byte > t->largest)
    t->largest = level->beta_ns_per_byte;
}

/* One link for each round: those of ranks (or groups of `unit` ranks) 1, radix, radix^2 .. apart.
 * In a round the farthest pairs count, because others wait for them in the next one. */
static tally tally_rounds(const colli_network *network, const colli_algo *algo, long long nranks,
                          long long unit) {
  tally t = {0};
  for (long long block = unit; block < nranks;) {
    block *= algo->radix; /* of consecutive ranks among which this round's pairs are */
    const long long within = algo->in_order ? 2 * block : block;
    int at = 0;
    while (at + 1 < network->nlevels && network->level[at].ranks % within != 0)
      at++;
    add_links(&t, &network->level[at], 1);
  }
  return t;
}

/* The links between ranks (or groups of `unit` ranks) that follow each other in a ring. */
static tally tally_neighbours(const colli_network *network, long long nranks, long long unit) {
  tally t = {0};
  long long above = (nranks + unit - 1) / unit; /* links that are not in lower levels */
  for (int at = 0; at < network->nlevels; at++) {
    const long long size = network->level[at].ranks;
    long long higher = at + 1 == network->nlevels ? 0 : (nranks + size - 1) / size;
    if (size < unit || higher > above)
      higher = above;
    if (higher == 1)
      higher = 0; /* all are in one group */
    if (above > higher)
      add_links(&t, &network->level[at], (double)(above - higher));
    above = higher;
  }
  return t;
}

/* The model with which an algorithm's formula should be asked about a network. */
colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_model *model) {
  colli_model out = *model;
  const colli_network *network = model->network;
  if (!network || shape->nranks == 1)
    return out;
  if (algo->groups && shape->ninner > 0) {
    out.network = NULL; /* or its parts would be priced by it, whose ranks have other numbers */
    return out;
  }
  COLLI_ASSERT(network->nlevels >= 1 && network->nlevels <= COLLI_NETWORK_LEVELS);
  const colli_level *top = &network->level[network->nlevels - 1];
  const int unit = algo->groups ? network->level[0].ranks : 1;
  tally t = {0};
  if (algo->radix == 0)
    add_links(&t, top, 1);
  else if (algo->radix == 1)
    t = tally_neighbours(network, shape->nranks, unit);
  else
    t = tally_rounds(network, algo, shape->nranks, unit);
  out.near_alpha_ns = network->level[0].alpha_ns;
  out.near_beta_ns_per_byte = network->level[0].beta_ns_per_byte;
  if (t.links == 0)
    return out;
  const bool closely = algo->pipelined || algo->radix == 1;
  out.alpha_ns = t.alpha_ns / t.links;
  out.beta_ns_per_byte = closely ? t.largest : t.beta_ns_per_byte / t.links;
  return out;
}
