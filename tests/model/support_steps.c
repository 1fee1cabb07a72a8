/* support_steps.c: the steps of search(): each is several events of a shrink. */
#include <stdlib.h>

#include "support_search.h"

/* The step that is being made. */
typedef struct step {
  const bounds *b;
  visitor *visit;
  void *ctx;
  int c; /* who leads it */
} step;

/* How many more ranks may give up, or connections break. */
static int give_ups_left(const step *s, const world *w) {
  return s->b->give_ups - w->given_up;
}

static void end_step(const step *s, const world *w) {
  world next = *w;
  for (int r = 0; r < s->b->nranks; r++)
    happen(&next, s->b, CHOOSES_LEADER, r, 0);
  s->visit(s->ctx, &next);
}

/* ---- the end of a round ---------------------------------------------------------------------- */

/* COMMIT arrives at rank r and all above it, or it does not. */
static void commit_from(const step *s, const world *w, int r) {
  if (r == s->b->nranks) {
    end_step(s, w);
    return;
  }
  world next = *w;
  commit_from(s, w, r + 1);
  if (is_attached(w, s->c, r) && w->link[s->c][r].order == COMMIT &&
      happen(&next, s->b, OBEYS, r, 0))
    commit_from(s, &next, r + 1);
}

/* The same for newcomers before that. */
static void commit_to_guests(const step *s, const world *w, int i) {
  if (i == s->b->guests || s->c != 0) {
    commit_from(s, w, 0);
    return;
  }
  world next = *w;
  commit_to_guests(s, w, i + 1);
  if (happen(&next, s->b, GUEST_RETURNS, i, 0))
    commit_to_guests(s, &next, i + 1);
}

/* The leader has all the answers that it gets, and ends the round if these are all. */
static void end_round_of(const step *s, const world *w) {
  world next = *w;
  if (!happen(&next, s->b, ENDS_ROUND, s->c, 0) || next.rank[s->c].outcome == FAILED)
    end_step(s, w);
  else
    commit_to_guests(s, &next, 0);
  world early = *w; /* only broken rules commit then */
  if (s->b->bug == COMMITS_EARLY && happen(&early, s->b, ENDS_ROUND_EARLY, s->c, 0) &&
      is_in(w, s->c) && early.rank[s->c].outcome)
    commit_to_guests(s, &early, 0);
}

/* Newcomers that were called make their communicator, or not. */
static void build_guests(const step *s, const world *w) {
  world next = *w;
  bool any = false;
  for (int i = 0; s->c == 0 && i < s->b->guests; i++)
    any = happen(&next, s->b, GUEST_BUILDS, i, 0) || any;
  end_round_of(s, w);
  if (any)
    end_round_of(s, &next);
}

/* ---- a round --------------------------------------------------------------------------------- */

/* The order arrives at rank r and all above it, and their words at the leader, or not. `unheard`:
 * so many words have not. */
static void obey_from(const step *s, const world *w, int r, int unheard) {
  if (w->deaths == s->b->deaths && unheard > give_ups_left(s, w))
    return; /* nobody gets any further who would not if more words arrived */
  while (r < s->b->nranks && !w->link[s->c][r].order)
    r++;
  if (r == s->b->nranks) {
    build_guests(s, w);
    return;
  }
  obey_from(s, w, r + 1, unheard + is_attached(w, s->c, r));
  if (!is_attached(w, s->c, r))
    return;
  for (event how = OBEYS; how <= FAILS_TO_BUILD; how++) {
    world next = *w;
    if (!happen(&next, s->b, how, r, 0))
      continue;
    obey_from(s, &next, r + 1, unheard + 1);
    if (happen(&next, s->b, HEARS_WORD, s->c, r))
      obey_from(s, &next, r + 1, unheard);
  }
}

/* The leader begins a round with those who are here, once those who were asked have checked in
 * again; or it asks; or it learns the outcome. */
static void begin_rounds(const step *s, const world *before) {
  world answered = *before;
  const world *w = &answered;
  for (int r = s->c + 1; r < s->b->nranks; r++)
    if (is_attached(before, s->c, r))
      happen(&answered, s->b, ANSWERS, r, 0);
  world asked = *w;
  if (happen(&asked, s->b, ASKS, s->c, 0))
    end_step(s, &asked);
  for (int x = 0; x < s->b->nranks + s->b->guests; x++) {
    world next = *w;
    if (happen(&next, s->b, HEARS_OUTCOME, s->c, x))
      commit_to_guests(s, &next, 0);
  }
  for (int guests = 0; guests <= s->b->guests; guests++) {
    world next = *w;
    if (happen(&next, s->b, BEGINS_ROUND, s->c, guests) && is_in(&next, s->c))
      obey_from(s, &next, s->c + 1, 0);
  }
}

