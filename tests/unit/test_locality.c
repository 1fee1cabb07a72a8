/* test_locality.c: what the cost model takes from the table of ranks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/locality.h"
#include "libcoll/tuning/sites.h"

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
    table[rank].host_id = 1 + (uint64_t)(rank / per_host);
    table[rank].transports = bits;
    table[rank].core = rank % per_host;
    table[rank].cpus[0] = 1ull << rank % per_host;
    table[rank].corrections = 77;
    colli_calibration_default(&table[rank].calibration);
  }
}

/* What rank 0 finds. */
static colli_locality find(void) {
  colli_locality found;
  coll_error error = COLL_ERROR_INIT;
  corrections.cores = RANKS;
  cr_assert_eq(colli_locality_find(table, RANKS, 0, &transports, &corrections, &found, &error),
               COLL_OK);
  return found;
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
  cr_expect(is_of(&found, COLLI_LINK_TCP));
  cr_expect_null(found.model.corrections, "they were measured on one host");
  cr_expect_eq(found.ngroups, 2);
  cr_expect_eq(found.group[3], 1);
  free(found.group);
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

/* Whether the model has that beta, and hosts differ or not. */
static void expect_links(double beta, bool differ) {
  colli_locality found = find();
  cr_expect_float_eq(found.model.beta_ns_per_byte, beta, 1e-9, "%g", found.model.beta_ns_per_byte);
  cr_expect_eq(found.weights != NULL, differ);
  cr_expect_eq(found.model.group_beta_ns_per_byte != NULL, differ);
  colli_locality_free(&found);
}

Test(link_speed, slowest_counts_if_all_are_known) {
  colli_model usual;
  colli_model_default(COLLI_LINK_TCP, 1, 0, &usual);
  fill_speeds(1000, 1000, 100, 1000, COLLI_SPEED_DECLARED);
  expect_links(80, true);
  fill_speeds(1000, 1000, 1000, 1000, COLLI_SPEED_MEASURED);
  expect_links(8, false);
  fill_speeds(1000, 1000, 100, 0, COLLI_SPEED_DECLARED);
  expect_links(usual.beta_ns_per_byte, false);
  fill_speeds(1e8, 1e8, 1e8, 4e8, COLLI_SPEED_DECLARED);
  expect_links(usual.beta_ns_per_byte, false); /* faster than a core */
}

Test(link_speed, rank_that_knows_best_speaks_for_its_host) {
  fill_speeds(1000, 1000, 900, 1000, COLLI_SPEED_MEASURED);
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].host_id = 1 + (uint64_t)(rank / 2);
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
  expect_links(0.25, false);
}

Test(link_speed, setting) {
  static const struct {
    const char *text;
    double mbit;
    colli_speed_source source;
  } good[] = {{"", 0, COLLI_SPEED_UNKNOWN},
              {"measure", 0, COLLI_SPEED_WANTED},
              {"100mbit", 100, COLLI_SPEED_DECLARED},
              {"2.5gbit", 2500, COLLI_SPEED_DECLARED},
              {"64kbit", 0.064, COLLI_SPEED_DECLARED},
              {"1kbit", 0.001, COLLI_SPEED_DECLARED},
              {"10.25gbit", 10250, COLLI_SPEED_DECLARED},
              {"400.gbit", 4e5, COLLI_SPEED_DECLARED},
              {"1000tbit", 1e9, COLLI_SPEED_DECLARED}};
  static const char *const bad[] = {"100",      "mbit",       "-1mbit",   "0mbit",     "100Mbit",
                                    "100mbits", "inf",        "nan",      "1e9",       "10000tbit",
                                    " 1gbit",   "measured",   "0x1mbit",  "1.2.3mbit", ".5gbit",
                                    "1e3mbit",  "0.0001kbit", "1001tbit", "2,5gbit",   "1gbit "};
  coll_error error = COLL_ERROR_INIT;
  double mbit;
  uint64_t source;
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    cr_expect_eq(colli_link_speed_parse(good[i].text, &mbit, &source, &error), COLL_OK);
    cr_expect_float_eq(mbit, good[i].mbit, 1e-12);
    cr_expect_eq(source, good[i].source);
  }
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    cr_expect_eq(colli_link_speed_parse(bad[i], &mbit, &source, &error), COLL_ERR_INVALID_USAGE,
                 "%s", bad[i]);
    cr_expect_not_null(strstr(error.message, "COLL_LINK_SPEED"));
  }
  static const double printed[] = {0.001, 114.68, 2.5e6, 1e9};
  for (size_t i = 0; i < sizeof(printed) / sizeof(printed[0]); i++) {
    char text[32];
    colli_link_speed_print(printed[i], text, sizeof(text));
    cr_expect_eq(colli_link_speed_parse(text, &mbit, &source, &error), COLL_OK, "%s", text);
    cr_expect_float_eq(mbit, printed[i], 1e-3);
  }
}

/* ---- sites ----------------------------------------------------------------------------------- */

