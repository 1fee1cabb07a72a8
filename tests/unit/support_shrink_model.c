/* support_shrink_model.c: a model of a shrink. */
#include "support_shrink_model.h"

#include <string.h>

static unsigned bit(int r) {
  return 1u << r;
}

/* A ballot above another one that only this rank chooses. */
static uint8_t ballot_after(uint8_t ballot, int r) {
  return (uint8_t)((ballot / 8 + 1) * 8 + r);
}

static void spread(bool *flags, unsigned set) {
  for (int r = 0; r < MOST; r++)
    flags[r] = set & bit(r);
}

/* Whether a rank lives that took a list with this ballot or a higher one. */
static bool is_known(const world *w, uint8_t list, uint8_t ballot) {
  for (int r = 0; r < MOST; r++)
    if (w->rank[r].alive && w->known[r][list] >= ballot)
      return true;
  return false;
}

bool is_split(const world *w, const bounds *b) {
  uint8_t seen = 0;
  for (int r = 0; r < b->nranks; r++) {
    const rank *me = &w->rank[r];
    if (me->outcome == 0 || me->outcome == FAILED)
      continue;
    if (!me->alive && !(b->uniform && is_known(w, me->outcome, me->ballot)))
      continue;
    if (seen && seen != me->outcome)
      return true;
    seen = me->outcome;
  }
  return false;
}

/* ---- a leader -------------------------------------------------------------------------------- */

/* The ranks that are here. */
static unsigned here_set(const world *w, int c, int nranks) {
  unsigned set = bit(c);
  for (int r = c + 1; r < nranks; r++)
    if (w->link[c][r].open && w->link[c][r].here)
      set |= bit(r);
  return set;
}

/* Those of them that have adopted the latest list. */
static unsigned adopted_set(const world *w, int c, unsigned here) {
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
      l->said = 0;
    }
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

/* The same if the latest one is its own. */
static void take_from_behind(world *w, int c, unsigned here) {
  rank *me = &w->rank[c];
  uint8_t latest = 0;
  for (int r = c + 1; r < MOST; r++) {
    const link *l = &w->link[c][r];
    if (!(here & bit(r)) || l->ballot <= latest ||
        !shrink_is_from_behind(l->ballot, l->ballot % 8 == c, me->before, me->own))
      continue;
    latest = l->ballot;
    me->list = l->list;
    me->renewed = l->renewed;
  }
  if (latest)
    me->ballot = ballot_after(me->ballot, c);
}

/* Ends the shrink for a leader, and for those who take nothing. */
static void end(world *w, int c, unsigned here, uint8_t outcome) {
  rank *me = &w->rank[c];
  unsigned takers = outcome == FAILED ? 0 : me->takes;
  send_order(w, c, here & takers & ~bit(c), COMMIT);
  send_order(w, c, here & ~takers & ~bit(c), END);
  me->outcome = outcome != FAILED && (takers & bit(c)) ? outcome : FAILED;
}

/* A leader stops waiting for others: it makes or renews a list with those who are here. */
static bool begin_round(world *w, const bounds *b, int c) {
  rank *me = &w->rank[c];
  unsigned here = here_set(w, c, b->nranks);
  bool gone[MOST], is_here[MOST], listed[MOST], adopted[MOST], takes[MOST];
  take_latest(w, c, here);
  if (me->ballot && me->ballot == me->own)
    take_from_behind(w, c, here);
  unsigned adopters = adopted_set(w, c, here);
  spread(gone, me->gone);
  spread(is_here, here);
  spread(listed, w->members[me->list]);
  spread(adopted, adopters);
  bool committed =
      me->ballot != 0 && shrink_may_be_committed(&(shrink_view){.nranks = b->nranks,
                                                                .gone = gone,
                                                                .here = is_here,
                                                                .listed = listed,
                                                                .adopted = adopted,
                                                                .renewed = me->renewed,
                                                                .mine = me->ballot == me->own,
                                                                .agrees = b->uniform});
  me->takes = (uint8_t)(committed ? here & adopters & w->members[me->list] : here);
  spread(takes, me->takes);
  if (!shrink_is_enough(b->quorum, b->nranks, gone, takes)) {
    end(w, c, here, FAILED);
    return true;
  }
  if (!committed && w->lists == b->lists)
    return false;
  if (!committed && me->ballot != me->own)
    me->before = me->ballot;
  me->ballot = ballot_after(me->ballot, c);
  me->renewed = committed;
  if (!committed) {
    me->own = me->ballot;
    me->list = ++w->lists;
    w->members[me->list] = me->takes;
    me->child = me->list;
  }
  w->known[c][me->list] = me->ballot;
  me->phase = HEARING;
  send_order(w, c, me->takes & ~bit(c), committed ? RENEW : BUILD);
  return true;
}

