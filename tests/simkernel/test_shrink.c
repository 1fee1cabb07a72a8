/*
 * test_shrink.c: ranks die in all-reduces, agreements and shrinks of the simulated kernel. The
 * survivors end up together, with results that are right.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "seeds.h"
#include "support_job.h"

#define MOST_DEATHS 8

/* Who dies where: at a call of the first communicator, or of one made since. */
static struct {
  int rank, generation, skip;
  job_call call;
  uint64_t calls;
  bool planned;
} deaths[MOST_DEATHS];
static int ndeaths;

static void near_death(int rank, job_call call, int generation) {
  for (int i = 0; i < ndeaths; i++)
    if (rank == deaths[i].rank && call == deaths[i].call && generation == deaths[i].generation &&
        !deaths[i].planned && deaths[i].skip-- <= 0) {
      deaths[i].planned = true;
      sk_kill_after(rank, deaths[i].calls);
    }
}

/* Runs the job; whether the survivors are together. */
static bool survive(job_config *config, const char *what, uint64_t number, bool verbose) {
  config->about = near_death;
  config->stays = true;
  sk_open(&config->kernel);
  bool ok = job_run(config);
  ok = job_check_together() == 0 && ok;
  if (!ok || verbose)
    fprintf(stderr, "%s, %d ranks, %llu\n", what, config->kernel.nranks,
            (unsigned long long)number);
  if (!ok || verbose)
    job_print();
  job_free();
  sk_close();
  return ok;
}

/* ---- one death among many ---------------------------------------------------------------------
 */

/* Whether all survivors blame the rank that died. */
static bool blame_it(int nranks, int dead) {
  for (int rank = 0; rank < nranks; rank++) {
    if (!sk_is_alive(rank))
      continue;
    const job_entry *e = &job_ranks[rank].entries[1]; /* the all-reduces behind the creation */
    if (e->call != JOB_REDUCE || e->status != COLL_ERR_PEER_LOST || e->peer != dead) {
      fprintf(stderr, "rank %d blames %d, not %d: %s\n", rank, e->peer, dead, e->message);
      return false;
    }
  }
  return true;
}

static void lose_one(int nranks, int dead, uint64_t calls) {
  job_config config = job_defaults((uint64_t)nranks, nranks, nranks > 32 ? 8 : 2);
  config.timeout_ms = config.create_timeout_ms = 20000;
  config.stays = true;
  config.about = near_death;
  ndeaths = 1;
  deaths[0].rank = dead;
  deaths[0].generation = 0;
  deaths[0].call = JOB_REDUCE;
  deaths[0].skip = 3;
  deaths[0].calls = calls;
  deaths[0].planned = false;
  sk_open(&config.kernel);
  cr_expect(job_run(&config));
  cr_expect_eq(job_check_together(), 0, "%d ranks, rank %d dies", nranks, dead);
  cr_expect(blame_it(nranks, dead), "%d ranks, rank %d dies", nranks, dead);
  const job_entry *e = job_last(dead == 0, JOB_SHRINK);
  cr_expect(e && e->nranks == nranks - 1);
  job_free();
  sk_close();
}

Test(shrink, one_dies, .timeout = 300) {
  for (int dead = 0; dead < 4; dead++)
    for (uint64_t calls = 0; calls < 60; calls += (uint64_t)extent(4, 1, 20))
      lose_one(4, dead, calls);
  for (int dead = 0; dead < 16; dead += extent(5, 1, 8))
    lose_one(16, dead, 10);
  lose_one(64, 0, 10);
  lose_one(64, 1, 7);
  lose_one(64, 63, 5);
  if (!SANITIZED) {
    lose_one(256, 0, 10);
    lose_one(256, 100, 10);
  }
}

Test(shrink, one_of_a_thousand_dies, .timeout = 300) {
  lose_one(extent(1024, 1024, 128), extent(700, 700, 70), 10);
}

/* ---- deaths at each call ----------------------------------------------------------------------
 */

/* Rank `first` dies in an all-reduce, and `second` at a call of the agreement or shrink. False: it
 * has left that before. */
static bool die_at(int nranks, int first, int second, job_call call, uint64_t calls) {
  job_config config = job_defaults((uint64_t)nranks, nranks, 2);
  ndeaths = 2;
  deaths[0].rank = first;
  deaths[0].call = JOB_REDUCE;
  deaths[0].skip = 2;
  deaths[0].calls = 5;
  deaths[1].rank = second;
  deaths[1].call = call;
  deaths[1].skip = 0;
  deaths[1].calls = calls;
  for (int i = 0; i < 2; i++) {
    deaths[i].generation = 0;
    deaths[i].planned = false;
  }
  config.about = near_death;
  config.stays = true;
  sk_open(&config.kernel);
  bool ok = job_run(&config);
  ok = job_check_together() == 0 && ok;
  if (!ok)
    job_print();
  cr_expect(ok, "%d ranks, rank %d dies, and rank %d at call %d of call %d", nranks, first, second,
            (int)calls, (int)call);
  const job_entry *e = job_last(second, call);
  const bool died_in_it = e && !e->ended;
  job_free();
  sk_close();
  return died_in_it;
}

