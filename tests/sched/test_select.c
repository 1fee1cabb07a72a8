/* test_select.c: the predictor, the cost formulas against it, and the choice between algorithms. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/cost/links.h"
#include "libcoll/cost/predict.h"
#include "support_group.h"

static const colli_limits limits = {32768, 16, 262144, 0};

/* The partition of a vector of `bytes` float32 bytes in all. */
static colli_partition part_of(const colli_algo *algo, int nranks, size_t bytes,
                               size_t chunk_bytes) {
  colli_shape shape = {.coll = algo->coll, .nranks = nranks, .rank = 0, .root = 0};
  colli_limits wanted = limits;
  wanted.chunk_bytes = chunk_bytes;
  size_t count = bytes / 4;
  if (algo->coll == COLLI_ALLGATHER)
    count = (count + (size_t)nranks - 1) / (size_t)nranks;
  colli_partition part;
  colli_choice_partition(algo, &shape, count, 4, &wanted, &part);
  return part;
}

static double predict(const group *all, const colli_partition *part, const colli_model *model) {
  return colli_predict((const colli_sched *const *)all->sched, all->nranks, part, 4,
                       limits.slot_count, model);
}

/* ---- the predictor
 * --------------------------------------------------------------------------------- */

/* Small cases whose time can be computed by hand. */
Test(predict, by_hand) {
  colli_model model = {.alpha_ns = 100,
                       .beta_ns_per_byte = 1,
                       .gamma_ns_per_byte = 2,
                       .step_ns = 10,
                       .core_share = 1};
  group all = group_make(colli_algo_find(COLLI_ALLREDUCE, "recdbl"), 2, 0);
  colli_partition part = part_of(colli_algo_find(COLLI_ALLREDUCE, "recdbl"), 2, 400, 262144);
  /* send 10, link 400, alpha 100, receive 10 + reduce 800 */
  cr_assert_float_eq(predict(&all, &part, &model), 1320, 1e-6);
  model.core_share = 0.5; /* two ranks on one core: each 10 + 10 + 800 + 400 + 100 */
  cr_assert_float_eq(predict(&all, &part, &model), 2 * 1320, 1e-6);
  group_free(&all);

  model.core_share = 1;
  all = group_make(colli_algo_find(COLLI_BARRIER, "dissemination"), 4, 0);
  part = part_of(colli_algo_find(COLLI_BARRIER, "dissemination"), 4, 0, 262144);
  cr_assert_float_eq(predict(&all, &part, &model), 2 * (10 + 100 + 10), 1e-6);
  group_free(&all);

  all = group_make(colli_algo_find(COLLI_BROADCAST, "chain"), 4, 0);
  part = part_of(colli_algo_find(COLLI_BROADCAST, "chain"), 4, 400, 262144);
  cr_assert_float_eq(predict(&all, &part, &model), 3 * (10 + 400 + 100) + 10, 1e-6);
  group_free(&all);

  model.near_alpha_ns = 5; /* {0, 1} and {2, 3}: 0 to 2 is far, 2 to 3 near */
  model.near_beta_ns_per_byte = 0.5;
  all = group_make(colli_algo_find(COLLI_BROADCAST, "hier_chain"), 4, 0);
  cr_assert_float_eq(predict(&all, &part, &model), 10 + 500 + 10 + 10 + 205 + 10, 1e-6);
  group_free(&all);
}

/* A schedule with a deadlock has no time. */
Test(predict, tells_deadlock) {
  const colli_algo *algo = colli_algo_find(COLLI_BARRIER, "dissemination");
  group all = group_make(algo, 2, 0);
  for (int rank = 0; rank < 2; rank++) {
    colli_step first = all.sched[rank]->steps[0];
    all.sched[rank]->steps[0] = all.sched[rank]->steps[1];
    all.sched[rank]->steps[1] = first;
  }
  colli_model model;
  colli_model_default(COLLI_LINK_SHM, 2, 2, &model);
  colli_partition part = part_of(algo, 2, 0, 262144);
  cr_assert(predict(&all, &part, &model) < 0);
  group_free(&all);
}

/* ---- formulas
 * ----------------------------------------------------------------------------------------- */

/* A rehearsal would give each host cores of its own, which containers share. */
Test(select, containers_are_not_rehearsed) {
  int differ = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->coll != COLLI_ALLREDUCE)
      continue;
    group all = group_make(*algo, 8, 0);
    const colli_shape *shape = &all.sched[0]->shape;
    colli_model model;
    colli_model_default(COLLI_LINK_TCP, 8, 2, &model);
    colli_choice choice = {.algo = *algo};
    colli_choice_partition(*algo, shape, 1000, 4, &limits, &choice.partition);
    differ += colli_choice_time(&choice, shape, 4, 8, &model) !=
              colli_choice_formula(&choice, shape, 4, &model);
    model.containers = true;
    colli_model_set_containers(&model);
    cr_expect_eq(colli_choice_time(&choice, shape, 4, 8, &model),
                 colli_choice_formula(&choice, shape, 4, &model), "%s", (*algo)->name);
    group_free(&all);
  }
  cr_expect_gt(differ, 0, "other ranks that share cores are rehearsed");
}