/* Before that, it loses the connections to rank r and some above, and others check in. */
static void meet_from(const step *s, const world *w, int r) {
  const int c = s->c;
  if (r == s->b->nranks) {
    begin_rounds(s, w);
    return;
  }
  world next = *w;
  meet_from(s, w, r + 1);
  if (happen(&next, s->b, NOTICES_END, c, r) || happen(&next, s->b, BREAKS, c, r))
    meet_from(s, &next, r + 1);
  happen(&next, s->b, COMES_BACK, r, 0);
  for (int answers = 0; answers < 2; answers++) {
    world comes = next;
    if (is_in(w, r) && w->rank[r].leader == c && happen(&comes, s->b, CHECKS_IN, r, answers))
      meet_from(s, &comes, r + 1);
  }
}

/* And it learns that rank x is dead, and some above. */
static void learn_from(const step *s, const world *w, int x) {
  if (x == s->b->nranks) {
    meet_from(s, w, s->c + 1);
    return;
  }
  world next = *w;
  learn_from(s, w, x + 1);
  if (happen(&next, s->b, LEARNS_OF_DEATH, s->c, x))
    learn_from(s, &next, x + 1);
}

/* A leader ends the round in which it is, and begins the next one. */
static void lead_on(step *s, const world *w, int c) {
  world next = *w;
  s->c = c;
  for (int r = c + 1; next.rank[c].phase == HEARING && r < s->b->nranks; r++)
    if ((next.rank[c].takes & bit(r)) && next.link[c][r].awaited && !next.link[c][r].said &&
        !happen(&next, s->b, NOTICES_END, c, r) && !happen(&next, s->b, BREAKS, c, r))
      return;
  if (next.rank[c].phase == HEARING &&
      (!happen(&next, s->b, ENDS_ROUND_EARLY, c, 0) || next.rank[c].outcome))
    return;
  learn_from(s, &next, 0);
}

/* ---- other steps ----------------------------------------------------------------------------- */

/* A rank leaves its leader, or all. */
static void leave(const step *s, const world *w, int r) {
  static const event ways[] = {LEARNS_OF_DEATH, GIVES_UP, LEAVES, DIES};
  const int leader = w->rank[r].leader;
  const bool follows = is_in(w, r) && leader != r;
  for (int i = 0; i < 4; i++) {
    world next = *w;
    if (ways[i] == GIVES_UP && !(follows && w->rank[leader].alive))
      continue; /* to learn that it is dead costs nothing */
    if (ways[i] == LEARNS_OF_DEATH && !follows)
      continue;
    if (happen(&next, s->b, ways[i], r, ways[i] == LEARNS_OF_DEATH ? leader : 0))
      end_step(s, &next);
  }
  for (int x = 0; follows && x < r; x++) {
    world next = *w;
    if (happen(&next, s->b, HEARS_OUTCOME, r, x))
      end_step(s, &next);
  }
}

/* A rank that follows checks in through its leader with the one that this one follows. */
static void pass_on(const step *s, const world *w, int r) {
  const int leader = w->rank[r].leader;
  world next = *w;
  if (!is_in(w, leader) || w->rank[leader].leader == leader || w->rank[r].sent)
    return;
  const int above = w->rank[leader].leader;
  happen(&next, s->b, CHECKS_IN, leader, 0);
  if (next.rank[leader].sent && next.rank[leader].leader == above &&
      happen(&next, s->b, CHECKS_IN, r, 0))
    end_step(s, &next);
}

void for_each_step(const world *w, const bounds *b, visitor *visit, void *ctx) {
  step s = {.b = b, .visit = visit, .ctx = ctx};
  for (int r = 0; r < b->nranks; r++) {
    const int leader = w->rank[r].leader;
    const bool follows = is_in(w, r) && leader != r;
    leave(&s, w, r);
    if (is_in(w, r) && leader == r)
      lead_on(&s, w, r);
    if (!follows)
      continue;
    pass_on(&s, w, r);
    static const event before[][2] = {{CHECKS_IN, 0}, {CHECKS_IN, 1}, {ANSWERS, 0}};
    for (int i = 0; i < 3; i++) { /* it may have done these before it leaves */
      world next = *w;
      if (is_in(w, leader) && w->rank[leader].leader == leader &&
          happen(&next, b, before[i][0], r, (int)before[i][1]))
        leave(&s, &next, r);
    }
  }
}
