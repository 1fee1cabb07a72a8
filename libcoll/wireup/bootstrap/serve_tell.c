/* serve_tell.c: what a server tells the ranks that check in at it: table, time, outcome. */
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/serve.h"

#include <string.h>

#define TELL_NS   (100 * COLLI_NS_PER_MS) /* how long to announce a failure to slow readers */
#define LINGER_NS COLLI_NS_PER_S          /* the same, for ranks that have yet to connect */

bool boot_server_send(const boot_server *s, serve_conn *conn) {
  const colli_rank_table *table = s->links->table;
  int sent = COLL_T_DONE;
  if (conn->gets_table)
    sent = colli_sealed_push(&conn->conn, &conn->head, sizeof(conn->head), &conn->head_done);
  if (conn->gets_table && sent == COLL_T_DONE)
    sent = colli_sealed_push(&conn->conn, table->packed, table->bytes, &conn->table_done);
  conn->gets_table = sent == COLL_T_AGAIN;
  if (!conn->gets_table && conn->answers)
    conn->answers = colli_sealed_push(&conn->conn, &conn->report, sizeof(conn->report),
                                      &conn->answer_done) == COLL_T_AGAIN;
  return conn->gets_table || conn->answers;
}

coll_status boot_server_give_table(boot_server *s) {
  s->links->table = colli_rank_table_create(s->all, s->b->nranks);
  if (!s->links->table)
    return boot_fail_table(s->b);
  s->links->have_table = true;
  const uint64_t left_ns = boot_remaining_ms(s->deadline_ns) * COLLI_NS_PER_MS;
  s->links->margin_ns = boot_margin_ns(left_ns);
  s->links->outcome_ns = s->deadline_ns;
  s->links->deadline_ns = s->deadline_ns - s->links->margin_ns;
  for (int i = 0; i < s->count; i++) {
    serve_conn *conn = s->conns[i];
    if (conn->rank != 0 || !conn->checked_in)
      continue;
    boot_report_fill(s->b, &conn->head, COLL_OK);
    conn->head.status = BOOT_TABLE;
    conn->head.server = s->b->rank;
    conn->head.table_bytes = (uint32_t)s->links->table->bytes;
    conn->head.remaining_ms = boot_remaining_ms(s->links->deadline_ns);
    conn->head.margin_ms = (uint32_t)(s->links->margin_ns / COLLI_NS_PER_MS);
    conn->gets_table = true;
    (void)boot_server_send(s, conn);
  }
  return COLL_OK;
}

void boot_server_answer_time(const boot_server *s, serve_conn *conn) {
  const uint64_t heard_ns = colli_now_ns();
  memset(&conn->report, 0, sizeof(conn->report));
  conn->report.status = BOOT_ASKS_TIME;
  conn->done = conn->answer_done = 0;
  conn->report.time = (boot_time){.heard_ns = heard_ns, .told_ns = colli_now_ns()};
  conn->answers = true;
  (void)boot_server_send(s, conn);
}

/* ---- the outcome ----------------------------------------------------------------------------- */

/* Sends a rank the outcome and, of a success, the bounds of the others below it: as
 * colli_sealed_push(). */
static int push_outcome(const boot_server *s, serve_conn *conn, const boot_report *outcome) {
  const int place = conn->rank - s->b->place.below.first;
  const size_t others = (size_t)(conn->below.end - conn->below.first) - 1;
  const int result = colli_sealed_push(&conn->conn, outcome, sizeof(*outcome), &conn->done);
  if (result != COLL_T_DONE || outcome->status != COLL_OK || others == 0)
    return result;
  return colli_sealed_push(&conn->conn, &s->told[place + 1], others * sizeof(*s->told),
                           &conn->rest_done);
}

/* Sends one rank the outcome; true when done. With `linger`, it is done only when the rank has
 * closed. */
