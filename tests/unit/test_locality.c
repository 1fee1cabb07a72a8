/* test_locality.c: what the cost model takes from the table of ranks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/locality.h"

#define RANKS 4

/* Transports with unknown names: their capabilities decide. */
static int reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES],
                 coll_link *link) {
  (void)a;
  (void)b;
  *link = (coll_link){.alpha_ns = 900, .ns_per_byte = 0.25, .slot_bytes = 4096};
  return 1;
}
static const coll_transport_ops memory = {
    .size = sizeof(memory), .caps = COLL_CAP_SHARED_MEMORY, .name = "mapped", .reach = reach};
static const coll_transport_ops device = {
    .size = sizeof(device), .caps = COLL_CAP_DEVICE, .name = "card", .reach = reach};
static const coll_transport_ops wire = {.size = sizeof(wire), .name = "wire", .reach = reach};
static const colli_transport_list transports = {.ops = {&memory, &device, &wire}, .count = 3};

static colli_rank_info table[RANKS];
static colli_corrections corrections;

/* Ranks with a core each, `per_host` per host, that have the transports of these bits. */
static void fill_table(int per_host, uint32_t bits) {
  memset(table, 0, sizeof(table));
  for (int rank = 0; rank < RANKS; rank++) {
    table[rank].host_id = table[rank].machine_id = 1 + (uint64_t)(rank / per_host);
    table[rank].transports = bits;
    table[rank].core = rank % per_host;
    table[rank].cpus[0] = 1ull << rank % per_host;
    table[rank].corrections = 77;
    colli_calibration_default(&table[rank].calibration);
  }
}

/* What rank 0 of the first nranks finds. */
static coll_status find_of(int nranks, colli_locality *found, coll_error *error) {
  colli_rank_table *packed = colli_rank_table_create(table, nranks);
  cr_assert_not_null(packed);
  const coll_status status =
      colli_locality_find(packed, 0, &transports, &corrections, found, error);
  colli_rank_table_free(packed);
  return status;
}

static colli_locality find(void) {
  colli_locality found;
  coll_error error = COLL_ERROR_INIT;
  corrections.cores = RANKS;
  cr_assert_eq(find_of(RANKS, &found, &error), COLL_OK);
  return found;
}

/* The model of TCP between hosts of whose network nothing is known. */
static colli_model usual_network(void) {
  colli_model usual;
  colli_model_default(COLLI_LINK_TCP, 1, 0, &usual);
  colli_host_links_assume(&usual);
  return usual;
}

/* Whether model and limits are those of a kind of link. */
static bool is_of(const colli_locality *found, colli_link_kind link) {
  colli_model model;
  colli_limits limits;
  colli_model_default(link, RANKS, 0, &model);
  colli_limits_default(link, &limits);
  return found->model.alpha_ns == model.alpha_ns &&
         found->model.beta_ns_per_byte == model.beta_ns_per_byte &&
         found->limits.slot_bytes == limits.slot_bytes &&
         found->limits.slice_bytes == limits.slice_bytes;
}

Test(locality, shared_memory_is_told_by_its_capability) {
  fill_table(RANKS, 7);
  colli_locality found = find();
  cr_expect(is_of(&found, COLLI_LINK_SHM));
  cr_expect_not(is_of(&found, COLLI_LINK_TCP));
  cr_expect_not_null(found.model.corrections, "all have read the same");
  cr_expect_eq(found.ngroups, 1);
  cr_expect_eq(found.neighbours, RANKS);
}

Test(locality, one_rank_without_it_makes_it_useless) {
  fill_table(RANKS, 5);
  table[2].transports = 4;
  colli_locality found = find();
  cr_expect(is_of(&found, COLLI_LINK_TCP));
}

Test(locality, between_hosts_it_does_not_count) {
  fill_table(2, 5);
  colli_locality found = find();
  const colli_model usual = usual_network();
  cr_expect_eq(found.model.alpha_ns, usual.alpha_ns);
  cr_expect_eq(found.model.host_beta_ns_per_byte, usual.host_beta_ns_per_byte);
  cr_expect_lt(found.model.host_step_ns, usual.step_ns, "they share memory within hosts");
  cr_expect_null(found.model.corrections, "they were measured on one host");
  cr_expect_eq(found.ngroups, 2);
  cr_expect_eq(found.group[3], 1);
  free(found.group);
}

