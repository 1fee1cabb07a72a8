/* sites.h: hosts that are near each other (at one site, in one rack), as COLL_SITE says or as
 * measured. */
#ifndef COLLI_TUNING_SITES_H
#define COLLI_TUNING_SITES_H

#include "libcoll/tuning/locality.h"

/* How the names of sites begin that were found by measuring. Those who join the ranks later may
 * have none; then there are no sites. */
#define COLLI_SITE_MEASURED "measured:"

/* Takes a setting over into a record. Errors: INVALID_USAGE (too long). */
coll_status colli_site_parse(const char *text, char site[COLLI_SITE_BYTES], coll_error *error);

/*
 * If the ranks are at several sites, makes these the groups of `out`, which are hosts before, and
 * out->host the hosts; between sites the model has the costs of the line between them. Errors:
 * MISMATCH (some ranks have a site and others have none, or one host is at two), NO_MEMORY.
 */
coll_status colli_sites_apply(const colli_rank_info *table, int nranks, colli_locality *out,
                              coll_error *error);

#endif
