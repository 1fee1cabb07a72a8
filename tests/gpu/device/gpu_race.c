/* gpu_race.c: finds accesses that nothing orders, with vector clocks.
 *
 * Each thread counts its epochs; its clock says which epochs of other threads come before what it
 * does now. Most threads share a clock with others: after a barrier all threads of a block have the
 * same.
 *
 * Four bytes remember one write and two reads. So of three threads that read them at once, one is
 * forgotten, and of writes to different bytes of the four all but the last: a race with what was
 * forgotten is not found. */
#include "gpu_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A clock is not changed after it was shared. */
typedef struct {
  int users, n;
  uint32_t epoch[]; /* of each slot; 0 beyond n */
} clock_vector;

typedef struct {
  uint32_t epoch;
  uint8_t fence_scope, pending_distance;
  clock_vector *seen;
  clock_vector *fenced;  /* as it was at the latest fence */
  clock_vector *pending; /* what relaxed loads saw and a fence would order */
} thread_clock;

/* An access that was the latest of its kind. */
typedef struct {
  uint32_t slot, epoch; /* epoch 0: none */
  int line;
  uint8_t mask; /* of the four bytes */
  uint8_t scope;
} access_record;

/* What happened to four bytes of memory. */
typedef struct {
  uint64_t key; /* address + 1 */
  access_record write, read[2];
} cell;

/* A place through which threads synchronize. */
typedef struct {
  uint64_t key;
  clock_vector *released;
  uint32_t slot;
  uint8_t scope;
} sync_place;

struct race_range {
  int first, count, threads, device;
  bool used;
  char kernel[64];
};

struct race_world {
  thread_clock *threads;
  int nthreads;
  race_range **ranges;
  int nranges;
  clock_vector *host; /* what the end of kernels ordered */
  cell *cells;
  size_t ncells, cells_used;
  sync_place *syncs;
  size_t nsyncs, syncs_used;
  uint64_t nraces;
  int nkept;
  gpu_race kept[GPU_RACES_KEPT];
};

/* Memory, or the end of the test. */
static void *must(void *memory) {
  if (!memory) {
    fprintf(stderr, "the race detector is out of memory\n");
    abort();
  }
  return memory;
}

/* ---- clocks ---- */

/* Gives up a clock. */
static void drop(clock_vector **c) {
  if (*c && --(*c)->users == 0)
    free(*c);
  *c = NULL;
}

/* Shares a clock. */
static clock_vector *share(clock_vector *c) {
  if (c)
    c->users++;
  return c;
}

/* A new clock with room for n slots and the epochs of another. */
static clock_vector *copy_clock(const clock_vector *from, int n) {
  if (from && from->n > n)
    n = from->n;
  clock_vector *c = must(calloc(1, sizeof *c + (size_t)n * sizeof *c->epoch));
  c->users = 1;
  c->n = n;
  if (from)
    memcpy(c->epoch, from->epoch, (size_t)from->n * sizeof *c->epoch);
  return c;
}

/* Adds to a clock what another one knows. */
static void join(clock_vector **to, const clock_vector *from) {
  int i = 0, n = from ? from->n : 0;
  while (i < n && from->epoch[i] <= (*to && i < (*to)->n ? (*to)->epoch[i] : 0))
    i++;
  if (i == n)
    return;
  clock_vector *joined = copy_clock(*to, n);
  for (; i < n; i++)
    if (from->epoch[i] > joined->epoch[i])
      joined->epoch[i] = from->epoch[i];
  drop(to);
  *to = joined;
}

/* A thread's clock as it is now. */
static clock_vector *snapshot(const race_world *r, uint32_t slot) {
  clock_vector *c = copy_clock(r->threads[slot].seen, (int)slot + 1);
  c->epoch[slot] = r->threads[slot].epoch;
  return c;
}

/* ---- tables ---- */

/* Where a key is searched first. */
static size_t hash(uint64_t key, size_t size) {
  return (key * 0x9e3779b97f4a7c15ull >> 20) & (size - 1);
}