/* Ranks that share two cores, and memory; sockets; or sockets between containers. */
static void crowd(int kind, int nranks, colli_model *model) {
  const colli_model memory = {.alpha_ns = 1500,
                              .beta_ns_per_byte = 0.03,
                              .gamma_ns_per_byte = 0.01,
                              .step_ns = 40,
                              .core_share = 2.0 / nranks,
                              .near_alpha_ns = 1500,
                              .near_beta_ns_per_byte = 0.03,
                              .chunk_share = 1,
                              .flight_ns = 150};
  *model = memory;
  if (kind > 0)
    colli_model_default(COLLI_LINK_TCP, nranks, 2, model);
  if (kind > 1)
    colli_model_set_containers(model);
}

/* The work of ranks that share cores, as the formulas count it. */
Test(formula, agrees_where_cores_are_shared) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int n = 4; n <= 64; n *= 2)
      for (int kind = 0; kind < 3; kind++) {
        group all = group_make(*algo, n, 0);
        colli_model model;
        crowd(kind, n, &model);
        const colli_shape *shape = &all.sched[0]->shape;
        colli_partition part;
        colli_choice_partition(*algo, shape, 1, 4, &limits, &part);
        double formula = (*algo)->cost(shape, &part, 4, &model),
               event = predict(&all, &part, &model);
        cr_expect(formula < 1.5 * event && event < 1.5 * formula,
                  "%s %s, %d ranks, kind %d: formula %.0f ns, events %.0f ns",
                  colli_coll_name((*algo)->coll), (*algo)->name, n, kind, formula, event);
        group_free(&all);
      }
}

/* Only sockets of ranks that share cores take turns: neither memory within a host, nor devices. */
Test(model, turns_are_of_sockets) {
  const int32_t hosts[] = {0, 0, 1, 1};
  const colli_shape shape = {.coll = COLLI_ALLREDUCE, .nranks = 4, .ngroups = 2, .group = hosts};
  colli_calibration typical;
  colli_calibration_default(&typical);
  colli_model model;
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_SHM, 4, 2, &model);
  cr_expect_eq(colli_model_turns(&model, &shape, 0, 1), 0);
  cr_expect_eq(colli_model_turns(&model, &shape, 0, 2), 0.5);
  const double before_ns = model.step_ns;
  colli_model_device(&model, &typical, 1000, 0.1);
  colli_model_set_containers(&model);
  cr_expect_eq(colli_model_turns(&model, &shape, 0, 2), 0);
  cr_expect_eq(colli_model_path_factor(&model), 1, "devices do not wait for a turn");
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_TCP, 4, 2, &model);
  cr_expect_eq(colli_model_turns(&model, &shape, 0, 1), 0.5);
  colli_model_set_containers(&model);
  cr_expect_gt(model.step_ns, before_ns);
  cr_expect_gt(colli_model_path_factor(&model), 1);
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_TCP, 4, 4, &model);
  cr_expect_eq(colli_model_turns(&model, &shape, 0, 2), 0, "each has a core");
}

/* ---- the choice
 * ------------------------------------------------------------------------------------------ */

static int choose(colli_coll coll, int nranks, int rank, size_t count, colli_link_kind link,
                  int cores, const char *force, colli_choice *choice, colli_choice *list,
                  int capacity) {
  colli_shape shape = {.coll = coll, .nranks = nranks, .rank = rank, .root = 0};
  colli_model model;
  colli_limits usual = {.slot_count = 8};
  colli_limits_default(link, &usual);
  colli_model_default(link, nranks, cores, &model);
  return colli_select(&shape, count, 4, &usual, &model, force, choice, list, capacity);
}

/* Pairs are for ranks that share cores two by two, and for vectors that are not long. */
Test(choice, of_pairs) {
  const colli_shape shape = {.coll = COLLI_ALLREDUCE, .nranks = 4};
  const colli_limits usual = {.slot_bytes = 65536, .slot_count = 8, .slice_bytes = 8192};
  for (int paired = 0; paired < 2; paired++)
    for (size_t count = 1; count <= 1u << 22; count *= 4) {
      colli_model model;
      colli_choice best;
      colli_model_default(COLLI_LINK_SHM, 4, 2, &model);
      model.paired = paired;
      cr_assert_gt(colli_select(&shape, count, 4, &usual, &model, "", &best, NULL, 0), 1);
      bool is_pairs = strcmp(best.algo->name, "pairs") == 0;
      bool depends = paired && count > 4096 && count < 1u << 20; /* on the costs of the machine */
      cr_expect(depends || is_pairs == (paired && count <= 4096), "%zu floats, paired: %d: %s",
                count, paired, best.algo->name);
    }
}