/* What a leader does when all have answered, or when it waits no longer. */
static bool end_round(world *w, const bounds *b, int c, bool give_up) {
  rank *me = &w->rank[c];
  bool all = true;
  for (int r = c + 1; r < b->nranks; r++) {
    link *l = &w->link[c][r];
    if (!(me->takes & bit(r)))
      continue;
    if (l->open && l->said == 1)
      continue;
    all = false;
    if (l->open && !l->said && !give_up)
      return false;
    if (l->open && !l->said) {
      if (w->given_up == b->give_ups)
        return false;
      w->given_up++;
      *l = (link){0};
      me->skipped |= (uint8_t)bit(r);
    }
  }
  if (all)
    end(w, c, here_set(w, c, b->nranks), me->list);
  else
    me->phase = GATHERING;
  return true;
}

/* ---- a follower ------------------------------------------------------------------------------ */

/* A rank takes up the connection to the next leader, or leads itself. */
static bool choose_leader(world *w, int r) {
  rank *me = &w->rank[r];
  int c = 0;
  while (c < r && (me->gone | me->skipped) & bit(c))
    c++;
  me->leader = (uint8_t)c;
  me->sent = 0;
  me->phase = GATHERING;
  if (c == r)
    me->own = 0;
  else /* it leads none of these, and its new connection replaces an old one */
    for (int other = 0; other < MOST; other++)
      w->link[r][other] = (link){0};
  return true;
}

/* Its checkin arrives, if that rank lives and leads, or passes it on to the one that it follows,
 * which this rank may have given up on before. */
static bool check_in(world *w, int r) {
  rank *me = &w->rank[r], *leader = &w->rank[me->leader];
  if (leader->alive && !leader->outcome && !me->sent && leader->sent &&
      leader->leader < me->leader) {
    me->leader = leader->leader;
    leader = &w->rank[me->leader];
  }
  if (me->sent || !leader->alive || leader->outcome || leader->leader != me->leader)
    return false;
  me->sent = 1;
  w->link[me->leader][r] = (link){.open = 1,
                                  .here = 1,
                                  .ballot = me->ballot,
                                  .list = me->list,
                                  .renewed = me->renewed,
                                  .child = me->child};
  leader->gone |= me->gone & (uint8_t)~bit(me->leader);
  return true;
}

