/*
 * test_shrink_model.c: searches the orders of events of a shrink for one from which two
 * communicators come at once. Ranks follow, lead, adopt and return by the rules of
 * libcoll/recovery/shrink_rules.h; everything else is left to chance: who gives up on whom and
 * when, which messages arrive before a connection breaks, who dies, and who learns of it. That
 * covers cuts that heal, and cuts in one direction: to a rank they are silence, after which it
 * gives up.
 *
 *   3 ranks    every order of events, up to a number of lists, of deaths, and of ranks given up
 *   4, 5 ranks as many random ones as there is time for
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/recovery/shrink_rules.h"

enum { MOST = 5, LISTS = 7, NOBODY = 15, FAILED = 15 };

typedef enum phase { GATHERING, HEARING } phase;
typedef enum order { NO_ORDER, BUILD, RENEW, COMMIT, END } order;

/* What a leader has of a rank, and what is on its way between them. */
typedef struct link {
  uint8_t open; /* at the leader's end */
  uint8_t here; /* its checkin has arrived: */
  uint8_t ballot, list, renewed, child;
  uint8_t order, order_ballot, order_list; /* on its way to the rank */
  uint8_t word, word_ballot;               /* on its way back: 1: adopted, 2: could not */
  uint8_t said;                            /* and arrived */
} link;

typedef struct rank {
  uint8_t alive;
  uint8_t outcome;       /* the list with which it returned; FAILED; 0: not yet */
  uint8_t leader;        /* whom it follows; itself; NOBODY */
  uint8_t sent;          /* its checkin, to its leader */
  uint8_t gone, skipped; /* sets of ranks */
  uint8_t ballot, list, renewed, child;
  uint8_t phase, own, takes; /* of a leader: the ballot that it chose, and who takes the list */
} rank;

typedef struct world {
  rank rank[MOST];
  link link[MOST][MOST]; /* [leader][rank] */
  uint8_t members[LISTS + 1];
  uint8_t lists, deaths, given_up;
} world;

/* What a search may do. */
typedef struct bounds {
  int nranks;
  int lists, deaths, give_ups;
  coll_shrink_quorum quorum;
} bounds;

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