/* The cell of four bytes. */
static cell *find_cell(race_world *r, uint64_t key) {
  if (2 * r->cells_used >= r->ncells) {
    size_t n = r->ncells, larger = n ? 2 * n : 1 << 14;
    cell *old = r->cells;
    r->cells = must(calloc(larger, sizeof *r->cells));
    r->ncells = larger;
    r->cells_used = 0;
    for (size_t i = 0; i < n; i++)
      if (old[i].key)
        *find_cell(r, old[i].key - 1) = old[i];
    free(old);
  }
  size_t i = hash(key, r->ncells);
  while (r->cells[i].key && r->cells[i].key != key + 1)
    i = (i + 1) & (r->ncells - 1);
  r->cells_used += !r->cells[i].key;
  r->cells[i].key = key + 1;
  return &r->cells[i];
}

/* The synchronization place of an address. */
static sync_place *find_sync(race_world *r, uint64_t key) {
  if (2 * r->syncs_used >= r->nsyncs) {
    size_t n = r->nsyncs, larger = n ? 2 * n : 1 << 8;
    sync_place *old = r->syncs;
    r->syncs = must(calloc(larger, sizeof *r->syncs));
    r->nsyncs = larger;
    r->syncs_used = 0;
    for (size_t i = 0; i < n; i++)
      if (old[i].key)
        *find_sync(r, old[i].key - 1) = old[i];
    free(old);
  }
  size_t i = hash(key, r->nsyncs);
  while (r->syncs[i].key && r->syncs[i].key != key + 1)
    i = (i + 1) & (r->nsyncs - 1);
  r->syncs_used += !r->syncs[i].key;
  r->syncs[i].key = key + 1;
  return &r->syncs[i];
}

/* ---- worlds and runs ---- */

race_world *race_world_create(void) {
  return calloc(1, sizeof(race_world));
}

/* Forgets everything but the races. */
static void forget(race_world *r) {
  for (int i = 0; i < r->nthreads; i++) {
    drop(&r->threads[i].seen);
    drop(&r->threads[i].fenced);
    drop(&r->threads[i].pending);
  }
  for (size_t i = 0; i < r->nsyncs; i++)
    drop(&r->syncs[i].released);
  for (int i = 0; i < r->nranges; i++)
    free(r->ranges[i]);
  drop(&r->host);
  free(r->ranges);
  free(r->threads);
  free(r->cells);
  free(r->syncs);
  r->ranges = NULL;
  r->threads = NULL;
  r->cells = NULL;
  r->syncs = NULL;
  r->nranges = r->nthreads = 0;
  r->ncells = r->cells_used = r->nsyncs = r->syncs_used = 0;
}

void race_world_free(race_world *r) {
  if (!r)
    return;
  forget(r);
  free(r);
}

/* Slots for `count` threads: those of a former run, or new ones. */
static race_range *take_range(race_world *r, int count) {
  for (int i = 0; i < r->nranges; i++)
    if (!r->ranges[i]->used && r->ranges[i]->count == count)
      return r->ranges[i];
  race_range *range = must(calloc(1, sizeof *range));
  range->first = r->nthreads;
  range->count = count;
  r->ranges = must(realloc(r->ranges, (size_t)(r->nranges + 1) * sizeof(race_range *)));
  r->ranges[r->nranges++] = range;
  size_t n = (size_t)(r->nthreads + count);
  r->threads = must(realloc(r->threads, n * sizeof *r->threads));
  memset(r->threads + r->nthreads, 0, (size_t)count * sizeof *r->threads);
  r->nthreads += count;
  return range;
}

bool race_run_start(gpu_run *run) {
  race_world *r = run->world->races;
  const gpu_launch *launch = &run->launch;
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  if (threads * run->nblocks > 1 << 24)
    return false;
  race_range *range = take_range(r, (int)(threads * run->nblocks));
  range->used = true;
  range->threads = (int)threads;
  range->device = launch->device;
  snprintf(range->kernel, sizeof range->kernel, "%.63s", launch->kernel->name);
  for (int i = 0; i < range->count; i++) {
    thread_clock *t = &r->threads[range->first + i];
    t->epoch++;
    t->seen = share(r->host);
  }
  run->range = range;
  return true;
}

