/*
 * weights.c: finds the shares with which the slowest link is done first.
 *
 * Host i with part w_i of the shares of its rack of m hosts sends and receives 1 + w_i (m - 2 + c)
 * times the vector, where c is how often it sends its part to other racks. If all links of a rack
 * end at time T, then w_i = (T / beta_i - 1) / (m - 2 + c), and these sum up to 1. A host for which
 * that is negative has no share, and T is found among the others. The shares are then rounded to
 * few chunks.
 */
#include "libcoll/cost/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIKE  1.4  /* times as fast: not worth other schedules, or noise of measuring */
#define GAIN   0.95 /* of the time with equal shares: as much must be gained */
#define CHUNKS 8    /* of the host with the largest share, at most */
#define FINER  0.97 /* of the time with larger chunks: as much must smaller ones gain */

/* Hosts with links, those of one rack behind those of another. */
typedef struct network {
  int nhosts, racks;
  double across;          /* how often a part is sent to other racks, by doubling */
  int *first;             /* [rack] of its hosts here; one more is the end */
  int *host;              /* [place] */
  double *beta;           /* [place] */
  uint8_t *tried, *found; /* [place] shares */
} network;

static int count_racks(const int32_t *rack, int nhosts) {
  int racks = 1;
  for (int i = 0; rack && i < nhosts; i++)
    racks = rack[i] >= racks ? rack[i] + 1 : racks;
  return racks;
}

/* Sorts hosts by their racks; false if out of memory. All is in the memory of `beta`. */
static bool network_make(network *net, const double *beta, int nhosts, const int32_t *rack) {
  const size_t n = (size_t)nhosts;
  *net = (network){.nhosts = nhosts, .racks = count_racks(rack, nhosts)};
  const size_t racks = (size_t)net->racks;
  for (int reached = 1; reached < net->racks; reached *= 2)
    net->across++;
  net->beta = calloc(1, n * sizeof(double) + (n + racks + 1) * sizeof(int) + 2 * n);
  if (!net->beta)
    return false;
  net->host = (int *)(net->beta + n);
  net->first = net->host + n;
  net->tried = (uint8_t *)(net->first + racks + 1);
  net->found = net->tried + n;
  for (int i = 0; rack && i < nhosts; i++)
    net->first[rack[i] + 1]++;
  for (int r = 0; rack && r < net->racks; r++)
    net->first[r + 1] += net->first[r];
  for (int i = 0; i < nhosts; i++) { /* moves each rack's first place to its end */
    const int place = rack ? net->first[rack[i]]++ : i;
    net->host[place] = i;
    net->beta[place] = beta[i];
  }
  for (int r = net->racks; r > 0; r--)
    net->first[r] = rack ? net->first[r - 1] : nhosts;
  net->first[0] = 0;
  return true;
}

/* How often what a host owns crosses its link, besides once for what it does not own. */
static double times_sent(int nhosts, double across) {
  return nhosts > 1 ? nhosts - 2 + across : 0;
}

/* The time T at which all links of a rack end. */
static double common_end(const double *beta, int n, double across) {
  double slowest = 0, fastest = INFINITY;
  for (int i = 0; i < n; i++) {
    slowest = fmax(slowest, beta[i]);
    fastest = fmin(fastest, beta[i]);
  }
  double low = fastest, high = (2 + across) * slowest; /* as the sum of the shares grows with T */
  for (int step = 0; step < 60; step++) {
    double end = (low + high) / 2, sum = 0;
    for (int i = 0; i < n; i++)
      sum += fmax(0, end / beta[i] - 1);
    if (sum < times_sent(n, across))
      low = end;
    else
      high = end;
  }
  return fmax(high, slowest); /* the slowest link carries the vector once in any case */
}

double colli_weights_time(const double *beta, const uint8_t *share, int n, double across) {
  double all = 0, longest = 0;
  for (int i = 0; i < n; i++)
    all += share ? share[i] : 1;
  for (int i = 0; i < n; i++)
    longest = fmax(longest, (1 + (share ? share[i] : 1) / all * times_sent(n, across)) * beta[i]);
  return longest;
}

