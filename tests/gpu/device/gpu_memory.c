/* gpu_memory.c: loads, stores, atomic operations, fences: which memory, how strong, under which
 * model. */
#include "gpu_inner.h"
#include "ptx_value.h"

#include <string.h>

/* A lane's access: where it is on the host. */
typedef struct {
  uint8_t *at;
  uint64_t key; /* its address for the race detector */
  ptx_space space;
} access_at;

/* Finds bytes of global memory; NULL if they may not be accessed. */
static uint8_t *in_global(const gpu_run *run, uint64_t address, size_t bytes, bool write) {
  const gpu_options *o = &run->world->options;
  const ptx_module *m = run->launch.module;
  uint8_t *at = (uint8_t *)(uintptr_t)address;
  if (!address || address >> 56 || (address + bytes) >> 56 || address + bytes < address)
    return NULL;
  for (int i = 0; m && i < m->nglobals; i++)
    if (address >= m->globals[i].address &&
        address + bytes <= m->globals[i].address + m->globals[i].bytes)
      return at;
  return o->find ? o->find(o->context, address, bytes, write) : at;
}

/* Finds `bytes` bytes of a space; NULL if they lie outside. */
static uint8_t *in_space(const gpu_warp *w, int lane, ptx_space space, uint64_t offset,
                         size_t bytes, bool write) {
  const gpu_block *b = w->block;
  const gpu_launch *launch = &b->run->launch;
  const ptx_kernel *k = launch->kernel;
  size_t thread = (size_t)(w->first + lane);
  switch (space) {
  case PTX_SHARED:
    if (offset + bytes <= k->shared_bytes)
      return b->shared + offset;
    if (offset < PTX_DYNAMIC || offset - PTX_DYNAMIC + bytes > launch->dynamic_bytes)
      return NULL;
    return b->shared + ((size_t)k->shared_bytes + 15) / 16 * 16 + (offset - PTX_DYNAMIC);
  case PTX_LOCAL:
    if (offset + bytes > k->local_bytes)
      return NULL;
    return b->local + thread * ((size_t)k->local_bytes + 16) + offset;
  case PTX_PARAM:
    return write || offset + bytes > k->param_bytes ? NULL : b->run->params + offset;
  default:
    return NULL;
  }
}

/* What the accesses of all lanes lie in, if they lie close together in memory that is allowed. */
typedef struct {
  uint64_t address;
  uint8_t *at; /* NULL if they do not */
} together;

/* Finds what a lane accesses; stops the run if it may not. */
static bool locate(gpu_warp *w, int lane, const ptx_instr *in, size_t bytes, bool write,
                   const together *all, access_at *to) {
  uint64_t address = gpu_values(w, in->src[0])[lane] + (uint64_t)in->offset;
  to->space = in->space;
  to->key = address;
  if (address & (bytes - 1)) {
    gpu_stop(w, lane, in, GPU_MISALIGNED, address);
    return false;
  }
  if (to->space == PTX_GENERIC) {
    uint64_t window = address >> 56;
    to->space = window >= PTX_SHARED && window <= PTX_PARAM ? (ptx_space)window : PTX_GLOBAL;
  }
  if (to->space == PTX_GLOBAL || to->space == PTX_CONST) {
    to->at = all->at ? all->at + (address - all->address)
                     : in_global(w->block->run, address, bytes, write);
  } else {
    to->at = in_space(w, lane, to->space, (uint32_t)address, bytes, write);
    to->key = (uint64_t)to->space << 56 | w->block->serial << 20 | (address & 0xfffff);
  }
  if (to->at)
    return true;
  gpu_stop(w, lane, in, GPU_ILLEGAL_ADDRESS, address);
  return false;
}

/* Finds the accesses of all lanes at once. */
static together locate_together(const gpu_warp *w, const ptx_instr *in, uint32_t mask, size_t bytes,
                                bool write) {
  uint64_t least = UINT64_MAX, most = 0;
  if (in->space != PTX_GLOBAL)
    return (together){0};
  const uint64_t *values = gpu_values(w, in->src[0]);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint64_t address = values[__builtin_ctz(rest)] + (uint64_t)in->offset;
    least = address < least ? address : least;
    most = address > most ? address : most;
  }
  if (most - least > 2 * PTX_LANES * bytes)
    return (together){0};
  return (together){least, in_global(w->block->run, least, most - least + bytes, write)};
}

