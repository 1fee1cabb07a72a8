/* support_lead.c: what a leader does in the model of a shrink. */
#include "support_lead.h"

void spread_set(bool *flags, unsigned set) {
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

void begin_to_gather(rank *me) {
  me->phase = GATHERING;
  me->had = (record){me->ballot, me->list, me->renewed};
}

void hear_checkin(world *w, const bounds *b, int c, int r) {
  const rank *other = &w->rank[r];
  link *l = &w->link[c][r];
  l->ballot = other->ballot;
  l->list = other->list;
  l->renewed = other->renewed;
  l->child = b->bug == FORGETS_ADOPTED ? 0 : other->child;
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

/* Whether those who take a list are enough. */
static bool is_enough(const world *w, const bounds *b, int c, unsigned here) {
  const rank *me = &w->rank[c];
  bool gone[MOST], takes[MOST];
  spread_set(gone, b->bug == SILENCE_IS_DEATH ? ~here : me->gone);
  spread_set(takes, me->takes);
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
  const bool stays = b->bug == BALLOT_STAYS && me->ballot / 8 > 0;
  me->ballot = me->own = ballot_after(stays ? me->ballot - 8 : me->ballot, c);
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

/* Whether a leader may look at the latest list: nobody whom it waits for is missing. */
static bool may_look(const world *w, const bounds *b, int c, unsigned here) {
  bool awaits = b->patient && !is_everybody_here(w, b, c, here);
  for (int r = c + 1; r < b->nranks; r++)
    awaits = awaits || w->link[c][r].asked;
  return !awaits;
}

bool ask_again(world *w, const bounds *b, int c) {
  world next = *w;
  const unsigned here = here_set(w, c, b->nranks);
  bool asks = false;
  if (!may_look(w, b, c, here))
    return false;
  look_for_committed(&next, b, c, here, &asks);
  if (asks)
    *w = next;
  return asks;
}

bool begin_round(world *w, const bounds *b, int c, int guests) {
  world next = *w;
  rank *me = &next.rank[c];
  const unsigned here = here_set(w, c, b->nranks);
  bool asks = false;
  if (!may_look(w, b, c, here) || (guests > 0 && (c != 0 || guests > b->guests || w->shut)))
    return false;
  const bool committed = look_for_committed(&next, b, c, here, &asks);
  if (asks || (committed ? guests > 0 : w->lists == b->lists))
    return false;
  *w = next;
  me = &w->rank[c];
  me->takes = (uint8_t)here;
  if (committed)
    me->takes &= adopted_set(w, c, here, me->list) & w->members[me->list];
  if (!is_enough(w, b, c, here)) {
    end_shrink(w, c, here, FAILED);
    return true;
  }
  if (committed) {
    me->ballot = ballot_after(me->ballot, c);
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
  unsigned silent = 0;
  if (!all && !give_up)
    return false;
  for (int r = c + 1; r < b->nranks; r++) {
    const link *l = &w->link[c][r];
    if (!(me->takes & bit(r)) || (l->open && l->said == 1))
      continue;
    if (b->bug == COMMITS_EARLY && l->open && l->awaited && !l->said && give_up)
      continue;
    all = false;
    if (l->open && l->awaited && !l->said)
      silent |= bit(r);
  }
  const int count = __builtin_popcount(silent);
  if (count > 0 && (!give_up || w->given_up + count > b->give_ups))
    return false;
  w->given_up += (uint8_t)count;
  for (int r = c + 1; r < b->nranks; r++)
    if (silent & bit(r))
      w->link[c][r] = (link){.dropped = me->ballot};
  if (all) {
    end_shrink(w, c, here_set(w, c, b->nranks), me->list);
    return true;
  }
  begin_to_gather(me);
  for (int i = 0; c == 0 && i < GUESTS; i++)
    w->guest[i] = (guest){0};
  return true;
}
