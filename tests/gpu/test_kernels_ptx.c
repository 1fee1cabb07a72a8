/*
 * test_kernels_ptx.c: the PTX of the reductions, run by the software GPU,
 * against the library's reductions: the tests of test_kernels_host.c.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/gpu/kernels/fold_args.h"
#include "sanitized.h"
#include "tests/gpu/device/gpu_run.h"

enum { FILES = 5, TEXT = 1 << 20 };

/* Reads and parses one file of PTX. */
static ptx_module *load(const char *name) {
  static char text[TEXT];
  char path[512];
  ptx_error error;
  snprintf(path, sizeof(path), "%s/%s.ptx", COLL_KERNELS, name);
  FILE *file = fopen(path, "r");
  cr_assert(file, "%s", path);
  size_t bytes = fread(text, 1, sizeof(text), file);
  fclose(file);
  ptx_module *module = ptx_parse(text, bytes, false, &error);
  cr_assert(module, "%s, line %d: %s", path, error.line, error.message);
  return module;
}

/* Runs a kernel to its end, and looks for accesses to the same bytes that
 * nothing orders. */
static void launch(const ptx_module *module, const ptx_kernel *kernel, const void *params) {
  const gpu_options options = {.model = GPU_RACES, .seed = 1};
  const gpu_launch how = {
      .module = module, .kernel = kernel, .params = params, .grid = {2, 1, 1}, .block = {96, 1, 1}};
  gpu_fault fault = {0};
  gpu_world *world = gpu_world_create(&options);
  gpu_run *run = gpu_run_create(world, &how, &fault);
  cr_assert(run, "%s: %s", kernel->name, fault.message);
  gpu_state state = GPU_RUNNING;
  while (state == GPU_RUNNING)
    state = gpu_run_step(run, 1000000);
  cr_assert_eq(state, GPU_DONE, "%s: %s", kernel->name, gpu_run_fault(run)->message);
  cr_assert_eq(gpu_world_races(world), 0, "%s", kernel->name);
  gpu_run_destroy(run);
  gpu_world_destroy(world);
}

/* Finds a kernel by its name and runs it. */
static void run_kernel(const char *prefix, const char *name, const void *params) {
  static const char *const files[FILES] = {"fold_int", "fold_float", "fold_float8", "fold_loc",
                                           "copy"};
  static ptx_module *modules[FILES];
  char full[64];
  snprintf(full, sizeof(full), "%s%s", prefix, name);
  for (int i = 0; i < FILES; i++) {
    if (!modules[i])
      modules[i] = load(files[i]);
    const ptx_kernel *kernel = ptx_find(modules[i], full);
    if (kernel) {
      launch(modules[i], kernel, params);
      return;
    }
  }
  cr_assert(false, "no kernel %s", full);
}

#define RUN_FOLD(kernel, fold) run_kernel("coll_fold_", (kernel)->name, &(fold))
#define RUN_COPY(copy)         ((void)coll_copy, run_kernel("coll_copy", "", &(copy)))
#define ROUNDS                 (SANITIZED ? 1 : 3) /* each costs seconds */
#include "test_kernels_host.c"
