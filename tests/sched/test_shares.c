/*
 * test_shares.c: all-reduces among hosts of unequal sizes: what each host and each rank sends to
 * other hosts, and when algorithms that share this out are chosen.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/algo/hier_layout.h"
#include "libcoll/cost/links.h"
#include "support_group.h"

#define HOSTS_MAX 40
#define RANKS_MAX 400

/* Hosts with so many ranks each; the list ends with 0. */
typedef struct cluster {
  int sizes[HOSTS_MAX];
  double uneven; /* by what factor a rank may do more than others of its host */
} cluster;

/* A shape of all of them, host by host or dealt out in turn. `host_of` has room for RANKS_MAX. */
static colli_shape shape_of(const cluster *c, bool in_turn, int32_t *host_of) {
  colli_shape shape = {.coll = COLLI_ALLREDUCE, .group = host_of};
  for (; c->sizes[shape.ngroups]; shape.ngroups++)
    for (int i = 0; i < c->sizes[shape.ngroups] && !in_turn; i++)
      host_of[shape.nranks++] = shape.ngroups;
  for (int i = 0, before = -1; in_turn && before < shape.nranks; i++) {
    before = shape.nranks;
    for (int g = 0; g < shape.ngroups; g++)
      if (i < c->sizes[g])
        host_of[shape.nranks++] = g;
  }
  cr_assert(shape.nranks <= RANKS_MAX);
  return shape;
}

/* The chunks that a rank sends to ranks of other groups; *chunks: all that there are. */
static int crossing(const colli_algo *algo, const colli_shape *shape, const int32_t *of, int rank,
                    int *chunks) {
  colli_shape mine = *shape;
  colli_sched *sched;
  int count = 0;
  mine.rank = rank;
  cr_assert_eq(colli_algo_emit(algo, &mine, &sched), COLL_OK);
  for (int i = 0; i < sched->nsteps; i++)
    count += (sched->steps[i].bits & COLLI_SEND) && of[sched->steps[i].peer_send] != of[rank];
  *chunks = sched->nchunks;
  colli_sched_free(sched);
  return count;
}

/*
 * Each host sends as much as a ring among hosts of one rank would, and no rank more of it than
 * `uneven` times its even part. A leader of each host would send all of it.
 */
static void check_sent(const char *name, const cluster *c, bool in_turn, double of_vector) {
  int32_t host_of[RANKS_MAX];
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, name);
  const colli_shape shape = shape_of(c, in_turn, host_of);
  int sent[HOSTS_MAX] = {0}, most[HOSTS_MAX] = {0}, chunks = 0;
  for (int rank = 0; rank < shape.nranks; rank++) {
    const int host = host_of[rank], out = crossing(algo, &shape, host_of, rank, &chunks);
    sent[host] += out;
    most[host] = out > most[host] ? out : most[host];
  }
  for (int host = 0; host < shape.ngroups; host++) {
    cr_expect(sent[host] <= of_vector * chunks, "%s: host %d sends %d of %d chunks", name, host,
              sent[host], chunks);
    cr_expect(most[host] * c->sizes[host] <= c->uneven * sent[host],
              "%s: a rank of host %d sends %d of %d", name, host, most[host], sent[host]);
  }
}

Test(shares, of_unequal_hosts) {
  static const cluster clusters[] = {
      {{4, 4, 4}, 1},
      {{2, 2, 2, 1}, 1},
      {{64, 1, 2}, 1},
      {{8, 8, 7}, 1.32},                    /* 3 of 16 shares */
      {{1, 2, 3, 4, 5}, 1.2},               /* 3 of 10 */
      {{3, 5, 3, 5, 3, 5, 3, 5, 1}, 1.21},  /* 4 of 10 */
      {{40, 1, 1, 1, 1, 1, 1, 1, 1}, 2.23}, /* fewer shares than ranks: 18 */
  };
  for (size_t i = 0; i < sizeof(clusters) / sizeof(*clusters); i++)
    for (int in_turn = 0; in_turn < 2; in_turn++) {
      int hosts = 0;
      while (clusters[i].sizes[hosts])
        hosts++;
      check_sent("hier_ring", &clusters[i], in_turn, 2.0 * (hosts - 1) / hosts);
      check_sent("hier_trees", &clusters[i], in_turn, 2);
    }
}

