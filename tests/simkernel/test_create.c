/*
 * test_create.c: communicators of many ranks on many hosts in the simulated kernel, created by the
 * library's own bootstrap; and deaths at each system call of a creation.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "extent.h"
#include "seeds.h"
#include "support_job.h"

/* Creates a communicator of n ranks, of which one makes the id, and which then do all-reduces;
 * prints what it cost. */
static void create(int nranks, int ranks_per_host, int maker, int fan_out, bool print) {
  job_config config = job_defaults((uint64_t)nranks, nranks, ranks_per_host);
  config.create_timeout_ms = config.timeout_ms = 60000;
  config.maker = maker;
  config.fan_out = fan_out;
  sk_open(&config.kernel);
  cr_expect(job_run(&config));
  cr_expect_eq(job_check_together(), 0, "%d ranks", nranks);
  uint64_t end_ns = 0;
  for (int rank = 0; rank < nranks; rank++) {
    const job_entry *e = job_last(rank, JOB_CREATE);
    cr_expect(e && e->status == COLL_OK && e->nranks == nranks, "rank %d of %d: %s", rank, nranks,
              e ? e->message : "");
    end_ns = e && e->end_ns > end_ns ? e->end_ns : end_ns;
  }
  if (print)
    printf("%d ranks: created after %.3f ms\n", nranks, (double)end_ns / 1e6);
  job_free();
  sk_close();
}

Test(create, every_number_of_ranks, .timeout = 300) {
  const int most = extent(64, 64, 16);
  for (int nranks = 2; nranks <= most; nranks += nranks < 20 ? 1 : extent(4, 1, 4))
    create(nranks, 1 + nranks % 5, nranks % 2 ? 0 : nranks * 7 / 10, 0, false);
}

Test(create, every_number_of_ranks_in_a_tree, .timeout = 300) {
  const int most = extent(64, 64, 16);
  for (int nranks = 2; nranks <= most; nranks += nranks < 20 ? 1 : extent(4, 1, 4))
    create(nranks, 1 + nranks % 5, 0, 1 + nranks % 4, false);
}

/* Each rank has a table of all others: 1 GB for 1,024. */
Test(create, many_ranks, .timeout = 600) {
  const double gigabytes = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1e9;
  const int all = gigabytes > 8 ? 1024 : 512;
  for (int nranks = 128; nranks <= extent(512, all, 128); nranks *= 2)
    create(nranks, 8, nranks / 2 + 1, 0, true);
}

/* ---- deaths -----------------------------------------------------------------------------------
 */

static int victim;
static uint64_t victim_calls;

/* The victim's death is near. */
static void near_death(int rank, job_call call, int generation) {
  if (rank == victim && call == JOB_CREATE && generation == 0)
    sk_kill_after(rank, victim_calls);
}

/* Whether all living ranks that did not stop got COLL_OK, or all did not. */
static bool has_one_outcome(int nranks) {
  int fine = 0, failed = 0;
  for (int rank = 0; rank < nranks; rank++) {
    const job_entry *e = job_last(rank, JOB_CREATE);
    if (e && sk_is_alive(rank) && !sk_was_stopped(rank)) {
      fine += e->status == COLL_OK;
      failed += e->status != COLL_OK;
    }
  }
  return fine == 0 || failed == 0;
}

/* Checks that all others have one outcome and, if it is a failure, name the victim. The maker of an
 * id is named by its process. */
static void check_blame(int nranks, int maker, int fan_out, const char *what) {
  cr_expect(has_one_outcome(nranks), "%d ranks, %d at each: %s", nranks, fan_out, what);
  for (int rank = 0; rank < nranks; rank++) {
    const job_entry *e = job_last(rank, JOB_CREATE);
    const bool by_process = fan_out == 0 && victim == maker;
    if (e && rank != victim && e->status != COLL_OK)
      cr_expect(e->peer == victim || (by_process && e->peer == -1),
                "%d ranks, %d at each: %s, rank %d blames %d: %s", nranks, fan_out, what, rank,
                e->peer, e->message);
  }
}

/* Kills the victim at a call; false: it has returned before. */
static bool die_at(int nranks, int maker, int fan_out, uint64_t calls) {
  job_config config = job_defaults((uint64_t)nranks, nranks, 2);
  config.maker = maker;
  config.fan_out = fan_out;
  victim_calls = calls;
  config.about = near_death;
  sk_open(&config.kernel);
  cr_expect(job_run(&config));
  const job_entry *e = job_last(maker, JOB_CREATE);
  const bool created = e && e->status == COLL_OK;
  char what[80];
  snprintf(what, sizeof(what), "id of %d, %d dies at call %d", maker, victim, (int)calls);
  check_blame(nranks, maker, fan_out, what);
  cr_expect_eq(victim != maker && created ? job_check_together() : job_check(), 0,
               "%d ranks, %d at each: %s", nranks, fan_out, what);
  const job_entry *last = job_last(victim, JOB_CREATE);
  const bool died_in_it = last && !last->ended;
  if (!died_in_it && !has_one_outcome(nranks))
    job_print();
  job_free();
  sk_close();
  return died_in_it;
}

