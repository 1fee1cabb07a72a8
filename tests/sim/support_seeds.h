/* support_seeds.h: random worlds made from a seed. */
#ifndef TESTS_SIM_SUPPORT_SEEDS_H
#define TESTS_SIM_SUPPORT_SEEDS_H

#include "seeds.h"
#include "support_world.h"

/* A world and the settings that its config points to. */
typedef struct seeded_world {
  world_config config;
  char algo[512];
  char fault[96];
} seeded_world;

/* Draws a world of min_ranks .. max_ranks ranks, in which nothing breaks. */
void seeded_world_make(seeded_world *sw, uint64_t seed, int min_ranks, int max_ranks);

#endif
