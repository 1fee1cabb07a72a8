/* support_lead.c: what a leader does in the model of a shrink. */
#include "support_lead.h"

#include <stdlib.h>

/* A ballot above another one that only this rank chooses. */
static uint8_t ballot_after(const bounds *b, uint8_t ballot, int r) {
  const bool grows = b->bug != BALLOT_STAYS || ballot == 0;
  if (ballot / 8 == UINT8_MAX / 8)
    abort(); /* too many rounds for this model */
  return (uint8_t)((ballot / 8 + grows) * 8 + r);
}

static void spread(bool *flags, unsigned set) {
  for (int r = 0; r < MOST; r++)
    flags[r] = set & bit(r);
}

unsigned here_set(const world *w, int c, int nranks) {
  unsigned set = bit(c);
  for (int r = c + 1; r < nranks; r++)
    if (w->link[c][r].open)
      set |= bit(r);
  return set;
}

unsigned adopted_set(const world *w, int c, unsigned here) {
  unsigned set = 0;
  uint8_t list = w->rank[c].list;
  for (int r = c; r < MOST; r++)
    if (here & bit(r) && (r == c ? w->rank[c].child : w->link[c][r].child) == list && list)
      set |= bit(r);
  return set;
}

/* Sends an order to some of the ranks that are here. */
static void send_order(world *w, int c, unsigned to, order what) {
  for (int r = c + 1; r < MOST; r++)
    if (to & bit(r)) {
      link *l = &w->link[c][r];
      l->order = (uint8_t)what;
      l->order_ballot = w->rank[c].ballot;
      l->order_list = w->rank[c].list;
      l->awaited = what == BUILD || what == RENEW;
      l->said = 0;
    }
}

