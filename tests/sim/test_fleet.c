/*
 * test_fleet.c: up to 4096 ranks on a fat tree run collectives with the library's executor: data,
 * messages, rounds, memory; and the predictions of the cost model beside the virtual time that it
 * takes. Algorithms whose schedules have a step for each other rank run on fewer, or with
 * TEST_ALL=1: all schedules together grow with the square of the ranks, as messages do (a ring of
 * 4096 ranks has 33 million, and 1 GB of schedules).
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "libcoll/comm/levels.h"
#include "libcoll/cost/links.h"
#include "support_fleet.h"

#define RANK_BYTES ((size_t)64 * 1024) /* besides vector and schedule */

/* Hosts of 8 ranks, 16 of them at a switch, and all switches at others. */
static const colli_network fat_tree = {3,
                                       {{8, 500, 0.01}, {128, 2000, 0.04}, {1 << 17, 4000, 0.04}}};

/* The same with pods of 64 hosts, between which links are shared. */
static const colli_network pods = {
    4, {{8, 500, 0.01}, {128, 2000, 0.04}, {512, 4000, 0.04}, {1 << 17, 6000, 0.08}}};

/* Every message takes 1000 ns, so that time counts rounds. */
static const colli_network flat = {2, {{8, 1000, 0}, {1 << 17, 1000, 0}}};

static const colli_limits usual = {.slot_bytes = 65536, .slot_count = 16, .chunk_bytes = 524288};

/* Runs an algorithm, and checks what must hold for all. */
static fleet_result run_config(const fleet_config *config) {
  cr_assert(config->algo);
  const fleet_result r = fleet_run(config);
  fprintf(stderr,
          "%s %s, %d ranks, %zu bytes: %.0f ns, replay %.3f, formula %.3f, %llu messages, %zu "
          "bytes a rank\n",
          colli_coll_name(config->algo->coll), config->algo->name, config->nranks,
          config->count * sizeof(float), r.ns, r.predicted_ns / r.ns, r.formula_ns / r.ns,
          (unsigned long long)r.messages, r.rank_bytes);
  cr_expect_eq(r.wrong, 0);
  return r;
}

/* What a rank takes besides its vector and its schedule, in a process that has no memory left over
 * from other worlds. Where each round has another peer each way, which no other collective has,
 * connections take a little more. */
static void check_memory(const char *name, const fleet_result *r) {
  const size_t most = strcmp(name, "dissemination") == 0 ? RANK_BYTES * 5 / 4 : RANK_BYTES;
  cr_expect(SANITIZED || (r->rank_bytes > 0 && r->rank_bytes < most), "%s: %zu bytes a rank", name,
            r->rank_bytes);
}

/* The same with the usual limits. */
static fleet_result run(colli_coll coll, const char *name, int nranks, size_t count,
                        const colli_network *network) {
  const fleet_config config = {.algo = colli_algo_find(coll, name),
                               .nranks = nranks,
                               .count = count,
                               .network = network,
                               .limits = usual};
  return run_config(&config);
}

/* Whether a prediction is within a share of what it took. */
static bool is_near(double predicted, double took, double share) {
  return fabs(predicted / took - 1) <= share;
}

/* The number of ranks whose logarithm is rounds. */
static int ranks_of(int rounds) {
  return 1 << rounds;
}

/* Short vectors: as many messages and rounds as the algorithms promise. */
static void count_rounds(int log) {
  const int n = ranks_of(log), hosts = n / 8, across = log - 3;
  const struct {
    colli_coll coll;
    const char *name;
    int messages, rounds;
  } all[] = {
      {COLLI_ALLREDUCE, "recdbl", n * log, log},
      {COLLI_ALLREDUCE, "dbtree", 4 * (n - 1), 2 * log},
      {COLLI_ALLREDUCE, "knomial2", 2 * (n - 1), 2 * log},
      {COLLI_ALLREDUCE, "hier", 2 * (n - hosts) + hosts * across, 6 + across},
      {COLLI_ALLREDUCE, "hier_split", 2 * 7 * n + n * across, 14 + across},
      {COLLI_BROADCAST, "binomial", n - 1, log},
      {COLLI_BROADCAST, "hier", n - 1, log},
      {COLLI_BARRIER, "dissemination", n * log, log},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
    /* 8 chunks of hier_split are not empty from 8 * 64 bytes on */
    const size_t count = all[i].coll == COLLI_BARRIER ? 0 : 128;
    const fleet_result r = run(all[i].coll, all[i].name, n, count, &flat);
    cr_expect_eq((int)r.messages, all[i].messages, "%s: %d", all[i].name, (int)r.messages);
    cr_expect_eq((int)lround(r.ns / 1000), all[i].rounds, "%s: %g ns", all[i].name, r.ns);
  }
}