/* What is chosen for so many bytes over TCP, where hosts have cores enough; `shared`: the ranks of
 * a host share its link, which one of them can fill. */
static colli_choice chosen(const cluster *c, bool in_turn, bool shared, size_t bytes,
                           const char *force) {
  static const colli_limits limits = {131072, 8, 262144, 0};
  int32_t host_of[RANKS_MAX];
  const colli_shape shape = shape_of(c, in_turn, host_of);
  colli_calibration typical;
  colli_model model;
  colli_calibration_default(&typical);
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_SHM, shape.nranks, 0, &model);
  model.host_beta_ns_per_byte = shared ? model.beta_ns_per_byte : 0;
  colli_choice choice;
  cr_assert(colli_select(&shape, bytes / 4, 4, &limits, &model, force, &choice, NULL, 0) > 0);
  return choice;
}

/* As many hosts, with so many ranks each but the last. */
static cluster hosts_of(int hosts, int size, int last) {
  cluster c = {.uneven = 1};
  for (int i = 0; i < hosts; i++)
    c.sizes[i] = i < hosts - 1 ? size : last;
  return c;
}

/* Asserts the choice. */
static void expect_choice(cluster c, bool shared, size_t bytes, const char *name) {
  const char *found = chosen(&c, false, shared, bytes, "").algo->name;
  cr_expect_str_eq(found, name, "%zu bytes: %s", bytes, found);
}

/* Of a host that has many times as many ranks as others each still owns a share: in trees its lanes
 * would be in each other's way, where a vector is reduced in place. */
Test(shares, of_a_host_much_larger_than_others) {
  static const char *const names[] = {"hier_trees", "hier_sites", "hier_split", "hier_lanes"};
  const cluster hosts = {.sizes = {20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  int32_t host_of[RANKS_MAX];
  colli_shape shape = shape_of(&hosts, false, host_of);
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
    const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, names[i]);
    colli_sched *scheds[RANKS_MAX];
    char why[256] = "";
    for (shape.rank = 0; shape.rank < shape.nranks; shape.rank++)
      cr_assert_eq(colli_algo_emit(algo, &shape, &scheds[shape.rank]), COLL_OK);
    const colli_verify_options options = {.slots = 2, .in_place = true, .passes = 2};
    cr_expect_eq(
        colli_verify((const colli_sched *const *)scheds, shape.nranks, &options, why, sizeof(why)),
        COLL_OK, "%s: %s", names[i], why);
    for (int rank = 0; rank < shape.nranks; rank++)
      colli_sched_free(scheds[rank]);
  }
}

Test(shares, choice) {
  expect_choice(hosts_of(32, 8, 8), false, 4u << 20, "hier_trees");
  expect_choice(hosts_of(32, 8, 7), false, 4u << 20, "hier_trees");
  /* Each sends over a host's link what need be; all else sends more. */
  expect_choice(hosts_of(32, 8, 8), true, 16u << 20, "ring");
  expect_choice(hosts_of(4, 2, 1), true, 64u << 20, "ring");
  /* Hosts of one rank each need no groups. */
  expect_choice(hosts_of(16, 1, 1), true, 1, "recdbl");
  expect_choice(hosts_of(16, 1, 1), true, 1u << 20, "ring");
}

/* Where ranks are dealt out in turn, a ring sends as much between hosts as other algorithms. */
Test(shares, a_ring_all_of_whose_messages_cross_is_not_chosen) {
  const cluster c = hosts_of(4, 2, 1);
  cr_expect_str_neq(chosen(&c, true, true, 64u << 20, "").algo->name, "ring");
  cr_expect_gt(chosen(&c, true, true, 64u << 20, "ring").predicted_ns,
               1.5 * chosen(&c, false, true, 64u << 20, "ring").predicted_ns);
}

