/* test_levels.c: who is believed of levels: COLL_LEVELS, its "none", Slurm, or what was measured.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tuning/hierarchy.h"

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
