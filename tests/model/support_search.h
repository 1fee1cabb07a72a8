/*
 * support_search.h: searches all orders of events of a shrink (support_shrink.h) for one from which
 * two communicators come at once, in one of two ways.
 *
 * search_plainly() lets every event happen in every state.
 *
 * search() leaves out orders that lead to nothing new, so it gets further. It takes together what
 * others cannot tell apart:
 *   - A rank that follows only does anything when its leader's order arrives, or when it leaves
 * that leader. Nobody else sees how late it obeys. So it obeys at once, or never on this
 * connection. And its word arrives at once, or never: a leader that is not to hear it must lose the
 *     connection, which counts as before. If all words arrived, the leader commits at once; if it
 *     were to die or leave first, it would be as if the last word had not arrived.
 *   - A checkin, the end of a connection or a death that a leader learns of is of no consequence
 *     until it asks or begins a round. So a leader takes notice of any of these just before that. A
 *     rank that leaves a leader, or dies, may have checked in or answered before, and the leader
 *     does not know that it left. Who stays answers just before the leader goes on.
 *   - A rank that follows needs to learn of a death only if its leader died: then it follows the
 *     next one. It chooses at once.
 *   - A leader whose ranks are too few, and those to whom it says END, never act again; nor does
 * one that only waits. So nobody fails. (Aborts still make ranks leave.)
 *   - If no list can be made any more, and there is only one with which ranks may return or have
 *     returned, there is nothing to find.
 * And it does not distinguish states that differ only
 *   - in what nobody will look at again,
 *   - in the numbers of lists, which are ordered by the ballots with which they were chosen,
 *   - or in the order of ranks of which none can ever lead: too few deaths and given-up ranks are
 *     left for all lower ones to be passed over. The rules treat all but rank 0 alike, so only
 *     leading distinguishes ranks.
 * tests/model/test_bugs.c compares both searches with all rules, and with each one broken.
 */
#ifndef TESTS_MODEL_SUPPORT_SEARCH_H
#define TESTS_MODEL_SUPPORT_SEARCH_H

#include <stddef.h>
#include <stdlib.h>

#include "support_shrink.h"

/* What came of a search. */
typedef struct found {
  bool split; /* two communicators, */
  bool apart; /* or survivors that do not end together; sought if all are patient */
  world at;   /* there */
  bool full;  /* it ended because it had seen the most states that it may */
  size_t states;
  double seconds;
} found;

/* Search up to a number of states. States are told apart by 64 bits of a hash: that one of 10^8 is
 * mistaken for another one has a probability of 1 in 4000. */
found search(const bounds *b, size_t most);
found search_plainly(const bounds *b, size_t most);

/* Where states go that come next. */
typedef void visitor(void *ctx, const world *w);

/* Lets happen what search() does in a state. */
void for_each_step(const world *w, const bounds *b, visitor *visit, void *ctx);

/* Makes states equal that do not differ for search(). */
void make_canonical(world *w, const bounds *b);

/* Whether the survivors return with one list if nothing fails from now on. Before, ranks may only
 * have died, or have failed to build. */
bool end_together(const world *w, const bounds *b);

/* Whether nothing can be found after this state. */
bool is_settled(const world *w, const bounds *b);

/* Whether the searches are wanted that take minutes. */
static inline bool wants_longest(void) {
  return getenv("TEST_SEARCH") != NULL;
}

#endif
