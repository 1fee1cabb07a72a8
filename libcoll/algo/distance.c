/* distance.c: averages of what messages cost over the links that an algorithm uses. */
#include "libcoll/algo/distance.h"

#include <math.h>

#include "libcoll/algo/emit.h"
#include "libcoll/base/assert.h"

#define LANES 4 /* so many blocks for one rank are on their way together, as in symmetric.c */

/* What the links of one round cost. */
typedef struct links {
  colli_pair_cost mean, most;
  int count;
} links;

/* A sum over rounds. Rounds count for alpha as often as ranks wait in them, and for beta by what
 * they move. */
typedef struct tally {
  double alpha_ns, beta_ns_per_byte;
  double waits, blocks;
  double filled; /* chunks that hold something; no round moves more */
} tally;

/* The larger of two costs, each by itself. */
static colli_pair_cost larger_of(colli_pair_cost a, colli_pair_cost b) {
  return (colli_pair_cost){fmax(a.alpha_ns, b.alpha_ns),
                           fmax(a.beta_ns_per_byte, b.beta_ns_per_byte)};
}

/* Adds a link, or those that are used together. */
static void add_link(links *l, colli_pair_cost link) {
  l->count++;
  l->mean.alpha_ns += (link.alpha_ns - l->mean.alpha_ns) / l->count;
  l->mean.beta_ns_per_byte += (link.beta_ns_per_byte - l->mean.beta_ns_per_byte) / l->count;
  l->most = larger_of(l->most, link);
}

/* Adds a round. */
static void add_round(tally *t, const colli_algo *algo, const colli_shape *shape, long long block,
                      colli_pair_cost link) {
  const double far = (double)block, near = (double)shape->nranks / (far * algo->radix);
  const double all = algo->longer > 0 ? far : algo->longer < 0 ? near : 1;
  const double blocks = fmin(all, fmax(1, t->filled));
  const double waits = algo->reach == COLLI_REACH_TREE ? 1 : ceil(blocks / LANES);
  t->alpha_ns += waits * link.alpha_ns;
  t->beta_ns_per_byte += blocks * link.beta_ns_per_byte;
  t->waits += waits;
  t->blocks += blocks;
}

/* The links of a round of pairs. Of all ranks that differ in one digit, those with the lowest and
 * the highest are farthest apart. */
static links pairs_of_round(const colli_model *model, const colli_shape *shape, long long block,
                            int radix) {
  links l = {.count = 0};
  for (long long rank = 0; rank < shape->nranks; rank++) {
    long long peer = rank + (radix - 1 - 2 * (rank / block % radix)) * block;
    while (peer >= shape->nranks)
      peer -= block;
    if (peer != rank)
      add_link(&l, colli_model_pair(model, shape, (int)rank, (int)peer));
  }
  return l;
}

/* The average over all rounds of pairs. Ranks that exchange come back to where they were, so the
 * farthest pairs of each round count; a way through a tree crosses each border of groups once. A
 * power of two that is none of the radix has its smallest digit first, as in symmetric.c. */
static colli_pair_cost cost_of_pairs(const colli_algo *algo, const colli_shape *shape,
                                     const colli_model *model, double filled) {
  const bool tree = algo->reach == COLLI_REACH_TREE;
  tally t = {.filled = filled};
  int radix = tree || algo->radix < 4 || colli_log2_up(shape->nranks) % 2 == 0 ? algo->radix : 2;
  for (long long block = 1; block < shape->nranks; block *= radix, radix = algo->radix) {
    const links l = pairs_of_round(model, shape, block, radix);
    add_round(&t, algo, shape, block, tree ? l.mean : l.most);
  }
  return (colli_pair_cost){t.alpha_ns / t.waits, t.beta_ns_per_byte / t.blocks};
}

