/* gpu_block.c: creates and frees worlds, runs and blocks of threads. */
#include "gpu_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 1024 };

gpu_world *gpu_world_create(const gpu_options *options) {
  gpu_world *w = calloc(1, sizeof *w);
  if (!w)
    return NULL;
  w->options = *options;
  if (options->model == GPU_WEAK)
    w->weak = weak_world_create();
  if (options->model == GPU_RACES)
    w->races = race_world_create();
  if (options->model != GPU_PLAIN && !w->weak && !w->races) {
    free(w);
    return NULL;
  }
  return w;
}

void gpu_world_destroy(gpu_world *world) {
  if (!world)
    return;
  free(world->weak);
  race_world_free(world->races);
  free(world);
}

/* Whether a launch's sizes are possible; otherwise says why not. */
static bool check_launch(const gpu_world *world, const gpu_launch *launch, gpu_fault *fault) {
  uint64_t threads = 1, blocks = 1;
  const ptx_kernel *k = launch->kernel;
  for (int i = 0; i < 3; i++) {
    threads = threads > THREADS_MAX ? threads : threads * launch->block[i];
    blocks = blocks > INT32_MAX ? blocks : blocks * launch->grid[i];
  }
  uint64_t most =
      k->max_threads && k->max_threads < THREADS_MAX ? (uint64_t)k->max_threads : THREADS_MAX;
  if (!threads || threads > most || !blocks || blocks > INT32_MAX ||
      launch->dynamic_bytes > PTX_DYNAMIC) {
    snprintf(fault->message, sizeof fault->message,
             "kernel %.60s can't run %llu blocks of %llu threads with %u bytes of dynamic memory",
             k->name, (unsigned long long)blocks, (unsigned long long)threads,
             launch->dynamic_bytes);
    return false;
  }
  if (world->races && threads * blocks > RACE_THREADS) {
    snprintf(fault->message, sizeof fault->message,
             "kernel %.60s has %llu threads; the race detector watches at most %d", k->name,
             (unsigned long long)(threads * blocks), RACE_THREADS);
    return false;
  }
  return true;
}

/* Makes the run's first blocks resident. */
static bool fill(gpu_run *run) {
  run->blocks = calloc((size_t)run->resident, sizeof *run->blocks);
  for (int i = 0; run->blocks && i < run->resident; i++) {
    run->blocks[i] = gpu_block_create(run, run->next++);
    if (!run->blocks[i])
      return false;
  }
  return run->blocks != NULL;
}

gpu_run *gpu_run_create(gpu_world *world, const gpu_launch *launch, gpu_fault *fault) {
  *fault = (gpu_fault){0};
  if (!check_launch(world, launch, fault))
    return NULL;
  gpu_run *run = calloc(1, sizeof *run);
  if (!run) {
    snprintf(fault->message, sizeof fault->message, "out of memory");
    return NULL;
  }
  run->world = world;
  run->launch = *launch;
  run->nblocks = launch->grid[0] * launch->grid[1] * launch->grid[2];
  run->resident = launch->resident > 0 && (uint32_t)launch->resident < run->nblocks
                      ? launch->resident
                      : (int)run->nblocks;
  run->random.state = world->options.seed ^ colli_prng_next(&world->seeds);
  world->active++;
  run->params = calloc(1, launch->kernel->param_bytes + 1);
  if (run->params && launch->kernel->param_bytes)
    memcpy(run->params, launch->params, launch->kernel->param_bytes);
  if (world->races)
    race_run_start(run);
  if (!run->params || !fill(run)) {
    snprintf(fault->message, sizeof fault->message, "out of memory");
    gpu_run_destroy(run);
    return NULL;
  }
  return run;
}

void gpu_run_destroy(gpu_run *run) {
  if (!run)
    return;
  for (int i = 0; run->blocks && i < run->resident; i++)
    gpu_block_free(run->blocks[i]);
  run->world->active--;
  if (run->range)
    race_run_end(run);
  free(run->blocks);
  free(run->params);
  free(run);
}

