/*
 * network.h: a network whose ranks are not equally far from each other: groups within groups, such
 * as hosts, hosts at one switch, and all; as shapes and models say it.
 */
#ifndef COLLI_COST_NETWORK_H
#define COLLI_COST_NETWORK_H

#include "libcoll/cost/model.h"

#define COLLI_NETWORK_LEVELS (COLLI_INNER_LEVELS + 2) /* with the widest groups, and all ranks */

/* Consecutive ranks that are near each other, and what a message between two of them costs. */
typedef struct colli_level {
  int ranks; /* of one group; a multiple of the level before */
  double alpha_ns;
  double beta_ns_per_byte;
} colli_level;

/* The nearest level first; the last one has all ranks. */
typedef struct colli_network {
  int nlevels;
  colli_level level[COLLI_NETWORK_LEVELS];
} colli_network;

/* The number of levels that have several groups of so many ranks. */
int colli_network_levels(const colli_network *network, int nranks);

/* Groups the ranks of a shape, as COLL_LEVELS would. `memory` has room for COLLI_NETWORK_LEVELS
 * numbers a rank, and must last as long as the shape. */
void colli_network_shape(const colli_network *network, int32_t *memory, colli_shape *shape);

/* Sets what messages between so many ranks cost. */
void colli_network_model(const colli_network *network, int nranks, colli_model *model);

#endif