void race_run_end(gpu_run *run) {
  race_world *r = run->world->races;
  race_range *range = run->range;
  if (!run->world->active) { /* all that follows is ordered after all that was */
    forget(r);
    return;
  }
  clock_vector *ended = copy_clock(r->host, range->first + range->count);
  const clock_vector *latest = NULL;
  for (int i = range->first; i < range->first + range->count; i++) {
    thread_clock *t = &r->threads[i];
    if (t->seen != latest)
      join(&ended, t->seen);
    latest = t->seen;
    if (t->epoch > ended->epoch[i])
      ended->epoch[i] = t->epoch;
  }
  for (int i = range->first; i < range->first + range->count; i++) {
    drop(&r->threads[i].seen);
    drop(&r->threads[i].fenced);
    drop(&r->threads[i].pending);
  }
  drop(&r->host);
  r->host = ended;
  range->used = false;
}

/* ---- accesses ---- */

/* The range of a slot. */
static const race_range *range_of(const race_world *r, uint32_t slot) {
  int i = 0;
  while ((int)slot >= r->ranges[i]->first + r->ranges[i]->count)
    i++;
  return r->ranges[i];
}

/* The smallest scope that includes two threads. */
static ptx_scope distance(const race_world *r, uint32_t a, uint32_t b) {
  const race_range *x = range_of(r, a), *y = range_of(r, b);
  if (x->device != y->device)
    return PTX_SYS;
  bool same = x == y && ((int)a - x->first) / x->threads == ((int)b - y->first) / y->threads;
  return same ? PTX_CTA : PTX_GPU;
}

/* Notes a race; of those between the same two lines only the first. */
static void report(race_world *r, gpu_warp *w, int lane, const ptx_instr *in, bool write,
                   const access_record *earlier, bool earlier_writes, uint64_t address) {
  const race_range *range = range_of(r, earlier->slot);
  r->nraces++;
  for (int i = 0; i < r->nkept; i++)
    if (r->kept[i].later.line == in->line && r->kept[i].earlier.line == earlier->line)
      return;
  if (r->nkept == GPU_RACES_KEPT)
    return;
  gpu_race *race = &r->kept[r->nkept++];
  int thread = (int)earlier->slot - range->first;
  *race = (gpu_race){.later = gpu_place_of(w, lane, in, write), .address = address};
  race->earlier = (gpu_place){.line = earlier->line,
                              .device = range->device,
                              .block = (uint32_t)(thread / range->threads),
                              .thread = (uint32_t)(thread % range->threads),
                              .write = earlier_writes};
  memcpy(race->earlier.kernel, range->kernel, sizeof range->kernel);
}

/* Whether an earlier access comes before what a thread does now. */
static bool before(const race_world *r, const access_record *earlier, uint32_t slot) {
  const clock_vector *c = r->threads[slot].seen;
  return !earlier->epoch || earlier->slot == slot ||
         (c && (int)earlier->slot < c->n && c->epoch[earlier->slot] >= earlier->epoch);
}

/* Whether two accesses conflict: common bytes, not ordered, and not both strong with each other. */
static bool conflict(const race_world *r, const access_record *a, const access_record *b) {
  if (!(a->mask & b->mask) || before(r, a, b->slot))
    return false;
  if (!a->scope || !b->scope)
    return true;
  ptx_scope least = distance(r, a->slot, b->slot);
  return a->scope < least || b->scope < least;
}

void race_access(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, unsigned n, bool write) {
  race_world *r = w->block->run->world->races;
  uint32_t slot = (uint32_t)(w->block->run->range->first + w->block->slot + w->first + lane);
  access_record now = {.slot = slot, .epoch = r->threads[slot].epoch, .line = in->line};
  now.scope = in->order == PTX_WEAK ? 0 : in->scope;
  for (uint64_t at = key & ~3ull; at < key + n; at += 4) {
    cell *c = find_cell(r, at);
    now.mask = 15;
    if (n < 4)
      now.mask = (uint8_t)(((1u << n) - 1) << (key & 3));
    if (conflict(r, &c->write, &now))
      report(r, w, lane, in, write, &c->write, true, at);
    for (int i = 0; write && i < 2; i++)
      if (conflict(r, &c->read[i], &now))
        report(r, w, lane, in, write, &c->read[i], false, at);
    if (write)
      c->write = now;
    else if (before(r, &c->read[0], slot))
      c->read[0] = now;
    else
      c->read[1] = now;
  }
}

