/*
 * network.h: a network whose ranks are not equally far from each other: groups within groups, such
 * as hosts, hosts at one switch, and all.
 */
#ifndef COLLI_COST_NETWORK_H
#define COLLI_COST_NETWORK_H

#define COLLI_NETWORK_LEVELS 4

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

/* The lowest level on which two ranks are in one group. */
const colli_level *colli_network_link(const colli_network *network, int a, int b);

#endif
