/*
 * support_seeds.h: random worlds made from a seed, and how many seeds to try.
 *
 * SIM_SEEDS=n tries n seeds instead of the default; SIM_SEED=s tries only seed s, and prints more.
 */
#ifndef TESTS_SIM_SUPPORT_SEEDS_H
#define TESTS_SIM_SUPPORT_SEEDS_H

#include "support_world.h"

/* A world and the settings that its config points to. */
typedef struct seeded_world {
  world_config config;
  char algo[512];
  char fault[96];
} seeded_world;

/* Draws a world of min_ranks .. max_ranks ranks, in which nothing breaks. */
void seeded_world_make(seeded_world *sw, uint64_t seed, int min_ranks, int max_ranks);

/* Runs one seed; false if something is wrong, which it has printed. */
typedef bool (*seed_fn)(uint64_t seed, bool verbose);

/* Runs the seeds first .. first + count - 1, or those that the environment asks for; returns how
 * many failed, after printing how to run each of them again. */
int seeds_run(const char *test, seed_fn fn, uint64_t first, int count);

#endif