/* Whether two ranks that live have returned with different lists. */
static bool is_split(const world *w, int nranks) {
  uint8_t seen = 0;
  for (int r = 0; r < nranks; r++) {
    const rank *me = &w->rank[r];
    if (!me->alive || me->outcome == 0 || me->outcome == FAILED)
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
  unsigned adopters = adopted_set(w, c, here);
  spread(gone, me->gone);
  spread(is_here, here);
  spread(listed, w->members[me->list]);
  spread(adopted, adopters);
  bool committed = me->ballot != 0 && me->ballot != me->own &&
                   shrink_may_be_committed(
                       &(shrink_view){b->nranks, gone, is_here, listed, adopted, me->renewed});
  me->takes = (uint8_t)(committed ? here & adopters & w->members[me->list] : here);
  spread(takes, me->takes);
  if (!shrink_is_enough(b->quorum, b->nranks, gone, takes)) {
    end(w, c, here, FAILED);
    return true;
  }
  if (!committed && w->lists == b->lists)
    return false;
  me->ballot = ballot_after(me->ballot, c);
  me->renewed = committed;
  if (!committed) {
    me->own = me->ballot;
    me->list = ++w->lists;
    w->members[me->list] = me->takes;
    me->child = me->list;
  }
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

/* Its checkin arrives, if that rank lives and leads. */
static bool check_in(world *w, int r) {
  rank *me = &w->rank[r], *leader = &w->rank[me->leader];
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
  l->word = can ? 1 : 2;
  l->word_ballot = me->ballot;
  return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

enum { EVENTS = 12 };

/* Lets event `kind` happen to rank r (and another one, x); false if it cannot. */
static bool happen(world *w, const bounds *b, int kind, int r, int x) {
  rank *me = &w->rank[r];
  link *l = &w->link[r][x];
  bool in = me->alive && me->outcome == 0, leads = in && me->leader == r,
       follows = in && me->leader != r && me->leader != NOBODY;
  switch (kind) {
  case 0: /* dies, also after it has returned */
    if (!me->alive || w->deaths == b->deaths || x)
      return false;
    w->deaths++;
    me->alive = 0;
    return true;
  case 1: /* learns that another rank is dead */
    if (!in || w->rank[x].alive || me->gone & bit(x))
      return false;
    me->gone |= (uint8_t)bit(x);
    if (me->leader == x)
      me->leader = NOBODY;
    if (leads)
      *l = (link){0};
    return true;
  case 2:
    return in && me->leader == NOBODY && x == 0 && choose_leader(w, r);
  case 3:
    return follows && x == 0 && check_in(w, r);
  case 4:
    return follows && x == 0 && take_order(w, r, true);
  case 5:
    return follows && x == 0 && take_order(w, r, false);
  case 6: /* gives up on its leader */
    if (!follows || x || w->given_up == b->give_ups)
      return false;
    w->given_up++;
    me->skipped |= (uint8_t)bit(me->leader);
    me->leader = NOBODY;
    return true;
  case 7: /* a word arrives, also of a rank that has left since */
    if (!leads || !l->open || !l->word)
      return false;
    if (l->word_ballot == me->ballot && me->phase == HEARING) {
      l->said = l->word;
      if (l->word == 1)
        l->child = me->list;
    }
    l->word = 0;
    return true;
  case 8: /* a leader notices that a connection has ended */
    if (!leads || !l->open || l->word ||
        (w->rank[x].alive && w->rank[x].leader == r && w->rank[x].outcome == 0))
      return false;
    *l = (link){0};
    return true;
  case 9:
    return leads && x == 0 && me->phase == GATHERING && begin_round(w, b, r);
  case 10:
    return leads && x == 0 && me->phase == HEARING && end_round(w, b, r, false);
  default:
    return leads && x == 0 && me->phase == HEARING && end_round(w, b, r, true);
  }
}

/* All ranks come to the shrink. */
static world begin_world(const bounds *b) {
  world w;
  memset(&w, 0, sizeof(w));
  for (int r = 0; r < b->nranks; r++) {
    w.rank[r].alive = 1;
    w.rank[r].leader = NOBODY;
  }
  return w;
}

/* ---- the searches ---------------------------------------------------------------------------- */

/* States that were seen, by their hashes. */
typedef struct seen {
  uint64_t *at;
  size_t mask, count;
} seen;

static uint64_t hash_of(const world *w) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < sizeof(*w); i++)
    hash = (hash ^ ((const uint8_t *)w)[i]) * 0x100000001b3ull;
  return (hash ^ hash >> 29) | 1;
}

/* Adds a state; false if it is there. */
static bool add_state(seen *s, uint64_t hash) {
  if (2 * s->count >= s->mask) {
    seen old = *s;
    s->mask = old.mask ? 2 * old.mask + 1 : (1u << 16) - 1;
    s->count = 0;
    s->at = calloc(s->mask + 1, sizeof(*s->at));
    cr_assert_not_null(s->at);
    for (size_t i = 0; old.at && i <= old.mask; i++)
      if (old.at[i])
        add_state(s, old.at[i]);
    free(old.at);
  }
  size_t i = hash >> 20 & s->mask;
  for (; s->at[i]; i = (i + 1) & s->mask)
    if (s->at[i] == hash)
      return false;
  s->at[i] = hash;
  s->count++;
  return true;
}

/* Searches every order of events; whether there is one with two communicators. */
static bool search_all(const bounds *b, size_t *states) {
  size_t depth = 0, room = 1u << 16;
  world *stack = malloc(room * sizeof(*stack));
  seen s = {0};
  bool split = false;
  cr_assert_not_null(stack);
  stack[depth++] = begin_world(b);
  while (depth > 0 && !split) {
    const world w = stack[--depth];
    split = is_split(&w, b->nranks);
    for (int i = 0; i < EVENTS * b->nranks * b->nranks && !split; i++) {
      world next = w;
      int kind = i % EVENTS, r = i / EVENTS % b->nranks, x = i / EVENTS / b->nranks;
      if (!happen(&next, b, kind, r, x) || !add_state(&s, hash_of(&next)))
        continue;
      if (depth == room)
        stack = realloc(stack, (room *= 2) * sizeof(*stack));
      cr_assert_not_null(stack);
      stack[depth++] = next;
    }
  }
  *states = s.count;
  free(s.at);
  free(stack);
  return split;
}

/* One random order of events; whether two communicators come of it. */
static bool walk(const bounds *most, uint64_t seed, int *returned) {
  colli_prng prng = {seed};
  bounds drawn = *most, *b = &drawn;
  drawn.deaths = (int)colli_prng_below(&prng, (uint64_t)most->deaths + 1);
  drawn.give_ups = (int)colli_prng_below(&prng, (uint64_t)most->give_ups + 1);
  world w = begin_world(b);
  for (int vain = 0; vain < 400; vain++) {
    int kind = (int)colli_prng_below(&prng, EVENTS);
    int r = (int)colli_prng_below(&prng, (uint64_t)b->nranks);
    int x =
        kind == 1 || kind == 7 || kind == 8 ? (int)colli_prng_below(&prng, (uint64_t)b->nranks) : 0;
    bool ends = kind == 0 || kind == 6 || kind == 9 || kind == 11;
    if (ends && vain < 200 && colli_prng_below(&prng, 64))
      continue; /* or nobody would ever return */
    if (!happen(&w, b, kind, r, x))
      continue;
    vain = 0;
    if (is_split(&w, b->nranks))
      return true;
  }
  for (int r = 0; r < b->nranks; r++)
    *returned += w.rank[r].alive && w.rank[r].outcome && w.rank[r].outcome != FAILED;
  return false;
}

/* Three ranks, exhaustively. */
static void search_three(int lists, int deaths, int give_ups) {
  bounds b = {3, lists, deaths, give_ups, COLL_SHRINK_QUORUM_MAJORITY};
  size_t states;
  cr_assert(!search_all(&b, &states), "%d lists, %d deaths, %d given up", lists, deaths, give_ups);
  printf("%zu states\n", states);
}

Test(shrink_model, three_ranks) {
  search_three(2, 2, 2);
  search_three(3, 1, extent(1, 2, 1));
}

/* Both sides of a cut go on if that is wanted: the search would see it. */
Test(shrink_model, reachable_ranks_split) {
  bounds b = {3, 2, 0, 2, COLL_SHRINK_QUORUM_REACHABLE};
  size_t states;
  cr_assert(search_all(&b, &states));
}

Test(shrink_model, random_orders) {
  int returned = 0;
  for (int nranks = 4; nranks <= MOST; nranks++) {
    bounds b = {nranks, LISTS, 3, 6, COLL_SHRINK_QUORUM_MAJORITY};
    for (int i = 0; i < extent(40000, 1000000, 20000); i++)
      cr_assert(!walk(&b, (uint64_t)(nranks * 100000000 + i), &returned), "%d ranks, order %d",
                nranks, i);
  }
  printf("%d ranks returned with a communicator\n", returned);
  cr_assert_gt(returned, 10000);
  for (int nranks = 4; nranks <= MOST; nranks++) {
    bounds b = {nranks, LISTS, 3, 6, COLL_SHRINK_QUORUM_REACHABLE};
    int split = 0;
    for (int i = 0; i < 1000; i++)
      split += walk(&b, (uint64_t)i, &returned);
    printf("%d of 1000 split\n", split);
    cr_assert_gt(split, 0);
  }
}
