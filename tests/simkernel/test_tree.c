/*
 * test_tree.c: ranks that pass on the messages of a shrink (libcoll/recovery/shrink_links.c), or of
 * a creation (libcoll/wireup/bootstrap/check_in.c), stop for a while, die, or are cut off, at all
 * moments of it. Never do two communicators come from one, and every call ends in time.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "seeds.h"
#include "support_job.h"

#define MOST_BLOWS 6

typedef enum blow_kind { STOPS, DIES, IS_CUT_OFF, BLOW_KINDS } blow_kind;

/* What happens to ranks after a call has begun. */
static struct {
  job_call call;
  int first;   /* dies in an all-reduce, so that the call comes */
  int reduces; /* that it has begun */
  int last;    /* of all ranks */
  bool begun;
  int count;
  struct {
    blow_kind kind;
    int rank;
    uint64_t at_ns, lasts_ns;
  } at[MOST_BLOWS];
} blows;

/* Nothing reaches a rank's host any more, or it does again. */
static void cut_off(int rank, bool cut) {
  for (int host = 0; host <= sk_host(blows.last); host++)
    if (host != sk_host(rank)) {
      sk_cut(host, sk_host(rank), cut);
      sk_cut(sk_host(rank), host, cut);
    }
}

/* Blow i begins. */
static void strike(uint64_t i) {
  const int rank = blows.at[i].rank;
  if (blows.at[i].kind == STOPS)
    sk_stop(rank, true);
  else if (blows.at[i].kind == IS_CUT_OFF)
    cut_off(rank, true);
  else
    sk_kill(rank);
}

/* It ends. */
static void let_go(uint64_t i) {
  const int rank = blows.at[i].rank;
  if (blows.at[i].kind == STOPS)
    sk_stop(rank, false);
  else if (blows.at[i].kind == IS_CUT_OFF)
    cut_off(rank, false);
}

/* A rank is about to make a call. */
static void about(int rank, job_call call, int generation) {
  if (call == JOB_REDUCE && generation == 0 && rank == blows.first && blows.reduces++ == 2)
    sk_kill_after(rank, 5);
  if (call != blows.call || generation > 0 || blows.begun)
    return;
  blows.begun = true;
  for (int i = 0; i < blows.count; i++) {
    sk_at(sk_now_ns() + blows.at[i].at_ns, strike, (uint64_t)i);
    sk_at(sk_now_ns() + blows.at[i].at_ns + blows.at[i].lasts_ns, let_go, (uint64_t)i);
  }
}

/* Draws blows: mostly to ranks that pass messages on. */
static void draw_blows(colli_prng *prng, int nranks) {
  blows.count = 1 + (int)colli_prng_below(prng, MOST_BLOWS);
  for (int i = 0; i < blows.count; i++) {
    blows.at[i].kind = (blow_kind)colli_prng_below(prng, BLOW_KINDS);
    blows.at[i].rank = (int)colli_prng_below(
        prng, colli_prng_below(prng, 3) ? (uint64_t)(nranks + 2) / 4 : (uint64_t)nranks);
    blows.at[i].at_ns = colli_prng_below(prng, 1ull << (10 + colli_prng_below(prng, 24)));
    blows.at[i].lasts_ns = colli_prng_below(prng, 1ull << (20 + colli_prng_below(prng, 15)));
  }
  blows.begun = false;
  blows.reduces = 0;
}

/* Runs a job with the blows that the seed draws: to its creation, in a tree, or to what follows a
 * death. */
static bool strike_job(uint64_t seed, bool creation, bool verbose) {
  colli_prng prng = {seed};
  const int nranks = 6 + (int)colli_prng_below(&prng, seed % 4 ? 8 : 40);
  const int per_host = 1 + (int)colli_prng_below(&prng, 3);
  job_config config = job_defaults(seed, nranks, per_host);
  config.stays = true;
  config.direct = colli_prng_below(&prng, 3) > 0;
  config.about = about;
  config.create_timeout_ms = config.timeout_ms = 3000;
  config.heartbeat_ms = 500 + 500 * (int)colli_prng_below(&prng, 3);
  config.kernel.jitter_ns = colli_prng_below(&prng, 2) * 20000;
  config.kernel.switch_percent = (unsigned)colli_prng_below(&prng, 20);
  sk_open(&config.kernel);
  blows.last = nranks - 1;
  blows.first = (int)colli_prng_below(&prng, (uint64_t)nranks);
  blows.call = config.direct || colli_prng_below(&prng, 2) ? JOB_SHRINK : JOB_AGREE;
  draw_blows(&prng, nranks);
  if (creation) {
    blows.call = JOB_CREATE;
    config.fan_out = 1 + (int)colli_prng_below(&prng, 4);
  }
  bool ok = job_run(&config);
  ok = job_check() == 0 && ok;
  if (!ok || verbose) {
    fprintf(stderr, "tree seed %llu, %d ranks, %d a host, %d at each, rank %d dies\n",
            (unsigned long long)seed, nranks, per_host, config.fan_out, blows.first);
    for (int i = 0; i < blows.count; i++)
      fprintf(stderr, "  kind %d, rank %d, %.6f s later, for %.6f s\n", (int)blows.at[i].kind,
              blows.at[i].rank, (double)blows.at[i].at_ns / 1e9,
              (double)blows.at[i].lasts_ns / 1e9);
    job_print();
  }
  job_free();
  sk_close();
  return ok;
}

static bool random_blows(uint64_t seed, bool verbose) {
  return strike_job(seed, false, verbose);
}

static bool random_blows_to_creation(uint64_t seed, bool verbose) {
  return strike_job(seed, true, verbose);
}

Test(tree, random_blows, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_tree --filter tree/random_blows", random_blows,
                         1, extent(100, 1000, 10)),
               0);
}

Test(tree, random_blows_to_creation, .timeout = 600) {
  cr_expect_eq(seeds_run("build/tests/simkernel_test_tree --filter tree/random_blows_to_creation",
                         random_blows_to_creation, 1, extent(150, 2000, 15)),
               0);
}
