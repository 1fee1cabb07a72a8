/*
 * weights.h: groups (hosts) whose links to the network are not equally fast, and which share of a
 * vector each of them should combine in a weighted algorithm.
 */
#ifndef COLLI_COST_WEIGHTS_H
#define COLLI_COST_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#define COLLI_WEIGHTED_GROUPS 64 /* with more, the pairs that talk would be too many */

typedef struct colli_weights {
  int ngroups;
  uint8_t *share;            /* [group], as in colli_shape; NULL: equal ones do as well */
  double beta_ns_per_byte[]; /* [group]; the shares are behind it */
} colli_weights;

/* What a vector takes with some shares, as a multiple of sending it over a link of beta 1: the
 * slowest link's N (1 + share / all (n - 2)) beta, see allreduce_weighted.c. share NULL: equal. */
double colli_weights_time(const double *beta_ns_per_byte, const uint8_t *share, int ngroups);

/* The weights of groups with these links. *out is NULL if all are about alike; freed with free().
 * False if out of memory. */
bool colli_weights_make(const double *beta_ns_per_byte, int ngroups, colli_weights **out);

/* A copy, or NULL if out of memory. */
colli_weights *colli_weights_copy(const colli_weights *weights);

#endif