Test(locality, hosts_of_one_machine_share_its_cores) {
  for (int alone = 0; alone <= RANKS; alone += RANKS / 2) {
    fill_table(1, 5);
    for (int rank = 0; rank < RANKS; rank++) {
      table[rank].cpus[0] = 3;
      table[rank].machine_id = rank < alone ? (uint64_t)rank : 77;
    }
    colli_locality found = find();
    const int together = RANKS - alone;
    cr_expect_eq(found.ngroups, RANKS, "they are hosts of their own all the same");
    cr_expect_eq(found.neighbours, alone ? 1 : RANKS);
    cr_expect_eq(found.crowded, alone == 0, "rank 0 is alone, or with all");
    cr_expect_eq(found.model.containers, together > 2);
    cr_expect_eq(found.model.core_share, together > 2 ? 2.0 / together : 1);
    colli_locality_free(&found);
  }
}

Test(locality, device_says_what_its_links_cost) {
  fill_table(2, 7);
  colli_locality found = find();
  cr_expect(found.model.device);
  cr_expect_eq(found.model.alpha_ns, 900);
  cr_expect_eq(found.model.beta_ns_per_byte, 0.25);
  cr_expect_eq(found.limits.slot_bytes, 4096);
  free(found.group);
}

Test(locality, device_is_not_corrected) {
  fill_table(RANKS, 6);
  colli_locality found = find();
  cr_expect(found.model.device);
  cr_expect_null(found.model.corrections, "coll_calibrate measures no devices");
}

Test(locality, ranks_that_read_different_corrections_use_none) {
  fill_table(RANKS, 7);
  table[1].corrections = 78;
  colli_locality found = find();
  cr_expect_null(found.model.corrections);
}

/* Ranks of one host that may use all its processors, but only for a share of the time. */
static bool crowded_with(int ranks_of_group, uint64_t quota_millicores) {
  fill_table(RANKS, 1);
  for (int rank = 0; rank < RANKS; rank++) {
    table[rank].core = -1;
    table[rank].cpus[0] = (1ull << RANKS) - 1;
    table[rank].quota_group = 10 + (uint64_t)(rank / ranks_of_group);
    table[rank].quota_millicores = quota_millicores;
  }
  return find().crowded;
}

Test(locality, quota) {
  cr_expect(!crowded_with(RANKS, 0), "no limit");
  cr_expect(!crowded_with(RANKS, 4000), "a whole processor each");
  cr_expect(crowded_with(RANKS, 3999));
  cr_expect(crowded_with(RANKS, 1000));
  cr_expect(crowded_with(RANKS, 1));
  cr_expect(!crowded_with(1, 1000), "each in a container with one processor");
  cr_expect(crowded_with(2, 1000), "two in each");
  cr_expect(!crowded_with(2, 2000));
}

/* ---- speeds of links ------------------------------------------------------------------------- */

/* Four hosts whose links are so fast, all from one source; TCP. */
static void fill_speeds(double a, double b, double c, double d, colli_speed_source source) {
  const double mbit[RANKS] = {a, b, c, d};
  fill_table(1, 4);
  for (int rank = 0; rank < RANKS; rank++) {
    table[rank].link_mbit = mbit[rank];
    table[rank].link_source = mbit[rank] > 0 ? source : COLLI_SPEED_UNKNOWN;
  }
}

/* Whether hosts have links of that beta in the model, and differ or not. */
static void expect_links(double beta, bool differ) {
  colli_locality found = find();
  const double host_beta = found.model.host_beta_ns_per_byte;
  cr_expect_float_eq(host_beta, beta, 1e-9, "%g", host_beta);
  cr_expect_eq(found.weights != NULL, differ);
  cr_expect_eq(found.model.link_beta_ns_per_byte != NULL, differ);
  colli_locality_free(&found);
}

/* What cards can do says nothing of containers, and does not make hosts differ. */
Test(link_speed, cards_are_trusted_least) {
  fill_speeds(1000, 1000, 100, 1000, COLLI_SPEED_CARDS);
  expect_links(80, false);
  table[2].link_mbit = 500;
  table[2].link_source = COLLI_SPEED_DECLARED;
  expect_links(16, false);
  table[3].link_mbit = 0;
  table[3].link_source = COLLI_SPEED_WANTED;
  expect_links(usual_network().host_beta_ns_per_byte, false);
  fill_speeds(1000, 1000, 100, 1000, COLLI_SPEED_CARDS);
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].machine_id = 1;
  expect_links(0, false);
}

