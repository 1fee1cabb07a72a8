/* distance.h: how far apart ranks are that talk to each other, where groups are within groups. */
#ifndef COLLI_ALGO_DISTANCE_H
#define COLLI_ALGO_DISTANCE_H

#include "libcoll/algo/algo.h"

/*
 * The model with which an algorithm's formula should be asked about a shape, because many formulas
 * know one kind of links only: alpha and beta become averages over the links that the algorithm
 * uses, which follow from its `reach`. Where ranks wait for the slowest link, its costs count.
 * Without groups, or if the formula knows all links by itself: the model as it is.
 */
colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model);

#endif
