/*
 * test_cuts.c: links of the simulated kernel are cut, in both directions or one, and heal; ranks
 * stop and go on; and one may die, or abort. Whatever the survivors conclude: never two
 * communicators from one, no agreement with two results, no wrong result, and every call ends in
 * time.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "seeds.h"
#include "support_job.h"

/* What happens; all times are virtual. */
static struct {
  uint64_t sides; /* hosts, as bits, that are on the one side of the cut */
  bool one_way;
  int nhosts;
  int killed, stopped, aborter; /* ranks, or -1 */
  int aborted;                  /* how many ranks were in a shrink or agreement at the abort */
} storm;

static void set_cut(uint64_t cut) {
  for (int from = 0; from < storm.nhosts; from++)
    for (int to = 0; to < storm.nhosts; to++) {
      const bool is_from = storm.sides >> from & 1, is_to = storm.sides >> to & 1;
      if (is_from && !is_to)
        sk_cut(from, to, cut != 0);
      else if (!is_from && is_to && !storm.one_way)
        sk_cut(from, to, cut != 0);
    }
}

static void strike_rank(uint64_t stop) {
  if (stop)
    sk_stop(storm.stopped, true);
  else
    sk_kill(storm.killed);
}

static void let_go(uint64_t rank) {
  sk_stop((int)rank, false);
}

/* Whether those ranks go on who are on one side of a cut that stays, and more than half. */
static bool majority_goes_on(const job_config *config) {
  const int nranks = config->kernel.nranks;
  int count[2] = {0, 0}, happy[2] = {0, 0};
  for (int rank = 0; rank < nranks; rank++) {
    const int side = storm.sides >> sk_host(rank) & 1;
    count[side] += sk_is_alive(rank);
    happy[side] += sk_is_alive(rank) && job_ranks[rank].happy;
  }
  for (int side = 0; side < 2; side++)
    if (2 * count[side] > nranks && happy[side] < count[side]) {
      fprintf(stderr, "only %d of %d ranks go on, which are most\n", happy[side], count[side]);
      return false;
    }
  return true;
}

/* Runs the job; whether the rules hold. `stays`: the cut does, and nothing is stopped. */
static bool obey(const job_config *config, const char *what, uint64_t seed, bool stays,
                 bool verbose) {
  bool ok = job_run(config);
  ok = job_check() == 0 && ok;
  ok = ok && (!stays || majority_goes_on(config));
  if (!ok || verbose)
    fprintf(stderr, "%s %llu, %d ranks, sides %llx%s, killed %d, stopped %d\n", what,
            (unsigned long long)seed, config->kernel.nranks, (unsigned long long)storm.sides,
            storm.one_way ? " one way" : "", storm.killed, storm.stopped);
  if (!ok || verbose)
    job_print();
  job_free();
  sk_close();
  return ok;
}

/* Draws a cut, and how long it lasts: a moment, long enough to be noticed, or the rest of the time.
 */
static void draw_cut(colli_prng *prng, int nhosts) {
  storm.nhosts = nhosts;
  storm.one_way = colli_prng_below(prng, 3) == 0;
  storm.sides = 1 + colli_prng_below(prng, (1ull << nhosts) - 2);
  const uint64_t at_ns = colli_prng_below(prng, 30ull << colli_prng_below(prng, 10)) * SK_MS / 4;
  const uint64_t lasts_ns = colli_prng_below(prng, 12000) * SK_MS;
  sk_at(at_ns, set_cut, 1);
  if (colli_prng_below(prng, 4))
    sk_at(at_ns + 1 + lasts_ns, set_cut, 0);
}

static bool random_cuts(uint64_t seed, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = 3 + (int)colli_prng_below(&prng, 10);
  const int per_host = 1 + (int)colli_prng_below(&prng, (uint64_t)(nranks - 1) / 2);
  job_config config = job_defaults(seed, nranks, per_host);
  config.stays = true;
  config.pause_ns = (1 + colli_prng_below(&prng, 20)) * SK_MS;
  config.create_timeout_ms = 3000;
  config.timeout_ms = 3000;
  config.heartbeat_ms = 500 + 500 * (int)colli_prng_below(&prng, 3);
  config.kernel.jitter_ns = colli_prng_below(&prng, 30000);
  config.kernel.switch_percent = (unsigned)colli_prng_below(&prng, 20);
  sk_open(&config.kernel);
  storm.killed = storm.stopped = -1;
  draw_cut(&prng, (nranks + per_host - 1) / per_host);
  if (colli_prng_below(&prng, 3) == 0) {
    storm.killed = (int)colli_prng_below(&prng, (uint64_t)nranks);
    sk_at(colli_prng_below(&prng, 8000) * SK_MS, strike_rank, 0);
  } else { /* something must end the all-reduces */
    storm.stopped = (int)colli_prng_below(&prng, (uint64_t)nranks);
    const uint64_t at_ns = colli_prng_below(&prng, 2000) * SK_MS;
    sk_at(at_ns, strike_rank, 1);
    sk_at(at_ns + (4 + colli_prng_below(&prng, 10)) * SK_S, let_go, (uint64_t)storm.stopped);
  }
  config.rounds = 1;
  return obey(&config, "cuts of seed", seed, false, verbose);
}

