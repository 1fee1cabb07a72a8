/* shrink_up.c: what a rank of a shrink tells its parent, of itself and of those below, and hears
 * from it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/recovery/shrink_internal.h"

#define HOLD_NS                                                                                    \
  (10 * COLLI_NS_PER_MS) /* how long to wait for others who can be passed on as well */

/* ---- this rank's own words ------------------------------------------------------------------- */

/* What this rank knows, as flags. */
static void fill_flags(const shrink *s, uint8_t *flags) {
  for (int r = 0; r < s->b.nranks; r++)
    flags[r] = (uint8_t)((s->gone[r] ? SHRINK_GONE : 0) | (s->skipped[r] ? SHRINK_SKIPPED : 0) |
                         (s->listed[r] ? SHRINK_LISTED : 0));
}

void shrink_say_checkin(shrink *s, uint64_t asked) {
  shrink_member *m = &s->members[s->b.rank];
  free(m->list);
  shrink_forget_round(m);
  *m = (shrink_member){.in = true,
                       .via = s->b.rank,
                       .attempt = ++s->attempt,
                       .head = {.ballot = s->ballot,
                                .list = s->list,
                                .adopted = s->adopted,
                                .word = s->word,
                                .asked = asked,
                                .renewed = s->renewed,
                                .task = (uint32_t)s->task,
                                .newcomers = s->newcomers}};
  if (s->ballot && (m->list = shrink_alloc(s, (size_t)s->b.nranks)) != NULL)
    fill_flags(s, m->list);
  m->in = !s->ballot || m->list; /* else the others count this rank as missing */
}

bool shrink_say_record(shrink *s, const colli_rank_info *record) {
  shrink_member *m = &s->members[s->b.rank];
  m->record = m->record ? m->record : shrink_alloc(s, sizeof(*record));
  if (m->record)
    *m->record = *record;
  return m->record != NULL;
}

