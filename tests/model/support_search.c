/* support_search.c: searches orders of events depth first. */
#include "support_search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* States that were seen, by their hashes. */
typedef struct seen {
  uint64_t *at;
  size_t mask, count;
} seen;

/* The state of a search. */
typedef struct state {
  const bounds *b;
  bool plainly;
  seen seen;
  world *stack;
  size_t depth, room, most;
  found *result;
} state;

/* Mixes bits so that each one of the result depends on each one of these. */
static uint64_t mix(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

static uint64_t hash_of(const world *w) {
  uint64_t hash = 0x9e3779b97f4a7c15u, word;
  uint8_t bytes[(sizeof(*w) + sizeof(word) - 1) / sizeof(word) * sizeof(word)] = {0};
  memcpy(bytes, w, sizeof(*w));
  for (size_t i = 0; i < sizeof(bytes); i += sizeof(word)) {
    memcpy(&word, bytes + i, sizeof(word));
    hash = mix(hash + i) ^ word * 0xd6e8feb86659fd93u;
  }
  return mix(hash) | 1;
}

static void *or_abort(void *memory) {
  if (!memory)
    abort();
  return memory;
}

/* Adds a state; false if it is there. */
static bool add_state(seen *s, uint64_t hash) {
  if (4 * s->count >= 3 * s->mask) {
    seen old = *s;
    s->mask = old.mask ? 2 * old.mask + 1 : (1u << 16) - 1;
    s->count = 0;
    s->at = or_abort(calloc(s->mask + 1, sizeof(*s->at)));
    for (size_t i = 0; old.at && i <= old.mask; i++)
      if (old.at[i])
        add_state(s, old.at[i]);
    free(old.at);
  }
  size_t i = hash >> 20 & s->mask;
  for (; s->at[i]; i = (i + 1) & s->mask)
    if (s->at[i] == hash)
      return false;
  s->at[i] = hash;
  s->count++;
  return true;
}

/* Takes a state that came next. */
static void take(void *ctx, const world *w) {
  state *s = ctx;
  world next = *w;
  found *result = s->result;
  if (result->split || result->apart)
    return;
  result->split = is_split(w, s->b);
  result->at = *w;
  if (!s->plainly)
    make_canonical(&next, s->b);
  if (!add_state(&s->seen, hash_of(&next)))
    return;
  result->apart = s->b->patient && !end_together(w, s->b);
  if (!s->plainly && !s->b->patient && is_settled(&next, s->b))
    return;
  if (s->depth == s->room)
    s->stack = or_abort(realloc(s->stack, (s->room *= 2) * sizeof(*s->stack)));
  s->stack[s->depth++] = next;
}

/* Lets each event happen. */
static void for_each_event(const world *w, const bounds *b, visitor *visit, void *ctx) {
  const int others = b->nranks + b->guests;
  world next = *w;
  for (int i = 0; i < EVENTS * others * b->nranks; i++) {
    if (!happen(&next, b, (event)(i % EVENTS), i / EVENTS % b->nranks, i / EVENTS / b->nranks))
      continue;
    visit(ctx, &next);
    next = *w;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static found run(const bounds *b, bool plainly, size_t most) {
  found result = {.seconds = now()};
  state s = {.b = b, .plainly = plainly, .room = 1u << 12, .most = most, .result = &result};
  s.stack = or_abort(malloc(s.room * sizeof(*s.stack)));
  world first = begin_world(b);
  for (int r = 0; !plainly && r < b->nranks; r++)
    happen(&first, b, CHOOSES_LEADER, r, 0);
  take(&s, &first);
  while (s.depth > 0 && !result.split && !result.apart && !result.full) {
    const world w = s.stack[--s.depth];
    (plainly ? for_each_event : for_each_step)(&w, b, take, &s);
    result.full = s.seen.count > most;
  }
  result.states = s.seen.count;
  result.seconds = now() - result.seconds;
  free(s.seen.at);
  free(s.stack);
  return result;
}

found search(const bounds *b, size_t most) {
  return run(b, false, most);
}

found search_plainly(const bounds *b, size_t most) {
  return run(b, true, most);
}