/* ---- synchronization ---- */

/* A strong load takes over what was released. */
static void take(race_world *r, uint32_t slot, const ptx_instr *in, const sync_place *s) {
  thread_clock *t = &r->threads[slot];
  if (!s->released)
    return;
  ptx_scope least = distance(r, slot, s->slot);
  if (in->scope < least || s->scope < least)
    return;
  bool acquires = in->order == PTX_ACQUIRE || in->order == PTX_ACQ_REL || in->order == PTX_SC;
  join(acquires ? &t->seen : &t->pending, s->released);
  if (!acquires && least > t->pending_distance)
    t->pending_distance = (uint8_t)least;
}

void race_strong(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, bool reads,
                 bool writes) {
  race_world *r = w->block->run->world->races;
  uint32_t slot = (uint32_t)(w->block->run->range->first + w->block->slot + w->first + lane);
  thread_clock *t = &r->threads[slot];
  sync_place *s = find_sync(r, key);
  if (reads)
    take(r, slot, in, s);
  if (!writes)
    return;
  bool releases = in->order == PTX_RELEASE || in->order == PTX_ACQ_REL || in->order == PTX_SC;
  clock_vector *released = releases ? snapshot(r, slot) : share(t->fenced);
  uint8_t scope = releases || in->scope < t->fence_scope ? in->scope : t->fence_scope;
  if (reads && s->released) { /* an atomic operation continues what others released */
    if (released) {
      join(&s->released, released);
      s->scope = scope;
      s->slot = slot;
    }
    drop(&released);
  } else {
    drop(&s->released);
    s->released = released;
    s->scope = scope;
    s->slot = slot;
  }
  t->epoch += releases;
}

void race_fence(gpu_warp *w, int lane, const ptx_instr *in) {
  race_world *r = w->block->run->world->races;
  uint32_t slot = (uint32_t)(w->block->run->range->first + w->block->slot + w->first + lane);
  thread_clock *t = &r->threads[slot];
  if (t->pending && in->scope >= t->pending_distance) {
    join(&t->seen, t->pending);
    drop(&t->pending);
    t->pending_distance = 0;
  }
  drop(&t->fenced);
  t->fenced = snapshot(r, slot);
  t->fence_scope = in->scope;
  t->epoch++;
}

void race_barrier(gpu_block *b, int mark, int first, int count) {
  race_world *r = b->run->world->races;
  int slot = b->run->range->first + b->slot;
  clock_vector *met = copy_clock(NULL, slot + b->threads);
  const clock_vector *latest = NULL;
  for (int i = first; i < first + count; i++) {
    if (b->barrier[i] != mark)
      continue;
    thread_clock *t = &r->threads[slot + i];
    if (t->seen != latest)
      join(&met, t->seen);
    latest = t->seen;
    if (t->epoch > met->epoch[slot + i])
      met->epoch[slot + i] = t->epoch;
  }
  for (int i = first; i < first + count; i++) {
    thread_clock *t = &r->threads[slot + i];
    if (b->barrier[i] != mark)
      continue;
    drop(&t->seen);
    t->seen = share(met);
    t->epoch++;
  }
  drop(&met);
}

/* ---- results ---- */

uint64_t gpu_world_races(const gpu_world *world) {
  return world->races ? world->races->nraces : 0;
}

const gpu_race *gpu_world_race(const gpu_world *world, int index) {
  return world->races && index >= 0 && index < world->races->nkept ? &world->races->kept[index]
                                                                   : NULL;
}

void gpu_race_text(const gpu_race *race, char *text, size_t bytes) {
  const gpu_place *a = &race->earlier, *b = &race->later;
  snprintf(text, bytes,
           "kernel %s line %d (device %d, block %u, thread %u) %s %#llx, which kernel %s line %d "
           "(device %d, block %u, thread %u) %s before, and nothing orders the two",
           b->kernel, b->line, b->device, b->block, b->thread, b->write ? "writes" : "reads",
           (unsigned long long)race->address, a->kernel, a->line, a->device, a->block, a->thread,
           a->write ? "wrote" : "read");
}
