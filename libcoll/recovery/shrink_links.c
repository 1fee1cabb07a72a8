/*
 * shrink_links.c: who tells whom in a shrink. If all ranks told the coordinator themselves, it
 * would exchange four messages with each. So they form a tree in which rank r's parent is rank
 * (r - 1) / FANOUT, or the next one on the way to the coordinator if that one is gone, skipped or
 * slow: a rank gets a few messages from each of its children, which hold what all ranks below say,
 * and passes them on to its parent.
 *
 * Only the way of the messages is a tree. What the coordinator knows of each rank, and each rank of
 * the coordinator, is what they told each other. If a connection breaks, all who spoke through it
 * come back over new ones and check in again. Their attempts are counted, so what arrives late on
 * the old way is not mistaken for news. And when a rank loses its own parent it closes the
 * connections of its children. So what an order says was decided by whom this rank's checkin
 * reached.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/recovery/shrink_internal.h"

#define FANOUT  4 /* children of a rank, if all live */
#define SEND_NS COLLI_NS_PER_S

/* ---- the tree -------------------------------------------------------------------------------- */

int shrink_parent(const shrink *s, int candidate) {
  int rank = s->b.rank;
  COLLI_ASSERT_RANK(candidate >= 0 && candidate < rank, rank);
  do
    rank = rank > 0 ? (rank - 1) / FANOUT : 0;
  while (rank > candidate && (s->gone[rank] || s->skipped[rank] || s->slow[rank]));
  return rank > candidate ? rank : candidate;
}

bool shrink_is_below(int rank, int passes) {
  while (rank > passes)
    rank = (rank - 1) / FANOUT;
  return rank == passes;
}

unsigned shrink_depth(int rank) {
  unsigned levels = 0;
  for (; rank > 0; rank = (rank - 1) / FANOUT)
    levels++;
  return levels;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Forgets a rank that does not speak to this one any more. */
static void lose_member(shrink *s, int rank) {
  shrink_member *m = &s->members[rank];
  if (m->passed & SHRINK_CHECKIN)
    m->lost = m->attempt;
  m->in = m->awaited = m->ends = m->told = false;
  m->asked = 0;
  shrink_forget_round(m);
}

bool shrink_link_open(shrink *s, int rank, colli_auth *auth) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks && rank != s->b.rank, s->b.rank);
  shrink_link *link = shrink_alloc(s, sizeof(*link) + (size_t)s->b.nranks);
  if (!link)
    return false;
  shrink_link_drop(s, rank);
  shrink_meet(s, rank);
  colli_sealed_open(&link->conn, auth);
  s->links[rank] = link;
  return true;
}

void shrink_link_drop(shrink *s, int rank) {
  shrink_link *link = s->links[rank];
  if (!link)
    return;
  colli_sealed_close(&link->conn);
  free(link->body);
  free(link);
  s->links[rank] = NULL;
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1))
    if (s->members[r].in && s->members[r].via == rank && !s->members[r].told)
      lose_member(s, r); /* otherwise it has left because all is over */
}

void shrink_links_drop(shrink *s) {
  for (int r = shrink_next(s, 0); s->links && r < s->b.nranks; r = shrink_next(s, r + 1))
    shrink_link_drop(s, r);
}

