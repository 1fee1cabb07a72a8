/*
 * support_fleet.h: thousands of ranks that run one collective on a simulated network with levels.
 * They have the library's executor, schedules and partitions, but no communicators: a communicator
 * has records of all other ranks, which for 4096 ranks would not fit into memory.
 */
#ifndef TESTS_SIM_SUPPORT_FLEET_H
#define TESTS_SIM_SUPPORT_FLEET_H

#include "libcoll/cost/network.h"
#include "libcoll/tuning/select.h"

/* Ranks of one host follow each other: those of one group of the network's first level. */
typedef struct fleet_config {
  const colli_algo *algo;
  int nranks;
  size_t count; /* elements, of type float32; sums */
  /* So many elements are one in the fleet, whose slots and chunks are as much shorter, and whose
   * links as much slower: a vector that would not fit into memory takes as long. 0: 1. */
  int each;
  /* So many calls of equal parts of the vector follow each other, `ahead` of them started at a time
   * on each rank. 0: one call. */
  int parts, ahead;
  const colli_network *network;
  colli_limits limits;
} fleet_config;

typedef struct fleet_result {
  double ns;           /* virtual time until the last rank is done */
  double predicted_ns; /* the replay of the same schedules, with all elements */
  double formula_ns;   /* for all elements; parts: colli_parts_time() */
  uint64_t messages;
  int wrong;          /* ranks whose result is not right, or that are not done */
  size_t rank_bytes;  /* memory of a rank besides its vector and its schedule */
  size_t sched_bytes; /* the longest schedule */
} fleet_result;

/* Runs it. Ends the test if out of memory. */
fleet_result fleet_run(const fleet_config *config);

#endif
