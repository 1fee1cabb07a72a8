/* prng.h: a small seeded generator for simulations and tests (splitmix64); never for secrets. */
#ifndef COLLI_BASE_PRNG_H
#define COLLI_BASE_PRNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct colli_prng {
  uint64_t state;
} colli_prng;

static inline uint64_t colli_prng_next(colli_prng *prng) {
  uint64_t z = (prng->state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/* A number in [0, bound); bound must not be 0. The bias is below bound / 2^64. */
static inline uint64_t colli_prng_below(colli_prng *prng, uint64_t bound) {
  return (uint64_t)(((unsigned __int128)colli_prng_next(prng) * bound) >> 64);
}

/* Fills buf with unpredictable bytes from the kernel; 0 or an errno. */
int colli_random_secret(void *buf, size_t bytes);

#endif
