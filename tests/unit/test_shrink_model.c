/*
 * test_shrink_model.c: searches the orders of events of a shrink for one from which two
 * communicators come at once.
 *
 *   3 ranks     every order of events, up to a number of lists, of deaths, of ranks given up, and
 *               of ranks that leave because of an abort
 *   4, 5 ranks  random ones
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "support_shrink_model.h"

/* States that were seen, by their hashes. */
typedef struct seen {
  uint64_t *at;
  size_t mask, count;
} seen;

static uint64_t hash_of(const world *w) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < sizeof(*w); i++)
    hash = (hash ^ ((const uint8_t *)w)[i]) * 0x100000001b3ull;
  return (hash ^ hash >> 29) | 1;
}

/* Adds a state; false if it is there. */
static bool add_state(seen *s, uint64_t hash) {
  if (2 * s->count >= s->mask) {
    seen old = *s;
    s->mask = old.mask ? 2 * old.mask + 1 : (1u << 16) - 1;
    s->count = 0;
    s->at = calloc(s->mask + 1, sizeof(*s->at));
    cr_assert_not_null(s->at);
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

/* Searches every order of events; whether there is one with two communicators. */
static bool search_all(const bounds *b, size_t *states) {
  size_t depth = 0, room = 1u << 16;
  world *stack = malloc(room * sizeof(*stack));
  seen s = {0};
  bool split = false;
  cr_assert_not_null(stack);
  stack[depth++] = begin_world(b);
  while (depth > 0 && !split) {
    const world w = stack[--depth];
    split = is_split(&w, b);
    for (int i = 0; i < EVENTS * b->nranks * b->nranks && !split; i++) {
      world next = w;
      event kind = (event)(i % EVENTS);
      int r = i / EVENTS % b->nranks, x = i / EVENTS / b->nranks;
      if (!happen(&next, b, kind, r, x) || !add_state(&s, hash_of(&next)))
        continue;
      if (depth == room)
        stack = realloc(stack, (room *= 2) * sizeof(*stack));
      cr_assert_not_null(stack);
      stack[depth++] = next;
    }
  }
  *states = s.count;
  free(s.at);
  free(stack);
  return split;
}

/* One random order of events; whether two communicators come of it. */
static bool walk(const bounds *most, uint64_t seed, int *returned) {
  colli_prng prng = {seed};
  bounds drawn = *most, *b = &drawn;
  drawn.deaths = (int)colli_prng_below(&prng, (uint64_t)most->deaths + 1);
  drawn.give_ups = (int)colli_prng_below(&prng, (uint64_t)most->give_ups + 1);
  drawn.leaves = (int)colli_prng_below(&prng, (uint64_t)most->leaves + 1);
  world w = begin_world(b);
  for (int vain = 0; vain < 400; vain++) {
    event kind = (event)colli_prng_below(&prng, EVENTS);
    int r = (int)colli_prng_below(&prng, (uint64_t)b->nranks);
    bool pair = kind == LEARNS_OF_DEATH || kind == HEARS_WORD || kind == NOTICES_END;
    int x = pair ? (int)colli_prng_below(&prng, (uint64_t)b->nranks) : 0;
    bool ends = kind == DIES || kind == GIVES_UP || kind == BEGINS_ROUND ||
                kind == ENDS_ROUND_EARLY || kind == LEAVES;
    if (ends && vain < 200 && colli_prng_below(&prng, 64))
      continue; /* or nobody would ever return */
    if (!happen(&w, b, kind, r, x))
      continue;
    vain = 0;
    if (is_split(&w, b))
      return true;
  }
  for (int r = 0; r < b->nranks; r++)
    *returned += w.rank[r].alive && w.rank[r].outcome && w.rank[r].outcome != FAILED;
  return false;
}

/* Three ranks, exhaustively. */
static void search_three(int lists, int deaths, int give_ups, int leaves, bool uniform) {
  bounds b = {3, lists, deaths, give_ups, leaves, COLL_SHRINK_QUORUM_MAJORITY, uniform};
  size_t states;
  cr_assert(!search_all(&b, &states), "%d lists, %d deaths, %d given up, %d left", lists, deaths,
            give_ups, leaves);
  printf("%zu states\n", states);
}

/* Three ranks with three lists of the living: too many states for a sanitizer, which finds nothing
 * in them that it does not find in fewer. */
static void search_largest(bool uniform) {
  if (!SANITIZED)
    search_three(3, 1, extent(1, 2, 0), 0, uniform);
}

Test(shrink_model, three_ranks) {
  search_three(2, 2, 2, 0, false);
  search_three(2, 1, 1, 2, false);
  search_largest(false);
}

Test(shrink_model, three_ranks_agree) {
  search_three(2, 2, 2, 0, true);
  search_three(2, 1, 1, 2, true);
  search_largest(true);
}

/* Both sides of a cut go on if that is wanted: the search would see it. */
Test(shrink_model, reachable_ranks_split) {
  bounds b = {3, 2, 0, 2, 0, COLL_SHRINK_QUORUM_REACHABLE, false};
  size_t states;
  cr_assert(search_all(&b, &states));
}

Test(shrink_model, random_orders) {
  int returned = 0;
  for (int nranks = 4; nranks <= MOST; nranks++) {
    for (int i = 0; i < extent(40000, 80000, 20000); i++) {
      bounds b = {nranks, LISTS, 3, 6, i % 3, COLL_SHRINK_QUORUM_MAJORITY, i % 2};
      cr_assert(!walk(&b, (uint64_t)(nranks * 100000000 + i), &returned), "%d ranks, order %d",
                nranks, i);
    }
  }
  printf("%d ranks returned with a communicator\n", returned);
  cr_assert_gt(returned, 10000);
  for (int nranks = 4; nranks <= MOST; nranks++) {
    bounds b = {nranks, LISTS, 3, 6, 0, COLL_SHRINK_QUORUM_REACHABLE, false};
    int split = 0;
    for (int i = 0; i < 1000; i++)
      split += walk(&b, (uint64_t)i, &returned);
    printf("%d of 1000 split\n", split);
    cr_assert_gt(split, 0);
  }
}

/* Lets these events happen, each of which can: kind, rank, other rank. */
static void let_happen(world *w, const bounds *b, const int (*events)[3], size_t count) {
  for (size_t i = 0; i < count; i++)
    cr_assert(happen(w, b, (event)events[i][0], events[i][1], events[i][2]), "event %zu", i);
}

/* Rank 0 chooses two lists with ranks that are leaving it, who then take one of rank 1, with a
 * lower ballot. One of them does not learn that it was committed, and comes back to rank 0, through
 * rank 2. */
Test(shrink_model, list_behind_the_back) {
  const bounds b = {5, LISTS, 0, 4, 0, COLL_SHRINK_QUORUM_MAJORITY, false};
  static const int events[][3] = {
      {CHOOSES_LEADER, 0, 0}, {CHOOSES_LEADER, 1, 0}, {CHOOSES_LEADER, 2, 0},
      {CHOOSES_LEADER, 3, 0}, {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 2, 0},
      {CHECKS_IN, 3, 0},      {BEGINS_ROUND, 0, 0},   {GIVES_UP, 3, 0},
      {NOTICES_END, 0, 3},    {OBEYS, 2, 0},          {HEARS_WORD, 0, 2},
      {ENDS_ROUND, 0, 0},     {CHECKS_IN, 4, 0},      {BEGINS_ROUND, 0, 0},
      {GIVES_UP, 4, 0},       {NOTICES_END, 0, 4},    {OBEYS, 2, 0},
      {HEARS_WORD, 0, 2},     {ENDS_ROUND, 0, 0},     {GIVES_UP, 1, 0},
      {CHOOSES_LEADER, 1, 0}, {CHOOSES_LEADER, 3, 0}, {CHOOSES_LEADER, 4, 0},
      {CHECKS_IN, 3, 0},      {CHECKS_IN, 4, 0},      {BEGINS_ROUND, 1, 0},
      {OBEYS, 3, 0},          {OBEYS, 4, 0},          {HEARS_WORD, 1, 3},
      {HEARS_WORD, 1, 4},     {ENDS_ROUND, 1, 0},     {OBEYS, 4, 0},
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0},
      {BEGINS_ROUND, 0, 0}};
  world w = begin_world(&b);
  let_happen(&w, &b, events, sizeof(events) / sizeof(*events));
  for (int i = 0; i < 2; i++)
    for (int r = 2; r < 4; r++) { /* if a round has begun, it succeeds */
      happen(&w, &b, OBEYS, r, 0);
      happen(&w, &b, HEARS_WORD, 0, r);
      happen(&w, &b, ENDS_ROUND, 0, 0);
    }
  cr_assert_neq(w.rank[1].outcome, FAILED);
  cr_assert_not(is_split(&w, &b));
}

/* A ballot from another rank leaves room for the next one, or it is refused. */
Test(shrink_model, ballots) {
  const uint64_t first = shrink_next_ballot(0, 2);
  cr_assert(shrink_is_ballot(0, 3)); /* none */
  cr_assert(shrink_is_ballot(first, 3));
  cr_assert_not(shrink_is_ballot(first, 2));
  for (int shift = 0; shift < 64; shift++) {
    uint64_t known = UINT64_MAX >> shift & ~(uint64_t)0xfffff;
    for (int round = 0; shrink_is_ballot(known, 1) && round < 3; round++) {
      cr_assert_gt(shrink_next_ballot(known, 0), known, "shift %d", shift);
      known = shrink_next_ballot(known, 0);
    }
  }
  cr_assert_not(shrink_is_ballot(UINT64_MAX & ~(uint64_t)0xfffff, 1));
  cr_assert(shrink_is_ballot(UINT64_MAX >> 1 & ~(uint64_t)0xfffff, 1));
}

/* A list has a number, or a rank would return with the communicator of none. */
Test(shrink_model, lists_have_numbers) {
  const uint64_t ballot = shrink_next_ballot(0, 2);
  cr_assert(shrink_is_list(0, 0, 3));
  cr_assert(shrink_is_list(ballot, 7, 3));
  cr_assert_not(shrink_is_list(ballot, 0, 3));
  cr_assert_not(shrink_is_list(ballot, 7, 2));
}
