/* support_look.c: how a leader in the model of a shrink finds out whether a list may be committed.
 */
#include "support_lead.h"

#include <stdlib.h>

uint8_t ballot_after(uint8_t ballot, int r) {
  if (ballot / 8 == UINT8_MAX / 8)
    abort(); /* too many rounds for this model */
  return (uint8_t)((ballot / 8 + 1) * 8 + r);
}

unsigned adopted_set(const world *w, int c, unsigned here, uint8_t list) {
  unsigned set = 0;
  for (int r = c; r < MOST; r++)
    if (here & bit(r) && (r == c ? w->rank[c].child : w->link[c][r].child) == list && list)
      set |= bit(r);
  return set;
}

/* Takes the latest list that any rank here knows. */
static void take_latest(world *w, int c, unsigned here) {
  rank *me = &w->rank[c];
  for (int r = c + 1; r < MOST; r++) {
    const link *l = &w->link[c][r];
    if (!(here & bit(r)) || l->ballot <= me->ballot)
      continue;
    me->ballot = l->ballot;
    me->list = l->list;
    me->renewed = l->renewed;
  }
}

/* A list other than the latest one that a rank brings, or, r = MOST, that the leader had. */
static record brings(const world *w, int c, int r, unsigned here) {
  const rank *me = &w->rank[c];
  record found = {0};
  if (r == MOST)
    found = me->had;
  else if (r != c && (here & bit(r)))
    found = (record){w->link[c][r].ballot, w->link[c][r].list, w->link[c][r].renewed};
  return found.list == me->list ? (record){0} : found;
}

/* Of these, the next one to look at, below a ballot. */
static record earlier_list(const world *w, int c, unsigned here, uint8_t below) {
  record found = {0};
  for (int r = 0; r <= MOST; r++) {
    const record other = brings(w, c, r, here);
    if (shrink_is_next(other.ballot, below, found.ballot))
      found = other;
  }
  return found;
}

/* Notes the lists that are known besides the latest one. If one has become known, what others said
 * before proves nothing about it: the ballot rises. */
static void note_lists(world *w, const bounds *b, int c, unsigned here) {
  rank *me = &w->rank[c];
  bool more = false;
  for (int r = 0; r <= MOST; r++) {
    const uint8_t ballot = brings(w, c, r, here).ballot;
    bool before = ballot == 0;
    for (int other = 0; other <= MOST; other++)
      before = before || me->brought[other] == ballot;
    more = more || !before;
    me->brought[r] = ballot ? ballot : me->brought[r];
  }
  if (!more || b->bug == BALLOT_RISES_NOT || b->bug == BALLOT_STAYS)
    return;
  const bool mine = me->ballot == me->own;
  me->ballot = ballot_after(me->ballot, c);
  me->own = mine ? me->ballot : me->own;
}

/* What a leader knows of a list. */
typedef struct knowledge {
  bool gone[MOST], here[MOST], listed[MOST], adopted[MOST], answered[MOST];
  shrink_view view;
} knowledge;

/* Looks at the latest list, or at an earlier one that `at` brings. */
static void look_at_list(const world *w, const bounds *b, int c, unsigned here, record at,
                         knowledge *k) {
  const rank *me = &w->rank[c];
  const uint8_t list = at.list ? at.list : me->list;
  bool renewed = at.list ? at.renewed : me->renewed;
  spread_set(k->gone, b->bug == MISSING_ARE_GONE ? ~here : me->gone);
  spread_set(k->here, here);
  spread_set(k->listed, w->members[list]);
  spread_set(k->adopted, adopted_set(w, c, here, list));
  for (int r = 0; r < MOST; r++) {
    const link *l = &w->link[c][r];
    k->answered[r] = r == c || (l->answered >= me->ballot && (here & bit(r)));
    renewed = renewed || (b->bug != RENEWAL_UNHEARD && r != c && (here & bit(r)) &&
                          l->list == list && l->renewed);
  }
  k->view = (shrink_view){.nranks = b->nranks,
                          .gone = k->gone,
                          .here = k->here,
                          .listed = k->listed,
                          .adopted = k->adopted,
                          .answered = k->answered,
                          .renewed = renewed && b->bug != RENEWED_IGNORED,
                          .mine = !at.list && me->ballot == me->own,
                          .agrees = b->uniform && b->bug != OUTSIDE_IGNORED,
                          .newcomers = b->bug == GUESTS_IGNORED ? 0 : w->invited[list]};
}

/* Asks those who must check in again before that list is replaced. */
static bool ask_about(world *w, const bounds *b, int c, const knowledge *k) {
  bool asks = false;
  for (int r = c + 1; r < b->nranks; r++) {
    if (b->bug == DOES_NOT_ASK || !shrink_must_ask(&k->view, r))
      continue;
    w->link[c][r].asked = 1;
    asks = true;
  }
  return asks;
}

bool look_for_committed(world *w, const bounds *b, int c, unsigned here, bool *asks) {
  rank *me = &w->rank[c];
  record at = {0};
  *asks = false;
  if (b->bug != FORGETS_LIST)
    take_latest(w, c, here);
  if (me->ballot == 0 || b->bug == NEVER_RENEWS)
    return false;
  note_lists(w, b, c, here);
  do {
    knowledge k;
    look_at_list(w, b, c, here, at, &k);
    if (shrink_may_be_committed(&k.view)) {
      if (at.list) {
        me->ballot = ballot_after(me->ballot, c);
        me->list = at.list;
        me->renewed = at.renewed;
      }
      return true;
    }
    *asks = ask_about(w, b, c, &k);
    at = earlier_list(w, c, here, at.list ? at.ballot : me->ballot);
  } while (at.list && !*asks && b->bug != EARLIER_IGNORED);
  return false;
}
