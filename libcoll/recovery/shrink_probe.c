/* shrink_probe.c: dials many ranks of a shrink, some at a time, to tell them what this rank knows.
 */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/recovery/shrink_internal.h"

#define TELL_NS     (400 * COLLI_NS_PER_MS) /* to tell ranks that may not have heard of an abort, */
#define TELL_ONE_NS (150 * COLLI_NS_PER_MS) /* and a single one, which may have left */

/* Ends a probe. */
static void end_probe(shrink_probe *v) {
  boot_dial_close(&v->dial);
  v->rank = -1;
}

void shrink_probes_begin(shrink_probes *p, shrink_wanted *wanted, uint64_t each_ns) {
  *p = (shrink_probes){.wanted = wanted, .each_ns = each_ns};
  for (int i = 0; i < SHRINK_PROBES; i++)
    p->at[i].rank = -1;
}

/* Begins to probe further ranks, in turn. */
static void begin_more(shrink *s, shrink_probes *p) {
  const int nranks = s->b.nranks;
  for (int i = 0; i < SHRINK_PROBES && p->next < nranks; i++) {
    shrink_probe *v = &p->at[i];
    if (v->rank >= 0)
      continue;
    while (p->next < nranks && !p->wanted(s, p->next))
      p->next++;
    if (p->next == nranks)
      break;
    COLLI_ASSERT_RANK(p->next != s->b.rank, s->b.rank);
    v->rank = p->next++;
    v->until_ns = colli_now_ns() + p->each_ns;
    shrink_dial(s, &v->dial, v->rank);
  }
}

bool shrink_probes_step(shrink *s, shrink_probes *p) {
  const uint64_t now_ns = colli_now_ns();
  bool any = false;
  begin_more(s, p);
  for (int i = 0; i < SHRINK_PROBES; i++) {
    shrink_probe *v = &p->at[i];
    if (v->rank < 0)
      continue;
    int result = shrink_dial_step(s, &v->dial);
    if (result == COLL_T_DONE) {
      shrink_send_checkin(s, &v->dial.conn); /* if it gets lost, the next one will arrive */
      colli_sealed_close(&v->dial.conn);
    }
    if (result != COLL_T_AGAIN || !p->wanted(s, v->rank) || now_ns >= v->until_ns)
      end_probe(v);
    else
      any = true;
  }
  return any || p->next < s->b.nranks;
}

void shrink_probes_watch(shrink *s, const shrink_probes *p) {
  for (int i = 0; i < SHRINK_PROBES; i++)
    if (p->at[i].rank >= 0)
      boot_dial_watch(&s->b, &p->at[i].dial);
}

void shrink_probes_end(shrink_probes *p) {
  for (int i = 0; i < SHRINK_PROBES; i++)
    end_probe(&p->at[i]);
}

/* ---- after an abort ---------------------------------------------------------------------------
 */

/* Whether a rank may not have heard of it. */
static bool may_not_know(const shrink *s, int rank) {
  return rank != s->b.rank && !s->gone[rank];
}

void shrink_tell_abort(shrink *s) {
  shrink_probes *p = malloc(sizeof(*p));
  if (!p)
    return; /* the control links must suffice */
  const uint64_t until_ns = colli_now_ns() + TELL_NS;
  shrink_probes_begin(p, may_not_know, TELL_ONE_NS);
  while (shrink_probes_step(s, p) && colli_now_ns() < until_ns) {
    shrink_listen(s);
    shrink_wait_begin(s);
    shrink_probes_watch(s, p);
    boot_polls_wake(&s->b.polls, until_ns);
    boot_note_errno(&s->b, boot_polls_wait(&s->b.polls), true);
  }
  shrink_probes_end(p);
  explicit_bzero(p, sizeof(*p));
  free(p);
}
