/*
 * test_kernels_ptx.c: the PTX of the reductions, run by the software GPU,
 * against the library's reductions: the tests of test_kernels_host.c.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "libcoll/gpu/kernels/fold_args.h"
#include "sanitized.h"
#include "tests/gpu/support_ptx.h"

enum { FILES = 5 };

/* Runs a kernel to its end, and looks for accesses to the same bytes that
 * nothing orders. */
static void launch(const ptx_module *module, const ptx_kernel *kernel, const void *params) {
  const gpu_options options = {.model = GPU_RACES, .seed = 1};
  const gpu_launch how = {
      .module = module, .kernel = kernel, .params = params, .grid = {2, 1, 1}, .block = {96, 1, 1}};
  cr_assert_eq(must_end(&options, &how, NULL), 0, "%s", kernel->name);
}

/* Finds a kernel by its name and runs it. */
static void run_kernel(const char *prefix, const char *name, const void *params) {
  static const char *const files[FILES] = {
      COLL_KERNELS "/fold_int.ptx", COLL_KERNELS "/fold_float.ptx", COLL_KERNELS "/fold_float8.ptx",
      COLL_KERNELS "/fold_loc.ptx", COLL_KERNELS "/copy.ptx"};
  static ptx_module *modules[FILES];
  char full[64];
  snprintf(full, sizeof(full), "%s%s", prefix, name);
  for (int i = 0; i < FILES; i++) {
    if (!modules[i])
      modules[i] = must_read(files[i]);
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
