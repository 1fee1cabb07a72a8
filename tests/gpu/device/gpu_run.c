/* gpu_run.c: runs a kernel: which warp is next, which of its lanes, branches and barriers. */
#include "gpu_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gpu_place gpu_place_of(const gpu_warp *w, int lane, const ptx_instr *in, bool write) {
  const gpu_launch *launch = &w->block->run->launch;
  gpu_place place = {.line = in->line,
                     .device = launch->device,
                     .block = w->block->index,
                     .thread = (uint32_t)(w->first + lane),
                     .write = write};
  snprintf(place.kernel, sizeof place.kernel, "%.63s", launch->kernel->name);
  return place;
}

void gpu_stop(gpu_warp *w, int lane, const ptx_instr *in, gpu_fault_kind kind, uint64_t address) {
  static const char *const what[] = {"", "illegal address", "misaligned address", "trap",
                                     "deadlock at barriers"};
  gpu_fault *f = &w->block->run->fault;
  if (f->kind)
    return;
  f->kind = kind;
  f->place = gpu_place_of(w, lane, in, in->op != OP_LD);
  snprintf(f->message, sizeof f->message, "%s %#llx in kernel %s, line %d, block %u, thread %u",
           what[kind], (unsigned long long)address, f->place.kernel, in->line, f->place.block,
           f->place.thread);
}

/* Threads that a barrier waits for. */
static bool complete(const gpu_block *b, int id) {
  int expected = b->expected[id] && b->expected[id] < b->live ? b->expected[id] : b->live;
  return b->waiting[id] && b->waiting[id] >= expected;
}

/* Lets the threads at a barrier go on. */
static void open_barrier(gpu_block *b, int id) {
  if (b->weak) {
    for (int t = 0; t < b->threads; t++)
      if (b->barrier[t] == id + 1)
        weak_release(b, t, PTX_CTA);
  }
  if (b->run->range)
    race_barrier(b, id + 1, 0, b->threads);
  for (int i = 0; i < b->nwarps; i++) {
    gpu_warp *w = &b->warps[i];
    for (int l = 0; l < w->lanes; l++) {
      if (w->state[l] != LANE_WAITS || b->barrier[w->first + l] != id + 1)
        continue;
      w->state[l] = LANE_RUNS;
      b->barrier[w->first + l] = 0;
      w->waiting--;
    }
    w->converged = false;
  }
  b->waiting[id] = b->expected[id] = 0;
}

void gpu_barrier_arrive(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  gpu_block *b = w->block;
  uint32_t touched = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    int id = (int)(gpu_values(w, in->src[0])[l] % GPU_BARRIERS);
    b->expected[id] = in->vec == 2 ? (int)(uint16_t)gpu_values(w, in->src[1])[l] : 0;
    b->barrier[w->first + l] = (uint8_t)(id + 1);
    b->waiting[id]++;
    w->state[l] = LANE_WAITS;
    w->waiting++;
    touched |= 1u << id;
  }
  w->converged = false;
  for (int id = 0; id < GPU_BARRIERS; id++)
    if (touched >> id & 1 && complete(b, id))
      open_barrier(b, id);
}

void gpu_threads_end(gpu_warp *w, uint32_t mask) {
  gpu_block *b = w->block;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    w->state[l] = LANE_DONE;
    w->done++;
    b->live--;
    if (b->weak)
      weak_release(b, w->first + l, PTX_CTA);
  }
  for (int id = 0; id < GPU_BARRIERS; id++)
    if (b->live && complete(b, id))
      open_barrier(b, id);
}

/* Chooses lanes with the same pc: mostly those that are furthest behind, so that they meet again.
 */
static uint32_t choose_lanes(gpu_warp *w, int *pc) {
  int least = INT32_MAX, running = 0;
  uint32_t mask = 0;
  for (int l = 0; l < w->lanes; l++) {
    if (w->state[l] != LANE_RUNS)
      continue;
    running++;
    if (w->pc[l] < least)
      least = w->pc[l];
  }
  if (!w->converged && colli_prng_next(&w->block->run->random) % 4 == 0) {
    int skip = (int)(colli_prng_next(&w->block->run->random) % (uint64_t)running);
    for (int l = 0; l < w->lanes; l++)
      if (w->state[l] == LANE_RUNS && !skip--)
        least = w->pc[l];
  }
  for (int l = 0; l < w->lanes; l++)
    if (w->state[l] == LANE_RUNS && w->pc[l] == least)
      mask |= 1u << l;
  w->converged = __builtin_popcount(mask) == running;
  *pc = least;
  return mask;
}

/* Lanes of `mask` whose guard is true. */
static uint32_t guarded(const gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  if (in->guard < 0)
    return mask;
  const uint64_t *values = gpu_values(w, in->guard);
  uint32_t result = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    result |= (uint32_t)((values[l] & 1) != in->negate) << l;
  }
  return result;
}