/* Takes the order that is on its way to it; `can`: it is able to build. */
static bool take_order(world *w, int r, bool can) {
  rank *me = &w->rank[r];
  link *l = &w->link[me->leader][r];
  order what = (order)l->order;
  if (!me->sent || what == NO_ORDER || (!can && what != BUILD))
    return false;
  l->order = NO_ORDER;
  if (what == COMMIT || what == END) {
    me->outcome = what == COMMIT && me->child == l->order_list ? me->child : FAILED;
    return true;
  }
  if (l->order_ballot <= me->ballot || (what == RENEW && me->child != l->order_list)) {
    me->skipped |= (uint8_t)bit(me->leader);
    me->leader = NOBODY;
    return true;
  }
  me->ballot = l->order_ballot;
  me->list = l->order_list;
  me->renewed = what == RENEW;
  if (what == BUILD)
    me->child = can ? me->list : 0;
  w->known[r][me->child] = me->ballot;
  l->word = can ? 1 : 2;
  l->word_ballot = me->ballot;
  return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* A rank dies, which it may also do after it has returned. */
static bool die(world *w, const bounds *b, int r) {
  if (w->deaths == b->deaths)
    return false;
  w->deaths++;
  w->rank[r].alive = 0;
  return true;
}

/* A rank learns that another one is dead. */
static bool learn(world *w, int r, int dead) {
  rank *me = &w->rank[r];
  if (w->rank[dead].alive || me->gone & bit(dead))
    return false;
  me->gone |= (uint8_t)bit(dead);
  if (me->leader == dead)
    me->leader = NOBODY;
  if (me->leader == r)
    w->link[r][dead] = (link){0};
  return true;
}

/* A rank gives up on its leader. */
static bool give_up(world *w, const bounds *b, int r) {
  rank *me = &w->rank[r];
  if (w->given_up == b->give_ups)
    return false;
  w->given_up++;
  me->skipped |= (uint8_t)bit(me->leader);
  me->leader = NOBODY;
  return true;
}

/* A rank leaves the shrink with an error, in the middle of whatever it does. */
static bool leave(world *w, const bounds *b, int r) {
  if (w->left == b->leaves)
    return false;
  w->left++;
  w->rank[r].outcome = FAILED;
  return true;
}

/* A leader gets the word of a rank, which may have left since. */
static bool hear_word(world *w, int c, int r) {
  const rank *me = &w->rank[c];
  link *l = &w->link[c][r];
  if (!l->open || !l->word)
    return false;
  if (l->word_ballot == me->ballot && me->phase == HEARING) {
    l->said = l->word;
    if (l->word == 1)
      l->child = me->list;
  }
  l->word = 0;
  return true;
}

/* A leader notices that a connection has ended. */
static bool notice_end(world *w, int c, int r) {
  const rank *other = &w->rank[r];
  link *l = &w->link[c][r];
  if (!l->open || l->word || (other->alive && other->leader == c && other->outcome == 0))
    return false;
  *l = (link){0};
  return true;
}

bool happen(world *w, const bounds *b, event kind, int r, int x) {
  const rank *me = &w->rank[r];
  bool in = me->alive && me->outcome == 0, leads = in && me->leader == r,
       follows = in && me->leader != r && me->leader != NOBODY;
  switch (kind) {
  case DIES:
    return me->alive && x == 0 && die(w, b, r);
  case LEARNS_OF_DEATH:
    return in && learn(w, r, x);
  case CHOOSES_LEADER:
    return in && me->leader == NOBODY && x == 0 && choose_leader(w, r);
  case CHECKS_IN:
    return follows && x == 0 && check_in(w, r);
  case OBEYS:
    return follows && x == 0 && take_order(w, r, true);
  case FAILS_TO_BUILD:
    return follows && x == 0 && take_order(w, r, false);
  case GIVES_UP:
    return follows && x == 0 && give_up(w, b, r);
  case LEAVES:
    return in && x == 0 && leave(w, b, r);
  case HEARS_WORD:
    return leads && hear_word(w, r, x);
  case NOTICES_END:
    return leads && notice_end(w, r, x);
  case BEGINS_ROUND:
    return leads && x == 0 && me->phase == GATHERING && begin_round(w, b, r);
  case ENDS_ROUND:
    return leads && x == 0 && me->phase == HEARING && end_round(w, b, r, false);
  default:
    return leads && x == 0 && me->phase == HEARING && end_round(w, b, r, true);
  }
}

world begin_world(const bounds *b) {
  world w;
  memset(&w, 0, sizeof(w));
  for (int r = 0; r < b->nranks; r++) {
    w.rank[r].alive = 1;
    w.rank[r].leader = NOBODY;
  }
  return w;
}
