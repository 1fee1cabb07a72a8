/*
 * test_measure.c: how long a creation that measures links between hosts takes, in virtual time, and
 * what it finds of slow and distant ones.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/tuning/hierarchy.h"
#include "support_job.h"

/* Hosts with a rank each, in sites or not. */
typedef struct network {
  int hosts, per_site;
  double ms, site_ms; /* a round trip inside, and between sites */
  double mbit;        /* of each host's link */
} network;

/* What rank 0 knows after the creation. */
static struct {
  bool taken;
  double mbit; /* of its link; 0: not measured */
  colli_speed_source trust;
  char levels[COLLI_LEVELS_BYTES];
  double site_alpha_ns, site_beta;
} found;

/* Looks at rank 0's communicator when it is made. */
static void look(int rank, job_call call, int generation) {
  (void)generation;
  if (rank != 0 || call != JOB_REDUCE || found.taken)
    return;
  const colli_rank_info info = colli_comm_info(job_ranks[0].now, 0);
  found.taken = true;
  found.trust = (colli_speed_source)info.link_source;
  found.mbit = found.trust == COLLI_SPEED_MEASURED ? info.link_mbit : 0;
  found.site_alpha_ns = info.level_alpha_ns[0];
  found.site_beta = info.level_beta_ns_per_byte[0];
  memcpy(found.levels, info.levels, sizeof(found.levels));
}

static const char *log_level = "none";
static size_t buffer_bytes; /* of a socket; 0: as usual */

/* How long a creation takes until the last rank has it, in ms. */
static double create(const network *net, const char *link_speed) {
  job_config config = job_defaults(1, net->hosts, 1);
  config.create_timeout_ms = config.timeout_ms = 100000;
  config.heartbeat_ms = 60000;
  config.rounds = 1;
  config.count = 1;
  config.about = look;
  config.kernel.latency_ns = (uint64_t)(net->ms / 2 * 1e6);
  config.kernel.hosts_per_site = net->per_site;
  config.kernel.site_ns = (uint64_t)(net->site_ms / 2 * 1e6);
  config.kernel.ns_per_byte = 8e3 / net->mbit;
  if (buffer_bytes > 0)
    config.kernel.buffer_bytes = buffer_bytes;
  found.taken = false;
  setenv("COLL_LINK_SPEED", link_speed, 1);
  setenv("COLL_LOG", log_level, 1);
  sk_open(&config.kernel);
  cr_assert(job_run(&config));
  uint64_t begin_ns = UINT64_MAX, end_ns = 0;
  for (int rank = 0; rank < net->hosts; rank++) {
    const job_entry *e = job_last(rank, JOB_CREATE);
    cr_assert(e && e->status == COLL_OK, "rank %d: %s", rank, e ? e->message : "");
    begin_ns = e->begin_ns < begin_ns ? e->begin_ns : begin_ns;
    end_ns = e->end_ns > end_ns ? e->end_ns : end_ns;
  }
  cr_assert(found.taken);
  job_free();
  sk_close();
  return (double)(end_ns - begin_ns) / 1e6;
}

/* How much longer a creation takes that measures, in ms. */
static double measure(network net) {
  const double plain = create(&net, "");
  return create(&net, "measure") - plain;
}

/* All hosts alike, or at two sites; round trips in ms, speeds in Mbit/s. */
static void expect_at_most(int hosts, double ms, double mbit, double most_ms) {
  const double alike = measure((network){hosts, 0, ms, 0, mbit});
  cr_expect_leq(alike, most_ms, "%d hosts, %g ms, %g Mbit/s: %g ms", hosts, ms, mbit, alike);
  const double sites = measure((network){hosts, hosts / 2, 0.1, ms, mbit});
  cr_expect_leq(sites, most_ms, "%d hosts, sites, %g ms, %g Mbit/s: %g ms", hosts, ms, mbit, sites);
}

Test(measure, takes_a_second_at_most, .timeout = 300) {
  static const double ms[] = {0.1, 1, 5, 20}, mbit[] = {10, 100, 1000, 10000};
  for (int hosts = 2; hosts <= extent(16, 32, 4); hosts *= 2)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++)
        expect_at_most(hosts, ms[i], mbit[j], 1000);
}

/* Far and slow: what has begun ends, with the connections and the calls of all that it needs. */
Test(measure, begins_nothing_after_a_second, .timeout = 300) {
  static const double ms[] = {50, 100, 300, 600}, mbit[] = {1, 10, 100};
  static const int round_trips[] = {11, 15, 17};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 3; j++)
        expect_at_most(2 << k, ms[i], mbit[j],
                       1000 + round_trips[k] * ms[i] + (mbit[j] < 2 ? 500 : 0));
}

