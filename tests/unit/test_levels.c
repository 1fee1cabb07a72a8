/* test_levels.c: who is believed of levels: COLL_LEVELS, its "none", Slurm, or what was measured.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/levels_file.h"
#include "libcoll/tuning/units.h"

enum { RANKS = 4 };

/* Ranks on a host each, in two groups, as some source says. */
static void fill_groups(colli_rank_info all[RANKS], colli_level_source source) {
  memset(all, 0, RANKS * sizeof(*all));
  for (int rank = 0; rank < RANKS; rank++) {
    all[rank].host_id = all[rank].machine_id = 1 + (uint64_t)rank;
    all[rank].level_source = source;
    memcpy(all[rank].levels, rank < 2 ? "a" : "b", 2);
  }
}

/* How many groups that makes of the hosts. */
static int groups_of(const colli_rank_info all[RANKS], colli_level_source *source) {
  colli_rank_table *table = colli_rank_table_create(all, RANKS);
  int32_t host[RANKS] = {0, 1, 2, 3};
  colli_locality found = {.group = host, .ngroups = RANKS};
  coll_error error = COLL_ERROR_INIT;
  cr_assert_not_null(table);
  cr_assert_eq(colli_hierarchy_apply(table, &found, &error), COLL_OK, "%s", error.message);
  *source = colli_hierarchy_source(table);
  const int count = found.ngroups;
  if (found.group != host)
    free(found.group);
  colli_rank_table_free(table);
  return count;
}

/* One host that wants no levels is stronger than Slurm, and than what was measured. */
Test(levels, none_wins_over_what_is_not_declared) {
  for (int source = COLLI_LEVELS_MEASURED; source <= COLLI_LEVELS_SLURM; source++) {
    colli_rank_info all[RANKS];
    colli_level_source trusted;
    coll_error error = COLL_ERROR_INIT;
    fill_groups(all, (colli_level_source)source);
    cr_expect_eq(groups_of(all, &trusted), 2);
    cr_expect_eq((int)trusted, source);
    cr_assert_eq(colli_hierarchy_describe("none", &all[3], &error), COLL_OK);
    cr_expect_eq(groups_of(all, &trusted), RANKS);
    cr_expect_eq(trusted, COLLI_LEVELS_NONE);
  }
}

/* Ranks may be far from each other and have no levels; that is no contradiction. */
Test(levels, none_where_ranks_are_far) {
  colli_rank_info all[RANKS];
  colli_level_source trusted;
  fill_groups(all, COLLI_LEVELS_UNKNOWN);
  all[1].far = 1;
  cr_expect_eq(groups_of(all, &trusted), RANKS);
  cr_expect_eq(trusted, COLLI_LEVELS_UNKNOWN);
}

/* Of ranks of which one has declared levels, it is named, and not one that is far. */
Test(levels, who_alone_declares_is_named) {
  colli_rank_info all[RANKS];
  colli_locality found = {.group = (int32_t[RANKS]){0, 1, 2, 3}, .ngroups = RANKS};
  coll_error error = COLL_ERROR_INIT;
  fill_groups(all, COLLI_LEVELS_UNKNOWN);
  for (int rank = 0; rank < RANKS; rank++)
    *all[rank].levels = '\0';
  all[1].far = 1;
  cr_assert_eq(colli_hierarchy_describe("paris", &all[2], &error), COLL_OK);
  colli_rank_table *table = colli_rank_table_create(all, RANKS);
  cr_assert_not_null(table);
  cr_expect_eq(colli_hierarchy_apply(table, &found, &error), COLL_ERR_MISMATCH);
  cr_expect_not_null(strstr(error.message, "but rank 2 (host "), "%s", error.message);
  cr_expect_not_null(strstr(error.message, "\"paris\""), "%s", error.message);
  colli_rank_table_free(table);
}

/* What is wrong with a setting; "" if nothing is, and then what the record says. */
static const char *describe(const char *text, colli_rank_info *info) {
  static coll_error error;
  error = (coll_error)COLL_ERROR_INIT;
  return colli_hierarchy_describe(text, info, &error) == COLL_OK ? "" : error.message;
}

/* The same of what Slurm says. */
static const char *describe_slurm(const char *address, const char *pattern, colli_rank_info *info) {
  setenv("SLURM_TOPOLOGY_ADDR", address, 1);
  setenv("SLURM_TOPOLOGY_ADDR_PATTERN", pattern, 1);
  cr_expect_str_empty(describe("", info));
  return info->levels;
}

