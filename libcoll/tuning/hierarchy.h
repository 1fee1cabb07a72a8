/* hierarchy.h: groups of hosts that are near each other, at several levels (racks, sites), as
 * COLL_LEVELS or Slurm says or as measured. */
#ifndef COLLI_TUNING_HIERARCHY_H
#define COLLI_TUNING_HIERARCHY_H

#include "libcoll/tuning/locality.h"

/* How the names of groups begin that were found by measuring. Those who join the ranks later may
 * have none; then there are no levels. */
#define COLLI_LEVEL_MEASURED      "measured:"
#define COLLI_LEVEL_MEASURED_SITE COLLI_LEVEL_MEASURED "site"

/*
 * Takes a setting (COLL_LEVELS) over into a record, or if it is empty what Slurm says in the
 * environment, unless that is not understood; "none": there are no levels. Errors: INVALID_USAGE
 * (syntax, too long, too many levels).
 */
coll_status colli_hierarchy_describe(const char *text, colli_rank_info *info, coll_error *error);

/* The same for a setting that is not empty, of which the record gets nothing but levels. NULL, or
 * what is wrong with it. */
const char *colli_hierarchy_read(const char *text, colli_rank_info *info);

/* How many levels a record has. */
int colli_hierarchy_depth(const colli_rank_info *info);

/* The most trusted source of levels that some rank has. */
colli_level_source colli_hierarchy_source(const colli_rank_table *table);

/*
 * If the ranks are in several groups of hosts, makes the widest of these the groups of `out`, which
 * are hosts before, and the others out->inner; the model has their costs. What no rank knows is
 * assumed: between groups a message takes twice as long as inside, and sites that have been found
 * by measuring are 2 ms from each other, at 1 Gbit/s. A level whose groups are those of a narrower
 * one counts only by what is known of its costs. Where hosts' links differ, out->weights become
 * those of hosts in the groups next to them. Errors: MISMATCH (levels that are declared
 * contradict each other), NO_MEMORY.
 */
coll_status colli_hierarchy_apply(const colli_rank_table *table, colli_locality *out,
                                  coll_error *error);

#endif
