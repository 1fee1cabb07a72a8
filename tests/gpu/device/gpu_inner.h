/* gpu_inner.h: what the files of the interpreter share. */
#ifndef TESTS_GPU_INNER_H
#define TESTS_GPU_INNER_H

#include "gpu_run.h"
#include "libcoll/base/prng.h"

typedef struct gpu_block gpu_block;
typedef struct weak_block weak_block;
typedef struct weak_world weak_world;
typedef struct race_world race_world;
typedef struct race_range race_range;

enum { LANE_RUNS, LANE_WAITS, LANE_DONE };
enum { GPU_BARRIERS = 16, GPU_RACES_KEPT = 16, RACE_THREADS = 1 << 24 };

/* 32 threads, each with its own program counter. */
typedef struct {
  gpu_block *block;
  uint64_t *registers; /* PTX_LANES values each */
  int pc[PTX_LANES];
  uint8_t state[PTX_LANES];
  int first; /* number of lane 0 in the block */
  int lanes;
  int waiting, done; /* lanes at a barrier, lanes that ended */
  bool converged;    /* all lanes that run have the same pc */
} gpu_warp;

struct gpu_block {
  gpu_run *run;
  uint32_t index;
  gpu_warp *warps;
  int nwarps, threads, live;
  int waiting[GPU_BARRIERS], expected[GPU_BARRIERS]; /* threads at each barrier */
  uint8_t *barrier;                                  /* of each thread that waits */
  uint8_t *shared, *local;
  weak_block *weak;
  uint64_t serial;
};

struct gpu_world {
  gpu_options options;
  colli_prng seeds; /* of runs */
  uint64_t blocks;  /* created so far */
  int active;       /* runs */
  weak_world *weak;
  race_world *races;
};

struct gpu_run {
  gpu_world *world;
  gpu_launch launch;
  uint8_t *params;
  gpu_block **blocks; /* resident ones; NULL: none */
  int resident;
  uint32_t nblocks, next, ended;
  int draining;      /* blocks whose threads have ended */
  colli_prng random; /* depends on the seed alone */
  uint64_t instructions;
  gpu_fault fault;
  race_range *range;
};

/* Whether an order includes acquire, or release. */
static inline bool gpu_acquires(ptx_order order) {
  return order == PTX_ACQUIRE || order == PTX_ACQ_REL || order == PTX_SC;
}
static inline bool gpu_releases(ptx_order order) {
  return order == PTX_RELEASE || order == PTX_ACQ_REL || order == PTX_SC;
}

/* The values of an operand in all lanes. */
static inline uint64_t *gpu_values(const gpu_warp *w, int operand) {
  return operand >= 0 ? w->registers + (size_t)operand * PTX_LANES
                      : w->block->run->launch.kernel->constants + (size_t)~operand * PTX_LANES;
}

/* The place of an instruction, for reports. */
gpu_place gpu_place_of(const gpu_warp *w, int lane, const ptx_instr *in, bool write);

/* Stops the run. */
void gpu_stop(gpu_warp *w, int lane, const ptx_instr *in, gpu_fault_kind kind, uint64_t address);

/* Arithmetic of all lanes in `mask`. */
void gpu_arithmetic(gpu_warp *w, const ptx_instr *in, uint32_t mask);

/* ld, st, atom, red, fence; false if the run was stopped. */
bool gpu_memory(gpu_warp *w, const ptx_instr *in, uint32_t mask);

/* Makes a block resident; NULL if memory is short. */
gpu_block *gpu_block_create(gpu_run *run, uint32_t index);
void gpu_block_free(gpu_block *block);

/* Threads in `mask` arrive at a barrier. */
void gpu_barrier_arrive(gpu_warp *w, const ptx_instr *in, uint32_t mask);

/* Threads in `mask` end. */
void gpu_threads_end(gpu_warp *w, uint32_t mask);

/* ---- the weak model ---- */
weak_world *weak_world_create(void);
weak_block *weak_block_create(gpu_block *block);
void weak_block_free(weak_block *weak);
void weak_store(gpu_block *b, int thread, uint8_t *at, const uint8_t *data, unsigned n,
                bool shared);
void weak_load(gpu_block *b, int thread, uint8_t *at, uint8_t *data, unsigned n, bool shared);

/* Before a strong access: earlier stores of the thread to these bytes take effect. */
void weak_settle(gpu_block *b, int thread, uint8_t *at, unsigned n);

/* After a strong access: memory at `at` was `before`, and the block's cache has what is there now.
 */
void weak_accessed(gpu_block *b, uint8_t *at, const uint8_t *before, unsigned n);

/* A strong store that only the block must see at once. */
void weak_store_cta(gpu_block *b, uint8_t *at, const uint8_t *data, unsigned n);

/* A strong load as the block sees it. */
void weak_load_cta(gpu_block *b, uint8_t *at, uint8_t *data, unsigned n);

/* Earlier stores of the thread, and those that it has seen, become visible in the scope. */
void weak_release(gpu_block *b, int thread, ptx_scope scope);

/* Later loads see what others made visible in the scope. */
void weak_acquire(gpu_block *b, ptx_scope scope);

/* Whether no store of the block is under way any more. */
bool weak_idle(const gpu_block *b);

/* Time passes: some stores of the block become visible. */
void weak_tick(gpu_block *b);

/* ---- the race detector ---- */
race_world *race_world_create(void);
void race_world_free(race_world *r);

/* Gives threads of a new run their clocks. There are at most RACE_THREADS. */
void race_run_start(gpu_run *run);

/* The run ended: what follows is ordered after it. */
void race_run_end(gpu_run *run);

/* A weak access, or with a scope a strong one. */
void race_access(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, unsigned n, bool write);

/* The synchronization that a strong access brings. */
void race_strong(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, bool reads, bool writes);
void race_fence(gpu_warp *w, int lane, const ptx_instr *in);

/* Threads from `first` on whose `barrier` is `mark` have met. */
void race_barrier(gpu_block *b, int mark, int first, int count);

/* ---- what the race detector remembers of memory ---- */
typedef struct {
  uint32_t slot, epoch; /* of the thread; epoch 0: none */
  int line;
  uint8_t mask;  /* of the four bytes; 0: others stand for this access */
  uint8_t scope; /* 0: weak */
} access_record;

/* Accesses of several threads, by slot. */
typedef struct {
  uint32_t size, used;
  uint8_t strength; /* no access has a smaller scope */
  access_record at[];
} access_table;

/* Accesses of a kind: at most one, or a table. */
typedef struct {
  access_record one;
  access_table *many;
} access_set;

/* What happened to four bytes of memory. */
typedef struct {
  uint64_t key; /* address + 1 */
  access_set writes, reads;
} access_cell;

typedef struct {
  access_cell *cells;
  size_t size, used;
} access_history;

/* Memory, or the end of the test. */
void *race_must(void *memory);

/* The cell of four bytes. */
access_cell *access_find(access_history *h, uint64_t key);

/* Remembers an access. Within a table, earlier ones of the thread that it stands for go. */
void access_add(access_set *s, const access_record *access);

/* Gives up the table of a set of which at most one access is left. */
void access_shrink(access_set *s, uint32_t left);

/* Forgets everything. */
void access_forget(access_history *h);

#endif