/* Sets the pc of lanes. */
static void set_pc(gpu_warp *w, uint32_t mask, int pc) {
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    w->pc[__builtin_ctz(rest)] = pc;
}

/* mov between a vector and a wide register, and the clock. */
static void move(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  unsigned bits = in->op == OP_CLOCK ? 0 : 8 * ptx_bytes(in->type) / in->vec;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    uint64_t value =
        in->op == OP_CLOCK ? w->block->run->instructions : gpu_values(w, in->src[0])[l];
    if (in->op == OP_CLOCK) {
      gpu_values(w, in->dst[0])[l] = value;
    } else if (in->op == OP_UNPACK) {
      for (int i = 0; i < in->vec; i++)
        gpu_values(w, in->dst[i])[l] = value >> (bits * (unsigned)i) & ((1ull << bits) - 1);
    } else {
      value = 0;
      for (int i = 0; i < in->vec; i++)
        value |= (gpu_values(w, in->src[i])[l] & ((1ull << bits) - 1)) << (bits * (unsigned)i);
      gpu_values(w, in->dst[0])[l] = value;
    }
  }
}

/* Whether all lanes that a .sync operation names are here; lanes that ended don't count. */
static bool gathered(const gpu_warp *w, uint32_t mask, uint64_t members) {
  for (int l = 0; l < w->lanes; l++)
    if (members >> l & 1 && w->state[l] != LANE_DONE && !(mask >> l & 1))
      return false;
  return true;
}

/* shfl.sync: each lane gets the value of another. */
static void shuffle(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  uint64_t values[PTX_LANES];
  memcpy(values, gpu_values(w, in->src[0]), sizeof values);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest), from = l;
    int b = (int)(gpu_values(w, in->src[1])[l] & 31);
    uint32_t c = (uint32_t)gpu_values(w, in->src[2])[l];
    int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31);
    int most = (l & segment) | (clamp & ~segment), least = l & segment;
    switch (in->sub) {
    case PTX_UP:
      from = l - b;
      break;
    case PTX_DOWN:
      from = l + b;
      break;
    case PTX_BFLY:
      from = l ^ b;
      break;
    default:
      from = least | (b & ~segment);
    }
    bool valid = in->sub == PTX_UP ? from >= most : from <= most;
    gpu_values(w, in->dst[0])[l] = values[valid ? from & 31 : l];
    gpu_values(w, in->dst[1])[l] = valid;
  }
}

/* bar.warp.sync and shfl.sync: false if lanes must wait for others. */
static bool synchronize_warp(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  int first = __builtin_ctz(mask);
  uint64_t members = gpu_values(w, in->op == OP_BAR ? in->src[0] : in->src[3])[first];
  if (!gathered(w, mask, members))
    return false;
  if (in->op == OP_SHFL) {
    shuffle(w, in, mask);
    return true;
  }
  for (uint32_t rest = mask; rest && w->block->weak; rest &= rest - 1)
    weak_release(w->block, w->first + __builtin_ctz(rest), PTX_CTA);
  if (w->block->run->range) {
    for (uint32_t rest = mask; rest; rest &= rest - 1)
      w->block->barrier[w->first + __builtin_ctz(rest)] = GPU_BARRIERS + 1;
    race_barrier(w->block, GPU_BARRIERS + 1, w->first, w->lanes);
    for (uint32_t rest = mask; rest; rest &= rest - 1)
      w->block->barrier[w->first + __builtin_ctz(rest)] = 0;
  }
  return true;
}

/* Takes a branch; false if the lanes part, or might meet others. */
static bool branch(gpu_warp *w, const ptx_instr *in, uint32_t mask, uint32_t taken, int *pc) {
  if (taken == mask)
    *pc = in->target;
  set_pc(w, mask, *pc);
  if (taken && taken != mask) {
    set_pc(w, taken, in->target);
    w->converged = false;
  }
  return w->converged;
}

/* Executes what is no arithmetic; false ends the slice. `pc` is that of the next instruction. */
static bool other(gpu_warp *w, const ptx_instr *in, uint32_t group, uint32_t mask, int *pc) {
  switch (in->op) {
  case OP_PACK:
  case OP_UNPACK:
  case OP_CLOCK:
    move(w, in, mask);
    return true;
  case OP_LD:
  case OP_ST:
  case OP_ATOM:
  case OP_RED:
  case OP_FENCE:
    if (gpu_memory(w, in, mask))
      return true;
    break;
  case OP_BRA:
    return branch(w, in, group, mask, pc);
  case OP_BAR:
  case OP_SHFL:
    if (in->op == OP_SHFL || in->sub == PTX_WARP) {
      set_pc(w, group & ~mask, *pc);
      if (synchronize_warp(w, in, mask))
        return true;
      set_pc(w, mask, *pc - 1);
      w->converged = false;
      return false;
    }
    set_pc(w, group, *pc);
    gpu_barrier_arrive(w, in, mask);
    return false;
  case OP_RET:
    set_pc(w, group, *pc);
    gpu_threads_end(w, mask);
    w->converged = false;
    return false;
  case OP_TRAP:
    gpu_stop(w, __builtin_ctz(mask), in, GPU_TRAP, 0);
    break;
  default:
    return true;
  }
  set_pc(w, group, *pc);
  return false;
}

