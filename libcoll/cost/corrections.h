/*
 * corrections.h: measured over predicted time of algorithms. A calibration file holds these factors
 * for several sizes and numbers of ranks.
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

/* An algorithm's measured time over its predicted time, for each size; 0: not measured. */
typedef float colli_correction[COLLI_CORRECTED_SIZES];

/* Measurements of algorithms on one host with `cores` cores. */
typedef struct colli_corrections {
  uint64_t digest; /* checksum of the other fields and the costs that belong to them; never 0 */
  int cores;
  colli_correction of[COLLI_LINK_KINDS][COLLI_CORRECTED_WORLDS][COLLI_CORRECTED_ALGOS];
} colli_corrections;

/*
 * The measurements that fit nranks ranks on one host, indexed by algorithm id: taken with about as
 * many ranks, and on as many cores if ranks share cores. NULL if nothing fits or `corrections` is
 * NULL. The result points into `corrections`.
 */
const colli_correction *colli_corrections_find(const colli_corrections *corrections,
                                               colli_link_kind link, int nranks, int cores);

/* The factor for an algorithm and a size, interpolated between measured sizes; 1 without any.
 * `measured`: the result of colli_corrections_find(). */
double colli_correction_factor(const colli_correction *measured, int algo_id, size_t bytes);

#endif