/* Reads bytes as one access to memory that other threads of the process may change. */
static void strong_read(const uint8_t *at, uint8_t *data, size_t bytes) {
  uint64_t eight;
  uint32_t four;
  uint16_t two;
  if (bytes == 8) {
    eight = __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_SEQ_CST);
    memcpy(data, &eight, 8);
  } else if (bytes == 4) {
    four = __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_SEQ_CST);
    memcpy(data, &four, 4);
  } else if (bytes == 2) {
    two = __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_SEQ_CST);
    memcpy(data, &two, 2);
  } else {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(data, at, bytes);
  }
}

/* Writes bytes as one access. */
static void strong_write(uint8_t *at, const uint8_t *data, size_t bytes) {
  uint64_t eight;
  uint32_t four;
  if (bytes == 8) {
    memcpy(&eight, data, 8);
    __atomic_store_n((uint64_t *)(void *)at, eight, __ATOMIC_SEQ_CST);
  } else if (bytes == 4) {
    memcpy(&four, data, 4);
    __atomic_store_n((uint32_t *)(void *)at, four, __ATOMIC_SEQ_CST);
  } else {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(at, data, bytes);
  }
}

/* Whether a lane's access concerns other threads. */
static bool visible(ptx_space space) {
  return space == PTX_GLOBAL || space == PTX_SHARED;
}

/* A strong load or store in the weak model. */
static void weak_strong(gpu_warp *w, int lane, const ptx_instr *in, const access_at *to,
                        uint8_t *data, unsigned n) {
  gpu_block *b = w->block;
  int thread = w->first + lane;
  uint8_t before[16];
  bool near = in->scope == PTX_CTA || to->space == PTX_SHARED;
  if (in->op == OP_ST && gpu_releases(in->order))
    weak_release(b, thread, in->scope);
  weak_settle(b, thread, to->at, n);
  if (in->op == OP_LD && near) {
    weak_load_cta(b, to->at, data, n);
  } else if (in->op == OP_LD) {
    strong_read(to->at, data, n);
    weak_accessed(b, to->at, data, n);
  } else if (near && to->space == PTX_GLOBAL) {
    weak_store_cta(b, to->at, data, n);
  } else {
    memcpy(before, to->at, n);
    strong_write(to->at, data, n);
    if (to->space == PTX_GLOBAL)
      weak_accessed(b, to->at, before, n);
  }
  if (in->op == OP_LD && gpu_acquires(in->order))
    weak_acquire(b, in->scope);
}

/* One lane's load or store of `n` bytes, as the model has it. */
static void transfer(gpu_warp *w, int lane, const ptx_instr *in, const access_at *to, uint8_t *data,
                     unsigned n) {
  bool write = in->op == OP_ST, strong = in->order != PTX_WEAK;
  gpu_block *b = w->block;
  if (b->weak && visible(to->space)) {
    if (strong)
      weak_strong(w, lane, in, to, data, n);
    else if (write)
      weak_store(b, w->first + lane, to->at, data, n, to->space == PTX_SHARED);
    else
      weak_load(b, w->first + lane, to->at, data, n, to->space == PTX_SHARED);
    return;
  }
  if (b->run->range && visible(to->space)) {
    race_access(w, lane, in, to->key, n, write);
    if (strong)
      race_strong(w, lane, in, to->key, !write, write);
  }
  if (strong && write)
    strong_write(to->at, data, n);
  else if (strong)
    strong_read(to->at, data, n);
  else
    memcpy(write ? to->at : data, write ? data : to->at, n);
}

/* ld and st. */
static bool access_lanes(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  unsigned size = ptx_bytes(in->type), n = size * in->vec;
  bool write = in->op == OP_ST;
  const together all = locate_together(w, in, mask, n, write);
  uint64_t *values[4];
  for (int i = 0; i < in->vec; i++)
    values[i] = gpu_values(w, in->dst[i]);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    access_at to;
    uint8_t data[16];
    if (!locate(w, l, in, n, write, &all, &to))
      return false;
    for (unsigned i = 0; write && i < in->vec; i++)
      memcpy(data + i * size, &values[i][l], size);
    transfer(w, l, in, &to, data, n);
    for (unsigned i = 0; !write && i < in->vec; i++) {
      uint64_t value = 0;
      memcpy(&value, data + i * size, size);
      values[i][l] = ptxv_extend(in->type, value);
    }
  }
  return true;
}