void shrink_member_drop(shrink *s, int rank) {
  if (s->links[rank])
    shrink_link_drop(s, rank);
  else if (s->members[rank].in) {
    shrink_order order = {.kind = SHRINK_AGAIN, .ballot = s->ballot, .comm_id = s->list};
    const bool asked = s->members[rank].asked != 0; /* then its answer is on the way */
    uint8_t *flags = asked ? NULL : shrink_alloc(s, (size_t)s->b.nranks);
    if (flags) {
      flags[rank] = SHRINK_FOR;
      shrink_pass_down(s, &order, flags);
      free(flags);
    }
    lose_member(s, rank);
  }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A rank has come, maybe not for the first time. */
static int take_checkin(shrink *s, int link, const shrink_part *part, const uint8_t *bytes) {
  shrink_member *m = &s->members[part->rank];
  const size_t nranks = (size_t)s->b.nranks;
  shrink_checkin head;
  if (part->bytes < sizeof(head))
    return EPROTO;
  memcpy(&head, bytes, sizeof(head));
  if (part->bytes != sizeof(head) + (head.ballot ? nranks : 0) ||
      !shrink_is_list(head.ballot, head.list, s->b.nranks) ||
      !shrink_is_ballot(head.asked, s->b.nranks) || head.newcomers < 0 ||
      head.newcomers > COLLI_NEWCOMERS_MAX)
    return EPROTO;
  if (part->attempt <= m->attempt)
    return COLL_T_DONE; /* of a connection before this one */
  shrink_meet(s, part->rank);
  free(m->list);
  shrink_forget_round(m);
  *m = (shrink_member){.in = true, .via = link, .attempt = part->attempt, .head = head};
  if (head.ballot) {
    m->list = shrink_alloc(s, nranks);
    m->in = m->list != NULL;
  }
  if (m->list)
    memcpy(m->list, bytes + sizeof(head), nranks);
  if (head.task != (uint32_t)s->task)
    s->astray = part->rank;
  return m->in ? COLL_T_DONE : ENOMEM;
}

/* Takes one part of a batch: COLL_T_DONE, or an errno. */
static int take_part(shrink *s, int link, const shrink_part *part, const uint8_t *bytes) {
  if (part->rank < link || part->rank >= s->b.nranks || part->rank == s->b.rank)
    return EPROTO;
  shrink_member *m = &s->members[part->rank];
  const bool valid = m->in && m->via == link && m->attempt == part->attempt;
  switch (part->kind) {
  case SHRINK_CHECKIN:
    return take_checkin(s, link, part, bytes);
  case SHRINK_RECORD:
    if (part->bytes != sizeof(*m->record))
      return EPROTO;
    if (valid && !m->record)
      m->record = shrink_alloc(s, sizeof(*m->record));
    if (valid && m->record)
      memcpy(m->record, bytes, sizeof(*m->record));
    return valid && !m->record ? ENOMEM : COLL_T_DONE;
  case SHRINK_REPORT:
    if (part->bytes != sizeof(*m->report))
      return EPROTO;
    if (valid && !m->report)
      m->report = shrink_alloc(s, sizeof(*m->report));
    if (!valid || !m->report)
      return valid ? ENOMEM : COLL_T_DONE;
    memcpy(m->report, bytes, sizeof(*m->report));
    if (m->report->report.status == COLL_ERR_ABORTED)
      shrink_note_abort(s, m->report->report.error.rank);
    return COLL_T_DONE;
  case SHRINK_TOLD:
    m->told = m->told || valid;
    return part->bytes == 0 ? COLL_T_DONE : EPROTO;
  case SHRINK_LOST:
    if (valid)
      lose_member(s, part->rank);
    return part->bytes == 0 ? COLL_T_DONE : EPROTO;
  default:
    return EPROTO;
  }
}

/* Adopts what the ranks of a link know of others. */
static void take_flags(shrink *s, int link, const uint8_t *flags) {
  for (int r = 0; r < s->b.nranks; r++) {
    s->gone[r] = s->gone[r] || (r != s->b.rank && (flags[r] & SHRINK_GONE));
    s->skipped[r] = s->skipped[r] || (r < s->b.rank && r != link && (flags[r] & SHRINK_SKIPPED));
  }
}

/* Takes a whole batch: COLL_T_DONE, or an errno. A lower rank only says what it knows, and hangs
 * up.
 */
static int take_batch(shrink *s, int rank, const shrink_link *link) {
  const uint8_t *at = link->body + s->b.nranks;
  size_t left = link->head.bytes;
  take_flags(s, rank, link->body);
  shrink_note_abort(s, link->head.aborter);
  s->altered = link->head.altered >= 0 ? link->head.altered : s->altered;
  for (uint32_t i = 0; i < link->head.nparts; i++) {
    shrink_part part;
    if (left < sizeof(part))
      return EPROTO;
    memcpy(&part, at, sizeof(part));
    if (left - sizeof(part) < part.bytes)
      return EPROTO;
    const int result = take_part(s, rank, &part, at + sizeof(part));
    if (result != COLL_T_DONE)
      return result;
    at += sizeof(part) + part.bytes;
    left -= sizeof(part) + part.bytes;
  }
  return left == 0 && rank > s->b.rank ? COLL_T_DONE : EPROTO;
}

/* Whether the head of a batch makes sense. */
static bool is_sound(const shrink *s, const shrink_batch *head) {
  _Static_assert(5 * sizeof(shrink_part) + sizeof(shrink_checkin) + COLLI_MAX_RANKS +
                         sizeof(colli_rank_info) + sizeof(shrink_report) <=
                     SHRINK_BATCH_BYTES,
                 "what one rank says fits");
  return head->magic == SHRINK_MAGIC && head->nranks == s->b.nranks && head->aborter >= -1 &&
         head->aborter < s->b.nranks && head->altered >= -1 && head->altered < s->b.nranks &&
         head->bytes <= SHRINK_BATCH_BYTES;
}

/* Reads from a link what has arrived: COLL_T_AGAIN, or an errno. */
static int read_link(shrink *s, int rank) {
  for (;;) {
    shrink_link *link = s->links[rank];
    const size_t flag_bytes = (size_t)s->b.nranks;
    int result = COLL_T_DONE;
    if (!link->body) {
      result = shrink_pull(s, &link->conn, &link->head, sizeof(link->head), &link->done);
      if (result != COLL_T_DONE)
        return result;
      if (!is_sound(s, &link->head))
        return EPROTO;
      link->done = 0;
      link->body = shrink_alloc(s, flag_bytes + link->head.bytes);
      if (!link->body)
        return ENOMEM;
    }
    result = shrink_pull(s, &link->conn, link->body, flag_bytes + link->head.bytes, &link->done);
    if (result != COLL_T_DONE)
      return result;
    result = take_batch(s, rank, link);
    link->done = 0;
    free(link->body);
    link->body = NULL;
    if (result != COLL_T_DONE)
      return result;
  }
}

void shrink_links_read(shrink *s) {
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    const int result = s->links[r] ? read_link(s, r) : COLL_T_AGAIN;
    if (result == EBADMSG)
      s->altered = r;
    s->starved = s->starved || colli_errno_is_shortage(result);
    if (result > 0)
      shrink_link_drop(s, r);
  }
}

