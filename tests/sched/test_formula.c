/*
 * test_formula.c: the closed cost formulas of the algorithms against the replay of their schedules.
 *
 * On an uncongested network (a core for each rank, as many slots as anybody wants), where every
 * chunk is one message and holds something, they agree to 1 %. Where chunks take several messages
 * and passes, or ranks are in groups, formulas simplify, and may be off by a quarter; by a factor
 * of two where few elements leave chunks empty or groups differ in size; of three in lanes
 * among many ranks in such groups; and of nearly four where hosts in racks have weights.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/algo/distance.h"
#include "libcoll/algo/emit.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/cost/links.h"
#include "libcoll/cost/predict.h"
#include "support_group.h"

#define EXACT  0.01
#define COARSE 0.25
#define ROUGH  1.0
#define LEVELS 0.5 /* an average of links */
#define SHARED                                                                                     \
  2.25              /* an average of messages on a link, of which fewer and fewer are left, or of  \
                     * links in several directions */
#define NESTED 1.25 /* the largest groups of several levels may not be in each other */
#define LANES  2.0  /* ... and each of four lanes is priced by the rank that owns most shares */
#define RACKS  2.75 /* ... and by the rank that combines most with other racks */

/* How far a formula was off at worst, and where. */
typedef struct verdict {
  const char *what;
  double allowed;
  double worst; /* formula / events, or the inverse if that is larger */
  char where[256];
  int compared;
} verdict;

/* Compares the formula with the schedules of one shape. */
static void compare(const colli_algo *algo, const group *all, near_kind near,
                    const colli_partition *part, unsigned slots, const colli_model *model,
                    verdict *v) {
  const colli_shape *shape = &all->sched[0]->shape;
  const colli_model links = colli_algo_model(algo, shape, part, 4, model);
  double formula = algo->cost(shape, part, 4, &links);
  double events =
      colli_predict((const colli_sched *const *)all->sched, all->nranks, part, 4, slots, model);
  double off = events > 0 ? fmax(formula / events, events / formula) : formula > 0 ? INFINITY : 1;
  v->compared++;
  if (off < v->worst)
    return;
  char text[160];
  v->worst = off;
  snprintf(v->where, sizeof(v->where),
           "%s, %zu B in %d passes: formula %.0f ns, events %.0f ns; alpha %g beta %g gamma %g "
           "step %g",
           shape_tell(algo, shape, near, text), part->count * 4, part->passes, formula, events,
           model->alpha_ns, model->beta_ns_per_byte, model->gamma_ns_per_byte, model->step_ns);
}

/* Prints a verdict and asserts it. */
static void judge(const colli_algo *algo, const verdict *v) {
  char name[64];
  snprintf(name, sizeof(name), "%s %s%s", colli_coll_name(algo->coll), algo->name, v->what);
  fprintf(stderr, "%s %-32s off by %5.1f %% at worst of %d (%s)\n",
          v->worst <= 1 + v->allowed ? "ok  " : "OFF ", name, 100 * (v->worst - 1), v->compared,
          v->where);
  cr_expect(v->compared > 0, "%s %s: nothing compared", colli_coll_name(algo->coll), algo->name);
  cr_expect(v->worst <= 1 + v->allowed, "%s", v->where);
}

/* ---- one message a chunk --------------------------------------------------------------------- */