/* Divides the shares of a rack by what they have in common. */
static void shorten(int n, uint8_t *share) {
  int common = 0;
  for (int i = 0; i < n; i++)
    for (int a = share[i], rest; a > 0; a = rest) {
      rest = common % a;
      common = a;
    }
  for (int i = 0; i < n; i++)
    share[i] = (uint8_t)(share[i] / common);
}

/* Rounds the shares of links that end at T, so that the largest has `chunks`. */
static void round_shares(const double *beta, int n, double end, int chunks, uint8_t *share) {
  double most = 0;
  for (int i = 0; i < n; i++)
    most = fmax(most, end / beta[i] - 1);
  for (int i = 0; i < n; i++)
    share[i] = n > 1 ? (uint8_t)(chunks * fmax(0, end / beta[i] - 1) / most + 0.5) : 1;
  shorten(n, share);
}

/* What a vector takes on all links; chunks not 0: with shares of so many, which become `tried`. */
static double whole_time(const network *net, int chunks) {
  double longest = 0;
  for (int rack = 0; rack < net->racks; rack++) {
    const int first = net->first[rack], n = net->first[rack + 1] - first;
    const double *beta = net->beta + first;
    uint8_t *share = chunks > 0 ? net->tried + first : NULL;
    if (share)
      round_shares(beta, n, common_end(beta, n, net->across), chunks, share);
    longest = fmax(longest, colli_weights_time(beta, share, n, net->across));
  }
  return longest;
}

/* Finds the best shares of few chunks; false if equal ones do as well. Multiples of earlier ones
 * take as long as these, and are not taken. */
static bool find_shares(network *net) {
  double best = GAIN * whole_time(net, 0);
  bool found = false;
  for (int chunks = 1; chunks <= CHUNKS; chunks++) {
    double time = whole_time(net, chunks);
    if (time > (found ? FINER : 1) * best)
      continue;
    best = time;
    found = true;
    memcpy(net->found, net->tried, (size_t)net->nhosts);
  }
  return found;
}

/* Whether each rack has few enough hosts, and some has as many as can have shares. */
static bool can_share(const network *net) {
  int most = 0;
  for (int rack = 0; rack < net->racks; rack++) {
    const int hosts = net->first[rack + 1] - net->first[rack];
    most = hosts > most ? hosts : most;
  }
  return most > (net->racks > 1 ? 1 : 2) && most <= COLLI_WEIGHTED_HOSTS;
}

/* Memory for weights, with shares. */
static colli_weights *new_weights(int nhosts) {
  size_t n = (size_t)nhosts;
  colli_weights *weights = calloc(1, sizeof(*weights) + n * sizeof(double) + n);
  if (weights) {
    weights->nhosts = nhosts;
    weights->share = (uint8_t *)(weights->beta_ns_per_byte + n);
  }
  return weights;
}

/* Whether some link is much slower than another one. */
static bool differ(const double *beta, int n) {
  double slowest = 0, fastest = INFINITY;
  for (int i = 0; i < n; i++) {
    slowest = fmax(slowest, beta[i]);
    fastest = fmin(fastest, beta[i]);
  }
  return n > 1 && slowest > ALIKE * fastest;
}

bool colli_weights_make(const double *beta, int nhosts, const int32_t *rack, colli_weights **out) {
  network net;
  *out = NULL;
  if (!differ(beta, nhosts))
    return true;
  colli_weights *weights = new_weights(nhosts);
  if (!weights || !network_make(&net, beta, nhosts, rack)) {
    free(weights);
    return false;
  }
  memcpy(weights->beta_ns_per_byte, beta, (size_t)nhosts * sizeof(*beta));
  if (can_share(&net) && find_shares(&net))
    for (int place = 0; place < nhosts; place++)
      weights->share[net.host[place]] = net.found[place];
  else
    weights->share = NULL;
  free(net.beta);
  *out = weights;
  return true;
}

colli_weights *colli_weights_copy(const colli_weights *weights) {
  size_t n = (size_t)weights->nhosts;
  colli_weights *copy = new_weights(weights->nhosts);
  if (!copy)
    return NULL;
  memcpy(copy->beta_ns_per_byte, weights->beta_ns_per_byte, n * sizeof(double));
  if (weights->share)
    memcpy(copy->share, weights->share, n);
  else
    copy->share = NULL;
  return copy;
}
