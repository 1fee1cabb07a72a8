/* support_canonical.c: which states of a shrink need not be distinguished. */
#include <string.h>

#include "support_search.h"

/* ---- what nobody will look at again ---------------------------------------------------------- */

/* A rank that has died or returned. */
static void forget_rank(world *w, const bounds *b, int r) {
  const rank was = w->rank[r];
  const bool returned = was.outcome && was.outcome != FAILED;
  w->rank[r] = (rank){.alive = was.alive, .outcome = was.outcome};
  if (!was.alive && !b->uniform)
    w->rank[r].outcome = 0;
  if (b->uniform && returned)
    w->rank[r].ballot = was.ballot;
  if (!was.alive && was.outcome == FAILED)
    w->rank[r].outcome = 0;
  memset(w->link[r], 0, sizeof(w->link[r]));
}

/* A rank that leads. */
static void tidy_leader(world *w, const bounds *b, int c) {
  rank *me = &w->rank[c];
  me->skipped = 0;
  if (me->phase == GATHERING)
    me->takes = 0;
  else
    me->had = (record){0}; /* anew when it gathers again */
  for (int r = 0; r < b->nranks; r++) {
    link *l = &w->link[c][r];
    if (!l->open)
      *l = (link){.dropped = l->dropped < me->ballot ? 0 : l->dropped};
    l->order = l->order_ballot = l->order_list = 0;
    if (l->answered < me->ballot)
      l->answered = 0;
    if (me->phase == GATHERING || !(me->takes & bit(r)))
      l->awaited = l->said = l->word = l->word_ballot = 0;
  }
}

/* A rank that follows another one. */
static void tidy_follower(world *w, int r) {
  rank *me = &w->rank[r];
  me->skipped |= me->gone;
  me->gone = me->phase = me->takes = me->own = 0;
  me->had = (record){0};
  memset(me->brought, 0, sizeof(me->brought));
  memset(w->link[r], 0, sizeof(w->link[r]));
  if (me->leader == NOBODY || !is_in(w, me->leader) || !w->link[me->leader][r].open)
    me->sent = 0;
}