#define THREE "switch.switch.switch."
#define NINE  THREE THREE THREE
Test(levels, slurm_says_it) {
  colli_rank_info info;
  cr_expect_str_eq(describe_slurm("s0.s4.tux7", "switch.switch.node", &info), "s0/s4");
  cr_expect_eq(info.level_source, COLLI_LEVELS_SLURM);
  cr_expect_str_eq(describe_slurm("1.2.3.4.5.6.7.8.9.n", NINE "node", &info), "2/3/4/5/6/7/8/9");
  const char *const none[][2] = {{"tux7", "node"},
                                 {"tux7", "switch.node"},
                                 {".tux7", "switch.node"},
                                 {"a/b.tux7", "switch.node"},
                                 {"", ""},
                                 {"s0.tux7", "rack.node"}};
  for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
    cr_expect_str_empty(describe_slurm(none[i][0], none[i][1], &info));
    cr_expect_eq(info.level_source, COLLI_LEVELS_UNKNOWN);
  }
  cr_expect_str_empty(describe("none", &info));
  cr_expect_eq(info.level_source, COLLI_LEVELS_NONE, "it is switched off");
  cr_expect_str_empty(info.levels);
  cr_expect_str_empty(describe("mine", &info));
  cr_expect_str_eq(info.levels, "mine", "the setting wins");
}

/* What is printed is as short as it can be, can be read, and is within limits. */
Test(levels, speeds_and_times_are_printed) {
  static const struct {
    double value;
    const char *speed, *time;
  } cases[] = {{0, "1kbit", "0.001us"},
               {1, "1mbit", "0.001us"},
               {94.12, "94.12mbit", "0.094us"},
               {1000, "1gbit", "1us"},
               {1234.5678, "1.235gbit", "1.235us"},
               {1e7 + 400, "10tbit", "10ms"},
               {1e12, "1000tbit", "2s"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    char text[32];
    double back;
    const char *at = text;
    colli_print_speed(cases[i].value, text, sizeof(text));
    cr_expect_str_eq(text, cases[i].speed);
    cr_expect(colli_read_speed(&at, &back) && !*at, "%s", text);
    colli_print_time(cases[i].value, text, sizeof(text));
    at = text;
    cr_expect_str_eq(text, cases[i].time);
    cr_expect(colli_read_time(&at, &back) && !*at, "%s", text);
  }
}

/* ---- files ----------------------------------------------------------------------------------- */

static char path[] = "/tmp/levels-XXXXXX";
static colli_params params; /* what reading one has made of the settings */

/* Writes the file. */
static void write_file(const void *bytes, size_t count) {
  int fd = mkstemp(strcpy(path, "/tmp/levels-XXXXXX"));
  cr_assert(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
  close(fd);
}

/* Reads a file as a host with that name, and COLL_LINK_SPEED; what is wrong, or "". */
static const char *read_path(const char *file, const char *host, const char *speed) {
  static coll_error error;
  char setting[64];
  error = (coll_error)COLL_ERROR_INIT;
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK, "%s", error.message);
  snprintf(setting, sizeof(setting), COLLI_LEVELS_FILE "%s", file);
  cr_assert(colli_params_set_text(&params, COLLI_PARAM_LEVELS, setting));
  cr_assert(colli_params_set_text(&params, COLLI_PARAM_LINK_SPEED, speed));
  const coll_status status = colli_levels_file_find(&params, host, &error);
  cr_expect_eq(status, *error.message ? COLL_ERR_INVALID_USAGE : COLL_OK);
  for (const char *at = error.message; *at; at++)
    cr_expect(*at >= ' ' && *at <= '~', "a message is one line of text: %s", error.message);
  return error.message;
}

static const char *read_as(const char *host, const char *speed, const char *text) {
  write_file(text, strlen(text));
  const char *wrong = read_path(path, host, speed);
  unlink(path);
  return wrong;
}

/* Whether these are the settings after that. */
static void expect_settings(const char *levels, const char *speed) {
  cr_expect_str_eq(params.text[COLLI_PARAM_LEVELS], levels);
  cr_expect_str_eq(params.text[COLLI_PARAM_LINK_SPEED], speed);
}

Test(levels_file, line_of_a_host) {
  const char *text = "# our hosts\n\n  \t\r\n"
                     "node1 paris@200mbit,20ms/rack7 10gbit # with a card\n"
                     "node10\tparis/rack7\r\n"
                     "node2.example.org  oslo/rack7   100mbit#\n"
                     "node3 oslo/rack8";
  cr_expect_str_empty(read_as("node1", "", text));
  expect_settings("paris@200mbit,20ms/rack7", "10gbit");
  cr_expect_str_empty(read_as("node1.example.org", "1gbit", text));
  expect_settings("paris@200mbit,20ms/rack7", "1gbit"); /* what is set wins */
  cr_expect_str_empty(read_as("node10", "measure", text));
  expect_settings("paris/rack7", "measure");
  cr_expect_str_empty(read_as("node2.example.org", "", text));
  expect_settings("oslo/rack7", "100mbit");
  cr_expect_str_empty(read_as("node3", "", text));
  expect_settings("oslo/rack8", "");
  cr_expect_str_empty(read_as("a", "", "a none 1gbit\nb none"));
  expect_settings("none", "1gbit");
}

/* The whole name of a host, or that up to the first dot. */
Test(levels_file, names) {
  cr_expect(colli_levels_file_names("a", "a"));
  cr_expect(colli_levels_file_names("a", "a.b.c"));
  cr_expect(colli_levels_file_names("a.b.c", "a.b.c"));
  cr_expect_not(colli_levels_file_names("a.b", "a.b.c"), "up to the first dot");
  cr_expect_not(colli_levels_file_names("a.b.c", "a"));
  cr_expect_not(colli_levels_file_names("a", "ab"));
  cr_expect_not(colli_levels_file_names("ab", "a.b"));
  cr_expect_not(colli_levels_file_names("a.b", "a.c"));
}

/* Each error says in which line it is. */
Test(levels_file, what_is_refused) {
  const char *const bad[][2] = {
      {"", "after line 0, no line is of this host, a"},
      {"b x\naa x\n#a x\n", "after line 3, no line is of this host, a"},
      {"a.b x\n", "no line is of this host, a"},
      {"a\n", "line 1: it takes HOST LEVELS [SPEED]"},
      {"a x 1gbit 2gbit\n", "line 1: it takes HOST LEVELS [SPEED]"},
      {"a x\nb x fast\n", "line 2: the speed of a link is like 100mbit"},
      {"a x 1gbit,\n", "line 1: the speed of a link"},
      {"a x\n\nb 1/2/3/4/5/6/7/8/9\n", "line 3: there are at most 8 levels"},
      {"a x@fast\n", "line 1: behind a name and @"},
      {"a x/\n", "line 1: a level has no name"},
      {"# two\na x\nb x/y\n", "line 3: levels: 2, but line 2 has 1; all hosts need as many"},
      {"b none\na x\n", "line 2: levels: 1, but line 1 has 0"},
      {"a x\nb x\na y\n", "line 3: host a is on line 1, too"},
  };
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
    const char *wrong = read_as("a", "", bad[i][0]);
    cr_expect_not_null(strstr(wrong, bad[i][1]), "%s: %s", bad[i][0], wrong);
    cr_expect_not_null(strstr(wrong, "COLL_LEVELS=file:/tmp/levels-"), "%s", wrong);
  }
  cr_expect_not_null(strstr(read_path("/nowhere/levels", "a", ""), "cannot be used: No such file"));
  cr_expect_not_null(strstr(read_path("/tmp", "a", ""), "it is not a regular file"));
  cr_expect_not_null(strstr(read_path("", "a", ""), "cannot be used"));
}