Test(link_speed, slowest_counts_if_all_are_known) {
  const colli_model usual = usual_network();
  fill_speeds(1000, 1000, 100, 1000, COLLI_SPEED_DECLARED);
  expect_links(80, true);
  fill_speeds(1000, 1000, 1000, 1000, COLLI_SPEED_MEASURED);
  expect_links(8, false);
  fill_speeds(1000, 1000, 100, 0, COLLI_SPEED_DECLARED);
  expect_links(usual.host_beta_ns_per_byte, false);
  fill_speeds(1e8, 1e8, 1e8, 4e8, COLLI_SPEED_DECLARED);
  expect_links(8e-5, false); /* faster than what a core can send: so they are alike */
}

Test(link_speed, rank_that_knows_best_speaks_for_its_host) {
  fill_speeds(1000, 1000, 900, 1000, COLLI_SPEED_MEASURED);
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].host_id = table[rank].machine_id = 1 + (uint64_t)(rank / 2);
  table[2].link_source = COLLI_SPEED_DECLARED;
  table[2].link_mbit = 100;
  expect_links(80, true);
  table[3].link_mbit = 0;
  table[3].link_source = COLLI_SPEED_WANTED; /* and was not measured */
  expect_links(80, true);
}

Test(link_speed, devices_have_their_own) {
  fill_speeds(1000, 1000, 100, 1000, COLLI_SPEED_DECLARED);
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].transports = 6;
  expect_links(0, false);
}

/* ---- groups of hosts ------------------------------------------------------------------------- */

/* Ranks of some hosts with these levels (NULL: none); TCP between hosts. */
static void fill_levels(int per_host, const char *const levels[RANKS]) {
  coll_error error = COLL_ERROR_INIT;
  fill_table(per_host, 5);
  for (int rank = 0; rank < RANKS; rank++)
    if (levels[rank])
      cr_assert_eq(colli_hierarchy_describe(levels[rank], &table[rank], &error), COLL_OK, "%s",
                   error.message);
}

/* The same with one level, as a letter says ("-": none). */
static void fill_sites(int per_host, const char *sites) {
  char name[RANKS][2] = {{0}};
  const char *levels[RANKS];
  for (int rank = 0; rank < RANKS; rank++) {
    name[rank][0] = sites[rank];
    levels[rank] = sites[rank] == '-' ? NULL : name[rank];
  }
  fill_levels(per_host, levels);
}

/* Expects a rank's numbers, in `group` or a level inside. */
static void expect_numbers(const int32_t *found, int a, int b, int c, int d) {
  cr_expect_arr_eq(found, ((int32_t[RANKS]){a, b, c, d}), sizeof(int32_t[RANKS]));
}

Test(hierarchy, one_level) {
  const colli_model usual = usual_network();
  fill_sites(1, "abab");
  colli_locality found = find();
  cr_assert_eq(found.ngroups, 2);
  expect_numbers(found.group, 0, 1, 0, 1);
  cr_assert_eq(found.ninner, 1);
  expect_numbers(found.inner[0], 0, 1, 2, 3);
  cr_expect_eq(found.model.near_alpha_ns, usual.alpha_ns, "hosts of one group");
  cr_expect_eq(found.model.near_beta_ns_per_byte, usual.host_beta_ns_per_byte);
  cr_expect_eq(found.model.alpha_ns, 2 * usual.alpha_ns, "assumed");
  cr_expect_eq(found.model.beta_ns_per_byte, 2 * usual.host_beta_ns_per_byte);
  cr_expect_not(found.model.sites, "they are not so far from each other");
  colli_locality_free(&found);
}