/* Runs one group of lanes for at most `budget` instructions; returns how many. */
static uint64_t run_warp(gpu_warp *w, uint64_t budget) {
  const ptx_instr *code = w->block->run->launch.kernel->code;
  int pc;
  uint32_t group = choose_lanes(w, &pc);
  bool plain = w->block->run->world->options.model == GPU_PLAIN;
  uint64_t used = 0;
  while (used < budget) {
    const ptx_instr *in = &code[pc++];
    used++;
    w->block->run->instructions++;
    uint32_t mask = guarded(w, in, group);
    if (in->op < OP_ALU_END) {
      if (mask)
        gpu_arithmetic(
            w, in, mask == group && w->done + w->waiting == 0 && w->converged ? UINT32_MAX : mask);
    } else if ((mask || in->op == OP_BRA) && !other(w, in, group, mask, &pc)) {
      break;
    }
    if (in->order != PTX_WEAK && !plain && colli_prng_next(&w->block->run->random) % 2)
      budget = used; /* others go on when it matters most */
    if (used == budget)
      set_pc(w, group, pc);
  }
  return used;
}

/* Lets a block run that was not resident yet, or notes that all have ended. */
static bool refill(gpu_run *run, int place) {
  gpu_block_free(run->blocks[place]);
  run->blocks[place] = NULL;
  run->ended++;
  if (run->next == run->nblocks)
    return true;
  run->blocks[place] = gpu_block_create(run, run->next++);
  return run->blocks[place] != NULL;
}

/* A warp that can run, by chance; NULL if all wait. */
static gpu_warp *choose_warp(gpu_run *run) {
  int first = (int)(colli_prng_next(&run->random) % (uint64_t)run->resident);
  for (int i = 0; i < run->resident; i++) {
    gpu_block *b = run->blocks[(first + i) % run->resident];
    if (!b)
      continue;
    int start = (int)(colli_prng_next(&run->random) % (uint64_t)b->nwarps);
    for (int j = 0; j < b->nwarps; j++) {
      gpu_warp *w = &b->warps[(start + j) % b->nwarps];
      if (w->waiting + w->done < w->lanes)
        return w;
    }
  }
  return NULL;
}

/* Stops a run whose threads all wait. */
static void report_deadlock(gpu_run *run) {
  for (int i = 0; i < run->resident; i++) {
    gpu_block *b = run->blocks[i];
    for (int l = 0; b && l < b->threads; l++) {
      gpu_warp *w = &b->warps[l / PTX_LANES];
      if (w->state[l % PTX_LANES] != LANE_WAITS)
        continue;
      int pc = w->pc[l % PTX_LANES];
      gpu_stop(w, l % PTX_LANES, &run->launch.kernel->code[pc - 1], GPU_DEADLOCK, 0);
      return;
    }
  }
}

/* Replaces blocks that have ended; those of the weak model when their last stores have left. */
static void retire(gpu_run *run) {
  for (int i = 0; i < run->resident; i++) {
    gpu_block *b = run->blocks[i];
    if (!b || b->live)
      continue;
    if (b->weak)
      weak_tick(b);
    if (b->weak && !weak_idle(b))
      continue;
    run->draining--;
    if (refill(run, i))
      continue;
    run->fault.kind = GPU_TRAP;
    snprintf(run->fault.message, sizeof run->fault.message, "out of memory");
  }
}

gpu_state gpu_run_step(gpu_run *run, uint64_t most) {
  uint64_t used = 0;
  while (used < most && !run->fault.kind && run->ended < run->nblocks) {
    if (run->draining)
      retire(run);
    gpu_warp *w = choose_warp(run);
    uint64_t budget = 512;
    if (run->world->options.model != GPU_PLAIN)
      budget = 1 + colli_prng_next(&run->random) % 64;
    if (w && w->block->weak)
      weak_tick(w->block);
    if (w) {
      used += run_warp(w, budget < most - used ? budget : most - used);
      run->draining += !w->block->live;
    } else if (run->draining) {
      used++;
    } else if (run->ended < run->nblocks) {
      report_deadlock(run);
    }
  }
  return run->fault.kind ? GPU_FAULTED : run->ended == run->nblocks ? GPU_DONE : GPU_RUNNING;
}
