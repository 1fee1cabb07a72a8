/* distance.h: how far apart ranks are that talk to each other, where groups are within groups. */
#ifndef COLLI_ALGO_DISTANCE_H
#define COLLI_ALGO_DISTANCE_H

#include "libcoll/algo/algo.h"

/*
 * The model with which an algorithm's formula should be asked about a shape, because many formulas
 * know one kind of links only: alpha, beta and step become averages over the links that the
 * algorithm uses, which follow from its `reach`. Where ranks wait for the slowest link, its costs
 * count. Beta includes that messages wait for each other on hosts' links. Without groups: the model
 * as it is; if the formula knows all links by itself, only step is an average.
 */
colli_model colli_algo_model(const colli_algo *algo, const colli_shape *shape,
                             const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model);

#endif