/* All pairs of ranks. */
static void die_at_each(int nranks, job_call call, uint64_t step) {
  for (int first = 0; first < nranks; first++)
    for (int second = 0; second < nranks; second++)
      for (uint64_t calls = (uint64_t)(3 * first + second) % step;
           first != second && die_at(nranks, first, second, call, calls); calls += step)
        ;
}

Test(shrink, deaths_at_each_call_of_a_shrink, .timeout = 300) {
  die_at_each(3, JOB_SHRINK, (uint64_t)extent_seeds(4, 2, 60, 1));
  die_at_each(4, JOB_SHRINK, (uint64_t)extent_seeds(16, 5, 90, 3));
  die_at_each(5, JOB_SHRINK, (uint64_t)extent_seeds(40, 12, 150, 8));
}

Test(shrink, deaths_at_each_call_of_an_agreement, .timeout = 300) {
  die_at_each(3, JOB_AGREE, (uint64_t)extent(2, 1, 20));
  die_at_each(4, JOB_AGREE, (uint64_t)extent(4, 1, 30));
}

/* ---- random deaths ----------------------------------------------------------------------------
 */

/* Draws some deaths, at most half of the ranks. */
static void draw_deaths(colli_prng *prng, int nranks) {
  const int most = nranks / 2 < MOST_DEATHS ? nranks / 2 : MOST_DEATHS;
  ndeaths = 1 + (int)colli_prng_below(prng, (uint64_t)most);
  for (int i = 0; i < ndeaths; i++) {
    deaths[i].rank = (int)colli_prng_below(prng, (uint64_t)nranks);
    deaths[i].call = (job_call)(JOB_REDUCE + (int)colli_prng_below(prng, 3));
    deaths[i].generation = (int)colli_prng_below(prng, 4) / 3;
    deaths[i].skip = deaths[i].call == JOB_REDUCE && deaths[i].generation == 0
                         ? (int)colli_prng_below(prng, 5)
                         : 0;
    deaths[i].calls = colli_prng_below(prng, 1ull << (3 + colli_prng_below(prng, 7)));
    deaths[i].planned = false;
  }
  deaths[0].call = JOB_REDUCE; /* or the all-reduces would never end */
  deaths[0].generation = 0;
}

/* A world in which only ranks break. */
static job_config draw_world(colli_prng *prng, uint64_t seed, int nranks) {
  job_config config =
      job_defaults(seed, nranks, 1 + (int)colli_prng_below(prng, nranks > 8 ? 8 : 4));
  config.count = 1 + colli_prng_below(prng, 2000);
  config.kernel.latency_ns = 2000 + colli_prng_below(prng, 200000);
  config.kernel.jitter_ns = colli_prng_below(prng, 2) * config.kernel.latency_ns;
  config.kernel.switch_percent = (unsigned)colli_prng_below(prng, 3) * 10;
  config.kernel.backlog = colli_prng_below(prng, 8) ? 4096 : 32;
  config.kernel.buffer_bytes = colli_prng_below(prng, 4) ? 256 * 1024 : 8 * 1024;
  return config;
}

static bool random_deaths(uint64_t seed, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = 3 + (int)colli_prng_below(&prng, seed % 8 ? 14 : 46);
  job_config config = draw_world(&prng, seed, nranks);
  draw_deaths(&prng, nranks);
  return survive(&config, "seed", seed, verbose);
}

Test(shrink, random_deaths, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_shrink --filter shrink/random_deaths",
                         random_deaths, 1, extent(120, 1500, 20)),
               0);
}

static bool random_deaths_of_many(uint64_t seed, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = seed % 4 ? 64 : 256;
  job_config config = draw_world(&prng, seed, nranks);
  config.timeout_ms = config.create_timeout_ms = 20000;
  config.kernel.backlog = 4096; /* requests for connections that come again take seconds */
  draw_deaths(&prng, nranks);
  return survive(&config, "seed", seed, verbose);
}

Test(shrink, random_deaths_of_many, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_shrink --filter shrink/random_deaths_of_many",
                         random_deaths_of_many, 1, extent(3, 16, 1)),
               0);
}
