/* test_calibrate_hosts.c: what coll_calibrate --hosts prints and writes of what it has found. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/calibrate/hosts.h"
#include "libcoll/tuning/hierarchy.h"

enum { HOSTS = 3 };

static int first[HOSTS] = {0, 1, 2};
static colli_rank_info info[HOSTS];
static bool measured[HOSTS];
static hosts_found found;
static char text[8192]; /* what is printed or written */

/* Hosts with these names at two sites, of which the last is alone; the line between them is 20 ms
 * long and its speed unknown. */
static void find(const char *const names[HOSTS]) {
  found = (hosts_found){.delegates = {.rank = first, .count = HOSTS}, .info = info, .depth = 1};
  found.levels.measured = measured;
  found.levels.sites = (colli_measured_groups){.count = 2, .inside_ns = 1e5, .apart_ns = 2e7};
  for (int host = 0; host < HOSTS; host++) {
    info[host] = (colli_rank_info){.link_mbit = 1000, .link_source = COLLI_SPEED_MEASURED};
    snprintf(info[host].host, sizeof(info[host].host), "%s", names[host]);
    snprintf(info[host].levels, sizeof(info[host].levels), COLLI_LEVEL_MEASURED_SITE "%d",
             1 + (host == HOSTS - 1));
    info[host].level_alpha_ns[0] = 1e7;
    measured[host] = host < HOSTS - 1;
  }
}

/* Reads a file, and closes it. */
static void read_all(FILE *file) {
  cr_assert_not_null(file);
  rewind(file);
  text[fread(text, 1, sizeof(text) - 1, file)] = 0;
  fclose(file);
}

/* Writes the file of levels; whether it was. */
static bool write_levels(void) {
  char path[] = "/tmp/levels-XXXXXX";
  close(mkstemp(path));
  unlink(path);
  const bool wrote = hosts_write(&found, path);
  FILE *file = fopen(path, "r");
  cr_expect_eq(wrote, file != NULL);
  if (file)
    read_all(file);
  unlink(path);
  return wrote;
}

/* A host that was not measured has no speed, whatever its record says. */
Test(calibrate_hosts, speeds_that_nobody_measured) {
  FILE *out = tmpfile();
  find((const char *[]){"a", "b", "c"});
  cr_assert(hosts_print(&found, out));
  read_all(out);
  cr_expect_not_null(strstr(text, "not measured: the links of 1 host (c)\n"), "%s", text);
  cr_expect_not_null(strstr(text, "no host of those measured is slow"), "%s", text);
  cr_expect_not_null(strstr(text, "  b: COLL_LEVELS=site1@20ms COLL_LINK_SPEED=1gbit\n"), "%s",
                     text);
  cr_expect_not_null(strstr(text, "  c: COLL_LEVELS=site2@20ms\n"), "%s", text);
  cr_assert(write_levels());
  cr_expect_not_null(strstr(text, "\na site1@20ms 1gbit\nb site1@20ms 1gbit\nc site2@20ms\n"), "%s",
                     text);
}

/* Hosts that a file takes for one are in none. */
Test(calibrate_hosts, twins) {
  find((const char *[]){"a", "b", "a"});
  cr_expect_not(write_levels());
  find((const char *[]){"a", "b", "a.example"});
  cr_expect_not(write_levels());
  find((const char *[]){"a.example", "b", "a"});
  cr_expect_not(write_levels());
  find((const char *[]){"a.example", "b", "a.org"});
  cr_expect(write_levels());
}