/* The new value of an atomic operation. */
static uint64_t combine(const ptx_instr *in, uint64_t old, uint64_t b, uint64_t c) {
  ptx_instr alu = *in;
  const uint64_t x[4] = {old, b, 0, 0};
  alu.round = PTX_R_NONE;
  switch (in->sub) {
  case PTX_EXCH:
    return b;
  case PTX_CAS:
    return ptxv_zero_extend(in->type, old) == ptxv_zero_extend(in->type, b) ? c : old;
  case PTX_INC:
    return (uint32_t)old >= (uint32_t)b ? 0 : old + 1;
  case PTX_DEC:
    return !(uint32_t)old || (uint32_t)old > (uint32_t)b ? b : old - 1;
  case PTX_ADD:
    alu.op = OP_ADD;
    break;
  case PTX_MIN:
    alu.op = OP_MIN;
    break;
  case PTX_MAX:
    alu.op = OP_MAX;
    break;
  case PTX_AND:
    alu.op = OP_AND;
    break;
  case PTX_OR:
    alu.op = OP_OR;
    break;
  default:
    alu.op = OP_XOR;
  }
  return ptx_compute(&alu, x);
}

/* Changes memory atomically, also for other threads of the process; returns the former value. */
static uint64_t exchange(const ptx_instr *in, uint8_t *at, unsigned n, uint64_t b, uint64_t c) {
  for (;;) {
    uint64_t old = 0;
    strong_read(at, (uint8_t *)&old, n);
    uint64_t new = combine(in, old, b, c);
    uint64_t old8 = old;
    uint32_t old4 = (uint32_t)old;
    uint16_t old2 = (uint16_t)old;
    bool done = false;
    if (n == 8)
      done = __atomic_compare_exchange_n((uint64_t *)(void *)at, &old8, new, false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    else if (n == 4)
      done = __atomic_compare_exchange_n((uint32_t *)(void *)at, &old4, (uint32_t) new, false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    else
      done = __atomic_compare_exchange_n((uint16_t *)(void *)at, &old2, (uint16_t) new, false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (done)
      return old;
  }
}

/* atom and red. */
static bool atomic_lanes(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  unsigned n = ptx_bytes(in->type);
  gpu_block *b = w->block;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest), thread = w->first + l;
    access_at to;
    if (!locate(w, l, in, n, true, &(together){0}, &to))
      return false;
    bool weak = b->weak && visible(to.space);
    if (weak && gpu_releases(in->order))
      weak_release(b, thread, in->scope);
    if (weak)
      weak_settle(b, thread, to.at, n);
    if (b->run->range && visible(to.space)) {
      race_access(w, l, in, to.key, n, true);
      race_strong(w, l, in, to.key, true, true);
    }
    uint64_t old =
        exchange(in, to.at, n, gpu_values(w, in->src[1])[l], gpu_values(w, in->src[2])[l]);
    if (weak && to.space == PTX_GLOBAL)
      weak_accessed(b, to.at, (const uint8_t *)&old, n);
    if (weak && gpu_acquires(in->order))
      weak_acquire(b, in->scope);
    gpu_values(w, in->dst[0])[l] = ptxv_extend(in->type, old);
  }
  return true;
}

/* fence and membar. */
static void fence_lanes(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    if (w->block->weak)
      weak_release(w->block, w->first + l, in->scope);
    if (w->block->run->range)
      race_fence(w, l, in);
  }
  if (w->block->weak)
    weak_acquire(w->block, in->scope);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool gpu_memory(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  if (in->op == OP_LD || in->op == OP_ST)
    return access_lanes(w, in, mask);
  if (in->op != OP_FENCE)
    return atomic_lanes(w, in, mask);
  fence_lanes(w, in, mask);
  return true;
}
