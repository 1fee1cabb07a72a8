/* gpu_weak.c: memory weaker than that of most devices, and never weaker than PTX allows.
 *
 *   thread's stores -> block's stores -> memory (with a history) -> block's cache -> loads
 *
 * Stores move on in random order; those to the same bytes keep theirs. A load that misses the cache
 * may see memory as it was at any time since the block's last acquire.
 *
 * Not modelled: loads that pass each other; a release that does not carry what other threads of its
 * block have stored, and an acquire that is not one for the whole block. */
#include "gpu_inner.h"

#include <stdlib.h>
#include <string.h>

enum { OWN = 8, OUT = 128, LINES = 64, LINE = 32, HISTORY = 512 };

/* A store that is under way, or one that took effect, with what was there before. */
typedef struct {
  uint8_t *at;
  uint8_t n;
  bool shared;
  uint8_t data[16];
} store;

typedef struct {
  uint64_t tag;   /* address / LINE */
  uint64_t time;  /* when bytes were last set */
  uint32_t valid; /* a bit for each byte */
  uint8_t data[LINE];
} line;

struct weak_world {
  uint64_t time; /* number of stores that took effect */
  store history[HISTORY];
};

struct weak_block {
  uint64_t acquired; /* loads see nothing older */
  int nout;
  store out[OUT];
  line lines[LINES];
  uint8_t *nown;
  store own[]; /* OWN for each thread */
};

weak_world *weak_world_create(void) {
  return calloc(1, sizeof(weak_world));
}

weak_block *weak_block_create(gpu_block *block) {
  size_t threads = (size_t)block->threads;
  weak_block *wb = calloc(1, sizeof *wb + threads * OWN * sizeof *wb->own + threads);
  if (!wb)
    return NULL;
  wb->nown = (uint8_t *)(wb->own + threads * OWN);
  wb->acquired = block->run->world->weak->time;
  return wb;
}

void weak_block_free(weak_block *weak) {
  free(weak);
}

/* Whether two ranges of bytes have some in common. */
static bool overlap(const uint8_t *a, unsigned n, const uint8_t *b, unsigned m) {
  return a < b + m && b < a + n;
}

/* The earliest store that must go before or with store `i`. */
static int earliest(const store *s, int i) {
  for (int j = 0; j < i; j++) {
    if (overlap(s[j].at, s[j].n, s[i].at, s[i].n)) {
      i = j;
      j = -1;
    }
  }
  return i;
}

/* The cache line of an address, emptied if it held another. */
static line *find_line(weak_block *wb, const uint8_t *at) {
  uint64_t tag = (uint64_t)(uintptr_t)at / LINE;
  line *l = &wb->lines[tag % LINES];
  if (l->tag != tag) {
    if (l->valid && l->time > wb->acquired)
      wb->acquired = l->time; /* what was read is not read in an older state */
    *l = (line){.tag = tag};
  }
  return l;
}

/* Sets bytes of the cache. */
static void set_line(gpu_block *b, const uint8_t *at, const uint8_t *data, unsigned n) {
  line *l = find_line(b->weak, at);
  unsigned offset = (unsigned)((uintptr_t)at % LINE);
  memcpy(l->data + offset, data, n);
  l->valid |= (uint32_t)(((1ull << n) - 1) << offset);
  l->time = b->run->world->weak->time;
}

void weak_accessed(gpu_block *b, uint8_t *at, const uint8_t *before, unsigned n) {
  weak_world *ww = b->run->world->weak;
  if (memcmp(at, before, n)) {
    store *h = &ww->history[++ww->time % HISTORY];
    *h = (store){.at = at, .n = (uint8_t)n};
    memcpy(h->data, before, n);
  }
  set_line(b, at, at, n);
}

/* One of the block's stores reaches memory. */
static void send_out(gpu_block *b, int i) {
  weak_block *wb = b->weak;
  i = earliest(wb->out, i);
  store s = wb->out[i];
  memmove(wb->out + i, wb->out + i + 1, (size_t)(--wb->nout - i) * sizeof s);
  uint8_t before[16];
  memcpy(before, s.at, s.n);
  memcpy(s.at, s.data, s.n);
  weak_accessed(b, s.at, before, s.n);
}

/* Adds to the block's stores. One of them moves on if there is no room. */
static void add_out(gpu_block *b, const store *s) {
  if (b->weak->nout == OUT)
    send_out(b, (int)(colli_prng_next(&b->run->random) % OUT));
  b->weak->out[b->weak->nout++] = *s;
}

/* One of a thread's stores becomes visible to the block. */
static void send_own(gpu_block *b, int thread, int i) {
  weak_block *wb = b->weak;
  store *own = wb->own + thread * OWN;
  i = earliest(own, i);
  store s = own[i];
  memmove(own + i, own + i + 1, (size_t)(--wb->nown[thread] - i) * sizeof s);
  if (s.shared) {
    memcpy(s.at, s.data, s.n);
    return;
  }
  add_out(b, &s);
}