Test(cuts, random_cuts, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_cuts --filter cuts/random_cuts", random_cuts,
                         1, extent(150, 1000, 8)),
               0);
}

/* ---- halves -----------------------------------------------------------------------------------
 */

/* How many ranks of each side end in a communicator without the other one. */
static void count_sides(int nranks, int per_host, int happy[2]) {
  happy[0] = happy[1] = 0;
  for (int rank = 0; rank < nranks; rank++) {
    const job_entry *e = job_last(rank, JOB_SHRINK);
    if (job_ranks[rank].happy && e && e->nranks < nranks)
      happy[storm.sides >> (rank / per_host) & 1]++;
  }
}

/* Cuts a job of two hosts in two; the half with rank 0 goes on. */
Test(cuts, half_goes_on, .timeout = 100) {
  for (int per_host = 1; per_host <= 8; per_host *= 2) {
    job_config config = job_defaults((uint64_t)per_host, 2 * per_host, per_host);
    int happy[2];
    config.stays = true;
    sk_open(&config.kernel);
    storm.nhosts = 2;
    storm.sides = 2;
    storm.one_way = false;
    sk_at(20 * SK_MS, set_cut, 1);
    cr_expect(job_run(&config));
    cr_expect_eq(job_check(), 0);
    count_sides(2 * per_host, per_host, happy);
    cr_expect_eq(happy[0], per_host);
    cr_expect_eq(happy[1], 0);
    if (happy[0] != per_host)
      job_print();
    job_free();
    sk_close();
  }
}

/* A cut that heals before anybody minds is not noticed: the job ends because a rank dies. */
Test(cuts, heals_unnoticed, .timeout = 100) {
  job_config config = job_defaults(1, 6, 2);
  config.stays = true;
  config.pause_ns = 2 * SK_MS;
  sk_open(&config.kernel);
  storm.nhosts = 3;
  storm.sides = 1;
  storm.one_way = false;
  storm.killed = 5;
  sk_at(20 * SK_MS, set_cut, 1);
  sk_at(420 * SK_MS, set_cut, 0);
  sk_at(1500 * SK_MS, strike_rank, 0);
  cr_expect(job_run(&config));
  cr_expect_eq(job_check_together(), 0);
  const job_entry *e = job_last(0, JOB_SHRINK);
  cr_expect(e && e->nranks == 5 && e->begin_ns > 1500 * SK_MS);
  job_free();
  sk_close();
}

/* ---- cuts in the middle of a shrink -------------------------------------------------------------
 */

/* What happens at some moment behind the first call of a kind. */
static struct {
  job_call call;
  uint64_t cut_ns, lasts_ns, kill_ns; /* 0: never heals; nobody is killed */
  bool begun;
} moment;

/* Rank `dead` dies in an all-reduce, and the call that follows begins. */
static void reach_moment(int rank, job_call call, int generation) {
  if (call == JOB_REDUCE && generation == 0 && rank == storm.stopped && storm.aborted++ == 2)
    sk_kill_after(rank, 5);
  if (call != moment.call || moment.begun)
    return;
  moment.begun = true;
  sk_at(sk_now_ns() + moment.cut_ns, set_cut, 1);
  if (moment.lasts_ns)
    sk_at(sk_now_ns() + moment.cut_ns + moment.lasts_ns, set_cut, 0);
  if (moment.kill_ns)
    sk_at(sk_now_ns() + moment.kill_ns, strike_rank, 0);
}

