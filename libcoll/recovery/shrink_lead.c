/* shrink_lead.c: the coordinator of a shrink gathers the survivors and leads them to its end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/recovery/grow.h"
#include "libcoll/recovery/shrink_lead.h"

#define SHORT_ROUNDS 3u /* that fail because of one rank's shortage, before it is left out, */
#define SHORT_NS     (50 * COLLI_NS_PER_MS) /* and pauses before the next ones */

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Ends the shrink, or only this rank's part in it (`kind`), with the failure in s->b.error, for
 * those who do not take the list. */
static void end_others(lead *l, coll_status status, shrink_order_kind kind) {
  shrink_order order = lead_order(kind);
  order.error = *l->s->b.error;
  order.error.rank = order.error.rank < 0 ? l->s->b.rank : order.error.rank;
  order.error.status = status;
  lead_send(l, &order, false);
}

/* Tells that to everybody. */
static coll_status end_all(lead *l, coll_status status, shrink_order_kind kind) {
  memset(l->takes, 0, (size_t)l->s->b.nranks * sizeof(*l->takes));
  end_others(l, status, kind);
  return status;
}

/* What is still to be done until all who take a list know that it is the outcome. */
typedef struct telling {
  bool all;     /* nothing */
  bool more;    /* some have not been sent it */
  bool missing; /* some have lost their way to this rank, and will come again */
} telling;

static telling look_who_is_told(const lead *l) {
  const shrink *s = l->s;
  telling t = {.all = true};
  for (int r = 0; r < s->b.nranks; r++) {
    const shrink_member *m = &s->members[r];
    if (r == s->b.rank || !l->takes[r] || s->gone[r] || m->told)
      continue;
    t.all = false;
    t.missing = t.missing || !m->in;
    t.more = t.more || (m->in && !m->ends);
  }
  return t;
}

/* Tells all who take the list that it is the outcome. Those who come again, because a rank between
 * has died, are told again: nobody else knows. Otherwise who dials now means the next shrink. */
static void tell_commit(lead *l) {
  shrink *s = l->s;
  const uint64_t until_ns = colli_now_ns() + SHRINK_TELL_NS;
  shrink_order order = lead_order(SHRINK_COMMIT);
  for (telling t = {.more = true};;) {
    if (t.more)
      lead_send(l, &order, true);
    if (t.missing)
      shrink_tend(s);
    else
      shrink_listen(s);
    shrink_links_read(s);
    t = look_who_is_told(l);
    if (t.all || colli_now_ns() >= until_ns)
      return;
    if (t.more)
      continue;
    shrink_wait_begin(s);
    if (t.missing) {
      lead_probe(l);
      shrink_probes_watch(s, &l->probes);
      shrink_wait(s, until_ns);
    } else {
      shrink_wait_inside(s, until_ns);
    }
  }
}

/* All who take the latest list have adopted it, so it is the outcome. */
static coll_status commit_list(lead *l) {
  shrink *s = l->s;
  tell_commit(l);
  grow_dismiss(s, true);
  boot_fail(&s->b, COLL_ERR_TIMEOUT, -1, NULL,
            "the other ranks, led by rank %d (host %s), ended %s without this one, which came too "
            "late; COLL_CREATE_TIMEOUT_MS gives more time",
            s->b.rank, s->b.mine->host, colli_shrink_name(s->task));
  end_others(l, COLL_ERR_TIMEOUT, SHRINK_END);
  if (!l->takes[s->b.rank])
    return COLL_ERR_TIMEOUT;
  COLLI_ASSERT_RANK(lead_has_adopted(s, s->b.rank), s->b.rank);
  colli_error_clear(s->b.error);
  return COLL_OK;
}

/* Whether a round failed because a rank did not answer: the leader, or a member that dialled it. */
static bool is_about_silence(coll_status status) {
  return status == COLL_ERR_TIMEOUT || status == COLL_ERR_UNREACHABLE;
}

static coll_status stop_round(lead *l, coll_status status);

/* How long to wait for reports. Those who build may take half the patience (shrink_build.c). */
static uint64_t report_ns(const shrink *s, uint32_t kind) {
  if (kind == SHRINK_BUILD)
    return s->patience_ns / 2 + s->patience_ns / LEAD_BEATS;
  return s->patience_ns / 4 > COLLI_NS_PER_S ? s->patience_ns / 4 : COLLI_NS_PER_S;
}

/* Takes the report of a rank that takes the list. False: it is not here yet. */
static bool take_report(shrink *s, int r, coll_status *status) {
  shrink_member *m = &s->members[r];
  if (m->report && m->report->ballot == s->ballot) { /* and is not of a round before */
    if (m->report->report.status == COLL_OK)
      m->head.adopted = s->list;
    else if (!shrink_ran_short(s, *status)) /* others then only see that rank give up */
      *status = boot_fail_reported(&s->b, &m->report->report);
    return true;
  }
  if (m->in && m->awaited)
    return false;
  *status = *status == COLL_OK ? COLL_ERR_PEER_LOST : *status; /* or it has come again */
  return true;
}

