/* world.c: the operating system's clock, for communicators outside the simulator. */
#include "libcoll/comm/world.h"

#include "libcoll/base/clock.h"

static uint64_t real_now_ns(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

const colli_world colli_world_real = {.now_ns = real_now_ns};