Test(create, deaths_at_each_call, .timeout = 300) {
  const uint64_t step = (uint64_t)extent(13, 1, 40);
  for (int nranks = 2; nranks <= 5; nranks++)
    for (victim = 0; victim < nranks; victim++)
      for (uint64_t calls = (uint64_t)(nranks + victim) % step; die_at(nranks, 0, 0, calls);
           calls += step)
        ;
}

/* Each rank in turn has made the id, and each dies. */
Test(create, deaths_at_each_call_with_other_makers, .timeout = 300) {
  const uint64_t step = (uint64_t)extent(13, 1, 40);
  for (int nranks = 2; nranks <= 5; nranks++)
    for (int maker = 1; maker < nranks; maker++)
      for (victim = 0; victim < nranks; victim++)
        for (uint64_t calls = (uint64_t)(nranks + victim + maker) % step;
             die_at(nranks, maker, 0, calls); calls += step)
          ;
}

/* In a tree, a death can leave those below it without an outcome. */
Test(create, deaths_at_each_call_in_a_tree, .timeout = 300) {
  const uint64_t step = (uint64_t)extent(17, 1, 60);
  for (int nranks = 3; nranks <= 7; nranks++)
    for (int fan_out = 1; fan_out <= 2; fan_out++)
      for (victim = 0; victim < nranks; victim++)
        for (uint64_t calls = (uint64_t)(nranks + victim + fan_out) % step;
             die_at(nranks, 0, fan_out, calls); calls += step)
          ;
}

/* ---- frozen ranks ------------------------------------------------------------------------------
 */

#define FOR_GOOD (20 * SK_S) /* until all others have given up */

static void freeze(uint64_t rank) {
  sk_stop((int)rank, true);
}

static void thaw(uint64_t rank) {
  sk_stop((int)rank, false);
}

/* The victim stops at a time, for a while. With a skew, or if it goes on before the others give up,
 * they may blame somebody else. */
static void freeze_at(int nranks, int fan_out, uint64_t skew_ns, uint64_t at_ns,
                      uint64_t lasts_ns) {
  job_config config = job_defaults((uint64_t)nranks + at_ns, nranks, 2);
  char what[80];
  snprintf(what, sizeof(what), "rank %d stops after %d us", victim, (int)(at_ns / 1000));
  config.fan_out = fan_out;
  config.skew_ns = skew_ns;
  sk_open(&config.kernel);
  sk_at(at_ns, freeze, (uint64_t)victim);
  sk_at(at_ns + lasts_ns, thaw, (uint64_t)victim);
  cr_expect(job_run(&config));
  cr_expect_eq(job_check(), 0, "%d ranks, %d at each: %s", nranks, fan_out, what);
  if (skew_ns || lasts_ns < FOR_GOOD)
    cr_expect(has_one_outcome(nranks), "%d ranks, %d at each: %s", nranks, fan_out, what);
  else
    check_blame(nranks, 0, fan_out, what);
  job_free();
  sk_close();
}

Test(create, frozen_ranks_are_named, .timeout = 300) {
  for (int nranks = 3; nranks <= 9; nranks += 2)
    for (int fan_out = 0; fan_out <= 3; fan_out++)
      for (victim = 0; victim < nranks; victim++)
        for (uint64_t us = 50; us < 3000; us += (uint64_t)extent(500, 50, 1500))
          freeze_at(nranks, fan_out, 0, us * 1000, FOR_GOOD);
}

/* Their deadlines differ, too. */
Test(create, ranks_that_begin_late_get_the_same_outcome, .timeout = 300) {
  for (int nranks = 3; nranks <= 9; nranks += 3)
    for (int fan_out = 0; fan_out <= 2; fan_out++)
      for (victim = 0; victim < nranks; victim++)
        for (uint64_t ms = 1; ms < 2200; ms += (uint64_t)extent(370, 53, 1100))
          freeze_at(nranks, fan_out, 2 * SK_S, ms * SK_MS, FOR_GOOD);
}

/* A table that comes late, or an outcome, leads to the same outcome everywhere. */
Test(create, ranks_that_stop_for_a_while, .timeout = 300) {
  for (int nranks = 4; nranks <= 8; nranks += 4)
    for (int fan_out = 0; fan_out <= 2; fan_out++)
      for (victim = 0; victim < nranks; victim++)
        for (uint64_t us = 200; us < 2400; us += (uint64_t)extent(700, 200, 1100))
          for (uint64_t ms = 500; ms < 4200; ms += (uint64_t)extent(490, 70, 1300))
            freeze_at(nranks, fan_out, 0, us * 1000, ms * SK_MS);
}

/* ---- the simulation itself ---------------------------------------------------------------------
 */

static uint64_t digest_of(uint64_t seed) {
  job_config config = job_defaults(seed, 12, 3);
  victim = 5;
  victim_calls = 400;
  config.about = near_death;
  config.kernel.jitter_ns = 5000;
  config.kernel.switch_percent = 10;
  sk_open(&config.kernel);
  cr_expect(job_run(&config));
  const uint64_t digest = sk_digest();
  job_free();
  sk_close();
  return digest;
}

Test(create, a_seed_repeats, .timeout = 60) {
  cr_expect_eq(digest_of(7), digest_of(7));
  cr_expect_neq(digest_of(7), digest_of(8));
}
