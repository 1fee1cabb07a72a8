/*
 * shrink_rules.h: the rules that let at most one communicator come out of a shrink. They depend
 * only on what a coordinator knows, so tests can search all orders of events for a violation
 * (tests/model).
 *
 *   1. A new list is committed when all its members have adopted it. So a coordinator that takes
 *      over knows that nobody returned with the latest list if one of its members is here without
 *      having adopted it, or if all of its members that are not gone are here. Otherwise it renews
 *      that list: order RENEW gives it a higher ballot at all who adopted it and are here, and when
 *      they have said so, it is committed to them. A renewed list stays the only one until all its
 *      members that are not gone are here.
 *      What a rank said before the coordinator knew the list proves nothing: the rank may have
 *      left since, which a cut keeps from being noticed, and have adopted the list, or its renewal,
 *      elsewhere. So before a list is replaced, its members that are here check in again. Who
 *      does, and has not adopted it, never will: it has left whoever could tell it to.
 *      A word that was agreed on must stay even if all who returned with it are dead by now,
 *      because they may have acted on it; and newcomers are no members of a list, but may have
 *      returned with it (*outside*). So such lists are renewed also if all members are here. If
 *      nobody lives who took part in its last round, it may be replaced.
 *   2. Those who take a list, new or renewed, must be more than half of all ranks, or half of them
 *      with rank 0, or all ranks that are not gone. So two lists have a taker in common, or all
 *      takers of one of them are dead. Dead ranks do not lower the bar for the others: before they
 *      died, they may have returned with a list together with ranks that are silent now.
 *   3. A committed list need not be the latest one that is known here: ranks promise nothing when
 *      they check in, so who has left a coordinator may adopt, under another one, a list with a
 *      lower ballot than the one for which the first took it to be there. That list was not
 *      adopted by all. So when nobody can have returned with the latest list, the coordinator
 *      looks in the same way at the next lower one that any rank here knows or that it knew
 *      itself, and so on. One that may be committed is then the latest. If it was replaced
 *      rightly, renewing it does no harm: if a list after it was committed, a rank here knows that
 *      one, which comes first.
 *
 * "Gone" means that nothing of that process can be in a communicator of this family any more: its
 * kernel ended its control link without a goodbye, or refuses connections to its listener. A rank
 * from which nothing is heard is not gone.
 */
#ifndef COLLI_RECOVERY_SHRINK_RULES_H
#define COLLI_RECOVERY_SHRINK_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

/* What a coordinator knows of the latest list; arrays by rank. */
typedef struct shrink_view {
  int nranks;
  const bool *gone;
  const bool *here;     /* takes part in this round */
  const bool *listed;   /* is in the list */
  const bool *adopted;  /* is here and has made the list's communicator */
  const bool *answered; /* has checked in since the coordinator knew the list, as it asked */
  bool renewed;         /* the list was renewed */
  bool mine;            /* the coordinator chose it, and did not commit it */
  bool agrees;          /* it comes with a word instead of a communicator */
  int newcomers;        /* ranks behind its members */
} shrink_view;

/* Whether a rank may have returned with the latest list (rule 1). */
bool shrink_may_be_committed(const shrink_view *view);

/* Whether a rank must check in again before the latest list is replaced. */
bool shrink_must_ask(const shrink_view *view, int rank);

/* Whether a list with this ballot is rather the next one to look at than one with ballot `found`;
 * 0: none was found yet. `below`: the ballot of the list before (rule 3). */
bool shrink_is_next(uint64_t ballot, uint64_t below, uint64_t found);

/* Whether the ranks that take a list are enough: rule 2, unless reachable ones always are. */
bool shrink_is_enough(coll_shrink_quorum quorum, int nranks, const bool *gone, const bool *takes);

#define SHRINK_RANK_BITS 20 /* the low bits of a ballot are a rank */

/* A ballot above a known one and different from every other rank's, because two ranks may lead
 * without knowing it. */
uint64_t shrink_next_ballot(uint64_t known, int rank);

/* The rank that made a ballot. */
int shrink_ballot_rank(uint64_t ballot);

/* Whether shrink_next_ballot() can have made a ballot, and there is room for a next one. */
bool shrink_is_ballot(uint64_t ballot, int nranks);

/* Whether a message can name a list: by its ballot and its number, which are both 0 if there is
 * none. */
bool shrink_is_list(uint64_t ballot, uint64_t list, int nranks);

#endif
