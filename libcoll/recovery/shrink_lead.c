/* shrink_lead.c: the coordinator of a shrink gathers the survivors and leads them to its end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/recovery/grow.h"

#define BEATS          8 /* signs of life of a waiting coordinator within the patience */
#define PROBE_AFTER_NS (50 * COLLI_NS_PER_MS)   /* most come by themselves */
#define PROBE_NS       (2000 * COLLI_NS_PER_MS) /* then the next rank is probed */
#define AGAIN_NS       (500 * COLLI_NS_PER_MS)  /* until missing ranks are probed again */

/* The state of the leading rank. */
typedef struct lead {
  shrink *s;
  shrink_probes probes; /* of missing ranks */
  uint64_t ballot;      /* of the last list that this rank chose; 0: none */
  uint64_t next_ns;     /* when the probes continue */
  uint64_t until_ns;    /* when missing ranks are left out */
  uint64_t beat_ns;     /* when to tell the members again that this rank is there */
  bool *here;           /* by rank: takes part, as of the last look at the latest list */
  bool *adopted;        /* by rank: and has made its communicator */
  bool takes[];         /* by rank: is here, and takes the list that is being made */
} lead;

/* Whether a rank need not be waited for. */
static bool is_settled(const shrink *s, int r) {
  return r == s->b.rank || s->gone[r] || s->skipped[r] || (s->conns[r] && s->conns[r]->in);
}

/* Whether a rank is here: this one, or one that has checked in. */
static bool here(const shrink *s, int r) {
  return r == s->b.rank || (s->conns[r] && s->conns[r]->in);
}

/* Whether a rank is missing. */
static bool is_missing(const shrink *s, int r) {
  return !is_settled(s, r);
}

/* Dials missing ranks again and again, to learn whether they are gone and to tell them who leads.
 */
static void step_probes(lead *l) {
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < l->next_ns || shrink_probes_step(l->s, &l->probes))
    return;
  l->probes.next = 0;
  l->next_ns = now_ns + AGAIN_NS;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Adopts the latest list that any rank here knows. */
static void take_latest(shrink *s) {
  for (int r = 0; r < s->b.nranks; r++) {
    const shrink_conn *conn = s->conns[r];
    if (conn && conn->in && conn->head.ballot > s->ballot)
      shrink_take_list(s, conn->head.ballot, conn->head.list, conn->head.renewed != 0, conn->flags);
  }
}

/* Whether a rank that is here has adopted the latest list. */
static bool has_adopted(const shrink *s, int r) {
  COLLI_ASSERT_RANK(here(s, r), s->b.rank);
  return (r == s->b.rank ? s->adopted : s->conns[r]->head.adopted) == s->list;
}

