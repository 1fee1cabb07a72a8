/* shrink_follow.c: a member of a shrink: reaches the coordinator and executes its orders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"

#define SLACK_NS                                                                                   \
  (200 * COLLI_NS_PER_MS) /* extra time for a coordinator that is slow to report that it is there  \
                           */

/* Reaches the leader: *conn is the connection, or none if it is another candidate's turn. False:
 * what the leader sent was altered. */
static bool reach_leader(shrink *s, int leader, colli_sealed *conn) {
  boot_dial *dial = &s->dial;
  const uint64_t now_ns = colli_now_ns();
  int result;
  uint64_t until_ns = s->b.start_ns + s->patience_ns;
  /* A later candidate may still be building, for half the patience. */
  const uint64_t least_ns = now_ns + s->patience_ns * 3 / 4;
  until_ns = until_ns < least_ns ? least_ns : until_ns;
  *conn = COLLI_SEALED_NONE;
  COLLI_ASSERT_RANK(leader >= 0 && leader < s->b.rank, s->b.rank);
  shrink_dial(s, dial, leader);
  for (;;) {
    result = shrink_dial_step(s, dial);
    if (result == COLL_T_DONE)
      *conn = dial->conn;
    if (result != COLL_T_AGAIN)
      break;
    shrink_tend(s);
    if (shrink_candidate(s) != leader || s->aborter >= 0)
      break;
    if (colli_now_ns() >= until_ns) {
      s->skipped[leader] = true;
      break;
    }
    shrink_wait_begin(s);
    boot_dial_watch(&s->b, dial);
    shrink_wait(s, until_ns);
  }
  boot_dial_close(dial);
  explicit_bzero(dial, sizeof(*dial));
  return result != COLL_ERR_AUTH;
}

/* Waits for the leader's next order: COLL_T_DONE, COLL_T_AGAIN (it kept this rank waiting for too
 * long; after an abort that is soon), or an errno. */
static int next_order(shrink *s, colli_sealed *conn, shrink_order *order, uint8_t *flags) {
  size_t done = 0, flags_done = 0;
  uint64_t until_ns = colli_now_ns() + s->patience_ns / 2 + SLACK_NS;
  for (;;) {
    int result = colli_sealed_pull(conn, order, sizeof(*order), &done);
    if (result == COLL_T_DONE &&
        (order->nranks != s->b.nranks || !shrink_is_ballot(order->ballot, s->b.nranks) ||
         order->newcomers < 0 || order->newcomers > COLLI_NEWCOMERS_MAX))
      return EPROTO;
    if (result == COLL_T_DONE)
      result = colli_sealed_pull(conn, flags, (size_t)s->b.nranks, &flags_done);
    if (result != COLL_T_AGAIN || colli_now_ns() >= until_ns)
      return result;
    shrink_listen(s);
    if (s->aborter >= 0 && s->verdict_ns < until_ns)
      until_ns = s->verdict_ns;
    shrink_wait_begin(s);
    boot_polls_add(&s->b.polls, conn->fd, POLLIN);
    boot_polls_add(&s->b.polls, colli_ctrl_fd(s->comm->family->ctrl), POLLIN);
    boot_polls_wake(&s->b.polls, until_ns);
    boot_note_errno(&s->b, boot_polls_wait(&s->b.polls), true);
  }
}

/* Builds or renews as the leader ordered, and reports the result. */
static void obey(shrink *s, colli_sealed *conn, const shrink_order *order, const uint8_t *flags) {
  COLLI_ASSERT_RANK(order->kind == SHRINK_BUILD || order->kind == SHRINK_RENEW, s->b.rank);
  COLLI_ASSERT_RANK(flags[s->b.rank] & SHRINK_LISTED, s->b.rank);
  const int leader = 0;
  coll_status status = COLL_OK;
  shrink_report report;
  shrink_take_list(s, order->ballot, order->comm_id, order->kind == SHRINK_RENEW, flags);
  if (order->kind == SHRINK_BUILD)
    status = shrink_adopt(s, order, -1, &conn->fd, &leader, 1);
  memset(&report, 0, sizeof(report));
  report.ballot = order->ballot;
  boot_report_fill(&s->b, &report.report, status);
  shrink_send(s, conn, &report, sizeof(report), NULL,
              0); /* if sending fails, reading will notice */
}

/* Executes one order; false if it is invalid. *over: the shrink ends with `status`. */
static bool take_order(shrink *s, colli_sealed *conn, const shrink_order *order,
                       const uint8_t *flags, coll_status *status, bool *over) {
  const bool listed = flags[s->b.rank] & SHRINK_LISTED;
  const bool have = s->adopted && s->adopted == order->comm_id;
  switch (order->kind) {
  case SHRINK_BUILD:
  case SHRINK_RENEW:
    if (!listed || order->ballot <= s->ballot || (order->kind == SHRINK_RENEW && !have))
      return false;
    obey(s, conn, order, flags);
    return true;
  case SHRINK_STOP: /* has ended the building */
  case SHRINK_WAIT:
    return true;
  case SHRINK_COMMIT:
    *over = true;
    if (!have)
      *status = boot_fail(&s->b, COLL_ERR_TIMEOUT, -1, NULL,
                          "rank %d (host %s) was left out of %s: the others agreed without it; "
                          "COLL_CREATE_TIMEOUT_MS gives more time",
                          s->b.rank, s->b.mine->host, colli_shrink_name(s->task));
    return true;
  case SHRINK_END: {
    boot_report word = {.status = (int32_t)order->error.status, .error = order->error};
    *status = boot_fail_reported(&s->b, &word);
    *over = true;
    return true;
  }
  default:
    return false;
  }
}

/* Executes the leader's orders until the end, or until the leader is lost. */
static coll_status take_orders(shrink *s, int leader, colli_sealed *conn, bool *over) {
  COLLI_ASSERT_RANK(conn->fd >= 0 && !*over, s->b.rank);
  shrink_order order;
  coll_status status = COLL_OK;
  uint8_t *flags = malloc((size_t)s->b.nranks);
  int result = flags ? COLL_T_DONE : ENOMEM;
  while (result == COLL_T_DONE && !*over) {
    result = next_order(s, conn, &order, flags);
    if (result == COLL_T_DONE && !take_order(s, conn, &order, flags, &status, over))
      result = EPROTO;
  }
  free(flags);
  boot_note_errno(&s->b, result, true);
  if (result == EBADMSG) {
    *over = true;
    return boot_fail_altered(&s->b, leader, &s->comm->table[leader]);
  }
  if (result == COLL_T_AGAIN || result == EPROTO)
    s->skipped[leader] = true;
  return status;
}

coll_status shrink_follow(shrink *s, int leader, bool *over) {
  colli_sealed conn;
  *over = false;
  if (!reach_leader(s, leader, &conn)) {
    *over = true;
    return boot_fail_altered(&s->b, leader, &s->comm->table[leader]);
  }
  if (conn.fd < 0)
    return COLL_OK;
  for (int r = 0; r < s->b.nranks; r++) /* this rank does not lead these */
    shrink_drop(s, r);
  shrink_send_checkin(s, &conn); /* if that fails, there may still be an order to read */
  coll_status status = take_orders(s, leader, &conn, over);
  colli_sealed_close(&conn);
  return status;
}