void weak_store(gpu_block *b, int thread, uint8_t *at, const uint8_t *data, unsigned n,
                bool shared) {
  weak_block *wb = b->weak;
  if (wb->nown[thread] == OWN)
    send_own(b, thread, (int)(colli_prng_next(&b->run->random) % OWN));
  store *s = &wb->own[thread * OWN + wb->nown[thread]++];
  *s = (store){.at = at, .n = (uint8_t)n, .shared = shared};
  memcpy(s->data, data, n);
}

/* Puts the bytes of a store over those of a load. */
static void overlay(const store *s, const uint8_t *at, uint8_t *data, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    if (at + i >= s->at && at + i < s->at + s->n)
      data[i] = s->data[at + i - s->at];
}

/* Reads memory as it was at some time since the last acquire. */
static void read_past(gpu_block *b, const uint8_t *at, uint8_t *data, unsigned n) {
  weak_world *ww = b->run->world->weak;
  memcpy(data, at, n);
  uint64_t oldest = ww->time > HISTORY ? ww->time - HISTORY : 0;
  oldest = b->weak->acquired > oldest ? b->weak->acquired : oldest;
  if (oldest >= ww->time || colli_prng_next(&b->run->random) % 2)
    return;
  uint64_t when = oldest + colli_prng_next(&b->run->random) % (ww->time - oldest);
  for (uint64_t t = ww->time; t > when; t--)
    overlay(&ww->history[t % HISTORY], at, data, n);
}

void weak_load(gpu_block *b, int thread, uint8_t *at, uint8_t *data, unsigned n, bool shared) {
  weak_block *wb = b->weak;
  if (shared) {
    memcpy(data, at, n);
  } else {
    line *l = find_line(wb, at);
    unsigned offset = (unsigned)((uintptr_t)at % LINE);
    uint32_t wanted = (uint32_t)(((1ull << n) - 1) << offset);
    if ((l->valid & wanted) != wanted) {
      uint8_t fetched[16];
      read_past(b, at, fetched, n);
      for (unsigned i = 0; i < n; i++)
        if (!(l->valid >> (offset + i) & 1))
          l->data[offset + i] = fetched[i];
      l->valid |= wanted;
      l->time = b->run->world->weak->time;
    }
    memcpy(data, l->data + offset, n);
    for (int i = 0; i < wb->nout; i++)
      overlay(&wb->out[i], at, data, n);
  }
  for (int i = 0; i < wb->nown[thread]; i++)
    overlay(&wb->own[thread * OWN + i], at, data, n);
}

void weak_settle(gpu_block *b, int thread, uint8_t *at, unsigned n) {
  weak_block *wb = b->weak;
  store *own = wb->own + thread * OWN;
  for (int i = 0; i < wb->nown[thread]; i++) {
    if (overlap(own[i].at, own[i].n, at, n)) {
      send_own(b, thread, i);
      i = -1;
    }
  }
  for (int i = 0; i < wb->nout; i++) {
    if (overlap(wb->out[i].at, wb->out[i].n, at, n)) {
      send_out(b, i);
      i = -1;
    }
  }
}

void weak_store_cta(gpu_block *b, uint8_t *at, const uint8_t *data, unsigned n) {
  store s = {.at = at, .n = (uint8_t)n};
  memcpy(s.data, data, n);
  add_out(b, &s);
}

void weak_load_cta(gpu_block *b, uint8_t *at, uint8_t *data, unsigned n) {
  memcpy(data, at, n);
  for (int i = 0; i < b->weak->nout; i++)
    overlay(&b->weak->out[i], at, data, n);
}

void weak_release(gpu_block *b, int thread, ptx_scope scope) {
  weak_block *wb = b->weak;
  while (wb->nown[thread])
    send_own(b, thread, (int)(colli_prng_next(&b->run->random) % wb->nown[thread]));
  while (scope > PTX_CTA && wb->nout)
    send_out(b, (int)(colli_prng_next(&b->run->random) % (uint64_t)wb->nout));
}

void weak_acquire(gpu_block *b, ptx_scope scope) {
  if (scope <= PTX_CTA)
    return;
  memset(b->weak->lines, 0, sizeof b->weak->lines);
  b->weak->acquired = b->run->world->weak->time;
}

void weak_tick(gpu_block *b) {
  weak_block *wb = b->weak;
  colli_prng *random = &b->run->random;
  for (uint64_t i = colli_prng_next(random) % 8; i; i--) {
    int thread = (int)(colli_prng_next(random) % (uint64_t)b->threads);
    if (wb->nown[thread])
      send_own(b, thread, (int)(colli_prng_next(random) % wb->nown[thread]));
  }
  if (wb->nout && colli_prng_next(random) % 4 == 0)
    send_out(b, (int)(colli_prng_next(random) % (uint64_t)wb->nout));
  if (colli_prng_next(random) % 64 == 0) /* a line is replaced */
    find_line(wb, (uint8_t *)(uintptr_t)((wb->lines[colli_prng_next(random) % LINES].tag + LINES) *
                                         LINE));
}

bool weak_idle(const gpu_block *b) {
  return !b->weak->nout; /* threads that end hand over their own */
}
