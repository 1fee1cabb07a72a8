/* distance.c: averages of what messages cost over the links that an algorithm uses. */
#include "libcoll/algo/distance.h"

#include <math.h>

#include "libcoll/algo/symmetric.h"
#include "libcoll/base/assert.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/sched/order.h"

#define SUMS  8 /* of a large radix about so many are tried */
#define LANES 4 /* so many blocks for one rank are on their way together, as in symmetric.c */

/* What a message costs over a link, how long a rank works for it, and what a byte takes on the
 * links of two hosts, which ranks share; 0: nothing is shared. */
typedef struct link_cost {
  colli_pair_cost pair;
  double step_ns;
  double shared;
} link_cost;

/* The links of one round. */
typedef struct links {
  int count, crossing;  /* all, and those over links that hosts share */
  link_cost sum;        /* of all */
  double crossing_beta; /* of sum.pair's beta, what is of links that are shared */
  link_cost most;
  link_cost mean; /* this and the next one: once they are settled */
  double slowest; /* beta of the one that takes longest */
} links;

/* A sum over rounds. Rounds count for alpha as often as ranks wait in them, and for beta by what
 * they move. */
typedef struct tally {
  double alpha_ns, step_ns, beta_ns_per_byte;
  double waits, blocks;
  double filled; /* chunks that hold something; no round moves more */
} tally;

/* The link between two ranks. */
static link_cost link_between(const colli_model *model, const colli_shape *shape, int a, int b) {
  return (link_cost){colli_model_pair(model, shape, a, b), colli_model_step(model, shape, a, b),
                     colli_host_links_beta(model, shape, a, b)};
}

/* The larger ones of two links' costs, each by itself. */
static link_cost larger_of(link_cost a, link_cost b) {
  return (link_cost){{fmax(a.pair.alpha_ns, b.pair.alpha_ns),
                      fmax(a.pair.beta_ns_per_byte, b.pair.beta_ns_per_byte)},
                     fmax(a.step_ns, b.step_ns),
                     fmax(a.shared, b.shared)};
}

/* Adds a link, or those that are used together. */
static void add_link(links *l, link_cost link) {
  l->sum.pair.alpha_ns += link.pair.alpha_ns;
  l->sum.pair.beta_ns_per_byte += link.pair.beta_ns_per_byte;
  l->sum.step_ns += link.step_ns;
  l->sum.shared += link.shared;
  l->crossing_beta += link.shared > 0 ? link.pair.beta_ns_per_byte : 0;
  l->most = larger_of(l->most, link);
  l->crossing += link.shared > 0;
  l->count++;
}

/* When all links are added: the means, if so many messages are on each host's link at a time. */
static void settle_links(links *l, double at_once) {
  const double each = fmax(1, at_once), count = l->count > 0 ? l->count : 1;
  const double waits = fmax(0, each * l->sum.shared - l->crossing_beta);
  l->mean =
      (link_cost){{l->sum.pair.alpha_ns / count, (l->sum.pair.beta_ns_per_byte + waits) / count},
                  l->sum.step_ns / count,
                  l->sum.shared / count};
  l->slowest = fmax(l->most.pair.beta_ns_per_byte, each * l->most.shared);
}

/* The messages of a host that are on its link at a time, if all its ranks send. */
static double messages_at_once(const links *l, const colli_shape *shape) {
  const double ranks = (double)shape->nranks / colli_host_links_count(shape);
  return l->count > 0 ? ranks * l->crossing / l->count : 0;
}

/* Adds a round. */
static void add_round(tally *t, const colli_algo *algo, const colli_shape *shape, long long block,
                      int radix, link_cost link) {
  const double far = (double)block, near = (double)shape->nranks / (far * radix);
  const double all = algo->longer > 0 ? far : algo->longer < 0 ? near : 1;
  const double blocks = fmin(all, fmax(1, t->filled));
  const double waits = algo->reach == COLLI_REACH_TREE ? 1 : ceil(blocks / LANES);
  t->alpha_ns += waits * link.pair.alpha_ns;
  t->step_ns += waits * link.step_ns;
  t->beta_ns_per_byte += (radix - 1) * blocks * link.pair.beta_ns_per_byte;
  t->waits += waits;
  t->blocks += (radix - 1) * blocks;
}

/* The links of a round among ranks whose digits add up to `sum`, modulo the radix. */
static links pairs_of_sum(const colli_model *model, const colli_shape *shape, long long block,
                          int radix, int sum) {
  links l = {.count = 0};
  for (long long rank = 0; rank < shape->nranks; rank++) {
    const int digit = (int)(rank / block % radix);
    long long peer = rank + ((sum + radix - digit) % radix - digit) * block;
    while (peer >= shape->nranks)
      peer -= block;
    if (peer != rank)
      add_link(&l, link_between(model, shape, (int)rank, (int)peer));
  }
  return l;
}

