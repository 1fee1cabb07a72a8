/* support_ptx.h: for tests of the software GPU: texts that must be right, kernels that must end. */
#ifndef TESTS_GPU_SUPPORT_PTX_H
#define TESTS_GPU_SUPPORT_PTX_H

#include "tests/gpu/device/gpu_run.h"

/* Parses a text. */
ptx_module *must_parse(const char *text, bool split);

/* Reads and parses a file. */
ptx_module *must_read(const char *path);

/* Starts a kernel. */
gpu_run *must_start(gpu_world *world, const gpu_launch *launch);

/* Runs a kernel to its end in a world of its own. Returns the number of races; the first one is
 * copied to `race` unless that is NULL. */
uint64_t must_end(const gpu_options *options, const gpu_launch *launch, gpu_race *race);

#endif