Test(measure, finds_sites_and_speeds_in_time) {
  measure((network){4, 2, 0.1, 20, 100});
  cr_expect_str_eq(found.levels, COLLI_LEVEL_MEASURED_SITE "1");
  cr_expect_float_eq(found.site_alpha_ns, 1e7, 1e6);
  cr_expect_float_eq(found.mbit, 100, 10);
  cr_expect_gt(found.site_beta, 80, "a host sends no faster than its link");
}

/* What there was no time for is not known, rather than made up from a message that only had
 * latency. */
Test(measure, what_is_cut_off_is_not_known) {
  measure((network){6, 2, 0.1, 600, 100});
  cr_expect_str_empty(found.levels);
  cr_expect(found.mbit == 0 || found.mbit > 50, "%g", found.mbit);
  measure((network){16, 8, 0.1, 50, 10});
  cr_expect_str_eq(found.levels, COLLI_LEVEL_MEASURED_SITE "1");
  cr_expect_eq(found.site_beta, 0, "%g", found.site_beta);
  cr_expect_gt(found.site_alpha_ns, 2e7, "but the round trip is");
}

/* However far they are, with what their round trips say of the line. */
Test(measure, finds_two_far_sites) {
  static const double ms[] = {20, 50, 100, 300, 600};
  for (int hosts = 2; hosts <= 16; hosts *= 2)
    for (int i = 0; i < 5; i++) {
      create(&(network){hosts, (hosts + 1) / 2, 0.1, ms[i], 400}, "measure");
      cr_expect_str_eq(found.levels, COLLI_LEVEL_MEASURED_SITE "1", "%d hosts, %g ms: %s", hosts,
                       ms[i], found.levels);
      /* Without the network's word, a part of it counts as what many hosts at once take. */
      const double part = found.site_alpha_ns / (ms[i] / 2 * 1e6);
      cr_expect(part > 0.6 && part < 1.05, "%d hosts, %g ms: %g of it", hosts, ms[i], part);
    }
}

/* Latency is no part of it. Buffers are as long as Linux makes them. */
Test(measure, speeds_are_right_or_not_known) {
  static const double ms[] = {1, 5, 20, 50, 100, 300}, mbit[] = {1, 2, 5, 10, 100, 400, 1000};
  buffer_bytes = (size_t)16 << 20;
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 7; j++) {
      create(&(network){2, 0, ms[i], 0, mbit[j]}, "measure");
      if (found.mbit > 0)
        cr_expect(found.mbit > mbit[j] / 4 && found.mbit < mbit[j] * 1.2, "%g ms, %g Mbit/s: %g",
                  ms[i], mbit[j], found.mbit);
      const double line = found.site_beta > 0 ? 8e3 / found.site_beta : mbit[j];
      cr_expect(line > mbit[j] / 4 && line < mbit[j] * 1.2, "%g ms, %g Mbit/s, line: %g", ms[i],
                mbit[j], line);
    }
}

/* How many lines of the log of a creation that measures have a text. */
static int count_lines(const network *net, const char *text) {
  char line[1024];
  int count = 0;
  const int usual = dup(STDERR_FILENO);
  FILE *log = tmpfile();
  cr_assert(log && usual >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
  log_level = "info";
  create(net, "measure");
  log_level = "none";
  cr_assert_geq(dup2(usual, STDERR_FILENO), 0);
  close(usual);
  rewind(log);
  while (fgets(line, sizeof(line), log))
    count += strstr(line, text) != NULL;
  fclose(log);
  return count;
}

/* One rank says what there was no time for. */
Test(measure, log_says_what_is_cut_off) {
  const network near = {4, 2, 0.1, 20, 100}, far = {4, 2, 0.1, 600, 100},
                three = {6, 2, 0.1, 600, 100}, slow = {16, 8, 0.1, 50, 10};
  const char *const groups = "there was no time to find all sites and racks",
                    *const speeds = "there was no time to measure";
  cr_expect_eq(count_lines(&near, "there was no time"), 0);
  cr_expect_eq(count_lines(&three, groups), 1);
  cr_expect_eq(count_lines(&far, groups), 0);
  cr_expect_eq(count_lines(&far, "site to the next: 266.7 ms and no speed measured"), 2);
  cr_expect_eq(count_lines(&far, "there was no time to measure 6 of the links"), 1);
  cr_expect_eq(count_lines(&slow, groups), 0);
  cr_expect_eq(count_lines(&slow, speeds), 1);
  cr_expect_eq(count_lines(&slow, "hosts are in 2 sites: round trips in a site take at most"), 1);
}

/* Levels are kept that are declared, and "none", whatever hosts measure. */
Test(measure, declared_levels_win) {
  const network far = {4, 2, 0.1, 20, 100};
  static const char *const declared[] = {"all", "none", "all/rack@1gbit"};
  for (int i = 0; i < 3; i++) {
    setenv("COLL_LEVELS", declared[i], 1);
    create(&far, "measure");
    cr_expect_str_eq(found.levels, i == 0 ? "all" : i == 1 ? "" : "all/rack");
    cr_expect_gt(found.mbit, 0, "links are measured all the same");
  }
}