/* Whether what is sent over some links takes longer than over others, or arrives later. */
static bool is_farther(const links *a, const links *b) {
  const double sent = a->sum.pair.beta_ns_per_byte + a->sum.shared;
  const double other = b->sum.pair.beta_ns_per_byte + b->sum.shared;
  return sent > other || (sent >= other && a->sum.pair.alpha_ns > b->sum.pair.alpha_ns);
}

/* The links of a round of pairs. Of all ranks that differ in one digit, those with the lowest and
 * the highest are farthest apart, unless hosts are numbered otherwise. */
static links pairs_of_round(const colli_model *model, const colli_shape *shape, long long block,
                            int radix) {
  links farthest = pairs_of_sum(model, shape, block, radix, radix - 1);
  for (int sum = 0; sum < radix - 1 && radix > 2; sum += 1 + (radix - 1) / SUMS) {
    const links l = pairs_of_sum(model, shape, block, radix, sum);
    if (is_farther(&l, &farthest))
      farthest = l;
  }
  return farthest;
}

/* The average over all rounds of pairs. Ranks that exchange come back to where they were, so the
 * farthest pairs of each round count; a way through a tree crosses each border of groups once, and
 * few ranks are part of its longest messages. Whole vectors are exchanged among a power of two of
 * ranks only. */
static link_cost cost_of_pairs(const colli_algo *algo, const colli_shape *shape,
                               const colli_model *model, double filled) {
  const bool tree = algo->reach == COLLI_REACH_TREE;
  const int hosts = colli_host_links_count(shape), n = shape->nranks;
  const double part =
      algo->radix == 2 && algo->longer == 0 && !tree ? (double)colli_order_seats(n) / n : 1;
  tally t = {.filled = filled};
  colli_symmetric digits = {.n = n};
  if (!tree && algo->radix > 2)
    colli_symmetric_factor(&digits, algo->radix);
  long long block = 1;
  double before = INFINITY;
  for (int round = 0; block < n; round++) {
    const int radix = digits.digits ? digits.radix[round] : algo->radix;
    links l = pairs_of_round(model, shape, block, radix);
    settle_links(&l, part * l.crossing / hosts / (tree ? (double)block : 1));
    const link_cost most = {{l.most.pair.alpha_ns, l.slowest}, l.most.step_ns, 0};
    add_round(&t, algo, shape, block, radix, tree ? l.mean : most);
    if (most.step_ns > before) /* half of a round's work is to send what the last one has brought */
      t.step_ns += (most.step_ns - before) / 2;
    before = most.step_ns;
    block *= radix;
  }
  return (link_cost){{t.alpha_ns / t.waits, t.beta_ns_per_byte / t.blocks}, t.step_ns / t.waits, 0};
}

/* The links between ranks and those so many blocks further on, fewer than `radix`. */
static links links_ahead(const colli_model *model, const colli_shape *shape, colli_reach reach,
                         long long block, int radix) {
  links l = {.count = 0};
  const int n = shape->nranks;
  for (int rank = 0; rank < n; rank++) {
    const long long last = reach == COLLI_REACH_LINE ? n - 1 : rank + n - 1ll;
    link_cost all = {{0, 0}, 0, 0};
    for (long long at = rank + block; at < rank + radix * block && at <= last; at += block)
      all = larger_of(all, link_between(model, shape, rank, (int)(at % n)));
    if (rank + block <= last)
      add_link(&l, all);
  }
  return l;
}

/* The average over all rounds in which messages go one way. What goes that way crosses each border
 * of groups once, so alpha is the mean of all links, but in the last round that of the slowest: for
 * it, somebody waits. Ranks before a border cross it in all rounds, so beta is the slowest, too;
 * but how many share a host's link differs from round to round. */
static link_cost cost_ahead(const colli_algo *algo, const colli_shape *shape,
                            const colli_model *model, double filled) {
  tally t = {.filled = filled};
  double most = 0, last = 0;
  for (long long block = 1; block < shape->nranks; block *= algo->radix) {
    links l = links_ahead(model, shape, algo->reach, block, algo->radix);
    settle_links(&l,
                 messages_at_once(&l, shape) / (algo->coll == COLLI_GATHER ? (double)block : 1));
    add_round(&t, algo, shape, block, algo->radix,
              (link_cost){{l.mean.pair.alpha_ns, l.slowest}, l.most.step_ns, 0});
    most = fmax(most, l.most.pair.beta_ns_per_byte);
    if (block == 1 || algo->longer >= 0) /* shorter messages go first */
      last = l.most.pair.alpha_ns - l.mean.pair.alpha_ns;
  }
  return (link_cost){{(t.alpha_ns + last) / t.waits, fmax(most, t.beta_ns_per_byte / t.blocks)},
                     t.step_ns / t.waits,
                     0};
}

/* The links to the next rank. A message takes the mean time, but the slowest link holds up all
 * others if messages follow each other. Beta is what holds up, so alpha is less by what beta is
 * more for a slice. No more messages are on their way than `sent`, the chunks of all passes. */