const gpu_fault *gpu_run_fault(const gpu_run *run) {
  return &run->fault;
}

/* Sets the special registers of a lane. */
static void set_special(gpu_warp *w, int lane) {
  const gpu_launch *launch = &w->block->run->launch;
  uint32_t thread = (uint32_t)(w->first + lane), block = w->block->index;
  const uint32_t *n = launch->block, *g = launch->grid;
  const uint64_t values[PTX_SINK] = {
      [PTX_TID] = thread % n[0],
      [PTX_TID + 1] = thread / n[0] % n[1],
      [PTX_TID + 2] = thread / n[0] / n[1],
      [PTX_NTID] = n[0],
      [PTX_NTID + 1] = n[1],
      [PTX_NTID + 2] = n[2],
      [PTX_CTAID] = block % g[0],
      [PTX_CTAID + 1] = block / g[0] % g[1],
      [PTX_CTAID + 2] = block / g[0] / g[1],
      [PTX_NCTAID] = g[0],
      [PTX_NCTAID + 1] = g[1],
      [PTX_NCTAID + 2] = g[2],
      [PTX_LANEID] = (uint64_t)lane,
      [PTX_WARPID] = thread / PTX_LANES,
      [PTX_NWARPID] = (uint64_t)w->block->nwarps,
      [PTX_SMID] = block,
      [PTX_LANEMASK_EQ] = 1u << lane,
      [PTX_LANEMASK_LT] = (1u << lane) - 1,
      [PTX_LANEMASK_LE] = (2ull << lane) - 1,
      [PTX_LANEMASK_GT] = UINT32_MAX & ~((2ull << lane) - 1),
      [PTX_LANEMASK_GE] = UINT32_MAX & ~((1ull << lane) - 1),
  };
  for (int i = 0; i < PTX_SINK; i++)
    w->registers[i * PTX_LANES + lane] = values[i];
}

/* Makes a warp of a block. */
static bool create_warp(gpu_block *b, int index) {
  gpu_warp *w = &b->warps[index];
  w->block = b;
  w->first = index * PTX_LANES;
  w->lanes = b->threads - w->first < PTX_LANES ? b->threads - w->first : PTX_LANES;
  w->registers = calloc((size_t)b->run->launch.kernel->nregisters, PTX_LANES * sizeof(uint64_t));
  if (!w->registers)
    return false;
  for (int l = 0; l < w->lanes; l++)
    set_special(w, l);
  return true;
}

gpu_block *gpu_block_create(gpu_run *run, uint32_t index) {
  const gpu_launch *launch = &run->launch;
  const ptx_kernel *k = launch->kernel;
  gpu_block *b = calloc(1, sizeof *b);
  if (!b)
    return NULL;
  b->run = run;
  b->index = index;
  b->serial = ++run->world->blocks;
  b->threads = b->live = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
  b->nwarps = (b->threads + PTX_LANES - 1) / PTX_LANES;
  size_t shared = ((size_t)k->shared_bytes + 15) / 16 * 16 + launch->dynamic_bytes + 16;
  b->warps = calloc((size_t)b->nwarps, sizeof *b->warps);
  b->barrier = calloc((size_t)b->threads, 1);
  b->shared = calloc(1, shared);
  b->local = calloc((size_t)b->threads, k->local_bytes + 16);
  bool ok = b->warps && b->barrier && b->shared && b->local;
  for (int i = 0; ok && i < b->nwarps; i++)
    ok = create_warp(b, i);
  if (ok && run->world->weak)
    ok = (b->weak = weak_block_create(b)) != NULL;
  if (ok)
    return b;
  gpu_block_free(b);
  return NULL;
}

void gpu_block_free(gpu_block *b) {
  if (!b)
    return;
  for (int i = 0; b->warps && i < b->nwarps; i++)
    free(b->warps[i].registers);
  weak_block_free(b->weak);
  free(b->warps);
  free(b->barrier);
  free(b->shared);
  free(b->local);
  free(b);
}
