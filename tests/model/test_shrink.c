/*
 * test_shrink.c: searches the orders of events of a shrink, an agreement or a growth for one from
 * which two communicators come at once, or survivors do not end together.
 *
 *   3 to 5 ranks  every order of events, up to a number of lists, of deaths, of ranks given up and
 *                 connections that break, of ranks that cannot build, and of ranks that leave
 *                 because of an abort
 *   4, 5 ranks    random ones, with more of all
 *
 * TEST_SEARCH=all adds the longest searches, which take minutes: run them after a change of the
 * rules (libcoll/recovery) or of the model.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "support_search.h"

static const size_t most_states = 100000000;

/* Searches every order of events; nothing may be found. */
static void search_clean(bounds b) {
  const found f = search(&b, most_states);
  printf("%d ranks, %d lists, %d deaths, %d given up, %d failures, %d leave, %d newcomers%s%s: "
         "%zu states in %.1f s\n",
         b.nranks, b.lists, b.deaths, b.give_ups, b.failures, b.leaves, b.guests,
         b.uniform ? ", agree" : "", b.patient ? ", patient" : "", f.states, f.seconds);
  cr_expect(!f.split && !f.apart && !f.full, "%s",
            f.split   ? "two communicators"
            : f.apart ? "survivors are not together"
                      : "too many states");
}

/* A shrink and an agreement. */
static void search_both(int nranks, int lists, int deaths, int give_ups, int failures, int leaves) {
  search_clean((bounds){nranks, lists, deaths, give_ups, failures, leaves,
                        .quorum = COLL_SHRINK_QUORUM_MAJORITY});
  search_clean((bounds){nranks, lists, deaths, give_ups, failures, leaves,
                        .quorum = COLL_SHRINK_QUORUM_MAJORITY, .uniform = true});
}

static void search_growth(int nranks, int lists, int deaths, int give_ups, int failures,
                          int guests) {
  search_clean((bounds){nranks, lists, deaths, give_ups, failures,
                        .quorum = COLL_SHRINK_QUORUM_MAJORITY, .guests = guests});
}

/* Whether all cases are wanted, for which there is time without a sanitizer. */
static bool wants_all(void) {
  return extent(0, 1, 0);
}

Test(shrink, three_ranks) {
  search_both(3, 2, 2, 2, 1, 0);
  search_both(3, 2, 1, 1, 0, 2);
  if (!SANITIZED)
    search_both(3, 3, 2, 2, 1, 1);
  if (wants_all())
    search_both(3, 4, 2, 4, 1, 0);
}

Test(shrink, four_ranks) {
  search_both(4, 2, 1, 1, 0, 0);
  if (!SANITIZED)
    search_both(4, 2, 2, 2, 0, 0);
  if (wants_all()) {
    search_both(4, 3, 2, 2, 0, 0);
    search_both(4, 3, 1, 2, 1, 0);
  }
  if (wants_longest())
    search_clean((bounds){4, 4, 2, 3, .quorum = COLL_SHRINK_QUORUM_MAJORITY, .uniform = true});
}

Test(shrink, five_ranks) {
  search_both(5, 2, 1, 1, 0, 0);
  if (!SANITIZED)
    search_both(5, 2, 0, 3, 0, 0);
  if (wants_all()) {
    search_both(5, 2, 1, 2, 0, 0);
    search_both(5, 2, 2, 1, 0, 0);
  }
  if (wants_longest()) {
    search_both(5, 3, 0, 4, 0, 0);
    search_clean((bounds){5, 2, 2, 2, .quorum = COLL_SHRINK_QUORUM_MAJORITY});
  }
}

Test(shrink, growths) {
  search_growth(3, 2, 2, 1, 1, 2);
  search_growth(4, 2, 1, 1, 0, 1);
  if (!SANITIZED)
    search_growth(5, 2, 1, 1, 0, 1);
  if (wants_all()) {
    search_growth(3, 3, 2, 2, 1, 2);
    search_growth(4, 2, 2, 1, 1, 2);
    search_growth(4, 2, 1, 2, 0, 1);
  }
  if (wants_longest())
    search_growth(5, 2, 2, 1, 0, 1);
}

/* If ranks die, and nothing else happens, the others end up together. */
Test(shrink, survivors_of_deaths_are_together) {
  for (int nranks = 3; nranks <= MOST; nranks++)
    for (int guests = 0; guests <= GUESTS; guests++) {
      bounds b = {nranks,
                  3,
                  2,
                  .failures = 1,
                  .quorum = COLL_SHRINK_QUORUM_MAJORITY,
                  .guests = guests,
                  .patient = true};
      if (SANITIZED && nranks + guests > 5)
        continue;
      search_clean(b);
      b.uniform = guests == 0;
      if (b.uniform)
        search_clean(b);
    }
}