/* A model: what messages cost far away, near, and at inner levels. */
#define MODEL(alpha, beta, gamma, step, near_alpha, near_beta, ...)                                \
  {                                                                                                \
    .alpha_ns = (alpha), .beta_ns_per_byte = (beta), .gamma_ns_per_byte = (gamma),                 \
    .step_ns = (step), .core_share = 1, .near_alpha_ns = (near_alpha),                             \
    .near_beta_ns_per_byte = (near_beta), .chunk_share = 1, .flight_ns = (alpha), .inner = {       \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
  }

/* Models in which each term in turn outweighs the others, one in which none does, and one whose
 * inner levels differ. */
static const colli_model models[] = {
    MODEL(10000, 0.01, 0.01, 10, 1000, 0.01, {0, 0}),
    MODEL(100, 10, 0.1, 10, 50, 2, {0, 0}),
    MODEL(100, 0.1, 10, 10, 50, 0.1, {0, 0}),
    MODEL(10, 0.01, 0.01, 1000, 5, 0.01, {0, 0}),
    MODEL(800, 0.3, 0.15, 150, 300, 0.1, {0, 0}),
    MODEL(9000, 0.9, 0.15, 150, 3000, 0.4, {100, 0.02}, {900, 0.2}),
};

/* Which roots are compared: the first, the middle one, and those that take turns. */
static bool is_compared(const colli_algo *algo, const colli_shape *shape) {
  return shape->root == 0 || shape->root == shape->nranks / 2 || algo->turns;
}

/* One shape with chunks of several sizes. */
static void compare_sizes(const colli_algo *algo, const colli_shape *shape, near_kind near,
                          verdict *v) {
  static const size_t elements[] = {1, 1024, 65536};
  const colli_limits limits = {.slot_bytes = 1 << 20, .slot_count = 2};
  group all = group_of(algo, shape, near);
  size_t nchunks = (size_t)algo->nchunks(shape);
  for (size_t s = 0; s < sizeof(elements) / sizeof(elements[0]); s++)
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
      colli_partition part;
      size_t count = algo->coll == COLLI_BARRIER ? 0 : elements[s] * nchunks;
      colli_partition_make(&part, count, 4, (int)nchunks, colli_exact(algo->coll), &limits);
      cr_assert(part.passes == 1 && part.slice >= part.piece);
      compare(algo, &all, near, &part, 2 * (unsigned)shape->nranks + 8, &models[m], v);
    }
  group_free(&all);
}

/* A shape that is worth comparing. */
static void compare_exact(const colli_algo *algo, const colli_shape *shape, near_kind near,
                          void *ctx) {
  if (!shape->varying && (near == NEAR_ALL || algo->groups) && is_compared(algo, shape))
    compare_sizes(algo, shape, near, ctx);
}

/* The same; `ctx` has a verdict on shapes without levels inside groups, and one on those with. */
static void compare_many(const colli_algo *algo, const colli_shape *shape, near_kind near,
                         void *ctx) {
  compare_exact(algo, shape, near, (verdict *)ctx + (shape->ninner > 0));
}

Test(formula, agrees_to_1_percent) {
  static const int more[] = {48, 64, 65};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    verdict v = {.what = "", .allowed = EXACT};
    const int step = (*algo)->groups ? extent(9, 1, 13) : extent(3, 1, 13);
    for (int n = 1; n <= 32; n += n < 4 ? 1 : step)
      shapes_each(*algo, n, 1, compare_exact, &v);
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i += (size_t)extent(1, 1, 3))
      if (!(*algo)->groups) /* the formula of so few ranks in groups is the replay itself */
        shapes_each(*algo, more[i], 1, compare_exact, &v);
    judge(*algo, &v);
    if (!(*algo)->groups || (*algo)->ranks_max)
      continue;
    const bool lanes = *algo == &colli_allreduce_hier_lanes;
    verdict many[2] = {
        {.what = ", many ranks", .allowed = lanes ? LANES : ROUGH}, /* no replay of all ranks */
        {.what = ", many ranks in levels",
         .allowed = (*algo)->weighted ? RACKS
                    : lanes           ? LANES
                                      : NESTED}};
    shapes_each(*algo, 65, 1, compare_many, many);
    judge(*algo, &many[0]);
    judge(*algo, &many[1]);
  }
}

/* ---- levels, for algorithms without groups
 * ------------------------------------------------------------ */

/* What links cost on average, in groups that are powers of two, and in others. (Of 24 ranks that
 * are dealt out to three groups, all that are six apart are near, which no average knows.) */
