/* gpu_race.c: finds accesses that nothing orders, with vector clocks.
 *
 * Each thread counts its epochs; its clock says which epochs of other threads come before what it
 * does now. Most threads share a clock with others: after a barrier all threads of a block have the
 * same.
 *
 * Of each byte all accesses are remembered that a later one may race with. One is forgotten when
 * each race with it would be a race with a later access too, or when a race with it was reported
 * (like FastTrack: Flanagan and Freund, 2009). So on each byte the first race of a run is found;
 * later ones may be missed. With another seed other accesses may be ordered. Strong accesses of
 * different sizes count as strong with each other, which PTX does not promise. */
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
  ptx_scope widest;   /* includes all threads */
  access_history history;
  sync_place *syncs;
  size_t nsyncs, syncs_used;
  uint64_t nraces;
  int nkept;
  gpu_race kept[GPU_RACES_KEPT];
};

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
  clock_vector *c = race_must(calloc(1, sizeof *c + (size_t)n * sizeof *c->epoch));
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

/* The synchronization place of an address. */
static sync_place *find_sync(race_world *r, uint64_t key) {
  if (2 * r->syncs_used >= r->nsyncs) {
    size_t n = r->nsyncs, larger = n ? 2 * n : 1 << 8;
    sync_place *old = r->syncs;
    r->syncs = race_must(calloc(larger, sizeof *r->syncs));
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
  access_forget(&r->history);
  free(r->syncs);
  r->ranges = NULL;
  r->threads = NULL;
  r->syncs = NULL;
  r->nranges = r->nthreads = 0;
  r->nsyncs = r->syncs_used = 0;
  r->widest = PTX_SCOPE_NONE;
}

void race_world_free(race_world *r) {
  if (!r)
    return;
  forget(r);
  free(r);
}

/* Slots for the threads of a run: those of a former run of the same kind, or new ones. */
static race_range *take_range(race_world *r, const race_range *like) {
  for (int i = 0; i < r->nranges; i++) {
    race_range *range = r->ranges[i];
    if (!range->used && range->count == like->count && range->threads == like->threads &&
        range->device == like->device && !strcmp(range->kernel, like->kernel))
      return range;
  }
  int count = like->count;
  race_range *range = race_must(calloc(1, sizeof *range));
  *range = *like;
  range->first = r->nthreads;
  r->ranges = race_must(realloc(r->ranges, (size_t)(r->nranges + 1) * sizeof(race_range *)));
  r->ranges[r->nranges++] = range;
  size_t n = (size_t)(r->nthreads + count);
  r->threads = race_must(realloc(r->threads, n * sizeof *r->threads));
  memset(r->threads + r->nthreads, 0, (size_t)count * sizeof *r->threads);
  r->nthreads += count;
  return range;
}

void race_run_start(gpu_run *run) {
  race_world *r = run->world->races;
  const gpu_launch *launch = &run->launch;
  int threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
  race_range like = {
      .count = threads * (int)run->nblocks, .threads = threads, .device = launch->device};
  snprintf(like.kernel, sizeof like.kernel, "%.63s", launch->kernel->name);
  race_range *range = take_range(r, &like);
  range->used = true;
  r->widest = r->widest ? r->widest : PTX_GPU;
  if (r->ranges[0]->device != range->device)
    r->widest = PTX_SYS;
  for (int i = 0; i < range->count; i++) {
    thread_clock *t = &r->threads[range->first + i];
    t->epoch++;
    t->seen = share(r->host);
  }
  run->range = range;
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

/* The slot of a thread of a block. */
static uint32_t slot_of(const gpu_block *b, int thread) {
  const race_range *range = b->run->range;
  return (uint32_t)range->first + b->index * (uint32_t)range->threads + (uint32_t)thread;
}

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

/* What a thread does now. */
typedef struct {
  gpu_warp *w;
  int lane;
  const ptx_instr *in;
  bool write;
  uint64_t address;
  access_record record;
} access;

/* Whether two places are the same line of a kernel. */
static bool same_line(const gpu_place *a, const gpu_place *b) {
  return a->line == b->line && !strcmp(a->kernel, b->kernel);
}

/* Notes a race; of those between the same two lines only the first. */
static void report(race_world *r, const access *now, const access_record *earlier,
                   bool earlier_writes) {
  const race_range *range = range_of(r, earlier->slot);
  int thread = (int)earlier->slot - range->first;
  r->nraces++;
  if (r->nkept == GPU_RACES_KEPT)
    return;
  gpu_race race = {.later = gpu_place_of(now->w, now->lane, now->in, now->write),
                   .address =
                       now->address + (uint64_t)__builtin_ctz(now->record.mask & earlier->mask)};
  race.earlier = (gpu_place){.line = earlier->line,
                             .device = range->device,
                             .block = (uint32_t)(thread / range->threads),
                             .thread = (uint32_t)(thread % range->threads),
                             .write = earlier_writes};
  memcpy(race.earlier.kernel, range->kernel, sizeof range->kernel);
  for (int i = 0; i < r->nkept; i++)
    if (same_line(&r->kept[i].later, &race.later) && same_line(&r->kept[i].earlier, &race.earlier))
      return;
  r->kept[r->nkept++] = race;
}

/* Whether an earlier access comes before what a thread does now. */
static bool before(const race_world *r, const access_record *earlier, uint32_t slot) {
  const clock_vector *c = r->threads[slot].seen;
  return earlier->slot == slot ||
         (c && (int)earlier->slot < c->n && c->epoch[earlier->slot] >= earlier->epoch);
}

/* Whether two accesses are both strong with each other, so that they need no order. */
static bool both_strong(const race_world *r, const access_record *a, const access_record *b) {
  if (!a->scope || !b->scope)
    return false;
  ptx_scope least = distance(r, a->slot, b->slot);
  return a->scope >= least && b->scope >= least;
}

/* Whether each later access that races with `earlier` races with `now` too, which comes after it.
 * Threads of one block are as far as each other from all others. */
static bool stands_for(const race_world *r, const access_record *now,
                       const access_record *earlier) {
  return !now->scope ||
         (earlier->scope >= now->scope && distance(r, earlier->slot, now->slot) == PTX_CTA);
}

/* Compares an access with earlier ones of a kind, and forgets those that it stands for. After a
 * race the later of the two stands for both. */
static void compare(race_world *r, const access *now, access_set *s, bool writes) {
  const access_record *record = &now->record;
  uint32_t n = s->many ? s->many->size : 1, left = 0;
  access_record *earlier = s->many ? s->many->at : &s->one;
  if (s->many && s->many->strength >= r->widest && record->scope >= r->widest)
    return; /* all are strong with each other */
  for (uint32_t i = 0; i < n; i++) {
    access_record *e = &earlier[i];
    if (e->mask & record->mask) {
      bool settled = before(r, e, record->slot);
      if (!settled && (writes || now->write) && !both_strong(r, e, record)) {
        report(r, now, e, writes);
        settled = true;
      }
      if (settled && (now->write || !writes) && stands_for(r, record, e))
        e->mask &= (uint8_t)~record->mask;
    }
    left += e->mask != 0;
  }
  access_shrink(s, left);
}

void race_access(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, unsigned n, bool write) {
  race_world *r = w->block->run->world->races;
  access now = {.w = w, .lane = lane, .in = in, .write = write};
  uint32_t slot = slot_of(w->block, w->first + lane);
  now.record = (access_record){.slot = slot, .epoch = r->threads[slot].epoch, .line = in->line};
  now.record.scope = in->order == PTX_WEAK ? 0 : in->scope;
  now.record.mask = n < 4 ? (uint8_t)(((1u << n) - 1) << (key & 3)) : 15;
  for (now.address = key & ~3ull; now.address < key + n; now.address += 4) {
    access_cell *c = access_find(&r->history, now.address);
    compare(r, &now, &c->writes, true);
    if (write || !c->reads.many)
      compare(r, &now, &c->reads, false);
    access_add(write ? &c->writes : &c->reads, &now.record);
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
  bool acquires = gpu_acquires(in->order);
  join(acquires ? &t->seen : &t->pending, s->released);
  if (!acquires && least > t->pending_distance)
    t->pending_distance = (uint8_t)least;
}

void race_strong(gpu_warp *w, int lane, const ptx_instr *in, uint64_t key, bool reads,
                 bool writes) {
  race_world *r = w->block->run->world->races;
  uint32_t slot = slot_of(w->block, w->first + lane);
  thread_clock *t = &r->threads[slot];
  sync_place *s = find_sync(r, key);
  if (reads)
    take(r, slot, in, s);
  if (!writes)
    return;
  bool releases = gpu_releases(in->order);
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
  uint32_t slot = slot_of(w->block, w->first + lane);
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
  int slot = (int)slot_of(b, 0);
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

int gpu_world_races_told(const gpu_world *world) {
  return world->races ? world->races->nkept : 0;
}

const gpu_race *gpu_world_race(const gpu_world *world, int index) {
  return index >= 0 && index < gpu_world_races_told(world) ? &world->races->kept[index] : NULL;
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