/* Ranks of some hosts, each at the site that a letter says ("-": none); TCP between hosts. */
static void fill_sites(int per_host, const char *sites) {
  fill_table(per_host, 5);
  for (int rank = 0; rank < RANKS; rank++)
    if (sites[rank] != '-')
      table[rank].site[0] = sites[rank];
}

Test(sites, become_groups) {
  colli_model usual;
  colli_model_default(COLLI_LINK_TCP, 1, 0, &usual);
  fill_sites(1, "abab");
  colli_locality found = find();
  cr_assert_eq(found.ngroups, 2);
  cr_expect_arr_eq(found.group, ((int32_t[]){0, 1, 0, 1}), sizeof(int32_t[RANKS]));
  cr_expect_arr_eq(found.host, ((int32_t[]){0, 1, 2, 3}), sizeof(int32_t[RANKS]));
  cr_expect_eq(found.model.near_alpha_ns, usual.alpha_ns, "hosts of one site");
  cr_expect_eq(found.model.near_beta_ns_per_byte, usual.beta_ns_per_byte);
  cr_expect_gt(found.model.alpha_ns, 100 * usual.alpha_ns, "assumed");
  colli_locality_free(&found);
}

Test(sites, line_is_as_measured) {
  fill_sites(1, "aabb");
  table[0].line_alpha_ns = 1e7;
  table[0].line_beta_ns_per_byte = 40;
  table[2].line_alpha_ns = 2e7;
  table[2].line_beta_ns_per_byte = 20;
  colli_locality found = find();
  cr_expect_eq(found.model.alpha_ns, 2e7);
  cr_expect_eq(found.model.beta_ns_per_byte, 40);
  colli_locality_free(&found);
}

Test(sites, links_of_hosts_are_near) {
  fill_speeds(1000, 100, 1000, 1000, COLLI_SPEED_DECLARED);
  for (int rank = 0; rank < RANKS; rank++)
    table[rank].site[0] = rank < 2 ? 'a' : 'b';
  colli_locality found = find();
  cr_expect_float_eq(found.model.near_beta_ns_per_byte, 80, 1e-9);
  cr_expect_null(found.weights, "sites have no shares");
  cr_expect_null(found.model.group_beta_ns_per_byte);
  colli_locality_free(&found);
}

Test(sites, one_or_as_many_as_hosts_change_no_groups) {
  fill_sites(2, "aaaa");
  colli_locality found = find();
  cr_expect_eq(found.ngroups, 2);
  cr_expect_null(found.host);
  double near = found.model.near_alpha_ns, far = found.model.alpha_ns;
  colli_locality_free(&found);
  fill_sites(2, "aabb");
  found = find();
  cr_expect_eq(found.ngroups, 2);
  cr_expect_null(found.host);
  cr_expect_eq(found.model.near_alpha_ns, near, "ranks of one host");
  cr_expect_gt(found.model.alpha_ns, 100 * far, "but hosts are far from each other");
  cr_expect(found.model.sites);
  colli_locality_free(&found);
}

/* Whether ranks with these sites are refused, with such a message. */
static void expect_refusal(int per_host, const char *sites, const char *message) {
  colli_locality found;
  coll_error error = COLL_ERROR_INIT;
  fill_sites(per_host, sites);
  cr_expect_eq(colli_locality_find(table, RANKS, 0, &transports, &corrections, &found, &error),
               COLL_ERR_MISMATCH);
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

Test(sites, measured_ones_end_when_others_join) {
  fill_sites(1, "aab-");
  for (int rank = 0; rank < 3; rank++)
    strcpy(table[rank].site, rank < 2 ? COLLI_SITE_MEASURED "1" : COLLI_SITE_MEASURED "2");
  colli_locality found = find();
  cr_expect_eq(found.ngroups, RANKS);
  cr_expect_null(found.host);
  cr_expect_not(found.model.sites);
  colli_locality_free(&found);
}

Test(sites, contradictions_are_refused) {
  expect_refusal(1, "aab-", "rank 0 (host ) is at site a, but rank 3 (host ) is at none");
  expect_refusal(1, "--ba", "rank 2 (host ) is at site b, but rank 0 (host ) is at none");
  expect_refusal(2, "aaab", "ranks 2 and 3 share host , but COLL_SITE says a and b");
  expect_refusal(4, "aaab", "ranks 0 and 3 share host , but COLL_SITE says a and b");
}

Test(sites, setting) {
  char site[COLLI_SITE_BYTES];
  coll_error error = COLL_ERROR_INIT;
  cr_expect_eq(colli_site_parse("rack 7, row 2", site, &error), COLL_OK);
  cr_expect_str_eq(site, "rack 7, row 2");
  cr_expect_eq(colli_site_parse("1234567890123456789012345678901", site, &error), COLL_OK);
  cr_expect_eq(colli_site_parse("12345678901234567890123456789012", site, &error),
               COLL_ERR_INVALID_USAGE);
  cr_expect_not_null(strstr(error.message, "at most 31 characters"));
}
