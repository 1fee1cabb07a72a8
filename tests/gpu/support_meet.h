/*
 * support_meet.h: ranks that meet on devices of the software GPU, without a driver. Each runs one
 * kernel around the PTX of coll_meet, round after round: it writes its slot, meets, and sums up all
 * ranks' slots. Barriers of the block stand for the ends of kernels in between, so all that orders
 * the ranks' accesses is coll_meet.
 */
#ifndef TESTS_GPU_SUPPORT_MEET_H
#define TESTS_GPU_SUPPORT_MEET_H

#include "libcoll/base/prng.h"
#include "libcoll/gpu/kernels/meet_args.h"
#include "tests/gpu/support_ptx.h"

enum { MEET_RANKS = 40, MEET_THREADS = 96, MEET_ROUNDS = 4, MEET_LAUNCHES = 2, MEET_ALL = 8 };

/* A change of the PTX: its n-th `old` (from 1) becomes `new`. */
typedef struct meet_edit {
  const char *old;
  int nth;
  const char *new;
} meet_edit;

/* What the kernel gets beside the arguments of coll_meet. */
typedef struct meet_around {
  uint64_t mine, slots; /* this rank's first slot, and a table of all ranks' */
  uint64_t result;      /* sums of each round */
  uint64_t other;       /* bytes from a slot to that of the next round */
  uint32_t first;       /* what thread 0 writes in round 0 */
  uint32_t rounds;
} meet_around;

/* A rank: its arguments, its memory, and its kernel. */
typedef struct meet_rank {
  struct {
    struct coll_gpu_meet meet;
    meet_around around;
  } arguments;
  struct coll_gpu_meet_state state;
  uint32_t abort, arrived, left;
  uint32_t words[MEET_RANKS], slot[2][MEET_THREADS];
  uint32_t result[MEET_LAUNCHES * MEET_ROUNDS][MEET_THREADS];
  uint64_t more_there[MEET_RANKS], slots[MEET_RANKS];
  gpu_run *run; /* NULL: between launches, or at the end */
  int launched;
} meet_rank;

/* How ranks meet. */
typedef struct meet_setup {
  gpu_model model;
  uint64_t seed;
  int ranks;
  uint32_t threads;
  uint32_t epoch; /* that has passed */
  bool one_slot;  /* in place of two, which is wrong */
  int absent;     /* so many of the last ranks never come */
} meet_setup;

/* Ranks that meet. */
typedef struct meet_world {
  meet_setup setup;
  const ptx_module *module;
  gpu_world *world;
  colli_prng random;
  int favourite; /* which rank runs most */
  bool early;    /* a rank left before all had come */
  meet_rank rank[MEET_RANKS];
} meet_world;

/* The module with the kernel, of which the PTX of coll_meet is changed by edits up to one without
 * `old`; NULL: none. */
ptx_module *meet_module(const meet_edit *edits);

/* Starts ranks. */
meet_world *meet_open(const ptx_module *module, const meet_setup *setup);

/* Runs ranks by chance, until all have ended (true) or so many instructions were made. */
bool meet_step(meet_world *world, uint64_t most);

/* Whether the results of the first rounds are right. */
bool meet_right(const meet_world *world, uint32_t rounds);

/* Stops and frees ranks. Returns the number of races. */
uint64_t meet_close(meet_world *world);

#endif