/* Whether a rank may have returned with the latest list, so that there can be no other. */
static bool may_be_committed(lead *l) {
  shrink *s = l->s;
  take_latest(s);
  if (s->proved)
    return true;
  const bool outside = s->task == SHRINK_AGREE;
  if (s->ballot == 0 || (s->ballot == l->ballot && !outside))
    return false; /* none, or this rank's own, which it did not commit */
  for (int r = 0; r < s->b.nranks; r++) {
    l->here[r] = here(s, r);
    l->adopted[r] = l->here[r] && has_adopted(s, r);
  }
  return shrink_may_be_committed(&(shrink_view){.nranks = s->b.nranks,
                                                .gone = s->gone,
                                                .here = l->here,
                                                .listed = s->listed,
                                                .adopted = l->adopted,
                                                .renewed = s->renewed,
                                                .outside = outside});
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Sends an order, with the latest list, to those who take it, or to all others that are here. */
static void send_order_to_members(lead *l, shrink_order *order, bool takers) {
  shrink *s = l->s;
  uint8_t *flags = calloc(1, (size_t)s->b.nranks);
  if (!flags)
    return; /* they notice when this rank gives up */
  order->nranks = s->b.nranks;
  order->ballot = s->ballot;
  order->comm_id = s->list;
  for (int r = 0; r < s->b.nranks; r++)
    flags[r] = s->listed[r] ? SHRINK_LISTED : 0;
  for (int r = 0; r < s->b.nranks; r++)
    if (s->conns[r] && s->conns[r]->in && l->takes[r] == takers &&
        !shrink_send(s, &s->conns[r]->conn, order, sizeof(*order), flags, (size_t)s->b.nranks))
      shrink_drop(s, r);
  free(flags);
}

/* An order of a kind. */
static shrink_order make_order(shrink_order_kind kind) {
  shrink_order order;
  memset(&order, 0, sizeof(order));
  order.kind = kind;
  return order;
}

/* From time to time, tells all who are here that this rank is still there. */
static void beat(lead *l) {
  shrink *s = l->s;
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < l->beat_ns)
    return;
  l->beat_ns = now_ns + s->patience_ns / BEATS;
  shrink_order order = make_order(SHRINK_WAIT);
  send_order_to_members(l, &order, true);
  send_order_to_members(l, &order, false);
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Waits until every rank that is not gone or skipped is here, or time is up. True if the latest
 * list may already be committed. */
static bool gather(lead *l) {
  shrink *s = l->s;
  const uint64_t begin_ns = colli_now_ns();
  if (l->until_ns < begin_ns + s->patience_ns / 4)
    l->until_ns = begin_ns + s->patience_ns / 4;
  for (;;) {
    bool all = true;
    shrink_tend(s);
    step_probes(l);
    beat(l);
    for (int r = 0; r < s->b.nranks; r++) {
      all = all && is_settled(s, r);
      if (s->conns[r])
        s->conns[r]->said = false; /* of a round that is over */
    }
    const uint64_t now_ns = colli_now_ns();
    const bool late = now_ns >= l->until_ns;
    if (late || all || s->proved || s->altered >= 0 || s->aborter >= 0) {
      bool committed = may_be_committed(l);
      for (int r = 0; r < s->b.nranks; r++)
        l->takes[r] = here(s, r) && (!committed || (s->listed[r] && has_adopted(s, r)));
      return committed;
    }
    shrink_wait_begin(s);
    shrink_probes_watch(s, &l->probes);
    shrink_wait(s, l->until_ns);
  }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Ends the shrink, with the failure in s->b.error, for those who do not take the list. */
static void end_others(lead *l, coll_status status) {
  shrink_order order = make_order(SHRINK_END);
  order.error = *l->s->b.error;
  order.error.rank = order.error.rank < 0 ? l->s->b.rank : order.error.rank;
  order.error.status = status;
  send_order_to_members(l, &order, false);
}

/* Ends it for everybody. */
static coll_status end_all(lead *l, coll_status status) {
  memset(l->takes, 0, (size_t)l->s->b.nranks * sizeof(*l->takes));
  end_others(l, status);
  return status;
}

/* All who take the latest list have adopted it, so it is the outcome. */
static coll_status commit_list(lead *l) {
  shrink *s = l->s;
  shrink_order order = make_order(SHRINK_COMMIT);
  send_order_to_members(l, &order, true);
  grow_dismiss(s, true);
  boot_fail(&s->b, COLL_ERR_TIMEOUT, -1, NULL,
            "the other ranks, led by rank %d (host %s), ended %s without this one, which came too "
            "late; COLL_CREATE_TIMEOUT_MS gives more time",
            s->b.rank, s->b.mine->host, colli_shrink_name(s->task));
  end_others(l, COLL_ERR_TIMEOUT);
  if (!l->takes[s->b.rank])
    return COLL_ERR_TIMEOUT;
  COLLI_ASSERT_RANK(has_adopted(s, s->b.rank), s->b.rank);
  colli_error_clear(s->b.error);
  return COLL_OK;
}

/* Those who are here are too few. */
static coll_status too_few(lead *l) {
  const shrink *s = l->s;
  const int nranks = s->b.nranks;
  char list[200];
  int count = 0, first = -1;
  bool *missing = calloc((size_t)nranks, sizeof(*missing));
  if (!missing)
    return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for a shrink");
  for (int r = 0; r < nranks; r++) {
    count += l->takes[r];
    missing[r] = !l->takes[r] && !s->gone[r];
    first = first < 0 && missing[r] ? r : first;
  }
  boot_list_ranks(missing, nranks, true, list, sizeof(list));
  free(missing);
  return boot_fail(&s->b, COLL_ERR_TIMEOUT, first, first < 0 ? NULL : &s->comm->table[first],
                   "%d rank(s) met, led by rank %d (host %s), but rank(s) %s did not come within "
                   "%.3g s, and nothing shows that they died. They may have gone on without these "
                   "ranks, which are fewer than most, and left out; look whether they called "
                   "%s too and can be reached; COLL_CREATE_TIMEOUT_MS gives more time, and "
                   "COLL_SHRINK_QUORUM=reachable goes on all the same",
                   count, s->b.rank, s->b.mine->host, list,
                   (double)(colli_now_ns() - s->b.start_ns) / (double)COLLI_NS_PER_S,
                   colli_shrink_name(s->task));
}

/* Waits for the reports of this round of those who take the list. COLL_OK: all have adopted it. */
static coll_status hear_reports(lead *l) {
  shrink *s = l->s;
  uint64_t left_ns = s->patience_ns / 4 > COLLI_NS_PER_S ? s->patience_ns / 4 : COLLI_NS_PER_S;
  const uint64_t until_ns = colli_now_ns() + left_ns;
  /* Not at once, because a member may not know yet that all have joined. */
  l->beat_ns = colli_now_ns() + s->patience_ns / BEATS;
  for (;;) {
    bool late = colli_now_ns() >= until_ns;
    int newcomers = grow_all_built(s);
    bool all = newcomers != COLL_T_AGAIN;
    coll_status status = newcomers > 0 ? (coll_status)newcomers : COLL_OK;
    shrink_tend(s);
    if (s->aborter >= 0)
      return shrink_fail_aborted(s);
    beat(l);
    for (int r = 0; r < s->b.nranks; r++) {
      shrink_conn *conn = s->conns[r];
      if (!l->takes[r] || r == s->b.rank)
        continue;
      if (conn && conn->in && !conn->said) {
        all = false;
        s->skipped[r] = s->skipped[r] || late;
        if (late)
          shrink_drop(s, r);
      } else if (!conn || !conn->in) {
        status = status == COLL_OK ? COLL_ERR_PEER_LOST : status;
      } else if (conn->report.report.status == COLL_OK && conn->report.ballot == s->ballot) {
        conn->head.adopted = s->list;
      } else {
        status = boot_fail_reported(&s->b, &conn->report.report);
      }
    }
    if (all || late)
      return all ? status : COLL_ERR_TIMEOUT;
    shrink_wait_begin(s);
    grow_watch(s);
    shrink_wait(s, until_ns);
  }
}

/* Skips the rank that a round waited for without success; its number is the one in the new
 * communicator. */
static void skip_rank(shrink *s, int peer) {
  for (int r = 0, rank = 0; r < s->b.nranks; r++)
    if (s->listed[r] && rank++ == peer && r != s->b.rank) {
      s->skipped[r] = true;
      shrink_drop(s, r);
    }
}

/* Gives a new list its identity and what its communicator is made from; *listen_fd: -1, or where
 * its ranks meet. */
static coll_status identify_list(shrink *s, shrink_order *order, int *listen_fd) {
  *listen_fd = -1;
  if (s->task == SHRINK_AGREE) {
    int failed = colli_random_secret(&s->list, sizeof(s->list));
    return failed ? colli_error_sys(s->b.error, COLL_ERR_SYSTEM, "agree", "getrandom", failed,
                                    "cannot make a number for a list")
                  : COLL_OK;
  }
  colli_id fresh;
  coll_status status = colli_id_make(&fresh, &s->settings->params, s->b.error);
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
      word &= s->conns[r]->head.word;
  return word;
}

/* A round with a new list: those who are here. COLL_OK: all have adopted it. PEER_LOST or TIMEOUT:
 * another round may succeed with those who are left. */
static coll_status new_list(lead *l) {
  shrink *s = l->s;
  int listen_fd;
  shrink_order order = make_order(SHRINK_BUILD);
  coll_status status = identify_list(s, &order, &listen_fd);
  if (status != COLL_OK)
    return status;
  COLLI_ASSERT_RANK(l->takes[s->b.rank] && !s->proved, s->b.rank);
  memcpy(s->listed, l->takes, (size_t)s->b.nranks * sizeof(*s->listed));
  order.newcomers = grow_count(s);
  /* Whatever fails, another round may succeed without the newcomers. */
  const bool grows = order.newcomers > 0;
  s->renewed = false;
  _Static_assert(COLLI_MAX_RANKS <= 1 << SHRINK_RANK_BITS, "a rank fits");
  COLLI_ASSERT_RANK(shrink_next_ballot(s->ballot, s->b.rank) > s->ballot, s->b.rank);
  l->ballot = s->ballot = shrink_next_ballot(s->ballot, s->b.rank);
  order.word = common_word(l);
  send_order_to_members(l, &order, true);
  grow_call_all(s, &order);
  status = shrink_adopt_leading(s, &order, listen_fd);
  if (status == COLL_ERR_TIMEOUT)
    skip_rank(s, s->b.error->peer);
  if (status != COLL_OK && status != COLL_ERR_ABORTED) {
    coll_error why = *s->b.error;
    order = make_order(SHRINK_STOP);
    send_order_to_members(l, &order, true);
    grow_dismiss(s, false);
    hear_reports(l); /* so that no message of this round reaches the next one */
    *s->b.error = why;
    return grows ? COLL_ERR_PEER_LOST : status;
  }
  if (status == COLL_OK)
    status = hear_reports(l);
  return status != COLL_OK && status != COLL_ERR_ABORTED && grows ? COLL_ERR_PEER_LOST : status;
}

/* A round with the latest list, which may already be committed. */
static coll_status renew_list(lead *l) {
  shrink_order order = make_order(SHRINK_RENEW);
  l->s->ballot = shrink_next_ballot(l->s->ballot, l->s->b.rank);
  l->s->renewed = true;
  send_order_to_members(l, &order, true);
  return hear_reports(l);
}

/* A rank makes another call. */
static coll_status fail_astray(const shrink *s) {
  const shrink_conn *conn = s->conns[s->astray];
  const char *other = conn ? colli_shrink_name((shrink_task)conn->head.task) : "another call";
  return boot_fail(
      &s->b, COLL_ERR_MISMATCH, s->astray, &s->comm->table[s->astray],
      "rank %d (host %s) is in %s while rank %d (host %s) is in %s; all ranks must make "
      "the same call",
      s->astray, s->comm->table[s->astray].host, other, s->b.rank, s->b.mine->host,
      colli_shrink_name(s->task));
}

/* Gathers and builds until all survivors have the same communicator. */
static coll_status lead_on(lead *l) {
  shrink *s = l->s;
  for (;;) {
    bool committed = gather(l);
    if (s->aborter >= 0)
      return end_all(l, shrink_fail_aborted(s));
    if (s->altered >= 0)
      return end_all(l, boot_fail_altered(&s->b, s->altered, &s->comm->table[s->altered]));
    if (s->astray >= 0)
      return end_all(l, fail_astray(s));
    if (s->proved)
      return commit_list(l);
    if (!shrink_is_enough(s->quorum, s->b.nranks, s->gone, l->takes))
      return end_all(l, too_few(l));
    coll_status status = committed ? renew_list(l) : new_list(l);
    if (status == COLL_OK)
      return commit_list(l);
    grow_dismiss(s, false);
    if ((status != COLL_ERR_PEER_LOST && status != COLL_ERR_TIMEOUT) ||
        colli_now_ns() >= s->limit_ns)
      return end_all(l, status);
    l->probes.next = 0;
    l->next_ns = 0; /* somebody died: look who */
  }
}

coll_status shrink_lead(shrink *s) {
  COLLI_ASSERT_RANK(shrink_candidate(s) == s->b.rank, s->b.rank);
  const size_t nranks = (size_t)s->b.nranks;
  lead *l = calloc(1, sizeof(*l) + 3 * nranks * sizeof(*l->takes));
  if (!l)
    return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for leading a shrink");
  const uint64_t now_ns = colli_now_ns();
  l->s = s;
  l->here = l->takes + nranks;
  l->adopted = l->here + nranks;
  l->next_ns = now_ns + PROBE_AFTER_NS;
  /* Ranks that wait for a lower one may arrive as late as the end of their own patience. */
  l->until_ns = now_ns + s->patience_ns;
  shrink_probes_begin(&l->probes, is_missing, PROBE_NS);
  coll_status status = lead_on(l);
  shrink_probes_end(&l->probes);
  explicit_bzero(l, sizeof(*l));
  free(l);
  return status;
}