/* 16 ranks, dealt out in turn to two sites of two hosts. */
Test(shares, each_byte_leaves_a_site_once_and_a_host_of_it_twice) {
  static const colli_model line = {.alpha_ns = 5e7,
                                   .beta_ns_per_byte = 2,
                                   .gamma_ns_per_byte = 0.1,
                                   .step_ns = 1000,
                                   .core_share = 1,
                                   .near_alpha_ns = 10000,
                                   .near_beta_ns_per_byte = 1,
                                   .chunk_share = 1,
                                   .flight_ns = 5e7,
                                   .remote = true,
                                   .sites = true,
                                   .inner = {{200, 0.05}}};
  static const colli_limits limits = {131072, 8, 262144, 0};
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, "hier_sites");
  int32_t host[16], site[16];
  int from_site[2] = {0}, from_host[4] = {0}, chunks = 0;
  colli_shape shape = {.coll = COLLI_ALLREDUCE,
                       .nranks = 16,
                       .ngroups = 2,
                       .group = site,
                       .ninner = 1,
                       .inner = {host}};
  for (int rank = 0; rank < 16; rank++) {
    host[rank] = rank % 4;
    site[rank] = rank % 4 / 2;
  }
  for (int rank = 0; rank < 16; rank++) {
    from_site[site[rank]] += crossing(algo, &shape, site, rank, &chunks);
    from_host[host[rank]] += crossing(algo, &shape, host, rank, &chunks);
  }
  for (int i = 0; i < 2; i++)
    cr_expect_eq(from_site[i], chunks);
  for (int i = 0; i < 4; i++) /* a ring of 8 ranks leaves each host once, there and back */
    cr_expect_eq(from_host[i], chunks / 2 + 2 * chunks * 7 / 8, "%d of %d", from_host[i], chunks);
  colli_choice choice;
  cr_assert(colli_select(&shape, 16 << 20, 4, &limits, &line, "", &choice, NULL, 0) > 0);
  cr_expect_eq(choice.algo, algo, "%s", choice.algo->name);
  colli_model shorter = line; /* it holds less than the lanes of eight pairs of ranks */
  shorter.beta_ns_per_byte = 20;
  cr_assert(colli_select(&shape, 16 << 20, 4, &limits, &shorter, "", &choice, NULL, 0) > 0);
  cr_expect_str_eq(choice.algo->name, "hier_lanes");
}

/* Whether a rank's schedule is the same, step by step, if layouts are kept. */
static bool is_same_kept(const colli_algo *algo, const colli_shape *shape, colli_layouts *layouts) {
  colli_sched *anew, *kept;
  colli_shape keeping = *shape;
  keeping.layouts = layouts;
  cr_assert_eq(colli_algo_emit(algo, shape, &anew), COLL_OK);
  cr_assert_eq(colli_algo_emit(algo, &keeping, &kept), COLL_OK);
  const bool same =
      anew->nsteps == kept->nsteps && anew->nchunks == kept->nchunks &&
      memcmp(anew->steps, kept->steps, (size_t)anew->nsteps * sizeof(colli_step)) == 0;
  colli_sched_free(anew);
  colli_sched_free(kept);
  return same;
}

/* All ranks of a shape with groups, with layouts that are kept from one rank to the next. */
static void keep_layouts(const colli_algo *algo, const colli_shape *shape, near_kind near,
                         void *ctx) {
  int *compared = ctx;
  colli_layouts layouts = {0};
  colli_shape mine = *shape;
  const bool keeps = algo->groups && algo->coll != COLLI_ALLTOALL; /* that one needs no layout */
  for (mine.rank = 0; mine.rank < mine.nranks && keeps; mine.rank++, ++*compared)
    cr_expect(is_same_kept(algo, &mine, &layouts),
              "%s, root %d, spread %d, %d levels inside: rank %d", algo->name, mine.root, (int)near,
              mine.ninner, mine.rank);
  cr_expect(!keeps || layouts.at[0].of || layouts.at[1].of, "%s keeps none", algo->name);
  colli_layouts_free(&layouts);
}

Test(shares, of_kept_layouts) {
  int compared = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    shapes_each(*algo, 13, 1, keep_layouts, &compared);
  cr_expect(compared > 0);
}
