/* test_deep.c: proves the algorithms for groups on networks of many levels, whose groups differ in
 * size at each. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tuning/numbering.h"
#include "support_group.h"

#define RANKS       44
#define MOST_LEVELS (COLLI_INNER_LEVELS + 1) /* hosts, and the widest groups */

/* Ranks in their groups, hosts first. */
typedef struct deep_net {
  int nlevels;
  int32_t level[MOST_LEVELS][RANKS];
  uint8_t share[RANKS]; /* of hosts */
} deep_net;

/* Makes hosts of three, one and two ranks, and of each level groups of two, one and one (or, of few
 * levels, of three, one and two) groups of the one inside. Dealt: ranks of a group have any
 * numbers.
 */
static void make_net(deep_net *net, int nlevels, bool dealt) {
  static const int few[] = {3, 1, 2}, many[] = {2, 1, 1};
  int32_t number[RANKS];
  net->nlevels = nlevels;
  for (int at = 0; at < RANKS; at++)
    number[at] = at;
  for (int level = 0; level < nlevels; level++) {
    const int *sizes = level == 0 || nlevels <= 5 ? few : many;
    int32_t outer[RANKS];
    for (int in = 0, out = 0, turn = level; in < RANKS; out++, turn++)
      for (int i = 0; i < sizes[turn % 3] && in < RANKS; i++)
        outer[in++] = out;
    int32_t first[RANKS];
    memset(first, -1, sizeof(first));
    for (int at = 0; at < RANKS; at++)
      number[at] = outer[number[at]];
    for (int rank = 0; rank < RANKS; rank++) {
      const int32_t it = number[dealt ? rank * 5 % RANKS : rank];
      first[it] = first[it] < 0 ? rank : first[it];
      net->level[level][rank] = first[it];
    }
    cr_assert_geq(colli_number_groups(net->level[level], RANKS), 2);
  }
  for (int host = 0; host < RANKS; host++)
    net->share[host] = (uint8_t)(host % 4);
}

/* The number of groups of a level. */
static int count_groups(const int32_t *of) {
  int count = 0;
  for (int rank = 0; rank < RANKS; rank++)
    count = of[rank] >= count ? of[rank] + 1 : count;
  return count;
}

/* The shape of an algorithm on the network. */
static colli_shape shape_on(const deep_net *net, const colli_algo *algo) {
  const int32_t *widest = net->level[net->nlevels - 1];
  colli_shape shape = {.coll = algo->coll,
                       .nranks = RANKS,
                       .root = colli_rooted(algo->coll) ? RANKS / 3 : 0,
                       .ngroups = count_groups(widest),
                       .group = widest,
                       .ninner = net->nlevels - 1,
                       .share = algo->weighted ? net->share : NULL};
  for (int level = 0; level < shape.ninner; level++)
    shape.inner[level] = net->level[level];
  return shape;
}

/* Proves an algorithm, if it can be built there; whether it can. */
static bool prove(const deep_net *net, const colli_algo *algo, bool in_place) {
  colli_shape shape = shape_on(net, algo);
  colli_sched *scheds[RANKS];
  char why[256];
  if (!colli_algo_can(algo, &shape))
    return false;
  for (shape.rank = 0; shape.rank < RANKS; shape.rank++)
    cr_assert_eq(colli_algo_emit(algo, &shape, &scheds[shape.rank]), COLL_OK, "%s", algo->name);
  const colli_verify_options options = {.slots = 2, .in_place = in_place, .passes = 2};
  const coll_status status =
      colli_verify((const colli_sched *const *)scheds, RANKS, &options, why, sizeof(why));
  cr_expect_eq(status, COLL_OK, "%s %s at %d levels%s: %s", colli_coll_name(algo->coll), algo->name,
               net->nlevels, in_place ? ", in place" : "", why);
  for (int rank = 0; rank < RANKS; rank++)
    colli_sched_free(scheds[rank]);
  return true;
}

/* Proves all algorithms for groups of a collective, at some numbers of levels. */
static void prove_deep(colli_coll coll) {
  static const int numbers[] = {5, 7, MOST_LEVELS};
  int proven = 0;
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
    for (int way = 0; way < 2; way++) {
      deep_net net;
      make_net(&net, numbers[i], way == 1);
      for (const colli_algo *const *algo = colli_algos; *algo; algo++)
        if ((*algo)->coll == coll && (*algo)->groups)
          proven += prove(&net, *algo, way == 0);
    }
  cr_assert(proven >= 6);
}

Test(deep, allreduce, .timeout = 300) {
  prove_deep(COLLI_ALLREDUCE);
}
Test(deep, allgather) {
  prove_deep(COLLI_ALLGATHER);
}
Test(deep, reduce_scatter) {
  prove_deep(COLLI_REDUCE_SCATTER);
}
Test(deep, broadcast) {
  prove_deep(COLLI_BROADCAST);
}
Test(deep, reduce) {
  prove_deep(COLLI_REDUCE);
}

/* A group of hosts that differ in size at each level has others inside: the levels are what they
 * seem. */
Test(deep, networks) {
  for (int nlevels = 2; nlevels <= MOST_LEVELS; nlevels++) {
    deep_net net;
    make_net(&net, nlevels, nlevels % 2);
    for (int level = 0; level + 1 < nlevels; level++) {
      cr_expect_gt(count_groups(net.level[level]), count_groups(net.level[level + 1]));
      for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < a; b++)
          if (net.level[level][a] == net.level[level][b])
            cr_expect_eq(net.level[level + 1][a], net.level[level + 1][b]);
    }
  }
}
