/* rng.h: the seeded generator (splitmix64) of initial weights and sample orders. */
#ifndef TRAINER_RNG_H
#define TRAINER_RNG_H

#include <stdint.h>

typedef struct rng {
  uint64_t state;
} rng;

/* The next 64 bits. */
static inline uint64_t rng_next(rng *g) {
  g->state += 0x9e3779b97f4a7c15u;
  uint64_t x = g->state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* A number in 0 .. bound-1, by multiplication; bound > 0. */
static inline uint64_t rng_below(rng *g, uint64_t bound) {
  return (uint64_t)(((unsigned __int128)rng_next(g) * bound) >> 64);
}

/* A number above 0 and at most 1. */
static inline double rng_unit(rng *g) {
  return (double)((rng_next(g) >> 11) + 1) * 0x1p-53;
}

/* Independent streams of one seed. */
enum rng_stream { RNG_WEIGHTS = 1, RNG_ORDER = 2, RNG_PARTNERS = 3 };
static inline rng rng_make(uint64_t seed, enum rng_stream stream, uint64_t index) {
  rng g = {.state = seed};
  g.state = rng_next(&g) ^ (uint64_t)stream;
  g.state = rng_next(&g) ^ index;
  rng_next(&g);
  return g;
}

#endif
