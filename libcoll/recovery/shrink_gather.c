/* shrink_gather.c: the coordinator of a shrink waits for the others, and finds out whether the
 * latest list may be committed. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/recovery/shrink_lead.h"

#define AGAIN_NS (500 * COLLI_NS_PER_MS) /* until missing ranks are probed again */

/* Whether a rank is here: this one, or one that has checked in. */
static bool here(const shrink *s, int r) {
  return r == s->b.rank || s->members[r].in;
}

bool lead_is_missing(const shrink *s, int r) {
  return !here(s, r) && !s->gone[r] && !s->skipped[r];
}

void lead_probe(lead *l) {
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < l->next_ns || shrink_probes_step(l->s, &l->probes))
    return;
  l->probes.next = 0;
  l->next_ns = now_ns + AGAIN_NS;
}

void lead_skip(shrink *s, int rank) {
  if (rank < 0 || rank >= s->b.nranks || rank == s->b.rank)
    return;
  s->skipped[rank] = true;
  shrink_member_drop(s, rank);
}

/* ---- orders ---------------------------------------------------------------------------------- */

void lead_send(lead *l, shrink_order *order, bool takers) {
  shrink *s = l->s;
  uint8_t *flags = shrink_alloc(s, (size_t)s->b.nranks);
  if (!flags)
    return; /* they notice when this rank gives up */
  order->ballot = s->ballot;
  order->comm_id = s->list;
  for (int r = 0; r < s->b.nranks; r++)
    flags[r] = (uint8_t)((s->listed[r] ? SHRINK_LISTED : 0) |
                         (r != s->b.rank && l->takes[r] == takers ? SHRINK_FOR : 0));
  shrink_pass_down(s, order, flags);
  free(flags);
}

shrink_order lead_order(shrink_order_kind kind) {
  shrink_order order;
  memset(&order, 0, sizeof(order));
  order.kind = kind;
  return order;
}

void lead_beat(lead *l) {
  shrink *s = l->s;
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < l->beat_ns)
    return;
  l->beat_ns = now_ns + s->patience_ns / LEAD_BEATS;
  shrink_order order = lead_order(SHRINK_WAIT);
  lead_send(l, &order, true);
  lead_send(l, &order, false);
}

/* ---- the latest list ------------------------------------------------------------------------- */

/* Whether a rank that is here has adopted a list. */
static bool has_adopted(const shrink *s, int r, uint64_t list) {
  COLLI_ASSERT_RANK(here(s, r), s->b.rank);
  return (r == s->b.rank ? s->adopted : s->members[r].head.adopted) == list;
}

bool lead_has_adopted(const shrink *s, int r) {
  return has_adopted(s, r, s->list);
}

/* What this rank knows of the latest list, which there is, or of the one that `m` brings. */
static shrink_view view_list(lead *l, const shrink_member *m) {
  const shrink *s = l->s;
  const uint64_t list = m ? m->head.list : s->list;
  bool renewed = m ? m->head.renewed != 0 : s->renewed;
  for (int r = 0; r < s->b.nranks; r++) {
    const shrink_checkin *head = &s->members[r].head;
    l->here[r] = here(s, r);
    l->adopted[r] = l->here[r] && has_adopted(s, r, list);
    /* A renewal may have a lower ballot than this rank's, which rises when it asks. */
    renewed = renewed || (r != s->b.rank && l->here[r] && head->list == list && head->renewed != 0);
    l->listed[r] = m ? m->list[r] & SHRINK_LISTED : s->listed[r];
    l->answered[r] = r == s->b.rank || (l->here[r] && s->members[r].head.asked >= s->ballot);
  }
  return (shrink_view){.nranks = s->b.nranks,
                       .gone = s->gone,
                       .here = l->here,
                       .listed = l->listed,
                       .adopted = l->adopted,
                       .answered = l->answered,
                       .renewed = renewed,
                       .mine = !m && s->ballot == l->ballot,
                       .agrees = s->task == SHRINK_AGREE,
                       .newcomers = m ? m->head.newcomers : s->newcomers};
}

/* Asks those who must check in again before the latest list is replaced; who does not in time is
 * skipped as others who are silent. False: there is nobody to wait for. */
static bool ask_again(lead *l, const shrink_view *view) {
  shrink *s = l->s;
  const uint64_t now_ns = colli_now_ns();
  const bool first = l->asked != s->ballot && now_ns < s->limit_ns;
  bool waits = false, asks = false;
  if (first && l->until_ns < now_ns + s->patience_ns / 4)
    l->until_ns = now_ns + s->patience_ns / 4;
  l->asked = s->ballot;
  for (int r = 0; r < s->b.nranks; r++) {
    const bool must = shrink_must_ask(view, r);
    l->takes[r] = must && !s->members[r].asked; /* one question at a time */
    waits = waits || must;
    asks = asks || l->takes[r];
    if (must && now_ns >= l->until_ns)
      lead_skip(s, r);
  }
  shrink_order order = lead_order(SHRINK_AGAIN);
  if (asks)
    lead_send(l, &order, true);
  return waits;
}