Test(hierarchy, two_levels_and_what_they_cost) {
  const colli_model usual = usual_network();
  fill_levels(1, (const char *const[]){"paris@200mbit,20ms/1", "oslo@10ms/1@8gbit",
                                       "paris@200mbit,20ms/2", "paris@100mbit/1"});
  colli_locality found = find();
  cr_assert_eq(found.ngroups, 2);
  expect_numbers(found.group, 0, 1, 0, 0);
  cr_assert_eq(found.ninner, 2);
  expect_numbers(found.inner[0], 0, 1, 2, 3);
  expect_numbers(found.inner[1], 0, 1, 2, 0);
  cr_expect_eq(found.model.inner[1].alpha_ns, usual.alpha_ns, "inside a rack");
  cr_expect_eq(found.model.near_alpha_ns, 2 * usual.alpha_ns, "between racks of a site");
  cr_expect_eq(found.model.near_beta_ns_per_byte, fmax(1, usual.host_beta_ns_per_byte));
  cr_expect_eq(found.model.alpha_ns, 1e7, "half of the longest round trip");
  cr_expect_eq(found.model.beta_ns_per_byte, 80, "the slowest");
  cr_expect(found.model.sites);
  colli_locality_free(&found);
}

Test(hierarchy, what_is_measured_is_of_its_level) {
  fill_levels(1, (const char *const[]){"a/1", "a/2", "b/1", "b/1"});
  table[0].level_alpha_ns[0] = 1e7;
  table[0].level_beta_ns_per_byte[0] = 40;
  table[2].level_alpha_ns[0] = 2e7;
  table[2].level_beta_ns_per_byte[0] = 20;
  colli_locality found = find();
  cr_expect_eq(found.model.alpha_ns, 2e7);
  cr_expect_eq(found.model.beta_ns_per_byte, 40);
  cr_assert_eq(found.ninner, 2);
  cr_expect_arr_eq(found.names, ((int[]){0, 2, 1}), sizeof(int[3]));
  const double racks = found.model.near_alpha_ns;
  colli_locality_free(&found);
  coll_error error = COLL_ERROR_INIT; /* those of site a alone, as in a part of the communicator */
  cr_assert_eq(find_of(2, &found, &error), COLL_OK);
  cr_expect_lt(found.model.alpha_ns, racks + 1, "racks, not sites");
  cr_expect_not(found.model.sites);
  colli_locality_free(&found);
}

/* The shares of hosts, of which the second is slow, in racks of these names. */
static void expect_shares(const char *racks, const uint8_t *share) {
  const double mbit[RANKS] = {1000, 100, 1000, 1000};
  fill_sites(1, racks);
  for (int rank = 0; rank < RANKS; rank++) {
    table[rank].link_mbit = mbit[rank];
    table[rank].link_source = COLLI_SPEED_DECLARED;
  }
  colli_locality found = find();
  cr_expect_float_eq(found.model.host_beta_ns_per_byte, 80, 1e-9);
  cr_assert_not_null(found.weights);
  cr_expect_eq(found.model.link_beta_ns_per_byte, found.weights->beta_ns_per_byte);
  cr_expect_arr_eq(found.weights->share, share, RANKS);
  if (found.ninner > 0)
    cr_expect_float_eq(found.model.near_beta_ns_per_byte, 8, 1e-9, "each link counts by itself");
  colli_locality_free(&found);
}

Test(hierarchy, slow_hosts_have_shares_of_their_rack) {
  expect_shares("aabb", (uint8_t[]){1, 0, 1, 1});
  expect_shares("aaab", (uint8_t[]){1, 0, 1, 1});
  expect_shares("abcd", (uint8_t[]){1, 0, 1, 1});
}

Test(hierarchy, levels_that_say_nothing_change_no_groups) {
  fill_sites(2, "aaaa");
  colli_locality found = find();
  cr_expect_eq(found.ngroups, 2);
  cr_expect_eq(found.ninner, 0);
  double near = found.model.near_alpha_ns, far = found.model.alpha_ns;
  colli_locality_free(&found);
  fill_levels(2, (const char *const[]){"all/a@9ms", "all/a@9ms", "all/b", "all/b"});
  found = find();
  cr_expect_eq(found.ngroups, 2);
  cr_expect_eq(found.ninner, 0, "each host is a group");
  cr_expect_eq(found.model.near_alpha_ns, near, "ranks of one host");
  cr_expect_gt(found.model.alpha_ns, 10 * far, "but hosts are far from each other");
  cr_expect(found.model.sites);
  cr_expect_null(found.weights);
  colli_locality_free(&found);
  fill_speeds(1000, 100, 1000, 1000, COLLI_SPEED_DECLARED);
  found = find();
  const double slowest = found.model.beta_ns_per_byte;
  colli_locality_free(&found);
  coll_error error = COLL_ERROR_INIT;
  static const char *const racks[] = {"a", "b", "c", "d"};
  for (int rank = 0; rank < RANKS; rank++)
    cr_assert_eq(colli_hierarchy_describe(racks[rank], &table[rank], &error), COLL_OK);
  found = find();
  cr_expect_not_null(found.weights, "a rack of one host says nothing");
  cr_expect_eq(found.model.beta_ns_per_byte, slowest);
  colli_locality_free(&found);
}