/* Waits for the reports of this round of those who take the list and were sent an order of this
 * kind. COLL_OK: all have adopted it. */
static coll_status hear_reports(lead *l, uint32_t kind) {
  shrink *s = l->s;
  const uint64_t until_ns = colli_now_ns() + report_ns(s, kind);
  /* Not at once, because a member may not know yet that all have joined. */
  l->beat_ns = colli_now_ns() + s->patience_ns / LEAD_BEATS;
  for (;;) {
    bool late = colli_now_ns() >= until_ns;
    int newcomers = grow_all_built(s);
    bool all = newcomers != COLL_T_AGAIN;
    coll_status status = newcomers > 0 ? (coll_status)newcomers : COLL_OK;
    shrink_tend(s);
    if (s->aborter >= 0)
      return shrink_fail_aborted(s);
    if (s->starved)
      status = shrink_fail_starved(s);
    lead_beat(l);
    for (int r = 0; r < s->b.nranks; r++) {
      if (!l->takes[r] || r == s->b.rank || take_report(s, r, &status))
        continue;
      all = false;
      s->skipped[r] = s->skipped[r] || late;
      if (late)
        shrink_member_drop(s, r);
    }
    if (all || late)
      return all ? status : COLL_ERR_TIMEOUT;
    if (status != COLL_OK && kind == SHRINK_BUILD)
      return stop_round(l, status);
    shrink_wait_begin(s);
    grow_watch(s);
    shrink_wait(s, until_ns);
  }
}

/* Ends the building of a list: nothing comes of it, because of `status`. */
static coll_status stop_round(lead *l, coll_status status) {
  const coll_error why = *l->s->b.error;
  shrink_order order = lead_order(SHRINK_STOP);
  if (is_about_silence(status))
    lead_skip(l->s, why.peer);
  lead_send(l, &order, true);
  grow_dismiss(l->s, false);
  /* So that no message of this round reaches the next one; and a rank that gave up says why. */
  const coll_status said = hear_reports(l, SHRINK_STOP);
  if (status == COLL_ERR_PEER_LOST && shrink_ran_short(l->s, said))
    return said;
  *l->s->b.error = why;
  return status;
}

/* Gives a new list its identity and what its communicator is made from; *listen_fd: -1, or where
 * its ranks meet if there are newcomers. */
static coll_status identify_list(shrink *s, shrink_order *order, int *listen_fd) {
  *listen_fd = -1;
  if (s->task == SHRINK_AGREE) {
    int failed = colli_random_secret(&s->list, sizeof(s->list));
    return failed ? colli_error_sys(s->b.error, COLL_ERR_SYSTEM, "agree", "getrandom", failed,
                                    "cannot make a number for a list")
                  : COLL_OK;
  }
  colli_id fresh;
  coll_status status = order->newcomers > 0
                           ? colli_id_make(&fresh, &s->settings->params, s->b.error)
                           : colli_id_fresh(&fresh, s->b.error);
  if (status != COLL_OK)
    return status;
  memcpy(order->salt, fresh.secret->bytes, sizeof(order->salt));
  memcpy(order->addrs, fresh.addrs, sizeof(order->addrs));
  colli_id_release(&fresh);
  s->list = fresh.comm_id;
  *listen_fd = fresh.listen_fd;
  return COLL_OK;
}

/* The word of all who take the list. */
static uint64_t common_word(const lead *l) {
  const shrink *s = l->s;
  uint64_t word = s->word;
  for (int r = 0; r < s->b.nranks; r++)
    if (l->takes[r] && r != s->b.rank)
      word &= s->members[r].head.word;
  return word;
}

/* A round with a new list: those who are here. COLL_OK: all have adopted it. PEER_LOST, TIMEOUT or
 * UNREACHABLE: another round may succeed with those who are left. */
static coll_status new_list(lead *l) {
  shrink *s = l->s;
  int listen_fd;
  shrink_order order = lead_order(SHRINK_BUILD);
  COLLI_ASSERT_RANK(l->takes[s->b.rank] && !s->proved, s->b.rank);
  memcpy(s->listed, l->takes, (size_t)s->b.nranks * sizeof(*s->listed));
  order.newcomers = s->newcomers = grow_count(s);
  coll_status status = identify_list(s, &order, &listen_fd);
  if (status != COLL_OK)
    return status;
  /* Whatever fails, another round may succeed without the newcomers. */
  const bool grows = order.newcomers > 0;
  s->renewed = false;
  _Static_assert(COLLI_MAX_RANKS <= 1 << SHRINK_RANK_BITS, "a rank fits");
  COLLI_ASSERT_RANK(shrink_next_ballot(s->ballot, s->b.rank) > s->ballot, s->b.rank);
  l->ballot = s->ballot = shrink_next_ballot(s->ballot, s->b.rank);
  order.word = common_word(l);
  lead_send(l, &order, true);
  grow_call_all(s, &order);
  status = shrink_adopt(s, &order, listen_fd);
  if (status == COLL_OK)
    status = hear_reports(l, SHRINK_BUILD);
  else if (status != COLL_ERR_ABORTED)
    status = stop_round(l, status);
  return status != COLL_OK && status != COLL_ERR_ABORTED && grows ? COLL_ERR_PEER_LOST : status;
}