static void tidy(world *w, const bounds *b) {
  for (int r = 0; r < b->nranks; r++)
    if (!is_in(w, r))
      forget_rank(w, b, r);
    else if (w->rank[r].leader == r)
      tidy_leader(w, b, r);
  for (int r = 0; r < b->nranks; r++)
    if (is_in(w, r) && w->rank[r].leader != r)
      tidy_follower(w, r);
  for (int i = 0; i < GUESTS; i++) {
    guest *g = &w->guest[i];
    if (!is_in(w, 0))
      *g = (guest){.outcome = g->outcome};
  }
  if (!is_in(w, 0) || b->guests == 0)
    w->shut = 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Calls a function with each place that has the number of a list. */
static void for_each_list(world *w, const bounds *b, void (*call)(uint8_t *list, void *ctx),
                          void *ctx) {
  for (int r = 0; r < b->nranks; r++) {
    rank *me = &w->rank[r];
    call(&me->list, ctx);
    call(&me->child, ctx);
    call(&me->had.list, ctx);
    if (me->outcome != FAILED)
      call(&me->outcome, ctx);
    for (int x = 0; x < b->nranks; x++) {
      call(&w->link[r][x].list, ctx);
      call(&w->link[r][x].child, ctx);
    }
  }
  for (int i = 0; i < b->guests; i++) {
    call(&w->guest[i].list, ctx);
    call(&w->guest[i].outcome, ctx);
  }
}

static void note_list(uint8_t *list, void *ctx) {
  ((bool *)ctx)[*list] = true;
}

static void rename_list(uint8_t *list, void *ctx) {
  *list = ((const uint8_t *)ctx)[*list];
}

/* Numbers the lists that somebody knows by their first ballots. */
static void number_lists(world *w, const bounds *b) {
  bool used[LISTS + 1] = {false};
  uint8_t number[LISTS + 1] = {0};
  const world was = *w;
  for_each_list(w, b, note_list, used);
  memset(w->members, 0, sizeof(w->members));
  memset(w->made, 0, sizeof(w->made));
  memset(w->invited, 0, sizeof(w->invited));
  memset(w->known, 0, sizeof(w->known));
  for (int i = 1; i <= LISTS; i++) {
    if (!used[i])
      continue;
    number[i] = 1;
    for (int k = 1; k <= LISTS; k++)
      number[i] += used[k] && (was.made[k] < was.made[i] || (was.made[k] == was.made[i] && k < i));
    w->members[number[i]] = was.members[i];
    w->made[number[i]] = was.made[i];
    w->invited[number[i]] = was.invited[i];
    for (int r = 0; r < b->nranks; r++)
      if ((b->uniform || b->guests) && was.rank[r].alive)
        w->known[r][number[i]] = was.known[r][i];
  }
  for_each_list(w, b, rename_list, number);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The lowest rank above all that lead or may lead some day. */
static int end_of_leaders(const world *w, const bounds *b) {
  const int left = b->deaths - w->deaths + b->give_ups - w->given_up;
  int end = 1;
  for (int q = 1; q < b->nranks; q++) {
    if (!is_in(w, q))
      continue;
    if (w->rank[q].leader == q)
      end = q + 1;
    for (int r = 0, need = 0; r <= q && need <= left; r++) {
      end = end > r + 1 ? end : r + 1;
      need += w->rank[r].alive && !(w->rank[q].skipped & bit(r));
    }
  }
  return end < b->nranks ? end : b->nranks;
}

/* Swaps two bits. */
static uint8_t swap_bits(uint8_t set, int x, int y) {
  const unsigned differ = (set >> x ^ set >> y) & 1;
  return (uint8_t)(set ^ (differ << x | differ << y));
}

static void swap_bytes(uint8_t *x, uint8_t *y) {
  const uint8_t was = *x;
  *x = *y;
  *y = was;
}

/* Swaps two ranks that do not lead. */
static void swap_ranks(world *w, int x, int y, int leaders) {
  const rank was = w->rank[x];
  w->rank[x] = w->rank[y];
  w->rank[y] = was;
  for (int c = 0; c < leaders; c++) {
    const link at = w->link[c][x];
    w->link[c][x] = w->link[c][y];
    w->link[c][y] = at;
    w->rank[c].gone = swap_bits(w->rank[c].gone, x, y);
    w->rank[c].takes = swap_bits(w->rank[c].takes, x, y);
    swap_bytes(&w->rank[c].brought[x], &w->rank[c].brought[y]);
  }
  for (int i = 1; i <= LISTS; i++) {
    swap_bytes(&w->known[x][i], &w->known[y][i]);
    w->members[i] = swap_bits(w->members[i], x, y);
  }
}

/* Which of two ranks comes first; 0: they are alike. */
static int compare_ranks(const world *w, int x, int y, int leaders) {
  int differ = memcmp(&w->rank[x], &w->rank[y], sizeof(rank));
  for (int c = 0; c < leaders && !differ; c++) {
    differ = memcmp(&w->link[c][x], &w->link[c][y], sizeof(link));
    differ = differ ? differ : (w->rank[c].gone >> x & 1) - (w->rank[c].gone >> y & 1);
    differ = differ ? differ : (w->rank[c].takes >> x & 1) - (w->rank[c].takes >> y & 1);
    differ = differ ? differ : w->rank[c].brought[x] - w->rank[c].brought[y];
  }
  for (int i = 1; i <= LISTS && !differ; i++) {
    differ = (w->members[i] >> x & 1) - (w->members[i] >> y & 1);
    differ = differ ? differ : w->known[x][i] - w->known[y][i];
  }
  return differ;
}

/* Sorts the ranks of which none can ever lead. */
static void sort_ranks(world *w, const bounds *b) {
  const int leaders = end_of_leaders(w, b);
  for (int x = leaders + 1; x < b->nranks; x++)
    for (int y = x; y > leaders && compare_ranks(w, y, y - 1, leaders) < 0; y--)
      swap_ranks(w, y, y - 1, leaders);
}

void make_canonical(world *w, const bounds *b) {
  tidy(w, b);
  number_lists(w, b);
  sort_ranks(w, b);
  if (b->guests == 2 && memcmp(&w->guest[0], &w->guest[1], sizeof(guest)) < 0) {
    const guest was = w->guest[0];
    w->guest[0] = w->guest[1];
    w->guest[1] = was;
  }
}

bool is_settled(const world *w, const bounds *b) {
  unsigned lists = 0;
  for (int r = 0; r < b->nranks; r++) {
    const rank *me = &w->rank[r];
    if (me->alive && !me->outcome && me->child)
      lists |= bit(me->child);
    if (me->outcome && me->outcome != FAILED)
      lists |= bit(me->outcome);
  }
  for (int i = 0; i < b->guests; i++) {
    const guest *g = &w->guest[i];
    if (g->outcome || (g->list && is_in(w, 0)))
      lists |= bit(g->outcome ? g->outcome : g->list);
  }
  return w->lists == b->lists && !(lists & (lists - 1));
}
