/* gpu_run.h: runs kernels in steps, under a memory model chosen by the caller. */
#ifndef TESTS_GPU_RUN_H
#define TESTS_GPU_RUN_H

#include "ptx.h"

/* How memory behaves. */
typedef enum {
  GPU_PLAIN, /* every access takes effect at once, in order */
  GPU_WEAK,  /* threads have store buffers, blocks a stale cache; random, but as PTX allows */
  GPU_RACES  /* as plain, and accesses that nothing orders are reported */
} gpu_model;

typedef struct {
  gpu_model model;
  uint64_t seed;
  /* Where this process has bytes of global memory; NULL if the kernel may not access them. Without
   * this function everything is allowed, and lies at its address. */
  uint8_t *(*find)(void *context, uint64_t address, size_t bytes, bool write);
  void *context;
} gpu_options;

/* An instruction of a thread, for reports. */
typedef struct {
  char kernel[64];
  int line;
  int device;
  uint32_t block, thread;
  bool write;
} gpu_place;

/* Two accesses to the same bytes, at least one of them a write, that nothing orders. */
typedef struct {
  gpu_place earlier, later;
  uint64_t address;
} gpu_race;

typedef enum {
  GPU_NO_FAULT,
  GPU_ILLEGAL_ADDRESS,
  GPU_MISALIGNED,
  GPU_TRAP,
  GPU_DEADLOCK
} gpu_fault_kind;

/* Why a kernel was stopped. */
typedef struct {
  gpu_fault_kind kind;
  gpu_place place;
  char message[200];
} gpu_fault;

typedef struct {
  const ptx_module *module;
  const ptx_kernel *kernel;
  const void *params; /* kernel->param_bytes bytes, copied */
  uint32_t grid[3], block[3];
  uint32_t dynamic_bytes; /* of shared memory */
  int resident;           /* blocks that run at the same time; 0: all */
  int device;
} gpu_launch;

typedef enum { GPU_RUNNING, GPU_DONE, GPU_FAULTED } gpu_state;

/* What kernels that may run at the same time share: the model of memory, and the races found. */
typedef struct gpu_world gpu_world;

/* One kernel that runs. */
typedef struct gpu_run gpu_run;

/* Creates a world; NULL if memory is short. */
gpu_world *gpu_world_create(const gpu_options *options);

/* Frees a world whose runs are destroyed. */
void gpu_world_destroy(gpu_world *world);

/* Number of races found so far. Two lines that race often count as often. */
uint64_t gpu_world_races(const gpu_world *world);

/* Number of races that gpu_world_race() tells: for each two lines the first one, and at most 16. It
 * only grows. */
int gpu_world_races_told(const gpu_world *world);

/* A race by its index, which is below gpu_world_races_told(); NULL otherwise. */
const gpu_race *gpu_world_race(const gpu_world *world, int index);

/* Writes a race as a sentence. */
void gpu_race_text(const gpu_race *race, char *text, size_t bytes);

/* Starts a kernel. For the race detector it comes after all runs that have been destroyed. NULL if
 * the sizes are impossible or memory is short; `fault` then says why. */
gpu_run *gpu_run_create(gpu_world *world, const gpu_launch *launch, gpu_fault *fault);

/* Executes about `most` instructions, counted per warp. */
gpu_state gpu_run_step(gpu_run *run, uint64_t most);

/* What stopped the kernel. */
const gpu_fault *gpu_run_fault(const gpu_run *run);

/* Frees a run, finished or not. */
void gpu_run_destroy(gpu_run *run);

#endif