static link_cost cost_of_next(colli_reach reach, const colli_shape *shape, const colli_model *model,
                              double slice_bytes, double sent) {
  links l = links_ahead(model, shape, reach, 1, 2);
  settle_links(&l, messages_at_once(&l, shape) * fmin(1, sent / shape->nranks));
  const double more = l.slowest - l.mean.pair.beta_ns_per_byte;
  return (link_cost){{l.mean.pair.alpha_ns - more * slice_bytes, l.slowest}, l.most.step_ns, 0};
}

/* The links between the root, or rank 0, and all others. */
static links links_of_root(const colli_model *model, const colli_shape *shape) {
  links l = {.count = 0};
  for (int peer = 0; peer < shape->nranks; peer++)
    if (peer != shape->root)
      add_link(&l, link_between(model, shape, shape->root, peer));
  return l;
}

/* The links of a rank to all others, to which as many bytes go. At once, the last ones come from
 * afar; one after the other, each waits for the slowest of its round. If not only the root sends,
 * all ranks of the host with most to send do so at a time. */
static link_cost cost_of_all(const colli_algo *algo, const colli_shape *shape,
                             const colli_model *model) {
  links l = links_of_root(model, shape);
  double at_once = 1;
  if (algo->reach == COLLI_REACH_TURNS)
    at_once = messages_at_once(&l, shape);
  else if (algo->coll != COLLI_SCATTER && l.crossing > 0)
    at_once = colli_host_links_pairs(shape) / l.crossing;
  settle_links(&l, at_once);
  const colli_pair_cost pair =
      algo->reach == COLLI_REACH_ALL
          ? (colli_pair_cost){l.most.pair.alpha_ns, l.mean.pair.beta_ns_per_byte}
          : (colli_pair_cost){l.mean.pair.alpha_ns, l.slowest};
  return (link_cost){pair, l.mean.step_ns, 0};
}

/* A rank's work for a message on its way through a tree: the average over rounds of pairs. */
static double step_in_trees(const colli_model *model, const colli_shape *shape) {
  double sum = 0;
  int rounds = 0;
  for (long long block = 1; block < shape->nranks; block *= 2, rounds++)
    sum += pairs_of_round(model, shape, block, 2).most.step_ns;
  return sum / rounds;
}

/* How long the messages of a round, which are empty, occupy the link of a host, on average. */
static double barrier_gaps(const colli_algo *algo, const colli_shape *shape,
                           const colli_model *model) {
  double messages = 0;
  int rounds = 0;
  if (model->host_beta_ns_per_byte <= 0)
    return 0;
  if (algo->reach == COLLI_REACH_ALL)
    return colli_host_links_pairs(shape) * model->host_gap_ns;
  for (long long block = 1; block < shape->nranks; block *= algo->radix, rounds++) {
    const links l = links_ahead(model, shape, algo->reach, block, algo->radix);
    messages += (algo->radix - 1) * messages_at_once(&l, shape);
  }
  return messages / rounds * model->host_gap_ns;
}

colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_partition *partition, size_t elem_bytes,
                             const colli_model *costs) {
  const colli_terms t = colli_terms_make(partition, elem_bytes, costs);
  const colli_model gapless = colli_host_links_for(costs, t.bytes / t.slices), *model = &gapless;
  link_cost link = {{model->alpha_ns, model->beta_ns_per_byte}, model->step_ns, 0};
  const double filled = t.filled * partition->nchunks;
  if (algo->groups || shape->ngroups <= 1 || shape->nranks == 1)
    return *costs;
  switch (algo->reach) {
  case COLLI_REACH_FAR: /* all messages for the root come over its host's link */
    return colli_host_links_busy(model, shape, links_of_root(model, shape).crossing);
  case COLLI_REACH_KNOWN: { /* it knows how many share a link */
    colli_model known = colli_host_links_busy(model, shape, 1);
    known.host_beta_ns_per_byte = model->host_beta_ns_per_byte;
    known.step_ns = step_in_trees(model, shape);
    return known;
  }
  case COLLI_REACH_RING:
  case COLLI_REACH_LINE:
    link = algo->radix > 1
               ? cost_ahead(algo, shape, model, filled)
               : cost_of_next(algo->reach, shape, model, t.bytes / t.slices, filled * t.passes);
    break;
  case COLLI_REACH_PAIRS:
  case COLLI_REACH_TREE:
    link = cost_of_pairs(algo, shape, model, filled);
    break;
  case COLLI_REACH_ALL:
  case COLLI_REACH_TURNS:
    link = cost_of_all(algo, shape, model);
    break;
  }
  if (algo->coll == COLLI_BARRIER)
    link.pair.alpha_ns += barrier_gaps(algo, shape, costs);
  colli_model out = *model;
  out.core_beta_ns_per_byte = model->beta_ns_per_byte;
  out.host_beta_ns_per_byte = 0; /* is in: */
  out.alpha_ns = link.pair.alpha_ns;
  out.beta_ns_per_byte = link.pair.beta_ns_per_byte;
  out.step_ns = link.step_ns;
  return out;
}
