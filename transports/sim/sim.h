/*
 * sim.h: a network that exists only in memory. All ranks live in one process and one thread; time
 * is virtual and stands still until the driver moves it; everything random comes from one seed, so
 * a run can be repeated exactly. Faults are planned by virtual time.
 *
 * A driver lets all ranks run until none can go on, moves the time to the next event, and repeats
 * this.
 */
#ifndef COLLI_TRANSPORTS_SIM_SIM_H
#define COLLI_TRANSPORTS_SIM_SIM_H

#include <stdbool.h>

#include "coll/coll_transport.h"

/* Virtual time when a world begins; not 0, which elsewhere means "no time". */
#define SIM_START_NS 1000000000ull

typedef enum sim_fault_kind {
  SIM_KILL,   /* rank's process ends: its peers learn of it lost_ns later */
  SIM_FREEZE, /* rank stops; the driver must not call it any more */
  SIM_CUT,    /* the link rank - peer breaks, and both ends learn of it */
  SIM_STALL,  /* the link rank - peer carries nothing any more, and nobody learns of it */
  SIM_SLOW,   /* messages from and to rank take extra_ns longer, for_ns long */
  SIM_DELAY,  /* all messages take up to extra_ns longer, for_ns long */
  SIM_CORRUPT /* one bit of the tag, or the length, of the next message from rank is wrong */
} sim_fault_kind;

typedef struct sim_fault {
  sim_fault_kind kind;
  int rank;
  int peer;       /* CUT, STALL */
  uint64_t at_ns; /* after the start of the world */
  uint64_t for_ns;
  uint64_t extra_ns;
} sim_fault;

/* What the way from one rank to another costs. */
typedef struct sim_link {
  double alpha_ns;
  double ns_per_byte;
} sim_link;

typedef struct sim_config {
  uint64_t seed;
  int nranks;
  /* Where ranks are not equally far from each other: the way between two of them, instead of
   * alpha_ns and ns_per_byte. Each rank then has one port, which sends one message at a time. */
  sim_link (*link)(const void *ctx, int from, int to);
  const void *link_ctx;
  uint64_t alpha_ns;  /* time of an empty message */
  uint64_t jitter_ns; /* up to this much more, at random, for each */
  double ns_per_byte;
  uint64_t lost_ns; /* until peers learn of a death */
  unsigned again;   /* percent of data calls that return AGAIN for no reason */
  unsigned pending; /* percent of sends whose buffer is read later */
  unsigned
      scribble; /* percent of receives that first fill the buffer with garbage, and finish later */
  const sim_fault *faults; /* copied */
  int nfaults;
} sim_config;

typedef enum sim_fate { SIM_ALIVE, SIM_KILLED, SIM_FROZEN } sim_fate;

typedef struct sim_world sim_world;

/* A new world, or NULL: out of memory. */
sim_world *sim_world_create(const sim_config *config);

/* Frees the world; all endpoints were closed before. */
void sim_world_destroy(sim_world *world);

/* Virtual time: the clock for whoever lives in `world`. */
uint64_t sim_world_now(void *world);

/* Moves the time to the next event and lets it happen; false if none is left. */
bool sim_world_advance(sim_world *world);

/* Lets `ns` of virtual time pass, with all that happens in it. */
void sim_world_pass(sim_world *world, uint64_t ns);

/* The next rank to which something has happened since it was last given out, or -1. */
int sim_world_touched(sim_world *world);

sim_fate sim_world_fate(const sim_world *world, int rank);

/* Messages delivered so far. */
uint64_t sim_world_messages(const sim_world *world);

/* Finds its world in coll_transport_env.device. */
extern const coll_transport_ops sim_transport;

/* The same without COLL_CAP_SEND_DIRECT: callers fill slots, as they do on shared memory. */
extern const coll_transport_ops sim_slot_transport;

#endif