int shrink_pull(shrink *s, colli_sealed *conn, void *msg, size_t bytes, size_t *done) {
  int result;
  do
    result = colli_sealed_pull(conn, msg, bytes, done);
  while (shrink_try_again(s, result));
  return result;
}

/* ---- sending --------------------------------------------------------------------------------- */

bool shrink_send(shrink *s, colli_sealed *conn, const void *head, size_t bytes,
                 const uint8_t *flags, size_t flag_bytes) {
  size_t done = 0, flags_done = 0, before = 0;
  uint64_t until_ns = colli_now_ns() + SEND_NS;
  for (;;) {
    int result = colli_sealed_push(conn, head, bytes, &done);
    if (result == COLL_T_DONE && flags)
      result = colli_sealed_push(conn, flags, flag_bytes, &flags_done);
    if (result == COLL_T_DONE)
      return true;
    if (shrink_try_again(s, result))
      continue;
    if (done + flags_done > before)
      until_ns = colli_now_ns() + SEND_NS;
    before = done + flags_done;
    if (result > 0 || colli_now_ns() >= until_ns) {
      if (done > 0) /* nothing can follow half a message */
        shutdown(conn->fd, SHUT_RDWR);
      return false;
    }
    poll(&(struct pollfd){.fd = conn->fd, .events = colli_sealed_events(conn, POLLOUT)}, 1, 10);
  }
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Notes what an order means for a rank that it is for. */
static void note_order(shrink_member *m, const shrink_order *order) {
  m->ends = order->kind == SHRINK_COMMIT;
  if (order->kind == SHRINK_AGAIN)
    m->asked = order->ballot;
  if (order->kind != SHRINK_BUILD && order->kind != SHRINK_RENEW)
    return;
  m->awaited = true;
  m->passed &= SHRINK_CHECKIN;
  shrink_forget_round(m);
}

void shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags) {
  shrink_order whole = *order;
  whole.nranks = s->b.nranks;
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    shrink_member *m = &s->members[r];
    if (!m->in || !(flags[r] & SHRINK_FOR))
      continue;
    if (s->up.conn.fd >= 0 && !(m->passed & SHRINK_CHECKIN))
      continue; /* it was decided before that rank came again */
    note_order(m, order);
    if (m->via != s->b.rank && s->links[m->via])
      s->links[m->via]->wanted = true;
  }
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    shrink_link *link = s->links[r];
    if (!link || !link->wanted)
      continue;
    link->wanted = false;
    if (shrink_send(s, &link->conn, &whole, sizeof(whole), flags, (size_t)s->b.nranks))
      s->members[r].told = s->members[r].ends;
    else
      shrink_link_drop(s, r);
  }
}

bool shrink_all_told(const shrink *s) {
  bool all = true;
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1))
    all = all && (r == s->b.rank || !s->members[r].ends || s->members[r].told);
  return all;
}