Test(formula, agrees_for_algorithms_without_groups_in_levels) {
  static const near_kind kinds[] = {NEAR_HALVES, NEAR_ROOTS, NEAR_DEALT};
  static const int ranks[] = {16, 24, 64};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->groups || (*algo)->turns) /* these are for one host */
      continue;
    verdict v[2] = {{.what = ", levels", .allowed = LEVELS},
                    {.what = ", uneven levels", .allowed = ROUGH}};
    for (int at = 0; at < 3; at += extent(1, 1, 2))
      for (int kind = 0; kind < 3; kind++) {
        const bool dealt = kinds[kind] == NEAR_DEALT, odd = ranks[at] % 3 == 0;
        int32_t near[64];
        colli_shape shape = {.coll = (*algo)->coll, .nranks = ranks[at]};
        shape_spread(&shape, kinds[kind], near);
        shape_levels(&shape, 2, true);
        if (!dealt || !odd)
          compare_sizes(*algo, &shape, kinds[kind], &v[dealt || odd]);
      }
    judge(*algo, &v[0]);
    judge(*algo, &v[1]);
  }
}

/* ---- links that the ranks of a host share ---------------------------------------------------- */

/* One shape whose hosts have a link that is slower than what a rank can send. */
static void compare_shared(const colli_algo *algo, int nranks, near_kind near, verdict *v) {
  static const colli_model model = {.alpha_ns = 10000,
                                    .beta_ns_per_byte = 0.15,
                                    .gamma_ns_per_byte = 0.02,
                                    .step_ns = 1200,
                                    .core_share = 1,
                                    .near_alpha_ns = 150,
                                    .near_beta_ns_per_byte = 0.03,
                                    .chunk_share = 1,
                                    .flight_ns = 10000,
                                    .host_beta_ns_per_byte = 1,
                                    .host_gap_ns = 1000};
  static const size_t elements[] = {4, 4096, 65536};
  const colli_limits limits = {.slot_bytes = 1 << 20, .slot_count = 2};
  int32_t host[64];
  colli_shape shape = {.coll = algo->coll, .nranks = nranks};
  shape_spread(&shape, near, host);
  group all = group_of(algo, &shape, near);
  const size_t nchunks = (size_t)algo->nchunks(&shape);
  for (size_t s = 0; s < sizeof(elements) / sizeof(elements[0]); s++) {
    colli_partition part;
    const size_t count = algo->coll == COLLI_BARRIER ? 0 : elements[s] * nchunks;
    colli_partition_make(&part, count, 4, (int)nchunks, colli_exact(algo->coll), &limits);
    compare(algo, &all, near, &part, 2 * (unsigned)nranks + 8, &model, v);
  }
  group_free(&all);
}

/* Formulas know how many messages are on a host's link on average, and of trees all of them. */
Test(formula, agrees_where_ranks_of_a_host_share_its_link) {
  static const near_kind kinds[] = {NEAR_HALVES, NEAR_ROOTS, NEAR_DEALT};
  static const int ranks[] = {16, 24, 64};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->groups || (*algo)->turns) /* the formula is the replay; for one host */
      continue;
    verdict v[2] = {{.what = ", shared links", .allowed = NESTED},
                    {.what = ", shared links", .allowed = SHARED}};
    const colli_coll coll = (*algo)->coll;
    const bool coarse =
        coll == COLLI_GATHER || coll == COLLI_SCATTER || (*algo)->longer < 0 || (*algo)->radix > 2;
    for (int at = 0; at < 3; at += extent(1, 1, 2))
      for (int kind = 0; kind < 3; kind++)
        if (kinds[kind] != NEAR_DEALT || ranks[at] % 3 != 0)
          compare_shared(*algo, ranks[at], kinds[kind], &v[coarse]);
    judge(*algo, &v[coarse]);
  }
}

