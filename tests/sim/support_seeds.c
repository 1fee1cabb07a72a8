/* support_seeds.c: random worlds made from a seed. */
#include "support_seeds.h"

#include <stdio.h>
#include <string.h>

/* One of a few numbers. */
static uint64_t one_of(colli_prng *prng, const uint64_t *numbers, size_t count) {
  return numbers[colli_prng_below(prng, count)];
}
#define ONE_OF(prng, ...)                                                                          \
  one_of(prng, (const uint64_t[]){__VA_ARGS__},                                                    \
         sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

/* Writes "allreduce:x,broadcast:y", each at random, or nothing. */
static void pick_algorithms(colli_prng *prng, char *text, size_t bytes) {
  text[0] = 0;
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++) {
    const colli_algo *chosen = NULL;
    uint64_t seen = 1; /* one more than there are: free choice has its turn */
    for (const colli_algo *const *algo = colli_algos; *algo; algo++)
      if ((int)(*algo)->coll == coll && !(*algo)->groups && /* one host, and v-forms too */
          ((*algo)->varying || !colli_exact((colli_coll)coll)) &&
          colli_prng_below(prng, ++seen) == 0)
        chosen = *algo;
    size_t used = strlen(text);
    if (chosen)
      snprintf(text + used, bytes - used, "%s%s:%s", used ? "," : "",
               colli_coll_name((colli_coll)coll), chosen->name);
  }
}

void seeded_world_make(seeded_world *sw, uint64_t seed, int min_ranks, int max_ranks) {
  colli_prng prng = {seed};
  uint64_t spread = (uint64_t)(max_ranks - min_ranks + 1);
  *sw = (seeded_world){0};
  world_config *c = &sw->config;
  c->sim.seed = seed;
  c->sim.nranks = min_ranks + (int)colli_prng_below(&prng, spread);
  c->sim.alpha_ns = 1000 + colli_prng_below(&prng, 20000);
  c->sim.jitter_ns = ONE_OF(&prng, 0, 500, 50000);
  c->sim.ns_per_byte = (double)ONE_OF(&prng, 1, 10, 40) / 10;
  c->sim.lost_ns = ONE_OF(&prng, 0, 30000, 3000000);
  c->sim.again = (unsigned)ONE_OF(&prng, 0, 5, 40);
  c->sim.pending = (unsigned)ONE_OF(&prng, 0, 10, 60, 100);
  c->sim.scribble = (unsigned)ONE_OF(&prng, 0, 30);
  c->transport = colli_prng_below(&prng, 3) ? &sim_transport : &sim_slot_transport;
  c->slot_bytes = ONE_OF(&prng, 64, 256, 1024);
  c->slot_count = (unsigned)ONE_OF(&prng, 2, 3, 4, 8);
  c->timeout_ms = 1000;
  c->algo = sw->algo;
  c->fault = sw->fault;
  pick_algorithms(&prng, sw->algo, sizeof(sw->algo));
  if (colli_prng_below(&prng, 5) == 0)
    snprintf(sw->fault, sizeof(sw->fault), "seed=%llu,again=%d,pending=%d,delay_us=%d",
             (unsigned long long)seed, (int)ONE_OF(&prng, 0, 20), (int)ONE_OF(&prng, 0, 40),
             (int)ONE_OF(&prng, 0, 100, 5000));
}
