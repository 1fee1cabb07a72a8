/* select.h: selects the cheapest algorithm by the cost model, and the size of its chunks. */
#ifndef COLLI_TUNING_SELECT_H
#define COLLI_TUNING_SELECT_H

#include "libcoll/algo/algo.h"

/* An algorithm and how it cuts the vector. */
typedef struct colli_choice {
  const colli_algo *algo;
  colli_partition partition;
  size_t chunk_bytes; /* what its limits asked for */
  double predicted_ns;
} colli_choice;

#define COLLI_MAX_CANDIDATES 48 /* no collective has more algorithms */

/*
 * The algorithm and chunk size with the lowest cost for `count` elements (blocks: per rank).
 * `force`: an algorithm name, or "" for free choice. The same numbers give the same choice on every
 * rank. candidates (may be NULL) receives up to max_candidates considered choices, best first.
 * Returns their number, 0 if `force` names no algorithm of this collective, or -1 if memory ran
 * out: a choice without some of the costs would differ from the other ranks'.
 */
int colli_select(const colli_shape *shape, size_t count, size_t elem_bytes,
                 const colli_limits *limits, const colli_model *model, const char *force,
                 colli_choice *choice, colli_choice *candidates, int max_candidates);

/*
 * The predicted time of a choice in ns, by its formula. Algorithms without groups are asked as if
 * all ranks were equally far from each other, except where groups are within groups: there each
 * link counts as what it is. Between sites it does not, as ranks share the line, and as formulas
 * do not know how long slots of a line are taken.
 */
double colli_choice_formula(const colli_choice *choice, const colli_shape *shape, size_t elem_bytes,
                            const colli_model *model);

/*
 * The predicted time of a choice in ns, by its formula; where a few ranks share cores, the
 * geometric mean of that and a rehearsal (cost/rehearse.h). The formula knows the longest path and
 * the total work, the rehearsal knows who runs when; their mean is more accurate than either.
 */
double colli_choice_time(const colli_choice *choice, const colli_shape *shape, size_t elem_bytes,
                         unsigned slot_count, const colli_model *model);

/* The largest chunks, in bytes, that a choice tries. */
size_t colli_choice_chunk_most(const colli_limits *limits, const colli_model *model);

/* An algorithm's partition for a wanted chunk size. */
void colli_choice_partition(const colli_algo *algo, const colli_shape *shape, size_t count,
                            size_t elem_bytes, const colli_limits *limits, colli_partition *out);

#endif
