/*
 * seeds.h: how many seeds a test tries. SIM_SEEDS=n tries n seeds instead of the default;
 * SIM_SEED=s tries only seed s, and prints more.
 */
#ifndef TESTS_COMMON_SEEDS_H
#define TESTS_COMMON_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

/* Runs one seed; false if something is wrong, which it has printed. */
typedef bool (*seed_fn)(uint64_t seed, bool verbose);

/* Runs the seeds first .. first + count - 1, or those that the environment asks for; returns how
 * many failed, after printing how to run each of them again. */
int seeds_run(const char *test, seed_fn fn, uint64_t first, int count);

#endif