bool shrink_say_report(shrink *s, const shrink_report *report) {
  shrink_member *m = &s->members[s->b.rank];
  m->report = m->report ? m->report : shrink_alloc(s, sizeof(*report));
  if (m->report)
    *m->report = *report;
  return m->report != NULL;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The kinds of parts that a rank has said and that were not passed on. */
static unsigned unsent(const shrink_member *m) {
  unsigned kinds = m->lost ? SHRINK_LOST : 0;
  if (m->in)
    kinds |= (SHRINK_CHECKIN | (m->record ? SHRINK_RECORD : 0u) | (m->report ? SHRINK_REPORT : 0u) |
              (m->told ? SHRINK_TOLD : 0u)) &
             ~m->passed;
  return kinds;
}

/* Whether nobody else will soon have something of these kinds to pass on. */
static bool is_complete(const shrink *s, unsigned kinds) {
  bool complete = !(kinds & SHRINK_TOLD) || shrink_all_told(s);
  for (int r = s->b.rank + 1; complete && (kinds & SHRINK_CHECKIN) && r < s->b.nranks; r++) {
    const bool in = shrink_has_met(s, r) && s->members[r].in;
    if (!s->gone[r] && !s->skipped[r] && !in)
      complete = !shrink_is_below(r, s->b.rank);
  }
  for (int r = shrink_next(s, 0); complete && r < s->b.nranks; r = shrink_next(s, r + 1)) {
    const shrink_member *m = &s->members[r];
    if ((kinds & SHRINK_CHECKIN) && m->in && m->asked)
      complete = false;
    if (m->in && m->awaited && !m->report)
      complete = complete && !(kinds & SHRINK_REPORT) && (!(kinds & SHRINK_RECORD) || m->record);
  }
  return complete;
}

/* Appends one part, whose contents are in two places. */
static uint8_t *add_part(uint8_t *at, const shrink_member *m, int rank, unsigned kind,
                         const void *bytes, size_t count, const uint8_t *more, size_t more_count) {
  const shrink_part part = {.kind = kind,
                            .rank = rank,
                            .attempt = kind == SHRINK_LOST ? m->lost : m->attempt,
                            .bytes = (uint32_t)(count + more_count)};
  memcpy(at, &part, sizeof(part));
  at += sizeof(part);
  if (count > 0)
    memcpy(at, bytes, count);
  if (more_count > 0)
    memcpy(at + count, more, more_count);
  return at + count + more_count;
}

/* Appends those of a rank's parts that are in `kinds`. */
static uint8_t *add_parts(const shrink *s, uint8_t *at, int rank, unsigned kinds) {
  const shrink_member *m = &s->members[rank];
  if (kinds & SHRINK_LOST)
    at = add_part(at, m, rank, SHRINK_LOST, NULL, 0, NULL, 0);
  if (kinds & SHRINK_CHECKIN)
    at = add_part(at, m, rank, SHRINK_CHECKIN, &m->head, sizeof(m->head), m->list,
                  m->list ? (size_t)s->b.nranks : 0);
  if (kinds & SHRINK_RECORD)
    at = add_part(at, m, rank, SHRINK_RECORD, m->record, sizeof(*m->record), NULL, 0);
  if (kinds & SHRINK_REPORT)
    at = add_part(at, m, rank, SHRINK_REPORT, m->report, sizeof(*m->report), NULL, 0);
  if (kinds & SHRINK_TOLD)
    at = add_part(at, m, rank, SHRINK_TOLD, NULL, 0, NULL, 0);
  return at;
}

/* An upper bound of the bytes of one rank's parts. */
static size_t bytes_of(const shrink *s, const shrink_member *m) {
  const unsigned kinds = unsent(m);
  return (kinds ? 5 * sizeof(shrink_part) : 0) +
         (kinds & SHRINK_CHECKIN ? sizeof(shrink_checkin) : 0) +
         ((kinds & SHRINK_CHECKIN) && m->list ? (size_t)s->b.nranks : 0) +
         (kinds & SHRINK_RECORD ? sizeof(colli_rank_info) : 0) +
         (kinds & SHRINK_REPORT ? sizeof(shrink_report) : 0);
}

/* Sends a batch of what ranks from `first` to `last` have said. */
static bool send_batch(shrink *s, colli_sealed *conn, int first, int last) {
  size_t most = (size_t)s->b.nranks;
  shrink_batch head = {
      .magic = SHRINK_MAGIC, .nranks = s->b.nranks, .aborter = s->aborter, .altered = s->altered};
  for (int r = shrink_next(s, first); r <= last; r = shrink_next(s, r + 1))
    most += bytes_of(s, &s->members[r]);
  uint8_t *body = shrink_alloc(s, most);
  if (!body)
    return false;
  uint8_t *at = body + s->b.nranks;
  fill_flags(s, body);
  for (int r = shrink_next(s, first); r <= last; r = shrink_next(s, r + 1)) {
    const unsigned kinds = unsent(&s->members[r]);
    for (unsigned left = kinds; left; left &= left - 1)
      head.nparts++;
    at = add_parts(s, at, r, kinds);
  }
  head.bytes = (uint32_t)(at - body - s->b.nranks);
  const bool sent = shrink_send(s, conn, &head, sizeof(head), body, (size_t)(at - body));
  free(body);
  return sent;
}

void shrink_send_checkin(shrink *s, colli_sealed *conn) {
  const int self = s->b.rank;
  shrink_say_checkin(s, 0);
  if (s->members[self].in)
    send_batch(s, conn, self, self);
}

/* The last rank whose parts fit into a batch that begins with those of `first`. */
static int last_of_batch(const shrink *s, int first) {
  size_t bytes = 0;
  int last = first;
  for (int r = first; r < s->b.nranks; r = shrink_next(s, r + 1)) {
    bytes += bytes_of(s, &s->members[r]);
    if (r > first && bytes > SHRINK_BATCH_BYTES)
      break;
    last = r;
  }
  return last;
}

/* Sends all that is to be passed on. */
static bool send_all(shrink *s) {
  bool sent = true;
  for (int first = shrink_next(s, 0), last; sent && first < s->b.nranks;
       first = shrink_next(s, last + 1)) {
    last = last_of_batch(s, first);
    sent = send_batch(s, &s->up.conn, first, last);
  }
  return sent;
}

bool shrink_pass_up(shrink *s) {
  shrink_uplink *up = &s->up;
  unsigned kinds = 0;
  bool urgent = s->altered >= 0 && !up->altered;
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    const unsigned more = unsent(&s->members[r]);
    kinds |= more;
    urgent = urgent || (more & SHRINK_LOST) ||
             ((more & SHRINK_REPORT) && s->members[r].report->report.status != COLL_OK);
  }
  const uint64_t now_ns = colli_now_ns();
  if (!kinds && !urgent)
    return true;
  up->hold_ns = up->hold_ns ? up->hold_ns : now_ns + HOLD_NS;
  if (!urgent && now_ns < up->hold_ns && !is_complete(s, kinds))
    return true;
  up->hold_ns = 0;
  up->altered = s->altered >= 0;
  if (!send_all(s))
    return false;
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    shrink_member *m = &s->members[r];
    m->passed |= unsent(m) & ~(unsigned)SHRINK_LOST;
    m->awaited = m->awaited && !m->report;
    m->lost = 0;
  }
  return true;
}

uint64_t shrink_pass_up_ns(const shrink *s) {
  return s->up.hold_ns ? s->up.hold_ns : UINT64_MAX;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Whether an order can be one. */
static bool is_sound(const shrink *s, const shrink_order *order) {
  return order->nranks == s->b.nranks &&
         shrink_is_list(order->ballot, order->comm_id, s->b.nranks) && order->newcomers >= 0 &&
         order->newcomers <= COLLI_NEWCOMERS_MAX;
}

int shrink_hear_order(shrink *s) {
  shrink_uplink *up = &s->up;
  while (!up->here) {
    int result = shrink_pull(s, &up->conn, &up->order, sizeof(up->order), &up->done);
    if (result == COLL_T_DONE && !is_sound(s, &up->order))
      return EPROTO;
    if (result == COLL_T_DONE)
      result = shrink_pull(s, &up->conn, up->flags, (size_t)s->b.nranks, &up->flags_done);
    if (result != COLL_T_DONE)
      return result;
    up->done = up->flags_done = 0;
    up->heard_ns = colli_now_ns();
    shrink_pass_down(s, &up->order, up->flags);
    const bool mine = up->flags[s->b.rank] & SHRINK_FOR;
    up->here = mine && up->order.kind != SHRINK_WAIT;
  }
  return COLL_T_DONE;
}