/* Both sides of a cut go on if that is wanted: the search sees it. */
Test(shrink, reachable_ranks_split) {
  for (int nranks = 3; nranks <= MOST; nranks++) {
    bounds b = {nranks, 2, .give_ups = 2, .quorum = COLL_SHRINK_QUORUM_REACHABLE};
    cr_expect(search(&b, most_states).split, "%d ranks", nranks);
  }
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
    bool pair = kind == LEARNS_OF_DEATH || kind == HEARS_WORD || kind == NOTICES_END ||
                kind == BREAKS || kind == HEARS_OUTCOME;
    int among = pair ? b->nranks : kind == BEGINS_ROUND ? b->guests + 1 : 1;
    int x = (int)colli_prng_below(&prng, (uint64_t)among);
    bool ends = kind == DIES || kind == GIVES_UP || kind == BREAKS || kind == BEGINS_ROUND ||
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

Test(shrink, random_orders) {
  int returned = 0;
  for (int nranks = 4; nranks <= MOST; nranks++) {
    for (int i = 0; i < extent_seeds(8000, 20000, 4000, 40000); i++) {
      bounds b = {nranks,
                  LISTS,
                  3,
                  6,
                  2,
                  i % 3,
                  .quorum = COLL_SHRINK_QUORUM_MAJORITY,
                  .uniform = i % 2,
                  .guests = i % 2 ? 0 : i / 2 % 3};
      cr_assert(!walk(&b, (uint64_t)(nranks * 100000000 + i), &returned), "%d ranks, order %d",
                nranks, i);
    }
  }
  printf("%d ranks returned with a communicator\n", returned);
  cr_assert_gt(returned, 1000);
  for (int nranks = 4; nranks <= MOST; nranks++) {
    bounds b = {nranks, LISTS, 3, 6, .quorum = COLL_SHRINK_QUORUM_REACHABLE};
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

/* A leader asks, all answer, and if a round begins, it succeeds. */
static void let_lead(world *w, const bounds *b, int c) {
  for (bool moved = true; moved;) {
    moved = happen(w, b, ASKS, c, 0) || happen(w, b, BEGINS_ROUND, c, 0);
    for (int r = c + 1; r < b->nranks; r++) {
      moved = happen(w, b, ANSWERS, r, 0) || moved;
      if (w->rank[r].leader == c)
        happen(w, b, OBEYS, r, 0);
      happen(w, b, HEARS_WORD, c, r);
    }
    moved = happen(w, b, ENDS_ROUND, c, 0) || moved;
  }
}

/* Rank 0 chooses two lists with ranks that are leaving it, who then take one of rank 1, with a
 * lower ballot. One of them does not learn that it was committed, and comes back to rank 0, through
 * rank 2. */
Test(shrink, list_behind_the_back) {
  const bounds b = {5, LISTS, 0, 4, .quorum = COLL_SHRINK_QUORUM_MAJORITY};
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
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0}};
  world w = begin_world(&b);
  let_happen(&w, &b, events, sizeof(events) / sizeof(*events));
  let_lead(&w, &b, 0);
  cr_assert_neq(w.rank[1].outcome, FAILED);
  cr_assert_not(is_split(&w, &b));
}

/* Rank 3 checks in with rank 1, leaves it and comes back to rank 0, through rank 2. Then rank 1
 * chooses a list, which only rank 2 adopts, and rank 0 one with a lower ballot. */
static void let_two_choose(world *w, const bounds *b) {
  static const int events[][3] = {
      {CHOOSES_LEADER, 1, 0}, {CHOOSES_LEADER, 2, 0}, {CHOOSES_LEADER, 3, 0}, {GIVES_UP, 1, 0},
      {CHOOSES_LEADER, 1, 0}, {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0},
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 2, 0},      {CHECKS_IN, 3, 0},
      {GIVES_UP, 2, 0},       {CHOOSES_LEADER, 2, 0}, {NOTICES_END, 0, 2},    {CHECKS_IN, 2, 0},
      {BEGINS_ROUND, 1, 0},   {OBEYS, 2, 0},          {BEGINS_ROUND, 0, 0},   {OBEYS, 3, 0},
      {HEARS_WORD, 0, 3}};
  let_happen(w, b, events, sizeof(events) / sizeof(*events));
}

/* Rank 0 returns and dies, as does rank 1. Rank 2 knows the higher ballot, and rank 3 the word with
 * which rank 0 returned. */
