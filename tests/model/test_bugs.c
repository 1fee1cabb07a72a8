/*
 * test_bugs.c: rules of a shrink that are broken on purpose. The search finds two communicators
 * with each of them; and the search that leaves out orders of events finds what the plain one
 * finds.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "support_search.h"

static const char *const names[BUGS] = {
    [NO_BUG] = "no bug",
    [SILENCE_IS_DEATH] = "silence is death",
    [MISSING_ARE_GONE] = "missing ranks are gone",
    [ANY_HALF] = "any half is enough",
    [DEAD_LOWER_THE_BAR] = "dead ranks lower the bar",
    [BALLOT_STAYS] = "a ballot stays",
    [COMMITS_EARLY] = "commits early",
    [FORGETS_ADOPTED] = "forgets who adopted",
    [FORGETS_LIST] = "forgets the list of a rank that comes",
    [RENEWED_IGNORED] = "renewed lists are as others",
    [NEVER_RENEWS] = "never renews a list",
    [EARLIER_IGNORED] = "earlier lists are ignored",
    [OUTSIDE_IGNORED] = "an agreement is as a shrink",
    [GUESTS_IGNORED] = "newcomers are ignored",
    [DOES_NOT_ASK] = "does not ask",
    [BALLOT_RISES_NOT] = "a ballot does not rise",
    [RENEWAL_UNHEARD] = "a renewal is not heard",
};

/* Where each bug shows. */
static const bounds shows[] = {
    {3, 2, 0, 1, .bug = SILENCE_IS_DEATH},
    {3, 2, 0, 2, .bug = MISSING_ARE_GONE},
    {4, 2, 1, 0, .bug = ANY_HALF},
    {4, 2, 0, 2, .bug = ANY_HALF},
    {4, 2, 1, 0, .bug = DEAD_LOWER_THE_BAR},
    {3, 3, 1, 2, 1, .bug = BALLOT_STAYS},
    {3, 3, 1, 2, 1, .bug = COMMITS_EARLY},
    {3, 2, 1, 0, .bug = COMMITS_EARLY, .uniform = true},
    {3, 3, 1, 2, 1, .bug = FORGETS_ADOPTED},
    {3, 2, 1, 0, .bug = FORGETS_ADOPTED, .uniform = true},
    {3, 3, 1, 2, 1, .bug = FORGETS_LIST},
    {3, 2, 1, 0, .bug = FORGETS_LIST, .uniform = true},
    {3, 2, 1, 1, .bug = RENEWED_IGNORED, .uniform = true},
    {3, 3, 1, 2, 1, .bug = NEVER_RENEWS},
    {5, 4, 0, 4, .bug = EARLIER_IGNORED},
    {3, 2, 1, 1, .bug = OUTSIDE_IGNORED, .uniform = true},
    {3, 2, 1, 0, .bug = GUESTS_IGNORED, .guests = 1},
    {4, 2, 2, 3, .bug = DOES_NOT_ASK, .uniform = true},
    {5, 3, 0, 4, .bug = DOES_NOT_ASK},
};

/* Each one is found, and by the rules as they are there is nothing. */
Test(bugs, each_is_found) {
  /* These two take more steps: answer_to_another_question and renewal_with_a_lower_ballot in
   * test_shrink.c. */
  bool seen[BUGS] = {[NO_BUG] = true, [BALLOT_RISES_NOT] = true, [RENEWAL_UNHEARD] = true};
  for (size_t i = 0; i < sizeof(shows) / sizeof(*shows); i++) {
    bounds b = shows[i];
    b.quorum = COLL_SHRINK_QUORUM_MAJORITY;
    found f = search(&b, 5000000);
    printf("%s: %d ranks, %zu states\n", names[b.bug], b.nranks, f.states);
    cr_expect(f.split, "%s: not found with %d ranks, %zu states", names[b.bug], b.nranks, f.states);
    seen[b.bug] = true;
    b.bug = NO_BUG;
    if (b.nranks < 5)
      cr_expect(!search(&b, 5000000).split, "as %s", names[shows[i].bug]);
  }
  for (int i = 0; i < BUGS; i++)
    cr_expect(seen[i], "%s", names[i]);
}

/* Survivors of deaths that do not end together are found, too. */
Test(bugs, survivors_apart) {
  const bounds b = {4,
                    3,
                    2,
                    .quorum = COLL_SHRINK_QUORUM_MAJORITY,
                    .guests = 1,
                    .patient = true,
                    .bug = FORGETS_LIST};
  const found f = search(&b, 100000);
  cr_expect(f.apart && !f.split);
}

/* Both searches find two communicators, or neither does. */
static void compare(bounds b, size_t *states, int *splits) {
  const found plain = search_plainly(&b, 20000000), f = search(&b, 20000000);
  cr_expect(!plain.full && !f.full);
  cr_expect(plain.split == f.split,
            "%s: %d lists, %d deaths, %d given up, %d failures, %d leave, %d newcomers, agree %d: "
            "all %d, search %d",
            names[b.bug], b.lists, b.deaths, b.give_ups, b.failures, b.leaves, b.guests, b.uniform,
            plain.split, f.split);
  states[0] += plain.states;
  states[1] += f.states;
  *splits += f.split;
}

Test(bugs, both_searches_agree) {
  static const int most[][5] = {{2, 1, 0, 1, 0}, {2, 0, 1, 1, 0}, {2, 1, 1, 0, 0}, {2, 0, 1, 0, 1},
                                {2, 0, 2, 0, 0}, {2, 2, 0, 1, 0}, {2, 1, 0, 1, 1}, {3, 0, 1, 0, 0},
                                {2, 2, 1, 0, 0}, {3, 1, 0, 0, 0}, {3, 1, 1, 0, 0}};
  const int count = wants_longest() ? (int)(sizeof(most) / sizeof(*most)) : extent(4, 7, 1);
  size_t states[2] = {0, 0};
  int splits = 0, runs = 0;
  for (int i = 0; i < count; i++)
    for (int broken = 0; broken < BUGS; broken++)
      for (int task = 0; task < 3; task++, runs++) {
        const int *m = most[i];
        compare((bounds){3, m[0], m[1], m[2], m[3], m[4], .quorum = COLL_SHRINK_QUORUM_MAJORITY,
                         .uniform = task == 1, .guests = task == 2, .bug = (enum bug)broken},
                states, &splits);
      }
  printf("%d searches, %d find something; %zu states, %zu by the plain search\n", runs, splits,
         states[1], states[0]);
  cr_expect_gt(splits, 0);
}
