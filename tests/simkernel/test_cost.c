/*
 * test_cost.c: virtual time, messages and connections of a creation, and of a shrink with the first
 * all-reduce after it: the table in docs/performance.md. Ranks get no messages that they need not
 * have, and connect to no ranks that they need not know.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "support_job.h"

#define MOST_RANKS 4096

static struct {
  int nranks, dead, reduced;
  uint64_t begin_ns; /* of the first rank's shrink; 0: not yet */
  sk_counts created[MOST_RANKS], shrunk[MOST_RANKS];
  bool is_created[MOST_RANKS];
} cost;

/* Takes the counts of a rank when it is done with a part. */
static void look(int rank, job_call call, int generation) {
  if (call == JOB_REDUCE && generation == 0 && !cost.is_created[rank]) {
    cost.is_created[rank] = true;
    cost.created[rank] = sk_count(rank);
  } else if (call == JOB_REDUCE && generation == 0 && rank == cost.dead && cost.reduced++ == 3) {
    sk_kill_after(rank, 5);
  } else if (call == JOB_SHRINK && cost.begin_ns == 0) {
    cost.begin_ns = sk_now_ns();
    sk_reset_counts();
  } else if (call == JOB_REDUCE && generation == 1) {
    cost.shrunk[rank] = sk_count(rank); /* the second time it is done with the first one */
  }
}

/* Messages that a rank has sent or received. */
static uint64_t messages(const sk_counts *counts) {
  return counts->sends + counts->receives;
}

/* Those of the busiest rank but the first. */
static uint64_t most_of_others(const sk_counts *counts) {
  uint64_t most = 0;
  for (int rank = 1; rank < cost.nranks; rank++)
    most = messages(&counts[rank]) > most ? messages(&counts[rank]) : most;
  return most;
}

/* Asserts how many connections each rank has made and accepted: of the rank that made the id, and
 * of each other one, no more than so many. */
static void check_connections(const sk_counts *counts, uint64_t made, uint64_t first,
                              uint64_t others) {
  for (int rank = 0; rank < cost.nranks; rank++) {
    const uint64_t accepted = rank == 0 ? first : others;
    cr_expect_leq(counts[rank].connects, made, "rank %d of %d connects %d times", rank, cost.nranks,
                  (int)counts[rank].connects);
    cr_expect_leq(counts[rank].accepts, accepted, "rank %d of %d accepts %d times", rank,
                  cost.nranks, (int)counts[rank].accepts);
  }
}

/* The number of rounds of doubling. */
static uint64_t rounds_of(uint64_t n) {
  uint64_t rounds = 0;
  while (1ull << rounds < n)
    rounds++;
  return rounds;
}

/* Measures, and prints a row; fan_out: see job_config. */
static void measure(int nranks, int fan_out) {
  job_config config = job_defaults(1, nranks, 8);
  /* That is what all choose; but they would all take the time for it, one after the other. */
  setenv("COLL_ALGO", "allreduce:recdbl", 1);
  config.create_timeout_ms = config.timeout_ms = 60000;
  config.fan_out = fan_out;
  config.direct = config.stays = true;
  config.count = 1;
  config.about = look;
  memset(&cost, 0, sizeof(cost));
  cost.nranks = nranks;
  cost.dead = nranks - 1;
  sk_open(&config.kernel);
  cr_assert(job_run(&config));
  cr_assert_eq(job_check_together(), 0);
  uint64_t created_ns = 0, shrunk_ns = 0;
  for (int rank = 0; rank < nranks - 1; rank++) {
    const uint64_t created = job_last(rank, JOB_CREATE)->end_ns;
    const uint64_t reduced = job_last(rank, JOB_REDUCE)->end_ns;
    created_ns = created > created_ns ? created : created_ns;
    shrunk_ns = reduced > shrunk_ns ? reduced : shrunk_ns;
  }
  const uint64_t n = (uint64_t)nranks, lead_created = messages(&cost.created[0]),
                 lead_shrunk = messages(&cost.shrunk[0]), created = most_of_others(cost.created),
                 shrunk = most_of_others(cost.shrunk);
  printf("| %d, %s | %.1f ms | %d | %d | %.1f ms | %d | %d |\n", nranks, fan_out ? "tree" : "star",
         (double)created_ns / 1e6, (int)lead_created, (int)created,
         (double)(shrunk_ns - cost.begin_ns) / 1e6, (int)lead_shrunk, (int)shrunk);
  /* Ten messages with each rank that checks in, and those over its few control links. Many records
   * take several calls: so many bytes fit into a socket. */
  const uint64_t parts = cost.created[0].received_bytes / config.kernel.buffer_bytes;
  cr_expect_leq(lead_created, 10 * (fan_out ? (uint64_t)fan_out : n) + 100 + parts);
  cr_expect_leq(created, 10 * (uint64_t)fan_out + 200);
  /* Each connects to where it checks in, and for its few control links; besides those, it accepts
   * only who checks in with it. */
  check_connections(cost.created, 4, (fan_out ? (uint64_t)fan_out : n) + 2, (uint64_t)fan_out + 2);
  cr_expect_leq(lead_shrunk, 300); /* it talks to few of them */
  cr_expect_leq(shrunk, 400);
  /* New control links, and connections for each round of the all-reduce. */
  check_connections(cost.shrunk, 4 + rounds_of(n), 4 + rounds_of(n), 4 + rounds_of(n));
  job_free();
  sk_close();
}

/* COST_RANKS=4096, for that many only, takes 6.1 GB: each rank has a table of all others. */
Test(cost, of_creation_and_shrink, .timeout = 600) {
  const char *wanted = getenv("COST_RANKS");
  const int most = wanted ? atoi(wanted) : extent(1024, 1024, 64);
  cr_assert_leq(most, MOST_RANKS);
  for (int nranks = wanted ? most : 16; nranks <= most; nranks *= 4)
    for (int fan_out = 0; fan_out <= 16; fan_out += 16)
      measure(nranks, fan_out);
}
