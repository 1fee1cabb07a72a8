/*
 * test_distances.c: hosts are grouped into sites, and these into racks, by round trips; here made
 * up ones, between ranks that each stand for a host.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/measure/distance.h"
#include "tests/proc/support_ranks.h"

TestSuite(places, .timeout = 60);

enum { MOST = 14 };

/* Hosts: how far they are from each other, and which groups that makes. Of each the digit is in
 * its site, or its rack. */
typedef struct scene {
  const char *site, *rack; /* where they really are */
  double inside, racks,
      sites;   /* the round trip in a rack, between racks, and between sites, in us */
  double more; /* what some pairs of hosts add at most */
  const char *found_site, *found_rack;
} scene;

static const scene *now;
static int late = -1; /* a rank whose time is over at once; -1: none's is */
static bool cut;      /* whether that leaves something open */
static int step = 1;  /* of so many ranks, the first stands for a host */

/* The round trip between two hosts; not the same for all pairs. */
static double between_us(int a, int b) {
  const double more = (double)((a * 31 + b * 31 + a * b * 7) % 8) / 7 * now->more;
  return more + (now->site[a] != now->site[b]   ? now->sites
                 : now->rack[a] != now->rack[b] ? now->racks
                                                : now->inside);
}

/* A colli_round_trip_fn. */
static double made_up(coll_comm *comm, int peer) {
  int rank = 0;
  coll_comm_rank(comm, &rank);
  return between_us(rank / step, peer / step) * 1e3;
}

/* Whether the groups are those of the digits. */
static bool is_grouped(const colli_measured_groups *groups, int count, const char *as) {
  bool seen[MOST] = {false};
  int distinct = 0;
  for (int a = 0; a < count; a++) {
    for (int b = 0; b < count; b++)
      if ((groups->group[a] == groups->group[b]) != (as[a] == as[b]))
        return false;
    if (groups->group[a] < 0 || groups->group[a] >= groups->count)
      return false;
    distinct += !seen[groups->group[a]];
    seen[groups->group[a]] = true;
  }
  return distinct == groups->count;
}

/* Groups the hosts of the scene. */
static int group(coll_comm *comm, int rank, int nranks, void *arg) {
  int first[MOST], number[MOST];
  (void)arg;
  const int count = nranks / step, own = rank % step == 0 ? rank / step : -1;
  for (int host = 0; host < count; host++)
    first[host] = host * step;
  const colli_distances distances = {{first, count, own}, made_up, late == rank ? 0 : UINT64_MAX};
  colli_measured_groups groups = {.group = number};
  RANK_OK(colli_measure_sites(comm, &distances, &groups));
  RANK_CHECK(!now->found_site || is_grouped(&groups, count, now->found_site));
  RANK_CHECK((groups.apart_ns > 0) == (groups.count > 1));
  if (groups.count > 1)
    RANK_CHECK(groups.apart_ns >= now->sites * 1e3 && groups.inside_ns < groups.apart_ns);
  RANK_CHECK(groups.late == (cut && now->sites > 0));
  const int sites = groups.count;
  RANK_OK(colli_measure_racks(comm, &distances, &groups));
  RANK_CHECK(now->found_rack ? is_grouped(&groups, count, now->found_rack) : groups.count == sites);
  RANK_CHECK(groups.late == cut);
  RANK_CHECK((groups.apart_ns > 0) == (groups.count > sites));
  if (groups.count > sites)
    RANK_CHECK(groups.apart_ns >= now->racks * 1e3 && groups.inside_ns < groups.apart_ns);
  return 0;
}

static void check(scene it) {
  coll_config config = COLL_CONFIG_INIT;
  now = &it;
  cr_expect_eq(run_processes((int)strlen(it.site) * step, &config, group, NULL, 50, NULL), 0,
               "%s, %s", it.site, it.rack);
}

/* Nothing is far. */
Test(distances, one_room) {
  check((scene){"0000000000", "0000000000", 30, 0, 0, 60, "0000000000", "0000000000"});
  check((scene){"0", "0", 30, 0, 0, 0, "0", "0"});
}

Test(distances, sites) {
  check((scene){"001011", "000000", 30, 0, 20000, 100, "001011", "001011"});
  check(
      (scene){"0111122222222", "0000000000000", 30, 0, 5000, 30, "0111122222222", "0111122222222"});
  check((scene){"012", "000", 30, 0, 5000, 30, "012", "012"}); /* a host each */
  check((scene){"0123456789ab", "000000000000", 30, 0, 5000, 30, "000000000000",
                "000000000000"}); /* too many */
}

Test(distances, racks) {
  check((scene){"00000000", "01011010", 30, 400, 0, 20, "00000000", "01011010"});
  check((scene){"0000000", "0122222", 30, 200, 0, 9, "0000000", "0122222"}); /* unequal ones */
}

Test(distances, racks_of_sites) {
  check(
      (scene){"000000111111", "001122334455", 30, 300, 20000, 10, "000000111111", "001122334455"});
  check((scene){"00001111", "00112222", 30, 300, 20000, 10, "00001111",
                "00112222"}); /* in one only */
}

/* Hosts that are all as far from each other are not in racks. */
Test(distances, no_racks) {
  check((scene){"00000000000000", "0123456789abcd", 0, 150, 0, 9, "00000000000000",
                "00000000000000"});
  check((scene){"00000", "01234", 0, 150, 0, 9, "00000", "00000"});
}

/* What differs is not much. */
Test(distances, gradual) {
  check((scene){"0000000000", "0000000000", 60, 0, 0, 200, "0000000000", "0000000000"});
  check((scene){"00000000", "00001111", 60, 120, 0, 0, "00000000", "00000000"});
}

/* Where the network says nothing, there are no racks; nor sites, but on busy cores it may seem so.
 */
Test(distances, unknown) {
  check((scene){"000000", "012345", 0, 0, 0, 0, NULL, NULL});
}

Test(distances, several_ranks_on_each_host) {
  step = 2;
  check((scene){"00001111", "00112222", 30, 300, 20000, 10, "00001111", "00112222"});
}

/* Where time is over for one rank, be it the first host or a rank that measures nothing, all end
 * with the same groups: of what is known by then. Two sites are found whatever the time, three are
 * not. */
Test(distances, time_is_over) {
  for (step = 1; step <= 2; step++)
    for (late = 0; late <= 3; late += 3) {
      cut = true;
      check((scene){"001220112", "000000000", 30, 0, 20000, 100, "000000000", "000000000"});
      check((scene){"00000000", "01011010", 30, 400, 0, 20, "00000000", "00000000"});
      cut = false;
      check((scene){"001011", "000000", 30, 0, 20000, 100, "001011", "001011"});
      check((scene){"0000000", "0000000", 30, 0, 0, 10, "0000000", "0000000"}); /* that is enough */
    }
}