Test(shrink, word_with_a_lower_ballot) {
  const bounds b = {4, LISTS, 2, 4, .quorum = COLL_SHRINK_QUORUM_MAJORITY, .uniform = true};
  static const int events[][3] = {{DIES, 1, 0},
                                  {ENDS_ROUND, 0, 0},
                                  {DIES, 0, 0},
                                  {LEARNS_OF_DEATH, 2, 0},
                                  {LEARNS_OF_DEATH, 2, 1},
                                  {CHOOSES_LEADER, 2, 0},
                                  {LEARNS_OF_DEATH, 3, 0},
                                  {CHOOSES_LEADER, 3, 0},
                                  {CHECKS_IN, 3, 0}};
  world w = begin_world(&b);
  let_happen(&w, &b, (const int[][3]){{CHOOSES_LEADER, 0, 0}}, 1);
  let_two_choose(&w, &b);
  let_happen(&w, &b, events, sizeof(events) / sizeof(*events));
  let_lead(&w, &b, 2);
  cr_assert_neq(w.rank[0].outcome, FAILED);
  cr_assert_not(is_split(&w, &b));
}

/* Rank 0 returns and lives. Ranks 3 and 4, who have adopted its list, come to rank 2. */
Test(shrink, list_with_a_lower_ballot) {
  const bounds b = {5, LISTS, 0, 8, .quorum = COLL_SHRINK_QUORUM_MAJORITY};
  static const int first[][3] = {{CHOOSES_LEADER, 0, 0}, {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 4, 0}};
  static const int events[][3] = {
      {OBEYS, 4, 0},          {HEARS_WORD, 0, 4},     {ENDS_ROUND, 0, 0},
      {GIVES_UP, 2, 0},       {CHOOSES_LEADER, 2, 0}, {GIVES_UP, 3, 0},
      {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0},      {GIVES_UP, 4, 0},
      {CHOOSES_LEADER, 4, 0}, {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0},
      {CHECKS_IN, 4, 0}};
  world w = begin_world(&b);
  let_happen(&w, &b, first, sizeof(first) / sizeof(*first));
  let_two_choose(&w, &b);
  let_happen(&w, &b, events, sizeof(events) / sizeof(*events));
  let_lead(&w, &b, 2);
  cr_assert_neq(w.rank[0].outcome, FAILED);
  cr_assert_not(is_split(&w, &b));
}

/* Rank 0 chooses two lists. Rank 2 knows the first one and hears of the second one from rank 4, so
 * its ballot rises, and it asks. Rank 4 leaves it for rank 1, which renews the second list with a
 * lower ballot, and returns. Ranks 3 and 4 then tell rank 2 of the renewal. */
static world let_renew_below(const bounds *b) {
  static const int events[][3] = {
      {CHOOSES_LEADER, 0, 0}, {CHOOSES_LEADER, 1, 0}, {CHOOSES_LEADER, 2, 0},
      {CHOOSES_LEADER, 3, 0}, {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 1, 0},
      {CHECKS_IN, 2, 0},      {CHECKS_IN, 3, 0},      {CHECKS_IN, 4, 0},
      {BEGINS_ROUND, 0, 0}, /* not heard of by 1, 3 and 4 */
      {OBEYS, 2, 0},          {BREAKS, 0, 1},         {BREAKS, 0, 3},
      {BREAKS, 0, 4},         {HEARS_WORD, 0, 2},     {ENDS_ROUND, 0, 0},
      {COMES_BACK, 1, 0},     {COMES_BACK, 3, 0},     {COMES_BACK, 4, 0},
      {CHECKS_IN, 1, 0},      {CHECKS_IN, 3, 0},      {CHECKS_IN, 4, 0},
      {BEGINS_ROUND, 0, 0}, /* not heard of by 2 */
      {OBEYS, 1, 0},          {OBEYS, 3, 0},          {OBEYS, 4, 0},
      {GIVES_UP, 2, 0},       {CHOOSES_LEADER, 2, 0}, {GIVES_UP, 2, 0},
      {CHOOSES_LEADER, 2, 0}, {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0},
      {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 4, 0},
      {ASKS, 2, 0},           {GIVES_UP, 1, 0},       {CHOOSES_LEADER, 1, 0},
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0},
      {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 4, 0},
      {BEGINS_ROUND, 1, 0},   {OBEYS, 3, 0},          {OBEYS, 4, 0},
      {HEARS_WORD, 1, 3},     {HEARS_WORD, 1, 4},     {ENDS_ROUND, 1, 0},
      {NOTICES_END, 2, 4},    {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0},
      {CHECKS_IN, 3, 0},      {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0},
      {CHECKS_IN, 4, 0}};
  world w = begin_world(b);
  let_happen(&w, b, events, sizeof(events) / sizeof(*events));
  cr_assert_neq(w.rank[1].outcome, FAILED);
  cr_assert_gt(w.rank[2].ballot, w.rank[3].ballot);
  let_lead(&w, b, 2);
  return w;
}

