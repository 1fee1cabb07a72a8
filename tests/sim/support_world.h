/*
 * support_world.h: n communicators in one simulated world, driven by one thread. Ranks run in
 * random order; virtual time advances only when none can make progress.
 */
#ifndef TESTS_SIM_SUPPORT_WORLD_H
#define TESTS_SIM_SUPPORT_WORLD_H

#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/assemble.h"
#include "transports/sim/sim.h"

typedef struct world_config {
  sim_config sim;
  const coll_transport_ops *transport; /* sim_transport or sim_slot_transport */
  size_t slot_bytes;
  unsigned slot_count;
  int timeout_ms;
  const char *algo;  /* COLL_ALGO, or NULL */
  const char *fault; /* COLL_FAULT, or NULL */
  colli_data_check check;
} world_config;

typedef struct world {
  sim_world *sim;
  int nranks;
  coll_comm **comms;
  bool *buried; /* killed, and its control links are closed */
  bool *doomed; /* will be killed, or freeze */
  colli_prng prng;
  uint64_t steps;
  struct fibers *fibers; /* of world_run_fibers() */
} world;

/* Makes world and communicators; prints why and returns false if that fails. */
bool world_open(world *w, const world_config *config);

/* Destroys everything. */
void world_close(world *w);

/* Virtual time since the start. */
uint64_t world_now(const world *w);

/* A rank's turn; returns true if it made progress. */
typedef bool (*world_act)(void *ctx, int rank);

/* Whether a rank is done. */
typedef bool (*world_done)(void *ctx, int rank);

/*
 * Runs the ranks until all living ones are done. False if that takes more than limit_ns of virtual
 * time, or implausibly many steps.
 */
bool world_run(world *w, world_act act, world_done done, void *ctx, uint64_t limit_ns);

/* One rank's program, which may make blocking calls; returns 0, or 1 if something was wrong. */
typedef int (*world_fn)(coll_comm *comm, int rank, int nranks, void *arg);

/*
 * Runs fn on every rank, each on its own stack: a rank that waits lets the others run. False if
 * that takes more than limit_ns of virtual time, or one of them returned 1.
 */
bool world_run_fibers(world *w, world_fn fn, void *arg, uint64_t limit_ns);

/* How a fiber waits: coll_comm's world.pause. */
bool world_pause(void *ctx, bool moved);

#endif
