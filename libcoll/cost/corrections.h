/*
 * corrections.h: what algorithms were measured to take, over what their formulas say. A calibration
 * file holds it for several sizes and numbers of ranks.
 */
#ifndef COLLI_COST_CORRECTIONS_H
#define COLLI_COST_CORRECTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "libcoll/base/calibration.h"

/* Sizes for which an algorithm's time may have been measured: 4, 32, 256 ... bytes. */
#define COLLI_CORRECTED_SIZES    8
#define COLLI_CORRECTED_BYTES(i) ((size_t)4 << 3 * (i))
#define COLLI_CORRECTED_ALGOS    160 /* above any algorithm's id */
#define COLLI_CORRECTED_WORLDS   4
extern const int colli_corrected_ranks[COLLI_CORRECTED_WORLDS]; /* numbers of ranks: 2, 3 ... */

/* The measured time of an algorithm over that of its formula, for each size; 0: not measured. */
typedef float colli_correction[COLLI_CORRECTED_SIZES];

/* What was measured of algorithms on one host with `cores` cores. */
typedef struct colli_corrections {
  uint64_t digest; /* of all the rest and the costs that it goes with; never 0 */
  int cores;
  colli_correction of[COLLI_LINK_KINDS][COLLI_CORRECTED_WORLDS][COLLI_CORRECTED_ALGOS];
} colli_corrections;

/*
 * What was measured for nranks ranks on one host, by the algorithm's id, if anything fits: for as
 * many ranks or nearly so, on as many cores if they share cores. NULL: nothing does, or
 * `corrections` is NULL. The result is part of `corrections`.
 */
const colli_correction *colli_corrections_find(const colli_corrections *corrections,
                                               colli_link_kind link, int nranks, int cores);

/* The factor for an algorithm and a size: 1, or between those of the sizes that were measured.
 * `measured`: what colli_corrections_find() gave. */
double colli_correction_factor(const colli_correction *measured, int algo_id, size_t bytes);

#endif
