/* corrections.c: finds what was measured of an algorithm, and interpolates between sizes. */
#include "libcoll/cost/corrections.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

const int colli_corrected_ranks[COLLI_CORRECTED_WORLDS] = {2, 3, 4, 8};

/* The measurement for about as many ranks, sharing cores in the same way. */
const colli_correction *colli_corrections_find(const colli_corrections *corrections,
                                               colli_link_kind link, int nranks, int cores) {
  if (!corrections || nranks < 2 || nranks > 2 * colli_corrected_ranks[COLLI_CORRECTED_WORLDS - 1])
    return NULL;
  bool crowded = cores > 0 && nranks > cores;
  int nearest = -1;
  for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++) {
    int measured = colli_corrected_ranks[w];
    bool comparable = (measured > corrections->cores) == crowded;
    if (comparable &&
        (nearest < 0 || abs(measured - nranks) < abs(colli_corrected_ranks[nearest] - nranks)))
      nearest = w;
  }
  if (nearest < 0 || (crowded && cores != corrections->cores))
    return NULL;
  return corrections->of[link][nearest];
}

/* The factor for an algorithm and a size. */
double colli_correction_factor(const colli_correction *measured, int algo_id, size_t bytes) {
  if (!measured || algo_id >= COLLI_CORRECTED_ALGOS)
    return 1;
  const float *at = measured[algo_id];
  int above = 0;
  while (above < COLLI_CORRECTED_SIZES - 1 && COLLI_CORRECTED_BYTES(above) < bytes)
    above++;
  int below = above > 0 && COLLI_CORRECTED_BYTES(above) > bytes ? above - 1 : above;
  while (below > 0 && at[below] <= 0)
    below--;
  while (above < COLLI_CORRECTED_SIZES - 1 && at[above] <= 0)
    above++;
  if (at[below] <= 0 || at[above] <= 0)
    return at[below] > 0 ? at[below] : at[above] > 0 ? at[above] : 1;
  if (below == above)
    return at[below];
  double part = log((double)bytes / (double)COLLI_CORRECTED_BYTES(below)) /
                log((double)COLLI_CORRECTED_BYTES(above) / (double)COLLI_CORRECTED_BYTES(below));
  part = part < 0 ? 0 : part > 1 ? 1 : part;
  return at[below] * pow(at[above] / at[below], part);
}
