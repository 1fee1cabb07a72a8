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

/* A part of hier.h, not an algorithm of the table. colli_shape.share has a weight for each rank. */
extern const colli_algo colli_allreduce_owners;

#endif