Test(shrink, renewal_with_a_lower_ballot) {
  bounds b = {5, LISTS, 0, 16, .quorum = COLL_SHRINK_QUORUM_MAJORITY};
  world w = let_renew_below(&b);
  cr_assert_not(is_split(&w, &b));
  b.bug = RENEWAL_UNHEARD;
  w = let_renew_below(&b);
  cr_assert(is_split(&w, &b), "the test does not show it");
}

/* Rank 4 answers rank 2, which knows a list with a high ballot, and leaves it for rank 1, where it
 * adopts a list with a lower one; so does rank 3, and rank 1 returns. Rank 3 brings that list to
 * rank 2, where rank 4 still seems to be there without it. Then rank 4 comes, too. */
static world let_answer_before(const bounds *b) {
  static const int events[][3] = {
      {CHOOSES_LEADER, 0, 0}, {CHOOSES_LEADER, 1, 0}, {CHOOSES_LEADER, 2, 0},
      {CHOOSES_LEADER, 3, 0}, {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 2, 0},
      {CHECKS_IN, 3, 0},      {CHECKS_IN, 4, 0},      {BEGINS_ROUND, 0, 0},
      {BREAKS, 0, 3},         {BREAKS, 0, 4},         {OBEYS, 2, 0},
      {HEARS_WORD, 0, 2},     {ENDS_ROUND, 0, 0},     {COMES_BACK, 3, 0},
      {COMES_BACK, 4, 0},     {CHECKS_IN, 3, 0},      {CHECKS_IN, 4, 0},
      {BEGINS_ROUND, 0, 0},   {OBEYS, 2, 0},          {GIVES_UP, 2, 0},
      {CHOOSES_LEADER, 2, 0}, {GIVES_UP, 2, 0},       {CHOOSES_LEADER, 2, 0},
      {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0}, {GIVES_UP, 4, 0},
      {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 4, 0},      {ASKS, 2, 0},
      {ANSWERS, 4, 0},        {GIVES_UP, 1, 0},       {CHOOSES_LEADER, 1, 0},
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0},
      {GIVES_UP, 4, 0},       {CHOOSES_LEADER, 4, 0}, {CHECKS_IN, 4, 0},
      {BEGINS_ROUND, 1, 0},   {OBEYS, 3, 0},          {OBEYS, 4, 0},
      {HEARS_WORD, 1, 3},     {HEARS_WORD, 1, 4},     {ENDS_ROUND, 1, 0},
      {GIVES_UP, 3, 0},       {CHOOSES_LEADER, 3, 0}, {CHECKS_IN, 3, 0}};
  world w = begin_world(b);
  let_happen(&w, b, events, sizeof(events) / sizeof(*events));
  cr_assert_neq(w.rank[1].outcome, FAILED);
  cr_assert_gt(w.rank[2].ballot, w.rank[3].ballot);
  let_lead(&w, b, 2);
  happen(&w, b, NOTICES_END, 2, 4);
  happen(&w, b, ENDS_ROUND, 2, 0);
  happen(&w, b, GIVES_UP, 4, 0);
  happen(&w, b, CHOOSES_LEADER, 4, 0);
  happen(&w, b, CHECKS_IN, 4, 0);
  let_lead(&w, b, 2);
  return w;
}

Test(shrink, answer_to_another_question) {
  bounds b = {5, LISTS, 0, 16, .quorum = COLL_SHRINK_QUORUM_MAJORITY};
  world w = let_answer_before(&b);
  cr_assert_not(is_split(&w, &b));
  b.bug = BALLOT_RISES_NOT;
  w = let_answer_before(&b);
  cr_assert(is_split(&w, &b), "the test does not show it");
}

/* A ballot from another rank leaves room for the next one, or it is refused. */
Test(shrink, ballots) {
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
Test(shrink, lists_have_numbers) {
  const uint64_t ballot = shrink_next_ballot(0, 2);
  cr_assert(shrink_is_list(0, 0, 3));
  cr_assert(shrink_is_list(ballot, 7, 3));
  cr_assert_not(shrink_is_list(ballot, 0, 3));
  cr_assert_not(shrink_is_list(ballot, 7, 2));
}