/* A host may have a long name, and the settings are full at some time. */
Test(levels_file, no_space_for_the_settings) {
  char filler[sizeof(params.storage)];
  coll_error error = COLL_ERROR_INIT;
  write_file("a paris/rack7\n", 14);
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK);
  char setting[64];
  snprintf(setting, sizeof(setting), COLLI_LEVELS_FILE "%s", path);
  cr_assert(colli_params_set_text(&params, COLLI_PARAM_LEVELS, setting));
  memset(filler, 'x', sizeof(filler));
  for (size_t length = sizeof(filler) - 1; length > 0; length--) {
    filler[length] = 0;
    if (colli_params_set_text(&params, COLLI_PARAM_ALGO, filler))
      break;
  }
  cr_expect_eq(colli_levels_file_find(&params, "a", &error), COLL_ERR_INVALID_USAGE);
  cr_expect_not_null(strstr(error.message, "too long"), "%s", error.message);
  unlink(path);
}

/* Lines that are not whole are not taken for two. */
Test(levels_file, long_lines_and_zeros) {
  static char text[2000];
  memset(text, ' ', sizeof(text) - 1);
  memcpy(text, "b x", 3);
  memcpy(text + 1500, "\na y\n", 5);
  cr_expect_not_null(strstr(read_as("a", "", text), "line 1: it is longer than 1022 bytes"));
  write_file("b x\0\na y\n", 10);
  cr_expect_not_null(strstr(read_path(path, "a", ""), "line 1: it is longer than 1022 bytes, or"));
  unlink(path);
}

/* A MiB of anything ends with one line, too. */
Test(levels_file, garbage) {
  enum { BYTES = 1 << 20 };
  static char bytes[BYTES];
  colli_prng prng = {7};
  for (int kind = 0; kind < 6; kind++) {
    for (size_t i = 0; i < BYTES; i++)
      bytes[i] = kind == 0   ? (char)colli_prng_below(&prng, 256)
                 : kind == 1 ? 0
                 : kind == 2 ? 'a'
                 : kind == 3 ? "a x/@#\n\t1gbit"[colli_prng_below(&prng, 13)]
                 : kind == 4 ? '\n'
                             : "b x\n"[i % 4];
    write_file(bytes, BYTES);
    const char *wrong = read_path(path, "a", "");
    cr_expect_not_null(strstr(wrong, kind < 4 ? ": line " : "no line is of this host"), "%d: %s",
                       kind, wrong);
    unlink(path);
  }
}
