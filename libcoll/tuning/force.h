/*
 * force.h: algorithms that the caller forces (COLL_ALGO, coll_config.algo). The text is a
 * comma-separated list of collective:algorithm or collective:first-last=algorithm;... with ranges
 * of bytes: last is exclusive, either end may be omitted, and the suffixes k, m and g are allowed.
 * Bytes are those of `count` elements as in the call. Sizes that no range covers are chosen freely.
 */
#ifndef COLLI_TUNING_FORCE_H
#define COLLI_TUNING_FORCE_H

#include "libcoll/algo/algo.h"

typedef struct colli_force_rule {
  const colli_algo *algo;
  size_t first, last; /* bytes; last is exclusive */
} colli_force_rule;

/* All rules, in the order of the text; no two of a collective overlap. */
typedef struct colli_force {
  colli_force_rule *rules;
  int count;
} colli_force;

/*
 * Parses a text ("": no rules). Errors: INVALID_USAGE, with a message that shows the position of
 * the mistake and the known names; NO_MEMORY. On an error *out has no rules.
 */
coll_status colli_force_parse(const char *text, colli_force *out, coll_error *error);

/* The same without the rules. */
coll_status colli_force_check(const char *text, coll_error *error);

void colli_force_free(colli_force *force);

/* The forced algorithm for a collective of `bytes` bytes, or NULL. */
const colli_algo *colli_force_find(const colli_force *force, colli_coll coll, size_t bytes);

/* Returns INVALID_USAGE; the message says why a forced algorithm does not support a shape, and
 * which ones do. */
coll_status colli_force_refuse(const colli_algo *algo, const colli_shape *shape, coll_error *error);

#endif
