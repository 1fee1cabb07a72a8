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

bool lead_has_adopted(const shrink *s, int r) {
  COLLI_ASSERT_RANK(here(s, r), s->b.rank);
  return (r == s->b.rank ? s->adopted : s->members[r].head.adopted) == s->list;
}

/* What this rank knows of the latest list, which there is. */
static shrink_view view_list(lead *l) {
  const shrink *s = l->s;
  for (int r = 0; r < s->b.nranks; r++) {
    l->here[r] = here(s, r);
    l->adopted[r] = l->here[r] && lead_has_adopted(s, r);
    l->answered[r] = r == s->b.rank || (l->here[r] && s->members[r].head.asked >= s->ballot);
  }
  return (shrink_view){.nranks = s->b.nranks,
                       .gone = s->gone,
                       .here = l->here,
                       .listed = s->listed,
                       .adopted = l->adopted,
                       .answered = l->answered,
                       .renewed = s->renewed,
                       .mine = s->ballot == l->ballot,
                       .agrees = s->task == SHRINK_AGREE,
                       .newcomers = s->newcomers};
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
    l->takes[r] = must && s->members[r].asked != s->ballot;
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

/* Whether a rank may have returned with the latest list, so that there can be no other. *asks: not
 * as far as is known, but answers are awaited that may tell. */
static bool may_be_committed(lead *l, bool *asks) {
  shrink *s = l->s;
  *asks = false;
  shrink_take_latest(s);
  if (s->proved)
    return true;
  if (s->ballot && s->ballot == l->ballot)
    shrink_take_from_behind(s, l->before);
  if (s->ballot == 0)
    return false;
  const shrink_view view = view_list(l);
  if (shrink_may_be_committed(&view))
    return true;
  *asks = s->altered < 0 && s->aborter < 0 && ask_again(l, &view);
  return false;
}

/* ---- gathering ------------------------------------------------------------------------------- */

bool lead_gather(lead *l) {
  shrink *s = l->s;
  const uint64_t begin_ns = colli_now_ns();
  if (l->until_ns < begin_ns + s->patience_ns / 4)
    l->until_ns = begin_ns + s->patience_ns / 4;
  for (;;) {
    bool all = true, asks = false;
    shrink_tend(s);
    lead_probe(l);
    lead_beat(l);
    for (int r = 0; r < s->b.nranks; r++)
      all = all && !lead_is_missing(s, r);
    const uint64_t now_ns = colli_now_ns();
    const bool late = now_ns >= l->until_ns;
    const bool pauses = now_ns < l->pause_ns;
    if (late || (all && !pauses) || s->proved || s->altered >= 0 || s->aborter >= 0) {
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
