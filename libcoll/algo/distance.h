/* distance.h: how far apart ranks are that talk to each other, on a network with levels. */
#ifndef COLLI_ALGO_DISTANCE_H
#define COLLI_ALGO_DISTANCE_H

#include "libcoll/algo/algo.h"

/*
 * The model with which an algorithm's formula should be asked about a network (model->network),
 * because formulas know near and far links only. Near are those of the first level, if the
 * algorithm has groups; if these have inner levels, it knows all by itself. The alpha of all other
 * links becomes the average over the rounds of the algorithm, or over the links between neighbours.
 * Beta becomes the same average, or the largest one if messages follow each other closely, so that
 * the slowest link holds up all others. Without a network: the model itself.
 */
colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_model *model);

#endif