/* The links between ranks and those so many blocks further on, fewer than `radix`. */
static links links_ahead(const colli_model *model, const colli_shape *shape, colli_reach reach,
                         long long block, int radix) {
  links l = {.count = 0};
  const int n = shape->nranks;
  for (int rank = 0; rank < n; rank++) {
    const long long last = reach == COLLI_REACH_LINE ? n - 1 : rank + n - 1ll;
    colli_pair_cost all = {0, 0};
    for (long long at = rank + block; at < rank + radix * block && at <= last; at += block)
      all = larger_of(all, colli_model_pair(model, shape, rank, (int)(at % n)));
    if (rank + block <= last)
      add_link(&l, all);
  }
  return l;
}

/* The average over all rounds in which messages go one way. What goes that way crosses each border
 * of groups once, so alpha is the mean of all links, but in the last round that of the slowest: for
 * it, somebody waits. Ranks before a border cross it in all rounds, so beta is the slowest, too. */
static colli_pair_cost cost_ahead(const colli_algo *algo, const colli_shape *shape,
                                  const colli_model *model, double filled) {
  tally t = {.filled = filled};
  double most = 0, last = 0;
  for (long long block = 1; block < shape->nranks; block *= algo->radix) {
    const links l = links_ahead(model, shape, algo->reach, block, algo->radix);
    add_round(&t, algo, shape, block, l.mean);
    most = fmax(most, l.most.beta_ns_per_byte);
    if (block == 1 || algo->longer >= 0) /* shorter messages go first */
      last = l.most.alpha_ns - l.mean.alpha_ns;
  }
  return (colli_pair_cost){(t.alpha_ns + last) / t.waits, most};
}

/* The links to the next rank. A message takes the mean time, but the slowest link holds up all
 * others if messages follow each other. Beta is what holds up, so alpha is less by what beta is
 * more for a slice. */
static colli_pair_cost cost_of_next(colli_reach reach, const colli_shape *shape,
                                    const colli_model *model, double slice_bytes) {
  const links l = links_ahead(model, shape, reach, 1, 2);
  const double more = l.most.beta_ns_per_byte - l.mean.beta_ns_per_byte;
  return (colli_pair_cost){l.mean.alpha_ns - more * slice_bytes, l.most.beta_ns_per_byte};
}

/* The links of the root, or of rank 0, to all others, to which as many bytes go. At once, the last
 * ones come from afar; one after the other, each waits for the slowest of its round. */
static colli_pair_cost cost_of_all(colli_reach reach, const colli_shape *shape,
                                   const colli_model *model) {
  links l = {.count = 0};
  for (int peer = 0; peer < shape->nranks; peer++)
    if (peer != shape->root)
      add_link(&l, colli_model_pair(model, shape, shape->root, peer));
  return reach == COLLI_REACH_ALL ? (colli_pair_cost){l.most.alpha_ns, l.mean.beta_ns_per_byte}
                                  : (colli_pair_cost){l.mean.alpha_ns, l.most.beta_ns_per_byte};
}

colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model) {
  colli_pair_cost link = {model->alpha_ns, model->beta_ns_per_byte};
  const colli_terms t = colli_terms_make(partition, elem_bytes, model);
  const double filled = t.filled * partition->nchunks;
  if (algo->groups || shape->ngroups <= 1 || shape->nranks == 1)
    return *model;
  switch (algo->reach) {
  case COLLI_REACH_FAR:
  case COLLI_REACH_KNOWN:
    break;
  case COLLI_REACH_RING:
  case COLLI_REACH_LINE:
    link = algo->radix > 1 ? cost_ahead(algo, shape, model, filled)
                           : cost_of_next(algo->reach, shape, model, t.bytes / t.slices);
    break;
  case COLLI_REACH_PAIRS:
  case COLLI_REACH_TREE:
    link = cost_of_pairs(algo, shape, model, filled);
    break;
  case COLLI_REACH_ALL:
  case COLLI_REACH_TURNS:
    link = cost_of_all(algo->reach, shape, model);
    break;
  }
  colli_model out = *model;
  out.alpha_ns = link.alpha_ns;
  out.beta_ns_per_byte = link.beta_ns_per_byte;
  return out;
}