/* A round with the latest list, which may already be committed. */
static coll_status renew_list(lead *l) {
  shrink_order order = lead_order(SHRINK_RENEW);
  order.newcomers = l->s->newcomers;
  l->s->ballot = shrink_next_ballot(l->s->ballot, l->s->b.rank);
  l->s->renewed = true;
  lead_send(l, &order, true);
  return hear_reports(l, SHRINK_RENEW);
}

/* After a round that failed because of the shortage in s->b.error: another one may succeed, at last
 * without that rank. False: it is this one. */
static bool go_on_without(lead *l) {
  shrink *s = l->s;
  const int named = s->b.error->rank;
  const int rank = named >= 0 && named < s->b.nranks ? named : s->b.rank;
  s->b.error->rank = rank;
  l->pause_ns = colli_now_ns() + (SHORT_NS << l->shorts[rank]);
  if (++l->shorts[rank] < SHORT_ROUNDS)
    return true;
  shrink_note_short(s);
  if (rank == s->b.rank)
    return false;
  for (int r = 0; r < s->b.nranks; r++)
    l->takes[r] = r != rank;
  end_others(l, s->b.error->status, SHRINK_END);
  s->skipped[rank] = true;
  s->members[rank].in = s->members[rank].awaited = false;
  return true;
}

/* Gathers and builds until all survivors have the same communicator. */
static coll_status lead_on(lead *l) {
  shrink *s = l->s;
  for (;;) {
    bool committed = lead_gather(l);
    if (s->aborter >= 0)
      return end_all(l, shrink_fail_aborted(s), SHRINK_END);
    if (s->altered >= 0) {
      const colli_rank_info info = colli_rank_at(s->comm->table, s->altered);
      return end_all(l, boot_fail_altered(&s->b, s->altered, &info), SHRINK_END);
    }
    if (s->astray >= 0)
      return end_all(l, shrink_fail_astray(s), SHRINK_END);
    if (s->starved)
      return end_all(l, shrink_fail_starved(s), SHRINK_QUIT);
    if (s->proved)
      return commit_list(l);
    if (!shrink_is_enough(s->quorum, s->b.nranks, s->gone, l->takes))
      return end_all(l, shrink_explain(s, shrink_fail_few(s, l->takes)), SHRINK_END);
    coll_status status = committed ? renew_list(l) : new_list(l);
    if (status == COLL_OK)
      return commit_list(l);
    grow_dismiss(s, false);
    if (shrink_ran_short(s, status)) {
      if (!go_on_without(l))
        return end_all(l, status, SHRINK_QUIT);
    } else if (status != COLL_ERR_PEER_LOST && !is_about_silence(status))
      return end_all(l, status, SHRINK_END);
    if (colli_now_ns() >= s->limit_ns)
      return end_all(l, status, SHRINK_END);
    l->probes.next = 0;
    l->next_ns = 0; /* somebody died: look who */
  }
}

coll_status shrink_lead(shrink *s) {
  COLLI_ASSERT_RANK(shrink_candidate(s) == s->b.rank, s->b.rank);
  const size_t nranks = (size_t)s->b.nranks;
  lead *l = shrink_alloc(s, sizeof(*l) + (nranks + 1) * sizeof(*l->brought) +
                                5 * nranks * sizeof(*l->takes) + 2 * nranks);
  if (!l)
    return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for leading a shrink");
  const uint64_t now_ns = colli_now_ns();
  l->s = s;
  l->takes = (bool *)(l->brought + nranks + 1);
  l->here = l->takes + nranks;
  l->adopted = l->here + nranks;
  l->answered = l->adopted + nranks;
  l->listed = l->answered + nranks;
  l->flags = (uint8_t *)(l->listed + nranks);
  l->shorts = l->flags + nranks;
  l->next_ns = now_ns + LEAD_PROBE_AFTER_NS;
  /* Ranks that wait for a lower one may arrive as late as the end of their own patience. */
  l->until_ns = now_ns + s->patience_ns;
  shrink_probes_begin(&l->probes, lead_is_missing, LEAD_PROBE_NS);
  coll_status status = lead_on(l);
  shrink_probes_end(&l->probes);
  explicit_bzero(l, sizeof(*l));
  free(l);
  return status;
}
