/* support_ptx.c: see support_ptx.h. */
#include "tests/gpu/support_ptx.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* No kernel of a test needs more instructions of a warp; one that waits for nothing reaches it. */
enum { MOST = 100000000 };

/* Parses a text, of which `name` is shown if it is wrong. */
static ptx_module *parse(const char *text, size_t length, bool split, const char *name) {
  ptx_error error;
  ptx_module *m = ptx_parse(text, length, split, &error);
  cr_assert(m, "line %d: %s: %s", error.line, error.message, name);
  return m;
}

ptx_module *must_parse(const char *text, bool split) {
  return parse(text, strlen(text), split, text);
}

ptx_module *must_read(const char *path) {
  static char text[1 << 20];
  FILE *file = fopen(path, "r");
  cr_assert(file, "%s", path);
  size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  cr_assert(length < sizeof text, "%s is too long", path);
  return parse(text, length, false, path);
}

gpu_run *must_start(gpu_world *world, const gpu_launch *launch) {
  gpu_fault fault;
  gpu_run *run = gpu_run_create(world, launch, &fault);
  cr_assert(run, "%s", fault.message);
  return run;
}

uint64_t must_end(const gpu_options *options, const gpu_launch *launch, gpu_race *race) {
  gpu_world *world = gpu_world_create(options);
  gpu_run *run = must_start(world, launch);
  gpu_state state = gpu_run_step(run, MOST);
  cr_assert_eq(state, GPU_DONE, "%s, state %d: %s", launch->kernel->name, state,
               gpu_run_fault(run)->message);
  gpu_run_destroy(run);
  uint64_t races = gpu_world_races(world);
  if (race && races)
    *race = *gpu_world_race(world, 0);
  gpu_world_destroy(world);
  return races;
}