Test(fleet, rounds_of_1024_ranks, .timeout = 300) {
  count_rounds(extent(10, 10, 8));
}

Test(fleet, rounds_of_4096_ranks, .timeout = 600) {
  count_rounds(extent(12, 12, 8));
}

/* The algorithms of which all ranks' schedules fit into memory. */
static const struct {
  colli_coll coll;
  const char *name;
} logarithmic[] = {
    {COLLI_ALLREDUCE, "recdbl"},   {COLLI_ALLREDUCE, "dbtree"},   {COLLI_ALLREDUCE, "hier"},
    {COLLI_ALLREDUCE, "knomial4"}, {COLLI_ALLREDUCE, "bintree"},  {COLLI_ALLREDUCE, "hier_split"},
    {COLLI_BROADCAST, "binomial"}, {COLLI_BROADCAST, "knomial8"}, {COLLI_BROADCAST, "bintree"},
};

/* What the cost model says of a network. */
static void check_predictions(int nranks, size_t count, const colli_network *network) {
  for (size_t i = 0; i < sizeof(logarithmic) / sizeof(logarithmic[0]); i++) {
    const fleet_result r = run(logarithmic[i].coll, logarithmic[i].name, nranks, count, network);
    cr_expect(is_near(r.predicted_ns, r.ns, 0.01), "replay of %s", logarithmic[i].name);
    cr_expect(is_near(r.formula_ns, r.ns, 0.01), "formula of %s", logarithmic[i].name);
  }
}

Test(fleet, predictions_for_short_vectors_on_4096_ranks, .timeout = 600) {
  check_predictions(ranks_of(extent(12, 12, 6)), 2, &fat_tree);
}

Test(fleet, predictions_for_longer_vectors_on_4096_ranks, .timeout = 600) {
  check_predictions(ranks_of(extent(12, 12, 6)), (size_t)extent(4096, 4096, 256), &fat_tree);
}

