/*
 * owners.h: all-reduce among ranks of which each stands for a host and has a link of its own to the
 * network, by owners, each of which combines a part of the vector that suits its link.
 *
 * The vector is cut into shares. Hosts in racks (groups of the shape) combine them in each rack,
 * the owners of a share in all racks make one of their results, and each takes it to its rack.
 */
#ifndef COLLI_ALGO_OWNERS_H
#define COLLI_ALGO_OWNERS_H

#include "libcoll/algo/emit.h"

/* Parts of hier.h, not algorithms of the table. colli_shape.share has a weight for each rank. The
 * second one cuts the vector finely, and sends what it combines next before it waits for results.
 */
extern const colli_algo colli_allreduce_owners;
extern const colli_algo colli_allreduce_owners_fine;

#endif