static bool cut_in_shrink(uint64_t seed, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = 3 + (int)colli_prng_below(&prng, 5);
  const int per_host = 1 + (int)colli_prng_below(&prng, (uint64_t)(nranks - 1) / 2);
  job_config config = job_defaults(seed, nranks, per_host);
  config.stays = true;
  config.direct = colli_prng_below(&prng, 2);
  config.about = reach_moment;
  config.create_timeout_ms = config.timeout_ms = 3000;
  config.heartbeat_ms = 500 + 500 * (int)colli_prng_below(&prng, 3);
  config.kernel.jitter_ns = colli_prng_below(&prng, 2) * 20000;
  sk_open(&config.kernel);
  storm.nhosts = (nranks + per_host - 1) / per_host;
  storm.sides = 1 + colli_prng_below(&prng, (1ull << storm.nhosts) - 2);
  storm.one_way = colli_prng_below(&prng, 2);
  storm.stopped = (int)colli_prng_below(&prng, (uint64_t)nranks);
  storm.killed = (int)colli_prng_below(&prng, (uint64_t)nranks);
  storm.aborted = 0;
  moment.call = config.direct || colli_prng_below(&prng, 2) ? JOB_SHRINK : JOB_AGREE;
  moment.cut_ns = colli_prng_below(&prng, 1400) * 1000;
  moment.lasts_ns = colli_prng_below(&prng, 4) ? 1 + colli_prng_below(&prng, 9000) * SK_MS : 0;
  moment.kill_ns = colli_prng_below(&prng, 3) ? 0 : 1 + colli_prng_below(&prng, 2000) * 1000;
  if (moment.kill_ns && colli_prng_below(&prng, 2))
    moment.kill_ns *= 1 + colli_prng_below(&prng, 3000);
  moment.begun = false;
  return obey(&config, "cut in a shrink, seed", seed, moment.lasts_ns == 0 && !storm.one_way,
              verbose);
}

Test(cuts, in_a_shrink, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_cuts --filter cuts/in_a_shrink", cut_in_shrink,
                         1, extent(200, 1000, 8)),
               0);
}

/* ---- aborts -----------------------------------------------------------------------------------
 */

static void abort_now(int rank) {
  coll_comm_abort(job_ranks[rank].now);
}

static void strike_abort(uint64_t rank) {
  storm.aborted = 0;
  for (int r = 0; job_ranks && job_ranks[r].count > 0; r++) {
    const job_entry *e = &job_ranks[r].entries[job_ranks[r].count - 1];
    storm.aborted += !e->ended && (e->call == JOB_AGREE || e->call == JOB_SHRINK);
    if (r + 1 == (int)storm.nhosts)
      break;
  }
  if (job_ranks[rank].now)
    sk_interrupt((int)rank, abort_now);
}

/* A rank never comes, so that all others wait in the agreement, and one of them aborts. */
static bool random_aborts(uint64_t seed, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = 3 + (int)colli_prng_below(&prng, 14);
  job_config config = job_defaults(seed, nranks, 3);
  config.rounds = 1;
  config.kernel.switch_percent = (unsigned)colli_prng_below(&prng, 20);
  sk_open(&config.kernel);
  storm.sides = 0;
  storm.killed = -1;
  storm.nhosts = nranks;
  storm.stopped = (int)colli_prng_below(&prng, (uint64_t)nranks);
  storm.aborter = (storm.stopped + 1 + (int)colli_prng_below(&prng, (uint64_t)nranks - 1)) % nranks;
  const uint64_t at_ns = (2 + colli_prng_below(&prng, 4)) * SK_MS / 2;
  const uint64_t abort_ns =
      at_ns + colli_prng_below(&prng, 1ull << colli_prng_below(&prng, 12)) * SK_MS;
  sk_at(at_ns, strike_rank, 1);
  sk_at(abort_ns, strike_abort, (uint64_t)storm.aborter);
  sk_at(60 * SK_S, let_go, (uint64_t)storm.stopped);
  bool ok = job_run(&config);
  ok = job_check() == 0 && ok;
  for (int rank = 0; rank < nranks; rank++) {
    const job_entry *e = &job_ranks[rank].entries[job_ranks[rank].count - 1];
    if (e->status != COLL_ERR_ABORTED || rank == storm.stopped || e->begin_ns > abort_ns)
      continue;
    if (e->end_ns < abort_ns || e->end_ns > abort_ns + SK_S + 100 * SK_MS) {
      fprintf(stderr, "rank %d: aborted at %.6f s, but the call ended at %.6f s\n", rank,
              (double)abort_ns / 1e9, (double)e->end_ns / 1e9);
      ok = false;
    }
  }
  if (!ok || verbose)
    job_print();
  job_free();
  sk_close();
  return ok;
}

Test(cuts, random_aborts, .timeout = 300) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_cuts --filter cuts/random_aborts",
                         random_aborts, 1, extent(100, 1000, 5)),
               0);
}
