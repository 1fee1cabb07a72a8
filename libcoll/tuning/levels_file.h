/*
 * levels_file.h: a file that says of many hosts where they are, so that all can have the same
 * setting, COLL_LEVELS=file:PATH. Each line is of a host, with its name, its levels, and the speed
 * of its link, if it is known:
 *
 *   node1 paris@200mbit,20ms/rack7 10gbit   # a comment
 *
 * A name is what the kernel calls the host, or that up to the first dot. Levels are as in
 * COLL_LEVELS, without spaces; "none", on all lines: there are none.
 */
#ifndef COLLI_TUNING_LEVELS_FILE_H
#define COLLI_TUNING_LEVELS_FILE_H

#include "libcoll/base/param.h"

/*
 * If COLL_LEVELS names a file, reads it and replaces the setting by what it says of this host, and
 * COLL_LINK_SPEED, unless that is set, by the speed. Errors: INVALID_USAGE (with the file and the
 * line: not readable, malformed, lines that contradict each other, this host is missing or there
 * twice).
 */
coll_status colli_levels_file_use(colli_params *params, coll_error *error);

/* Whether a line with a name is of a host with that one. */
bool colli_levels_file_names(const char *name, const char *host);

/* The same as colli_levels_file_use() for a host of that name. */
coll_status colli_levels_file_find(colli_params *params, const char *host, coll_error *error);

#endif