/* Four ranks of bcube all talk to each other, so which two of them share a host changes nothing. */
Test(formula, knows_hosts_in_any_order) {
  static const int32_t hosts[][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}};
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, "bcube");
  const colli_limits limits = {.slot_bytes = 131072, .slot_count = 8};
  colli_calibration typical;
  colli_model model;
  double ns[3];
  colli_calibration_default(&typical);
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_SHM, 4, 2, &model);
  colli_host_links_assume(&model);
  for (int i = 0; i < 3; i++) {
    const colli_shape shape = {
        .coll = COLLI_ALLREDUCE, .nranks = 4, .ngroups = 2, .group = hosts[i]};
    colli_partition part;
    colli_partition_make(&part, 1 << 20, 4, algo->nchunks(&shape), false, &limits);
    const colli_model links = colli_algo_model(algo, &shape, &part, 4, &model);
    ns[i] = algo->cost(&shape, &part, 4, &links);
  }
  cr_expect_float_eq(ns[1], ns[0], 1);
  cr_expect_float_eq(ns[2], ns[0], 1, "%.0f and %.0f ns", ns[2], ns[0]);
}

/* ---- slices and passes ----------------------------------------------------------------------- */

/* Whether all groups are of one size. */
static bool equal_groups(const colli_shape *shape) {
  int sizes[64] = {0};
  for (int rank = 0; shape->ngroups > 1 && rank < shape->nranks; rank++)
    sizes[shape->group[rank]]++;
  for (int g = 1; g < shape->ngroups; g++)
    if (sizes[g] != sizes[0])
      return false;
  return true;
}

/* One shape over a range of vectors and chunks, on default links with shared memory in groups. ctx:
 * two verdicts, of what should agree well and of all else. */
static void compare_coarse(const colli_algo *algo, const colli_shape *shape, near_kind near,
                           void *ctx) {
  static const colli_link_kind links[] = {COLLI_LINK_SHM, COLLI_LINK_TCP};
  const colli_limits limits = {32768, 16, 262144, 0};
  size_t n = (size_t)shape->nranks, nchunks = (size_t)algo->nchunks(shape);
  if (shape->varying || !is_compared(algo, shape))
    return;
  group all = group_of(algo, shape, near);
  for (size_t l = 0; l < 2; l++)
    for (size_t bytes = 4; bytes <= 4u << 20; bytes *= 8)
      for (size_t chunk = 8192; chunk <= limits.chunk_bytes; chunk *= 32) {
        colli_limits wanted = limits;
        colli_model model, inside;
        colli_partition part;
        size_t count = bytes / 4;
        wanted.chunk_bytes = chunk;
        colli_model_default(links[l], shape->nranks, 0, &model);
        colli_model_default(COLLI_LINK_SHM, shape->nranks, 0, &inside);
        model.near_alpha_ns = inside.alpha_ns;
        model.near_beta_ns_per_byte = inside.beta_ns_per_byte;
        colli_choice_partition(algo, shape, colli_exact(algo->coll) ? (count + n - 1) / n : count,
                               4, &wanted, &part);
        bool full = part.region * (nchunks - 1) < part.count || algo->coll == COLLI_BARRIER;
        verdict *v = ctx;
        v += !full || !equal_groups(&all.sched[0]->shape);
        compare(algo, &all, near, &part, limits.slot_count, &model, v);
      }
  group_free(&all);
}

Test(formula, agrees_roughly_in_slices_passes_and_groups) {
  static const int ranks[] = {1, 2, 3, 4, 5, 8, 13, 16, 32, 64};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    verdict v[2] = {{.what = "", .allowed = COARSE}, {.what = ", uneven", .allowed = ROUGH}};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i += (size_t)extent(2, 1, 5))
      shapes_each(*algo, ranks[i], 1, compare_coarse, v);
    judge(*algo, &v[0]);
    if (v[1].compared > 0)
      judge(*algo, &v[1]);
  }
}