void hear_checkin(world *w, const bounds *b, int c, int r) {
  const rank *other = &w->rank[r];
  link *l = &w->link[c][r];
  l->ballot = other->ballot;
  l->list = other->list;
  l->renewed = other->renewed;
  l->child = b->bug == FORGETS_ADOPTED ? 0 : other->child;
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

void end_shrink(world *w, int c, unsigned here, uint8_t outcome) {
  rank *me = &w->rank[c];
  unsigned takers = outcome == FAILED ? 0 : me->takes;
  send_order(w, c, here & takers & ~bit(c), COMMIT);
  send_order(w, c, here & ~takers & ~bit(c), END);
  me->outcome = outcome != FAILED && (takers & bit(c)) ? outcome : FAILED;
  for (int i = 0; c == 0 && i < GUESTS; i++)
    if (outcome != FAILED && w->guest[i].list == outcome)
      w->guest[i].order = COMMIT;
    else
      w->guest[i] = (guest){0};
}

/* What a leader knows of the latest list. */
typedef struct knowledge {
  bool gone[MOST], here[MOST], listed[MOST], adopted[MOST], answered[MOST];
  shrink_view view;
} knowledge;

static void look_at_list(const world *w, const bounds *b, int c, unsigned here, knowledge *k) {
  const rank *me = &w->rank[c];
  spread(k->gone, b->bug == MISSING_ARE_GONE ? ~here : me->gone);
  spread(k->here, here);
  spread(k->listed, w->members[me->list]);
  spread(k->adopted, adopted_set(w, c, here));
  for (int r = 0; r < MOST; r++)
    k->answered[r] = r == c;
  k->view = (shrink_view){.nranks = b->nranks,
                          .gone = k->gone,
                          .here = k->here,
                          .listed = k->listed,
                          .adopted = k->adopted,
                          .answered = k->answered,
                          .renewed = me->renewed && b->bug != RENEWED_IGNORED,
                          .mine = me->ballot == me->own,
                          .agrees = b->uniform && b->bug != OUTSIDE_IGNORED,
                          .newcomers = b->bug == GUESTS_IGNORED ? 0 : w->invited[me->list]};
}

/* Whether somebody may have returned with that list. */
static bool may_be_committed(const world *w, const bounds *b, int c, unsigned here) {
  knowledge k;
  if (w->rank[c].ballot == 0 || b->bug == NEVER_RENEWS)
    return false;
  look_at_list(w, b, c, here, &k);
  return shrink_may_be_committed(&k.view);
}

/* Whether those who take a list are enough. */
static bool is_enough(const world *w, const bounds *b, int c, unsigned here) {
  const rank *me = &w->rank[c];
  bool gone[MOST], takes[MOST];
  spread(gone, b->bug == SILENCE_IS_DEATH ? ~here : me->gone);
  spread(takes, me->takes);
  int count = 0, dead = 0;
  for (int r = 0; r < b->nranks; r++) {
    count += takes[r];
    dead += gone[r];
  }
  return shrink_is_enough(b->quorum, b->nranks, gone, takes) ||
         (b->bug == ANY_HALF && 2 * count == b->nranks) ||
         (b->bug == DEAD_LOWER_THE_BAR && 2 * count > b->nranks - dead);
}

/* Makes a list of those who take it, and of some newcomers. */
static void choose_list(world *w, const bounds *b, int c, int guests) {
  rank *me = &w->rank[c];
  uint8_t list = 1;
  while (w->made[list])
    list++;
  me->ballot = me->own = ballot_after(b, me->ballot, c);
  me->list = me->child = list;
  me->renewed = 0;
  w->lists++;
  w->made[list] = me->ballot;
  w->members[list] = me->takes;
  w->invited[list] = (uint8_t)guests;
  w->shut = w->shut || guests > 0;
  for (int i = 0; c == 0 && i < GUESTS; i++)
    w->guest[i] = (guest){.list = i < guests ? list : 0};
}

/* Whether a leader need not wait for anybody. */
static bool is_everybody_here(const world *w, const bounds *b, int c, unsigned here) {
  bool all = true;
  for (int r = 0; r < b->nranks; r++) {
    const bool returned = w->rank[r].alive && w->rank[r].outcome;
    all = all && (returned || (here & bit(r)) || (w->rank[c].gone & bit(r)));
  }
  return all;
}

/* Those who must check in again before the list is replaced do so. False: one has left, so it must
 * be given up first. */
static bool ask_again(world *w, const bounds *b, int c, unsigned here) {
  knowledge k;
  if (w->rank[c].ballot == 0 || b->bug == DOES_NOT_ASK)
    return true;
  look_at_list(w, b, c, here, &k);
  for (int r = 0; r < b->nranks; r++) {
    if (!shrink_must_ask(&k.view, r))
      continue;
    if (!is_attached(w, c, r))
      return false;
    hear_checkin(w, b, c, r);
  }
  return true;
}

/* Takes the latest list with a ballot below that one which is known here: by this rank before it
 * took another one, as `was` says, or by another rank. False: there is none. */
static bool take_earlier(world *w, const bounds *b, int c, unsigned here, const rank *was,
                         uint8_t *below) {
  rank *me = &w->rank[c];
  uint8_t latest = 0;
  if (shrink_is_next(was->ballot, *below, 0)) {
    latest = was->ballot;
    me->list = was->list;
    me->renewed = was->renewed;
  }
  for (int r = c + 1; r < MOST; r++) {
    const link *l = &w->link[c][r];
    if (!(here & bit(r)) || !shrink_is_next(l->ballot, *below, latest))
      continue;
    latest = l->ballot;
    me->list = l->list;
    me->renewed = l->renewed;
  }
  if (latest && me->ballot == me->own)
    me->ballot = ballot_after(b, me->ballot, c);
  *below = latest;
  return latest > 0;
}

/* Looks for a list that may be committed, from the latest one down. */
static bool find_committed(world *w, const bounds *b, int c, unsigned here, const rank *was,
                           bool *gone) {
  rank *me = &w->rank[c];
  uint8_t below = me->ballot;
  do {
    if (may_be_committed(w, b, c, here))
      return true;
    *gone = !ask_again(w, b, c, here);
    if (*gone)
      return false;
    if (may_be_committed(w, b, c, here))
      return true;
  } while (b->bug != EARLIER_IGNORED && take_earlier(w, b, c, here, was, &below));
  return false;
}

bool begin_round(world *w, const bounds *b, int c, int guests) {
  rank *me = &w->rank[c];
  const rank was = *me;
  unsigned here = here_set(w, c, b->nranks);
  if (b->patient && !is_everybody_here(w, b, c, here))
    return false;
  if (guests > 0 && (c != 0 || guests > b->guests || w->shut))
    return false;
  if (b->bug != FORGETS_LIST)
    take_latest(w, c, here);
  bool gone = false;
  const bool committed = find_committed(w, b, c, here, &was, &gone);
  if (gone)
    return false;
  if (committed ? guests > 0 : w->lists == b->lists)
    return false;
  me->takes = (uint8_t)here;
  if (committed)
    me->takes &= adopted_set(w, c, here) & w->members[me->list];
  if (!is_enough(w, b, c, here)) {
    end_shrink(w, c, here, FAILED);
    return true;
  }
  if (committed) {
    me->ballot = ballot_after(b, me->ballot, c);
    me->renewed = 1;
  } else {
    choose_list(w, b, c, guests);
  }
  w->known[c][me->list] = me->ballot;
  me->phase = HEARING;
  send_order(w, c, me->takes & ~bit(c), committed ? RENEW : BUILD);
  return true;
}

/* Whether all newcomers that rank 0 has called have made the communicator. */
static bool have_guests_built(const world *w, int c) {
  bool all = true;
  for (int i = 0; c == 0 && i < GUESTS; i++)
    all = all && (!w->guest[i].list || w->guest[i].said);
  return all;
}

bool end_round(world *w, const bounds *b, int c, bool give_up) {
  rank *me = &w->rank[c];
  bool all = have_guests_built(w, c);
  if (!all && !give_up)
    return false;
  for (int r = c + 1; r < b->nranks; r++) {
    link *l = &w->link[c][r];
    if (!(me->takes & bit(r)))
      continue;
    if (l->open && l->said == 1)
      continue;
    if (b->bug == COMMITS_EARLY && l->open && l->awaited && !l->said && give_up)
      continue;
    all = false;
    if (!l->open || !l->awaited || l->said)
      continue;
    if (!give_up || w->given_up == b->give_ups)
      return false;
    w->given_up++;
    *l = (link){0};
  }
  if (all) {
    end_shrink(w, c, here_set(w, c, b->nranks), me->list);
    return true;
  }
  me->phase = GATHERING;
  for (int i = 0; c == 0 && i < GUESTS; i++)
    w->guest[i] = (guest){0};
  return true;
}
