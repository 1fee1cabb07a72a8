/* gpu_history.c: what the race detector remembers of memory.
 *
 * Each four bytes have a cell with two sets of accesses, the writes and the reads. A set of one
 * access needs no memory of its own. Accesses of several threads that no later one stands for are
 * in a table, in which a thread finds its own. So the memory needed is at most in proportion to
 * the threads that used the four bytes since a write that comes after all of them. */
#include "gpu_inner.h"

#include <stdio.h>
#include <stdlib.h>

void *race_must(void *memory) {
  if (!memory) {
    fprintf(stderr, "the race detector is out of memory\n");
    abort();
  }
  return memory;
}

/* Where a table of accesses is searched first. Those of a thread follow each other. */
static uint32_t place_of(uint32_t slot, uint32_t size) {
  return (uint32_t)(slot * 0x9e3779b97f4a7c15ull >> 40) & (size - 1);
}

/* A table with room for more accesses than `count`. */
static access_table *create_table(uint32_t count) {
  uint32_t size = 4;
  while (size / 2 < count)
    size *= 2;
  access_table *t = race_must(calloc(1, sizeof *t + size * sizeof *t->at));
  t->size = size;
  t->strength = UINT8_MAX;
  return t;
}

/* Whether a thread does the same again, perhaps with other bytes. */
static bool repeats(const access_record *now, const access_record *earlier) {
  return earlier->slot == now->slot && earlier->epoch == now->epoch &&
         earlier->scope == now->scope && earlier->line == now->line;
}

/* Drops what a thread did before, as far as a new access stands for it. */
static void replace_own(access_table *t, access_record *now) {
  for (uint32_t i = place_of(now->slot, t->size); t->at[i].epoch; i = (i + 1) & (t->size - 1)) {
    access_record *e = &t->at[i];
    if (e->slot == now->slot && e->scope >= now->scope)
      e->mask &= (uint8_t)~now->mask;
    if (e->mask && repeats(now, e)) {
      now->mask |= e->mask;
      e->mask = 0;
    }
  }
}

/* Adds an access to a table that has room. */
static void insert(access_table *t, const access_record *now) {
  uint32_t i = place_of(now->slot, t->size);
  while (t->at[i].mask)
    i = (i + 1) & (t->size - 1);
  t->used += !t->at[i].epoch;
  t->at[i] = *now;
  if (now->scope < t->strength)
    t->strength = now->scope;
}

/* A table that has room for one more access, without those that went. */
static access_table *make_room(access_table *old) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < old->size; i++)
    count += old->at[i].mask != 0;
  access_table *t = create_table(count + 1);
  for (uint32_t i = 0; i < old->size; i++)
    if (old->at[i].mask)
      insert(t, &old->at[i]);
  free(old);
  return t;
}

void access_add(access_set *s, const access_record *access) {
  access_record now = *access;
  if (!s->many && s->one.mask && repeats(&now, &s->one)) {
    s->one.mask |= now.mask;
    return;
  }
  if (!s->many && !s->one.mask) {
    s->one = now;
    return;
  }
  if (!s->many) {
    s->many = create_table(2);
    insert(s->many, &s->one);
    s->one = (access_record){0};
  } else {
    replace_own(s->many, &now);
    if (4 * (s->many->used + 1) > 3 * s->many->size)
      s->many = make_room(s->many);
  }
  insert(s->many, &now);
}

void access_shrink(access_set *s, uint32_t left) {
  if (!s->many || left > 1)
    return;
  for (uint32_t i = 0; left && i < s->many->size; i++)
    if (s->many->at[i].mask)
      s->one = s->many->at[i];
  free(s->many);
  s->many = NULL;
}

/* Where the cell of four bytes is searched first. Neighbours are close to each other. */
static size_t home_of(uint64_t key, size_t size) {
  return ((key >> 6) * 0x9e3779b97f4a7c15ull >> 20 << 4 | (key >> 2 & 15)) & (size - 1);
}

/* Makes more room for cells. Large steps at first: most of the cost is in fresh pages. */
static void grow(access_history *h) {
  size_t n = h->size;
  access_cell *old = h->cells;
  h->size = !n ? 1 << 10 : n < 1 << 16 ? 4 * n : 2 * n;
  h->cells = race_must(calloc(h->size, sizeof *h->cells));
  h->used = 0;
  for (size_t i = 0; i < n; i++)
    if (old[i].key)
      *access_find(h, old[i].key - 1) = old[i];
  free(old);
}

access_cell *access_find(access_history *h, uint64_t key) {
  if (2 * h->used >= h->size)
    grow(h);
  size_t i = home_of(key, h->size);
  while (h->cells[i].key && h->cells[i].key != key + 1)
    i = (i + 1) & (h->size - 1);
  h->used += !h->cells[i].key;
  h->cells[i].key = key + 1;
  return &h->cells[i];
}

void access_forget(access_history *h) {
  for (size_t i = 0; i < h->size; i++) {
    free(h->cells[i].writes.many);
    free(h->cells[i].reads.many);
  }
  free(h->cells);
  *h = (access_history){0};
}