/* Whether ranks with these groups are refused, with such a message. */
static void expect_refusal(int per_host, const char *const levels[RANKS], const char *message) {
  colli_locality found;
  coll_error error = COLL_ERROR_INIT;
  fill_levels(per_host, levels);
  cr_expect_eq(find_of(RANKS, &found, &error), COLL_ERR_MISMATCH);
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

Test(hierarchy, measured_groups_end_when_others_join) {
  fill_levels(1, (const char *const[]){COLLI_LEVEL_MEASURED "1", COLLI_LEVEL_MEASURED "1",
                                       COLLI_LEVEL_MEASURED "2", NULL});
  colli_locality found = find();
  cr_expect_eq(found.ngroups, RANKS);
  cr_expect_eq(found.ninner, 0);
  cr_expect_not(found.model.sites);
  colli_locality_free(&found);
}

Test(hierarchy, contradictions_are_refused) {
  expect_refusal(1, (const char *const[]){"a", "a", "b/c", "d"},
                 "as many levels on all hosts: rank 0 (host ) has \"a\", but rank 2 (host ) has "
                 "\"b/c\"");
  expect_refusal(1, (const char *const[]){NULL, NULL, "b", "a"},
                 "on all hosts or on none: rank 0 (host ) has \"\", but rank 2 (host ) has \"b\"");
  expect_refusal(2, (const char *const[]){"a", "a", "a", "b"},
                 "same on all ranks of a host: rank 2 (host ) has \"a\", but rank 3");
  expect_refusal(4, (const char *const[]){"a", "a", "a", "b"}, "rank 0 (host ) has \"a\"");
  expect_refusal(
      1, (const char *const[]){"none", "none", "none", "b"},
      "on all hosts or on none: rank 0 (host ) has \"none\", but rank 3 (host ) has \"b\"");
}

/* What is wrong with a setting; "" if nothing is, and then what the record says. */
static const char *describe(const char *text, colli_rank_info *info) {
  static coll_error error;
  error = (coll_error)COLL_ERROR_INIT;
  return colli_hierarchy_describe(text, info, &error) == COLL_OK ? "" : error.message;
}

Test(hierarchy, setting) {
  colli_rank_info info;
  char longest[COLLI_LEVELS_BYTES + 1] = {0};
  cr_expect_str_empty(describe("row 2@2.5gbit/rack 7@50us", &info));
  cr_expect_str_eq(info.levels, "row 2/rack 7");
  cr_expect_float_eq(info.level_beta_ns_per_byte[0], 3.2, 1e-9);
  cr_expect_eq(info.level_alpha_ns[0], 0);
  cr_expect_float_eq(info.level_alpha_ns[1], 25e3, 1e-6);
  memset(longest, 'x', sizeof(longest) - 3);
  cr_expect_str_empty(describe(longest, &info));
  memset(longest, 'x', sizeof(longest) - 1);
  cr_expect_not_null(strstr(describe(longest, &info), "too long"));
  cr_expect_not_null(strstr(describe("1/2/3/4/5/6/7/8/9", &info), "at most 8 levels"));
  cr_expect_not_null(strstr(describe("a//c", &info), "no name"));
  const char *const bad[] = {"a@",    "a@20",    "a@20ms,100mbit", "a@0kbit",
                             "a@11s", "a@1ms x", "a@,1ms"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
    cr_expect_not_null(strstr(describe(bad[i], &info), "@200mbit,20ms"), "%s", bad[i]);
}

Test(hierarchy, slurm_is_not_believed_if_it_contradicts_itself) {
  fill_sites(1, "aabb");
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].level_source = COLLI_LEVELS_SLURM;
  colli_locality found = find();
  cr_expect_eq(found.ngroups, 2);
  colli_locality_free(&found);
  strcpy(table[3].levels, "a/b");
  found = find();
  cr_expect_eq(found.ngroups, RANKS);
  colli_locality_free(&found);
}