/* What the library assumes of hosts and TCP between them if nothing was measured. */
Test(fleet, predictions_with_typical_costs, .timeout = 600) {
  colli_calibration typical;
  colli_calibration_default(&typical);
  const colli_link_costs *near = &typical.apart[COLLI_LINK_SHM],
                         *far = &typical.apart[COLLI_LINK_TCP];
  const colli_network network = {2,
                                 {{8, near->alpha_ns, near->beta_ns_per_byte},
                                  {1 << 17, far->alpha_ns, far->beta_ns_per_byte}}};
  check_predictions(ranks_of(extent(12, 12, 6)), (size_t)extent(2048, 2048, 256), &network);
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* Algorithms that know all levels, in hosts, racks and pods. */
static void check_levels(const char *name, int nranks, size_t count, const colli_network *network) {
  const fleet_result r = run(COLLI_ALLREDUCE, name, nranks, count, network);
  cr_expect(is_near(r.predicted_ns, r.ns, 0.01), "replay of %s", name);
  cr_expect(is_near(r.formula_ns, r.ns, 0.05), "formula of %s", name);
}

Test(fleet, levels_on_4096_ranks, .timeout = 300) {
  const int n = ranks_of(extent(12, 12, 9));
  check_levels("hier_levels", n, 2, &fat_tree);
  check_levels("hier_levels", n, 16384, &pods);
  check_levels("hier_levels_split", n, 16384, &fat_tree);
  check_levels("hier_levels_split", n, 2, &pods);
  check_levels("hier_levels_split", n / 4, 16384, &pods);
  check_levels("hier_lanes", ranks_of(10), 16384, &fat_tree);
}

/* ---- long vectors ---------------------------------------------------------------------------- */

/* A GiB, in slots of an eighth of a chunk; 16 elements of the fleet fill one. */
static void check_long(const char *name, int nranks, size_t chunk_bytes, double replay) {
  const size_t slot_bytes = chunk_bytes / 8;
  const fleet_config config = {.algo = colli_algo_find(COLLI_ALLREDUCE, name),
                               .nranks = nranks,
                               .count = (size_t)1 << 28,
                               .each = (int)(slot_bytes / 64),
                               .network = &fat_tree,
                               .limits = {.slot_bytes = slot_bytes,
                                          .slot_count = 16,
                                          .chunk_bytes = chunk_bytes,
                                          .slice_bytes = slot_bytes}};
  const fleet_result r = run_config(&config);
  check_memory(name, &r);
  cr_expect(is_near(r.predicted_ns, r.ns, replay), "replay of %s", name);
  cr_expect(is_near(r.formula_ns, r.ns, 0.05), "formula of %s", name);
}

#define LONG_CHUNK ((size_t)64 << 20)

Test(fleet, a_gib_over_levels_on_4096_ranks, .timeout = 600) {
  check_long("hier_levels_split", ranks_of(extent(12, 12, 8)), LONG_CHUNK, 0.01);
}

Test(fleet, a_gib_over_two_trees_on_4096_ranks, .timeout = 600) {
  check_long("dbtree", ranks_of(extent(12, 12, 8)), LONG_CHUNK, 0.01);
}

Test(fleet, a_gib_over_trees_between_hosts_on_4096_ranks, .timeout = 600) {
  check_long("hier_trees", ranks_of(extent(12, 12, 8)), LONG_CHUNK / 2, 0.1);
}

/* A vector takes as long if fewer elements stand for it. */
Test(fleet, fewer_elements_take_as_long) {
  fleet_config config = {.algo = colli_algo_find(COLLI_ALLREDUCE, "hier_trees"),
                         .nranks = 128,
                         .count = (size_t)1 << 20,
                         .network = &fat_tree,
                         .limits = usual};
  config.limits.slice_bytes = 4096;
  const fleet_result all = run_config(&config);
  config.each = 64;
  const fleet_result fewer = run_config(&config);
  cr_expect(is_near(fewer.ns, all.ns, 1e-4), "%g instead of %g ns", fewer.ns, all.ns);
  cr_expect_eq(fewer.messages, all.messages);
}

/* Passes follow each other through hosts and trees, also if the last host is short of ranks. */
static void check_trees(int nranks, int passes, double replay, double formula) {
  const fleet_config config = {
      .algo = colli_algo_find(COLLI_ALLREDUCE, "hier_trees"),
      .nranks = nranks,
      .count = (size_t)passes << 18,
      .each = 64,
      .network = &fat_tree,
      .limits = {.slot_bytes = 8192, .slot_count = 16, .chunk_bytes = 65536, .slice_bytes = 4096}};
  const fleet_result r = run_config(&config);
  cr_expect(is_near(r.predicted_ns, r.ns, replay), "replay, %d ranks", nranks);
  cr_expect(is_near(r.formula_ns, r.ns, formula), "formula, %d ranks", nranks);
}

Test(fleet, trees_between_hosts, .timeout = 300) {
  static const int missing[] = {1, 3, 7};
  const int n = ranks_of(extent(12, 12, 8)), fewer = ranks_of(extent(9, 12, 9));
  check_trees(n, 1, 0.01, 0.05);
  for (int passes = 1; passes <= 4; passes++)
    check_trees(fewer, passes, 0.01, 0.05);
  for (int i = 0; i < 3; i++) {
    check_trees(fewer - missing[i], 1, 0.01, 0.05);
    /* Where passes overlap, who goes first is not as in the replay; and all shares of the last host
     * may be one rank's. */
    check_trees(fewer - missing[i], 4, 0.1, missing[i] == 7 ? 0.2 : 0.05);
  }
}

/* ---- parts of a staged call -------------------------------------------------------------------
 */

/* What hosts of 8 GPUs send each other: one rank a host. */
static const colli_network between_hosts = {2, {{16, 2000, 0.04}, {1 << 17, 4000, 0.04}}};

/* An all-reduce in parts of 1 MiB, as long as many as may be under way. */
static void check_parts(const char *name, size_t chunk_bytes, int nranks, int parts) {
  const fleet_config config = {.algo = colli_algo_find(COLLI_ALLREDUCE, name),
                               .nranks = nranks,
                               .count = (size_t)parts << 18,
                               .each = 256,
                               .parts = parts,
                               .ahead = COLLI_STAGED_DEPTH,
                               .network = &between_hosts,
                               .limits = {.slot_bytes = 131072,
                                          .slot_count = 8,
                                          .chunk_bytes = chunk_bytes,
                                          .slice_bytes = chunk_bytes}};
  const fleet_result r = run_config(&config);
  cr_expect(is_near(r.formula_ns, r.ns, 0.05), "%s in %d parts", name, parts);
}

/* 4096 GPUs, 8 a host, with the algorithm and the chunks that are chosen there; and 4096 hosts. */
Test(fleet, parts_between_hosts_of_gpus, .timeout = 300) {
  const int hosts = ranks_of(extent(9, 12, 6));
  check_parts("dbtree", 16384, hosts, 16);
  check_parts("hier_trees", 32768, ranks_of(extent(12, 12, 6)), 8);
}

/* ---- a step for each other rank -------------------------------------------------------------- */

/* Each of n - 1 neighbours in a ring gets its n chunks twice. */
Test(fleet, rings, .timeout = 600) {
  const int n = extent(1024, 4096, 64), fewer = extent(256, 1024, 64);
  const fleet_result ring = run(COLLI_ALLREDUCE, "ring", n, (size_t)n, &fat_tree);
  cr_expect_eq(ring.messages, (uint64_t)(2 * n) * (uint64_t)(n - 1));
  /* each chunk has a cache line */
  const fleet_result lines = run(COLLI_ALLREDUCE, "ring", fewer, (size_t)fewer * 16, &fat_tree);
  const fleet_result levels =
      run(COLLI_ALLREDUCE, "hier_ring", fewer, (size_t)fewer * 16, &fat_tree);
  const fleet_result chain = run(COLLI_BROADCAST, "chain", n, 2, &fat_tree);
  cr_expect_eq(chain.messages, (uint64_t)(n - 1));
  const fleet_result *all[] = {&ring, &lines, &levels, &chain};
  for (int i = 0; i < 4; i++) {
    cr_expect(is_near(all[i]->predicted_ns, all[i]->ns, 0.01), "replay %d", i);
    cr_expect(is_near(all[i]->formula_ns, all[i]->ns, 0.05), "formula %d", i);
  }
}

/* Each round has many messages on their way, which take memory. */
Test(fleet, halving_and_doubling, .timeout = 600) {
  const int n = extent(512, 2048, 64);
  const fleet_config config = {.algo = colli_algo_find(COLLI_ALLREDUCE, "rabenseifner"),
                               .nranks = n,
                               .count = (size_t)n * 16,
                               .network = &fat_tree,
                               .limits = usual};
  const fleet_result r = run_config(&config);
  cr_expect(is_near(r.predicted_ns, r.ns, 0.01), "replay");
  cr_expect(is_near(r.formula_ns, r.ns, 0.05), "formula");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void use_memory(colli_coll coll, const char *name, int nranks) {
  const fleet_result r = run(coll, name, nranks, coll == COLLI_BARRIER ? 0 : 1024, &fat_tree);
  fprintf(stderr, "a schedule has %zu bytes\n", r.sched_bytes);
  check_memory(name, &r);
}

Test(fleet, memory_of_doubling, .timeout = 300) {
  use_memory(COLLI_ALLREDUCE, "recdbl", extent(4096, 4096, 64));
}

Test(fleet, memory_of_trees, .timeout = 300) {
  use_memory(COLLI_ALLREDUCE, "dbtree", extent(4096, 4096, 64));
}

Test(fleet, memory_of_trees_between_hosts, .timeout = 300) {
  use_memory(COLLI_ALLREDUCE, "hier_trees", extent(4096, 4096, 64));
}

Test(fleet, memory_of_levels, .timeout = 300) {
  use_memory(COLLI_ALLREDUCE, "hier_levels_split", extent(4096, 4096, 64));
}

Test(fleet, memory_of_rings, .timeout = 600) {
  use_memory(COLLI_ALLREDUCE, "ring", extent(512, 4096, 64));
}

Test(fleet, memory_of_barriers, .timeout = 300) {
  use_memory(COLLI_BARRIER, "dissemination", extent(4096, 4096, 64));
}