/* Keeps the latest list, which may give way to one that another rank brings. */
static void keep_list(lead *l) {
  const shrink *s = l->s;
  l->had = (shrink_member){
      .in = s->ballot != 0,
      .list = l->flags,
      .head = {
          .ballot = s->ballot, .list = s->list, .renewed = s->renewed, .newcomers = s->newcomers}};
  for (int r = 0; r < s->b.nranks; r++)
    l->flags[r] = s->listed[r] ? SHRINK_LISTED : 0;
}

/* Who brings a list other than the latest one: a rank, or r = nranks, this one. NULL: not r. */
static const shrink_member *brings_list(const lead *l, int r) {
  const shrink *s = l->s;
  const shrink_member *m = r < s->b.nranks ? &s->members[r] : &l->had;
  return r != s->b.rank && m->in && m->head.ballot && m->head.list != s->list ? m : NULL;
}

/* Who brings the next list to look at, below a ballot (rule 3). NULL: nobody. */
static const shrink_member *earlier_list(const lead *l, uint64_t below) {
  const shrink_member *found = NULL;
  for (int r = 0; r <= l->s->b.nranks; r++) {
    const shrink_member *m = brings_list(l, r);
    if (m && shrink_is_next(m->head.ballot, below, found ? found->head.ballot : 0))
      found = m;
  }
  return found;
}

/* Whether anybody has brought the list with this ballot before. */
static bool was_brought(const lead *l, uint64_t ballot) {
  bool found = false;
  for (int r = 0; r <= l->s->b.nranks && !found; r++)
    found = l->brought[r] == ballot;
  return found;
}

/* If a list, or a renewal, becomes known besides the latest list, what members said before proves
 * nothing about it: the ballot rises, so that they are asked about it as well. */
static void note_lists(lead *l) {
  shrink *s = l->s;
  bool more = false;
  for (int r = 0; r <= s->b.nranks; r++) {
    const shrink_member *m = brings_list(l, r);
    if (!m || l->brought[r] == m->head.ballot)
      continue;
    more = more || !was_brought(l, m->head.ballot);
    l->brought[r] = m->head.ballot;
  }
  if (!more)
    return;
  const bool mine = s->ballot == l->ballot;
  s->ballot = shrink_next_ballot(s->ballot, s->b.rank);
  l->ballot = mine ? s->ballot : l->ballot;
}

/* Whether a rank may have returned with the latest list, or with an earlier one, which is then the
 * latest, so that there can be no other. *asks: not as far as is known, but answers are awaited
 * that may tell. */
static bool may_be_committed(lead *l, bool *asks) {
  shrink *s = l->s;
  *asks = false;
  shrink_take_latest(s);
  if (s->proved)
    return true;
  if (s->ballot == 0)
    return false;
  note_lists(l);
  const shrink_member *m = NULL;
  do {
    const shrink_view view = view_list(l, m);
    if (shrink_may_be_committed(&view)) {
      if (m)
        shrink_take_list(s, shrink_next_ballot(s->ballot, s->b.rank), m->head.list,
                         m->head.renewed != 0, m->head.newcomers, m->list);
      return true;
    }
    *asks = s->altered < 0 && s->aborter < 0 && !s->starved && ask_again(l, &view);
    m = earlier_list(l, m ? m->head.ballot : s->ballot);
  } while (m && !*asks);
  return false;
}

/* ---- gathering ------------------------------------------------------------------------------- */

bool lead_gather(lead *l) {
  shrink *s = l->s;
  const uint64_t begin_ns = colli_now_ns();
  keep_list(l);
  if (l->until_ns < begin_ns + s->patience_ns / 4)
    l->until_ns = begin_ns + s->patience_ns / 4;
  for (;;) {
    bool all = true, asks = false;
    shrink_tend(s);
    lead_probe(l);
    lead_beat(l);
    const uint64_t now_ns = colli_now_ns();
    const bool late = now_ns >= l->until_ns;
    for (int r = 0; r < s->b.nranks; r++) {
      /* An answer that came during the next round would look like that of a rank that comes again.
       */
      if (late && s->members[r].asked)
        lead_skip(s, r);
      all = all && !lead_is_missing(s, r) && !s->members[r].asked;
    }
    const bool pauses = now_ns < l->pause_ns;
    if (late || (all && !pauses) || s->proved || s->altered >= 0 || s->aborter >= 0 || s->starved) {
      bool committed = may_be_committed(l, &asks);
      for (int r = 0; r < s->b.nranks && !asks; r++)
        l->takes[r] = here(s, r) && (!committed || (s->listed[r] && lead_has_adopted(s, r)));
      if (!asks)
        return committed;
    }
    shrink_wait_begin(s);
    shrink_probes_watch(s, &l->probes);
    shrink_wait(s, pauses ? l->pause_ns : l->until_ns);
  }
}