/* All ranks make the same choice, also a second time; the choice is the best of the list. */
Test(choice, is_the_same_everywhere) {
  colli_prng prng = {99};
  for (int round = 0; round < 3000; round++) {
    colli_coll coll = (colli_coll)colli_prng_below(&prng, COLLI_COLL_COUNT);
    if (coll == COLLI_SENDRECV)
      continue;
    int nranks = 1 + (int)colli_prng_below(&prng, 70), cores = (int)colli_prng_below(&prng, 5);
    size_t count = colli_prng_below(&prng, 1ull << (1 + colli_prng_below(&prng, 26)));
    colli_link_kind link = round % 2 ? COLLI_LINK_SHM : COLLI_LINK_TCP;
    colli_choice a, b, list[32];
    memset(&a, 0, sizeof(a));
    memset(&b, 0xff, sizeof(b));
    int found = choose(coll, nranks, 0, count, link, cores, "", &a, list, 32);
    cr_assert(found >= 1 && found <= 32);
    cr_assert_eq(choose(coll, nranks, nranks - 1, count, link, cores, "", &b, NULL, 0), found);
    cr_assert_eq(a.algo, b.algo);
    cr_assert_eq(memcmp(&a.partition, &b.partition, sizeof(a.partition)), 0);
    cr_assert_eq(a.predicted_ns, b.predicted_ns);
    cr_assert_eq(list[0].algo, a.algo);
    for (int i = 1; i < found; i++)
      cr_assert_leq(list[i - 1].predicted_ns, list[i].predicted_ns);
    cr_assert_eq(a.partition.count, colli_exact(coll)       ? count * (size_t)nranks
                                    : coll == COLLI_BARRIER ? 0
                                                            : count);
  }
}

Test(choice, can_be_forced) {
  colli_choice choice, list[8];
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    int found =
        choose((*algo)->coll, 6, 0, 1000, COLLI_LINK_SHM, 0, (*algo)->name, &choice, list, 8);
    if ((*algo)->groups) { /* all ranks are equally near */
      cr_assert_eq(found, 0);
      continue;
    }
    cr_assert_eq(found, 1);
    cr_assert_eq(choice.algo, *algo);
  }
  cr_assert_eq(choose(COLLI_ALLREDUCE, 6, 0, 1000, COLLI_LINK_SHM, 0, "binomial", &choice, list, 8),
               0);
  cr_assert_eq(choose(COLLI_ALLREDUCE, 6, 0, 1000, COLLI_LINK_SHM, 0, "", &choice, list, 2), 2);
  cr_assert_eq(choice.algo, list[0].algo);
}

/* The choice must match what is well known of these algorithms. */
Test(choice, is_sensible) {
  colli_choice choice;
  choose(COLLI_ALLREDUCE, 16, 0, 1, COLLI_LINK_SHM, 0, "", &choice, NULL, 0);
  cr_assert_str_eq(choice.algo->name, "recdbl");
  choose(COLLI_ALLREDUCE, 32, 0, 16u << 20, COLLI_LINK_SHM, 0, "", &choice, NULL, 0);
  cr_assert_str_eq(choice.algo->name, "ring");
  choose(COLLI_ALLREDUCE, 64, 0, 1u << 16, COLLI_LINK_TCP, 0, "", &choice, NULL, 0);
  cr_assert_str_eq(choice.algo->name, "dbtree");
  choose(COLLI_BROADCAST, 16, 0, 1, COLLI_LINK_TCP, 0, "", &choice, NULL, 0);
  cr_assert_str_eq(choice.algo->name, "knomial4"); /* several sends of 1.2 us in 2.6 us of alpha */
  choose(COLLI_BROADCAST, 16, 0, 16u << 20, COLLI_LINK_TCP, 0, "", &choice, NULL, 0);
  cr_assert_str_eq(choice.algo->name, "chain");
}

/* Names and ids of the table are unique. */
Test(choice, table_is_sound) {
  for (const colli_algo *const *a = colli_algos; *a; a++) {
    cr_assert((*a)->id >= 1 && (*a)->when && (*a)->source);
    cr_assert_eq(colli_algo_find((*a)->coll, (*a)->name), *a);
    for (const colli_algo *const *b = a + 1; *b; b++)
      cr_assert_neq((*a)->id, (*b)->id);
  }
  cr_assert_null(colli_algo_find(COLLI_BARRIER, "ring"));
}

/* Only two ranks that exchange send what fits into a slot in one message. */
Test(select, two_ranks_that_exchange_cut_no_slices) {
  cr_assert_eq(part_of(colli_algo_find(COLLI_ALLREDUCE, "recdbl"), 2, 32768, 0).slice, 8192);
  cr_assert_eq(part_of(colli_algo_find(COLLI_ALLGATHER, "direct"), 2, 65536, 0).slice, 8192);
  cr_assert_lt(part_of(colli_algo_find(COLLI_ALLREDUCE, "recdbl"), 3, 32768, 0).slice, 8192);
  cr_assert_lt(part_of(colli_algo_find(COLLI_BROADCAST, "chain"), 2, 32768, 0).slice, 8192);
}
