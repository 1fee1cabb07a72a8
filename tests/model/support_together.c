/* support_together.c: whether the survivors of a shrink end with one list if nothing fails anymore.
 */
#include "support_search.h"

/* Where no order was lost, those that search() leaves out arrive after all. */
static void deliver(world *w, int c, int r) {
  rank *me = &w->rank[c];
  link *l = &w->link[c][r];
  const rank *other = &w->rank[r];
  if (!is_attached(w, c, r) || me->phase != HEARING || !l->awaited || l->said)
    return;
  if (other->ballot == me->ballot) {
    l->word = other->child == me->list ? 1 : 2;
    l->word_ballot = me->ballot;
  } else {
    l->order = me->renewed ? RENEW : BUILD;
    l->order_ballot = me->ballot;
    l->order_list = me->list;
  }
}

/* A rank follows, as far as it gets. */
static bool follow(world *w, const bounds *b, int r) {
  const int leader = w->rank[r].leader;
  rank *me = &w->rank[r];
  bool moved = happen(w, b, LEARNS_OF_DEATH, r, leader);
  moved = happen(w, b, CHOOSES_LEADER, r, 0) || moved;
  if (moved || me->leader == r)
    return moved;
  if (happen(w, b, HEARS_OUTCOME, r, me->leader)) /* or that rank's COMMIT arrives */
    return true;
  moved = happen(w, b, COMES_BACK, r, 0);
  moved = happen(w, b, CHECKS_IN, r, 0) || moved;
  moved = happen(w, b, ANSWERS, r, 0) || moved;
  return happen(w, b, OBEYS, r, 0) || moved;
}

/* A rank leads, as far as it gets. */
static bool lead(world *w, const bounds *b, int c) {
  bool moved = false;
  for (int r = 0; r < b->nranks; r++) {
    moved = happen(w, b, LEARNS_OF_DEATH, c, r) || moved;
    deliver(w, c, r);
    moved = happen(w, b, HEARS_WORD, c, r) || moved;
    moved = (!is_attached(w, c, r) && happen(w, b, NOTICES_END, c, r)) || moved;
  }
  for (int x = 0; x < b->nranks; x++)
    if (happen(w, b, HEARS_OUTCOME, c, x))
      return true;
  for (int i = 0; c == 0 && i < b->guests; i++)
    moved = happen(w, b, GUEST_BUILDS, i, 0) || moved;
  return happen(w, b, ENDS_ROUND, c, 0) || moved || happen(w, b, ASKS, c, 0) ||
         happen(w, b, BEGINS_ROUND, c, 0);
}

bool end_together(const world *at, const bounds *b) {
  world w = *at;
  bounds all = *b;
  all.lists = LISTS;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = b->nranks - 1; r >= 0; r--) {
      if (is_in(&w, r) && w.rank[r].leader != r)
        moved = follow(&w, &all, r) || moved;
    }
    for (int c = 0; c < b->nranks && !moved; c++)
      if (is_in(&w, c) && w.rank[c].leader == c)
        moved = lead(&w, &all, c);
    for (int i = 0; i < b->guests; i++)
      moved = happen(&w, &all, GUEST_RETURNS, i, 0) || moved;
  }
  for (int r = 0; r < b->nranks; r++)
    if (w.rank[r].alive && (w.rank[r].outcome == 0 || w.rank[r].outcome == FAILED))
      return false;
  return !is_split(&w, b);
}
