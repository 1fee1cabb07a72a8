/*
 * weights.h: hosts whose links to the network are not equally fast, and which share of a vector
 * each of them should combine in a weighted algorithm.
 */
#ifndef COLLI_COST_WEIGHTS_H
#define COLLI_COST_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#define COLLI_WEIGHTED_HOSTS 64 /* of a rack; with more, the pairs that talk would be too many */

typedef struct colli_weights {
  int nhosts;
  uint8_t *share;            /* [host], as in colli_shape; NULL: equal ones do as well */
  double beta_ns_per_byte[]; /* [host]; the shares are behind it */
} colli_weights;

/*
 * What a vector takes in a rack with some shares, as a multiple of sending it over a link of beta
 * 1: the slowest link's N (1 + w (n - 2 + c)) beta, where w is its part of the shares of n hosts
 * and c, `across`, how often it sends that part to other racks, see owners.c. share NULL: equal.
 */
double colli_weights_time(const double *beta_ns_per_byte, const uint8_t *share, int nhosts,
                          double across);

/* The weights of hosts with these links. `rack`, of each host, numbered from 0 without gaps; NULL:
 * all are in one. *out is NULL if all links are about alike; freed with free(). False if out of
 * memory. */
bool colli_weights_make(const double *beta_ns_per_byte, int nhosts, const int32_t *rack,
                        colli_weights **out);

/* A copy, or NULL if out of memory. */
colli_weights *colli_weights_copy(const colli_weights *weights);

#endif
