/*
 * weights.c: finds the shares with which the slowest link is done first.
 *
 * Group i with share w_i (of 1) sends and receives 1 + w_i (n - 2) times the vector. If all links
 * end at time T, then w_i = (T / beta_i - 1) / (n - 2), and these sum up to 1. A group for which
 * that is negative has no share, and T is found among the others. The shares are then rounded to
 * few chunks.
 */
#include "libcoll/cost/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIKE  1.4  /* times as fast: not worth other schedules, or noise of measuring */
#define GAIN   0.95 /* of the time with equal shares: as much must be gained */
#define CHUNKS 8    /* of the group with the largest share, at most */
#define FINER  0.97 /* of the time with larger chunks: as much must smaller ones gain */

/* The time T at which all links end. */
static double common_end(const double *beta, int n) {
  double slowest = 0, fastest = INFINITY;
  for (int i = 0; i < n; i++) {
    slowest = fmax(slowest, beta[i]);
    fastest = fmin(fastest, beta[i]);
  }
  double low = fastest, high = 2 * slowest; /* as the sum of the shares grows with T */
  for (int step = 0; step < 60; step++) {
    double end = (low + high) / 2, sum = 0;
    for (int i = 0; i < n; i++)
      sum += fmax(0, end / beta[i] - 1);
    if (sum < n - 2)
      low = end;
    else
      high = end;
  }
  return fmax(high, slowest); /* the slowest link carries the vector once in any case */
}

double colli_weights_time(const double *beta, const uint8_t *share, int n) {
  double all = 0, longest = 0;
  for (int i = 0; i < n; i++)
    all += share ? share[i] : 1;
  for (int i = 0; i < n; i++)
    longest = fmax(longest, (1 + (share ? share[i] : 1) / all * (n - 2)) * beta[i]);
  return longest;
}

/* Rounds the shares of links that end at T, so that the largest has `chunks`. */
static void round_shares(const double *beta, int n, double end, int chunks, uint8_t *share) {
  double most = 0;
  for (int i = 0; i < n; i++)
    most = fmax(most, end / beta[i] - 1);
  for (int i = 0; i < n; i++)
    share[i] = (uint8_t)(chunks * fmax(0, end / beta[i] - 1) / most + 0.5);
}

/* Finds the best shares of few chunks; false if equal ones do as well. Multiples of earlier ones
 * take as long as these, and are not taken. */
static bool find_shares(const double *beta, int n, uint8_t *share) {
  double best = GAIN * colli_weights_time(beta, NULL, n);
  double end = common_end(beta, n);
  uint8_t tried[COLLI_WEIGHTED_GROUPS];
  bool found = false;
  for (int chunks = 1; chunks <= CHUNKS; chunks++) {
    round_shares(beta, n, end, chunks, tried);
    double time = colli_weights_time(beta, tried, n);
    if (time > (found ? FINER : 1) * best)
      continue;
    best = time;
    found = true;
    memcpy(share, tried, (size_t)n);
  }
  return found;
}

/* Memory for weights, with shares. */
static colli_weights *new_weights(int ngroups) {
  size_t n = (size_t)ngroups;
  colli_weights *weights = calloc(1, sizeof(*weights) + n * sizeof(double) + n);
  if (weights) {
    weights->ngroups = ngroups;
    weights->share = (uint8_t *)(weights->beta_ns_per_byte + n);
  }
  return weights;
}

bool colli_weights_make(const double *beta, int ngroups, colli_weights **out) {
  double slowest = 0, fastest = INFINITY;
  *out = NULL;
  for (int i = 0; i < ngroups; i++) {
    slowest = fmax(slowest, beta[i]);
    fastest = fmin(fastest, beta[i]);
  }
  if (ngroups < 2 || slowest <= ALIKE * fastest)
    return true;
  colli_weights *weights = new_weights(ngroups);
  if (!weights)
    return false;
  memcpy(weights->beta_ns_per_byte, beta, (size_t)ngroups * sizeof(*beta));
  if (ngroups < 3 || ngroups > COLLI_WEIGHTED_GROUPS || !find_shares(beta, ngroups, weights->share))
    weights->share = NULL;
  *out = weights;
  return true;
}

colli_weights *colli_weights_copy(const colli_weights *weights) {
  size_t n = (size_t)weights->ngroups;
  colli_weights *copy = new_weights(weights->ngroups);
  if (!copy)
    return NULL;
  memcpy(copy->beta_ns_per_byte, weights->beta_ns_per_byte, n * sizeof(double));
  if (weights->share)
    memcpy(copy->share, weights->share, n);
  else
    copy->share = NULL;
  return copy;
}
