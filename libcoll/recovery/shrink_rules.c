/* shrink_rules.c: the rules that let at most one communicator come out of a shrink. */
#include "libcoll/recovery/shrink_rules.h"

#define RANK_MASK ((UINT64_C(1) << SHRINK_RANK_BITS) - 1)
#define LATEST    (UINT64_MAX >> SHRINK_RANK_BITS >> 1) /* leaves room for as many more */

bool shrink_may_be_committed(const shrink_view *view) {
  bool missing = view->agrees || view->newcomers > 0, adopted = true;
  if (view->mine && !view->agrees)
    return false;
  for (int r = 0; r < view->nranks; r++) {
    if (!view->listed[r])
      continue;
    if (view->here[r])
      adopted = adopted && view->adopted[r];
    else
      missing = missing || !view->gone[r];
  }
  return missing && (adopted || view->renewed);
}

bool shrink_must_ask(const shrink_view *view, int rank) {
  return !view->mine && view->listed[rank] && view->here[rank] && !view->answered[rank];
}

bool shrink_is_next(uint64_t ballot, uint64_t below, uint64_t found) {
  return ballot < below && ballot > found;
}

bool shrink_is_enough(coll_shrink_quorum quorum, int nranks, const bool *gone, const bool *takes) {
  int count = 0;
  bool all = true;
  for (int r = 0; r < nranks; r++) {
    count += takes[r];
    all = all && (takes[r] || gone[r]);
  }
  return quorum == COLL_SHRINK_QUORUM_REACHABLE || all || 2 * count > nranks ||
         (2 * count == nranks && takes[0]);
}

int shrink_ballot_rank(uint64_t ballot) {
  return (int)(ballot & RANK_MASK);
}

uint64_t shrink_next_ballot(uint64_t known, int rank) {
  return ((known >> SHRINK_RANK_BITS) + 1) << SHRINK_RANK_BITS | (uint64_t)rank;
}

bool shrink_is_ballot(uint64_t ballot, int nranks) {
  return ballot >> SHRINK_RANK_BITS <= LATEST && (ballot & RANK_MASK) < (uint64_t)nranks;
}

bool shrink_is_list(uint64_t ballot, uint64_t list, int nranks) {
  return shrink_is_ballot(ballot, nranks) && (ballot == 0 || list != 0);
}
