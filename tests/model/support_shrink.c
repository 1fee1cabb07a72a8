/* support_shrink.c: a model of a shrink and of a growth. */
#include "support_lead.h"

#include <string.h>

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
  for (int i = 0; i < b->guests; i++) {
    const uint8_t outcome = w->guest[i].outcome;
    if (!outcome || !is_known(w, outcome, w->made[outcome]))
      continue;
    if (seen && seen != outcome)
      return true;
    seen = outcome;
  }
  return false;
}

/* ---- a follower ------------------------------------------------------------------------------ */

/* A rank goes to another leader, so it hears no question of those before. */
static void forget_drops(world *w, int r) {
  for (int c = 0; c < MOST; c++)
    w->link[c][r].dropped = 0;
}

/* A rank takes up the connection to the next leader, or leads itself. */
static bool choose_leader(world *w, int r) {
  rank *me = &w->rank[r];
  int c = 0;
  while (c < r && (me->gone | me->skipped) & bit(c))
    c++;
  me->leader = (uint8_t)c;
  me->sent = 0;
  forget_drops(w, r);
  memset(me->brought, 0, sizeof(me->brought));
  begin_to_gather(me);
  if (c == r)
    me->own = 0;
  else /* it leads none of these, and its new connection replaces an old one */
    for (int other = 0; other < MOST; other++)
      w->link[r][other] = (link){0};
  return true;
}

/* Its checkin arrives, if that rank lives and leads, or passes it on to the one that it follows,
 * which this rank may have given up on before. */
static bool check_in(world *w, const bounds *b, int r, bool answers) {
  rank *me = &w->rank[r];
  const rank *first = &w->rank[me->leader];
  const bool passed =
      first->alive && !first->outcome && !me->sent && first->sent && first->leader < me->leader;
  const uint8_t c = passed ? first->leader : me->leader;
  rank *leader = &w->rank[c];
  link *l = &w->link[c][r];
  if (me->sent || !leader->alive || leader->outcome || leader->leader != c)
    return false;
  if (answers && (passed || l->open || !l->dropped))
    return false;
  if (passed)
    forget_drops(w, r);
  me->leader = c;
  me->sent = 1;
  *l = (link){.open = 1, .answered = answers ? l->dropped : 0};
  hear_checkin(w, b, me->leader, r);
  leader->gone |= me->gone & (uint8_t)~bit(me->leader);
  return true;
}

/* Its answer to the question of its leader arrives. */
static bool answer(world *w, const bounds *b, int r) {
  const int c = w->rank[r].leader;
  link *l = &w->link[c][r];
  if (!w->rank[r].sent || !l->asked)
    return false;
  hear_checkin(w, b, c, r);
  l->asked = 0;
  l->answered = w->rank[c].ballot;
  return true;
}

/* It finds that its connection is over, and will check in again. */
static bool come_back(world *w, int r) {
  rank *me = &w->rank[r];
  if (!me->sent || w->link[me->leader][r].open)
    return false;
  me->sent = 0;
  return true;
}

/* Takes the order that is on its way to it; `can`: it is able to build. */
static bool take_order(world *w, const bounds *b, int r, bool can) {
  rank *me = &w->rank[r];
  link *l = &w->link[me->leader][r];
  order what = (order)l->order;
  if (!me->sent || what == NO_ORDER)
    return false;
  if (!can && (what != BUILD || w->failures == b->failures))
    return false;
  w->failures += !can;
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

/* A leader's end of a connection breaks, although the rank is still there. */
static bool break_link(world *w, const bounds *b, int c, int r) {
  if (!w->link[c][r].open || !is_attached(w, c, r) || w->given_up == b->give_ups)
    return false;
  w->given_up++;
  w->link[c][r] = (link){.dropped = w->rank[c].ballot};
  return true;
}

/* A rank hears that another one, or a newcomer, has returned with a list. */
static bool hear_outcome(world *w, const bounds *b, int r, int x) {
  rank *me = &w->rank[r];
  uint8_t list = 0;
  if (x < b->nranks)
    list = w->rank[x].alive ? w->rank[x].outcome : 0;
  else if (x < b->nranks + b->guests)
    list = w->guest[x - b->nranks].outcome;
  if (!list || list == FAILED)
    return false;
  if (me->leader != r) { /* it dials lower ranks until one lets it in */
    if (x >= r || me->sent || me->child != list)
      return false;
    me->outcome = list;
    return true;
  }
  const unsigned here = here_set(w, r, b->nranks);
  if (me->list != list || me->phase != GATHERING)
    return false;
  me->takes = (uint8_t)(adopted_set(w, r, here, list) & w->members[list]);
  end_shrink(w, r, here, list);
  return true;
}

/* A newcomer has made the communicator for which it was called, or returns with it. */
static bool guest_moves(world *w, int i, bool returns) {
  guest *g = &w->guest[i];
  if (g->outcome || !g->list || (returns ? g->order != COMMIT : g->said || !is_in(w, 0)))
    return false;
  if (returns)
    *g = (guest){.outcome = g->list};
  g->said = !returns;
  return true;
}

bool happen(world *w, const bounds *b, event kind, int r, int x) {
  const rank *me = &w->rank[r];
  bool in = me->alive && me->outcome == 0, leads = in && me->leader == r,
       follows = in && me->leader != r && me->leader != NOBODY;
  if (x >= b->nranks && kind != HEARS_OUTCOME)
    return false;
  switch (kind) {
  case DIES:
    return me->alive && x == 0 && die(w, b, r);
  case LEARNS_OF_DEATH:
    return in && learn(w, r, x);
  case CHOOSES_LEADER:
    return in && me->leader == NOBODY && x == 0 && choose_leader(w, r);
  case CHECKS_IN:
    return follows && x <= 1 && check_in(w, b, r, x == 1);
  case COMES_BACK:
    return follows && x == 0 && come_back(w, r);
  case OBEYS:
    return follows && x == 0 && take_order(w, b, r, true);
  case FAILS_TO_BUILD:
    return follows && x == 0 && take_order(w, b, r, false);
  case GIVES_UP:
    return follows && x == 0 && give_up(w, b, r);
  case HEARS_OUTCOME:
    return (leads || follows) && hear_outcome(w, b, r, x);
  case LEAVES:
    return in && x == 0 && leave(w, b, r);
  case HEARS_WORD:
    return leads && hear_word(w, r, x);
  case NOTICES_END:
    return leads && notice_end(w, r, x);
  case BREAKS:
    return leads && break_link(w, b, r, x);
  case GUEST_BUILDS:
  case GUEST_RETURNS:
    return x == 0 && r < b->guests && guest_moves(w, r, kind == GUEST_RETURNS);
  case ASKS:
    return leads && x == 0 && me->phase == GATHERING && ask_again(w, b, r);
  case ANSWERS:
    return follows && x == 0 && answer(w, b, r);
  case BEGINS_ROUND:
    return leads && me->phase == GATHERING && begin_round(w, b, r, x);
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
