/* shrink_follow.c: a rank of a shrink that another one leads: reaches its parent, and executes the
 * coordinator's orders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"

#define SLACK_NS (200 * COLLI_NS_PER_MS) /* extra time for orders, for each level of the tree */
#define SLOW_NS  (300 * COLLI_NS_PER_MS) /* by then, a rank that may pass on messages answers */

/* Reaches the parent: s->up.conn is the connection, or none if it is another one's turn. False:
 * what it sent was altered. */
static bool reach_parent(shrink *s, int parent) {
  boot_dial *dial = &s->dial;
  const uint64_t now_ns = colli_now_ns();
  const int leader = shrink_candidate(s);
  int result;
  uint64_t until_ns = s->b.start_ns + s->patience_ns;
  /* A later candidate may still be building, for half the patience. */
  const uint64_t least_ns = now_ns + s->patience_ns * 3 / 4;
  until_ns = until_ns < least_ns ? least_ns : until_ns;
  if (parent != leader && now_ns + SLOW_NS < until_ns)
    until_ns = now_ns + SLOW_NS;
  COLLI_ASSERT_RANK(parent >= 0 && parent < s->b.rank, s->b.rank);
  shrink_dial(s, dial, parent);
  for (;;) {
    result = shrink_dial_step(s, dial);
    if (result == COLL_T_DONE)
      s->up.conn = dial->conn;
    if (result != COLL_T_AGAIN)
      break;
    shrink_tend(s);
    if (shrink_candidate(s) != leader || shrink_parent(s, leader) != parent || s->aborter >= 0)
      break;
    if (colli_now_ns() >= until_ns) {
      s->skipped[parent] = s->skipped[parent] || parent == leader;
      s->slow[parent] = true;
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

/* Waits for the next order: COLL_T_DONE, COLL_T_AGAIN (the parent is silent for too long; after an
 * abort that is soon), or an errno. */
static int next_order(shrink *s) {
  const uint64_t silence_ns = s->patience_ns / 2 + shrink_depth(s->b.rank) * SLACK_NS;
  for (;;) {
    int result = shrink_hear_order(s);
    uint64_t until_ns = s->up.heard_ns + silence_ns;
    if (s->aborter >= 0 && s->verdict_ns < until_ns)
      until_ns = s->verdict_ns;
    if (result != COLL_T_AGAIN || colli_now_ns() >= until_ns)
      return result;
    shrink_tend(s);
    if (!shrink_pass_up(s))
      return EPIPE;
    if (s->starved)
      return ENOMEM;
    shrink_wait_begin(s);
    boot_polls_wake(&s->b.polls, shrink_pass_up_ns(s));
    boot_polls_add(&s->b.polls, s->up.conn.fd, POLLIN);
    shrink_wait(s, until_ns);
  }
}

/* Builds or renews as the coordinator ordered, and reports the result. Fails without the memory for
 * a report, so that the others see this rank leave. */
static coll_status obey(shrink *s, const shrink_order *order, const uint8_t *flags) {
  COLLI_ASSERT_RANK(order->kind == SHRINK_BUILD || order->kind == SHRINK_RENEW, s->b.rank);
  COLLI_ASSERT_RANK(flags[s->b.rank] & SHRINK_LISTED, s->b.rank);
  coll_status status = COLL_OK;
  shrink_report report;
  shrink_take_list(s, order->ballot, order->comm_id, order->kind == SHRINK_RENEW, order->newcomers,
                   flags);
  s->up.here = false; /* what comes next ends the building */
  if (order->kind == SHRINK_BUILD)
    status = shrink_adopt(s, order, -1);
  memset(&report, 0, sizeof(report));
  report.ballot = order->ballot;
  boot_report_fill(&s->b, &report.report, status);
  return shrink_say_report(s, &report)
             ? COLL_OK
             : boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for a report");
}

/* Makes sure that those below are told that the shrink is over. If a rank between dies, they come
 * to the coordinator, which waits for the same. */
static void tell_below(shrink *s) {
  const uint64_t until_ns = colli_now_ns() + SHRINK_TELL_NS;
  for (;;) {
    shrink_listen(s);
    shrink_links_read(s);
    s->up.here = false;
    if (shrink_all_told(s))
      s->up.hold_ns = 1; /* nothing waits for more: this rank leaves */
    if (shrink_hear_order(s) > 0 || !shrink_pass_up(s) || shrink_all_told(s) ||
        colli_now_ns() >= until_ns)
      return;
    shrink_wait_begin(s);
    boot_polls_wake(&s->b.polls, shrink_pass_up_ns(s));
    boot_polls_add(&s->b.polls, s->up.conn.fd, POLLIN);
    shrink_wait_inside(s, until_ns);
  }
}

/* Adopts the failure in an order. */
static coll_status take_reason(const shrink *s, const shrink_order *order) {
  boot_report word = {.status = (int32_t)order->error.status, .error = order->error};
  return boot_fail_reported(&s->b, &word);
}

/* Whether an order lists a rank below this one, as every new list does: the coordinator's. */
static bool lists_lower(const shrink *s, const uint8_t *flags) {
  for (int r = 0; r < s->b.rank; r++)
    if (flags[r] & SHRINK_LISTED)
      return true;
  return false;
}

/* Executes one order; false if it is invalid. *over: the shrink ends with `status`. *quit: another
 * rank's turn to lead. */
static bool take_order(shrink *s, shrink_order *order, const uint8_t *flags, coll_status *status,
                       bool *over, bool *quit) {
  const bool listed = flags[s->b.rank] & SHRINK_LISTED;
  const bool have = s->adopted && s->adopted == order->comm_id;
  switch (order->kind) {
  case SHRINK_BUILD:
  case SHRINK_RENEW:
    if (!listed || order->ballot <= s->ballot ||
        (order->kind == SHRINK_RENEW ? !have : !lists_lower(s, flags)))
      return false;
    *status = obey(s, order, flags);
    *over = *status != COLL_OK;
    return true;
  case SHRINK_STOP: /* has ended the building */
    return true;
  case SHRINK_AGAIN: /* too, so what this rank has adopted is certain */
    shrink_say_checkin(s, order->ballot);
    return true;
  case SHRINK_COMMIT:
    *over = true;
    tell_below(s);
    if (!have)
      *status = boot_fail(&s->b, COLL_ERR_TIMEOUT, -1, NULL,
                          "rank %d (host %s) was left out of %s: the others agreed without it; "
                          "COLL_CREATE_TIMEOUT_MS gives more time",
                          s->b.rank, s->b.mine->host, colli_shrink_name(s->task));
    return true;
  case SHRINK_END:
    *status = boot_fail_short(&s->b, take_reason(s, order));
    *over = true;
    return true;
  case SHRINK_QUIT:
    if (order->error.rank < 0 || order->error.rank >= s->b.rank)
      return false;
    take_reason(s, order);
    shrink_note_short(s);
    colli_error_clear(s->b.error);
    s->skipped[order->error.rank] = true;
    *quit = true;
    return true;
  default:
    return false;
  }
}

/* Executes orders until the end, or until the parent is lost. */
static coll_status take_orders(shrink *s, int parent, bool *over) {
  COLLI_ASSERT_RANK(s->up.conn.fd >= 0 && !*over, s->b.rank);
  shrink_order order;
  coll_status status = COLL_OK;
  uint8_t *flags = shrink_alloc(s, (size_t)s->b.nranks);
  int result = flags ? COLL_T_DONE : ENOMEM;
  bool quit = false;
  while (result == COLL_T_DONE && !*over && !quit) {
    result = next_order(s);
    if (result != COLL_T_DONE)
      break;
    order = s->up.order;
    memcpy(flags, s->up.flags, (size_t)s->b.nranks);
    s->up.here = false;
    if (!take_order(s, &order, flags, &status, over, &quit))
      result = EPROTO;
  }
  free(flags);
  boot_note_errno(&s->b, result, true);
  if (result == EBADMSG) {
    *over = true;
    const colli_rank_info info = colli_rank_at(s->comm->table, parent);
    return boot_fail_altered(&s->b, parent, &info);
  }
  if (result == COLL_T_AGAIN || result == EPROTO)
    s->skipped[parent] = true;
  return status;
}

coll_status shrink_follow(shrink *s, int parent, bool *over) {
  *over = false;
  if (!reach_parent(s, parent)) {
    *over = true;
    const colli_rank_info info = colli_rank_at(s->comm->table, parent);
    return boot_fail_altered(&s->b, parent, &info);
  }
  if (s->up.conn.fd < 0)
    return COLL_OK;
  s->up = (shrink_uplink){.conn = s->up.conn, .heard_ns = colli_now_ns(), .flags = s->up.flags};
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1))
    s->members[r].passed = s->members[r].lost = 0;
  shrink_say_checkin(s, 0);
  coll_status status = take_orders(s, parent, over);
  colli_sealed_close(&s->up.conn);
  shrink_links_drop(s); /* they must check in on the new way */
  return status;
}