static bool send_outcome(const boot_server *s, serve_conn *conn, const boot_report *outcome,
                         bool linger) {
  if (boot_server_send(s, conn))
    return false;
  int result = push_outcome(s, conn, outcome);
  boot_note_errno(s->b, result, false);
  if (result != COLL_T_DONE && colli_errno_is_shortage(result))
    return false; /* try again */
  if (result != COLL_T_DONE || !linger)
    return result != COLL_T_AGAIN; /* sent, or the rank is gone, which its neighbours will notice */
  /* If the rank is still sending its record, closing now could discard the outcome before it is
   * read. */
  char waste[512];
  size_t wasted = 0;
  return colli_net_pull(conn->conn.fd, waste, sizeof(waste), &wasted) > 0;
}

/* Whether all of an outcome has been sent. */
static bool is_told(const serve_conn *conn, const boot_report *outcome) {
  const size_t others = (size_t)(conn->below.end - conn->below.first) - 1;
  return conn->done == COLLI_SEALED_BYTES(sizeof(*outcome)) &&
         (outcome->status != COLL_OK || others == 0 ||
          conn->rest_done == COLLI_SEALED_BYTES(others * sizeof(boot_bounds)));
}

/* Sends it to all that have not got it; how many have now. */
static int tell_all(boot_server *s, boot_report *outcome, bool linger) {
  int told = 0;
  for (int i = 0; i < s->count;) {
    serve_conn *conn = s->conns[i];
    if (outcome->status == COLL_OK) /* all have checked in */
      outcome->time.ahead = s->told[conn->rank - s->b->place.below.first];
    if (send_outcome(s, conn, outcome, linger)) {
      boot_server_drop(s, i);
      told++;
    } else {
      i++;
    }
  }
  return told;
}

/* Tells an outcome until `until_ns` at the latest. */
static void tell_until(boot_server *s, boot_report *outcome, bool linger, uint64_t until_ns) {
  boot *b = s->b;
  const bool all_came = boot_server_is_full(s);
  for (int i = 0; i < s->count; i++)
    s->conns[i]->done = s->conns[i]->rest_done = 0;
  for (int told = 0;;) {
    told += tell_all(s, outcome, linger);
    const bool more = linger && !all_came && told < boot_place_children(&b->place);
    if (colli_now_ns() >= until_ns || (s->count == 0 && !more))
      return;
    boot_polls_clear(&b->polls, until_ns);
    for (int i = 0; i < s->count; i++)
      boot_polls_add(&b->polls, s->conns[i]->conn.fd,
                     is_told(s->conns[i], outcome)
                         ? POLLIN
                         : colli_sealed_events(&s->conns[i]->conn, POLLOUT));
    if (linger)
      boot_door_watch(b, &s->door);
    boot_polls_wait(&b->polls);
    if (linger)
      boot_server_accept(s);
  }
}

coll_status boot_server_tell(boot_server *s, coll_status status, const boot_time *time) {
  boot *b = s->b;
  boot_report outcome;
  boot_report_fill(b, &outcome, status);
  outcome.time = *time;
  for (int i = s->count - 1; i >= 0 && status == COLL_OK; i--)
    if (!s->conns[i]->checked_in)
      boot_server_drop(s, i); /* a second connection of a rank, or of none */
  /* Ranks with lifelines notice at once. */
  const bool linger = status != COLL_OK && !boot_is_guarded(b);
  uint64_t until_ns = colli_now_ns() + (status == COLL_ERR_TIMEOUT ? TELL_NS : LINGER_NS);
  if (!linger || until_ns > b->deadline_ns)
    until_ns = b->deadline_ns;
  tell_until(s, &outcome, linger, until_ns);
  const bool untold = status == COLL_OK && s->count > 0;
  return untold && boot_fail_short(b, COLL_ERR_TIMEOUT) == COLL_ERR_SYSTEM ? COLL_ERR_SYSTEM
                                                                           : status;
}

void boot_server_tell_doubt(boot_server *s, int lost) {
  boot_report doubt;
  boot_report_fill(s->b, &doubt, COLL_OK);
  doubt.status = BOOT_DOUBT;
  doubt.server = lost;
  tell_until(s, &doubt, false, colli_now_ns() + TELL_NS);
}
