/*
 * test_fleet.c: up to 4096 ranks on a fat tree run collectives with the library's executor: data,
 * messages, rounds, memory; and the predictions of the cost model beside the virtual time that it
 * takes. Algorithms whose schedules have a step for each other rank run on fewer: all schedules
 * together grow with the square of the ranks (the ring's of 4096 ranks take 1 GB).
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "extent.h"
#include "support_fleet.h"

#define RANK_BYTES ((size_t)64 * 1024)

/* Hosts of 8 ranks, 16 of them at a switch, and all switches at others. */
static const colli_network fat_tree = {3,
                                       {{8, 500, 0.01}, {128, 2000, 0.04}, {1 << 17, 4000, 0.04}}};

/* Every message takes 1000 ns, so that time counts rounds. */
static const colli_network flat = {2, {{8, 1000, 0}, {1 << 17, 1000, 0}}};

/* Runs an algorithm, and checks what must hold for all. */
static fleet_result run(colli_coll coll, const char *name, int nranks, size_t count,
                        const colli_network *network) {
  const fleet_config config = {
      .algo = colli_algo_find(coll, name),
      .nranks = nranks,
      .count = count,
      .network = network,
      .limits = {.slot_bytes = 65536, .slot_count = 16, .chunk_bytes = 524288}};
  cr_assert(config.algo);
  const fleet_result r = fleet_run(&config);
  fprintf(stderr,
          "%s %s, %d ranks, %zu bytes: %.0f ns, replay %.3f, formula %.3f, %llu messages, %zu "
          "bytes a rank\n",
          colli_coll_name(coll), name, nranks, count * sizeof(float), r.ns, r.predicted_ns / r.ns,
          r.formula_ns / r.ns, (unsigned long long)r.messages, r.rank_bytes);
  cr_expect_eq(r.wrong, 0);
  return r;
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

/* What the cost model says of a fat tree. */
static void check_predictions(int nranks, size_t count) {
  for (size_t i = 0; i < sizeof(logarithmic) / sizeof(logarithmic[0]); i++) {
    const fleet_result r = run(logarithmic[i].coll, logarithmic[i].name, nranks, count, &fat_tree);
    cr_expect(is_near(r.predicted_ns, r.ns, 0.01), "replay of %s", logarithmic[i].name);
    cr_expect(is_near(r.formula_ns, r.ns, 0.01), "formula of %s", logarithmic[i].name);
  }
}

Test(fleet, predictions_for_short_vectors_on_4096_ranks, .timeout = 600) {
  check_predictions(ranks_of(extent(12, 12, 6)), 2);
}

Test(fleet, predictions_for_longer_vectors_on_4096_ranks, .timeout = 600) {
  check_predictions(ranks_of(extent(12, 12, 6)), (size_t)extent(4096, 4096, 256));
}

/* Passes follow each other through hosts and trees, also if the last host is short of ranks. */
Test(fleet, trees_between_hosts, .timeout = 300) {
  const int n = ranks_of(extent(10, 12, 8));
  const size_t count = (size_t)extent(1, 4, 1) * 65536;
  for (int missing = 0; missing < 4; missing += 3) {
    const fleet_result r = run(COLLI_ALLREDUCE, "hier_trees", n - missing, count, &fat_tree);
    cr_expect(is_near(r.predicted_ns, r.ns, 0.01), "replay, %d missing", missing);
    cr_expect(is_near(r.formula_ns, r.ns, 0.15), "formula, %d missing", missing);
  }
}

/* Each of n - 1 neighbours in a ring gets its n chunks twice. */
Test(fleet, rings, .timeout = 300) {
  const int n = extent(256, 1024, 64);
  const size_t count = (size_t)n * 16; /* each chunk has a cache line */
  const fleet_result ring = run(COLLI_ALLREDUCE, "ring", n, count, &fat_tree);
  cr_expect_eq(ring.messages, (uint64_t)(2 * n) * (uint64_t)(n - 1));
  const fleet_result levels = run(COLLI_ALLREDUCE, "hier_ring", n, count, &fat_tree);
  const fleet_result chain = run(COLLI_BROADCAST, "chain", n, 2, &fat_tree);
  cr_expect_eq(chain.messages, (uint64_t)(n - 1));
  const fleet_result *all[] = {&ring, &levels, &chain};
  for (int i = 0; i < 3; i++) {
    cr_expect(is_near(all[i]->predicted_ns, all[i]->ns, 0.01), "replay %d", i);
    cr_expect(is_near(all[i]->formula_ns, all[i]->ns, 0.05), "formula %d", i);
  }
}

/* In a process of its own, which has no memory left over from other worlds. */
static void check_memory(const char *name) {
  const fleet_result r = run(COLLI_ALLREDUCE, name, extent(4096, 4096, 64), 256, &fat_tree);
  cr_expect(SANITIZED || (r.rank_bytes > 0 && r.rank_bytes < RANK_BYTES), "%zu bytes a rank",
            r.rank_bytes);
}

Test(fleet, memory_of_doubling, .timeout = 300) {
  check_memory("recdbl");
}

Test(fleet, memory_of_trees, .timeout = 300) {
  check_memory("dbtree");
}
