/*
 * world.h: a communicator's clock and way of waiting: the operating system's or a simulator's.
 */
#ifndef COLLI_COMM_WORLD_H
#define COLLI_COMM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* The environment of a communicator, except the transports. */
typedef struct colli_world {
  void *ctx; /* first argument of the functions below */
  uint64_t (*now_ns)(void *ctx);
  void *device; /* goes into coll_transport_env.device */
  /*
   * NULL, or what a waiting rank calls instead of spinning and sleeping, so that the simulator can
   * run other ranks. moved: something happened since the last call. False if no other rank can run
   * before the call returns: then the caller must not wait.
   */
  bool (*pause)(void *ctx, bool moved);
} colli_world;

/* The operating system's clock and processes. */
extern const colli_world colli_world_real;

/* Whether a communicator runs on a machine and not in the simulator. */
static inline bool colli_world_is_real(const colli_world *world) {
  return world->now_ns == colli_world_real.now_ns;
}

#endif
