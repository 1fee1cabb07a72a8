/* bootstrap_join.c: every rank but 0: checks in, makes its links, waits for the outcome. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap_roles.h"
#include "libcoll/wireup/bootstrap_time.h"

#define REPORT_NS (100 * COLLI_NS_PER_MS) /* how long to try to report a failure to rank 0 */
#define DOUBT_NS  COLLI_NS_PER_S          /* how long others have to notice that rank 0 is lost */

typedef struct join_state {
  boot *b;
  boot_links *links;
  boot_dial dial;
  colli_sealed conn; /* to rank 0 */
  boot_checkin checkin;
  size_t checkin_done, record_done; /* bytes that were sent */
  bool linked;                      /* the links are up */
  int asked;                        /* questions for the time that were answered */
  uint64_t asked_ns;                /* when this one was sent; 0: it was not yet */
  boot_report question;
  size_t question_done;
  bool ready; /* the links are up, and the time is known */
  boot_report ready_report;
  size_t ready_done;
  boot_report outcome;
  size_t outcome_done;
} join_state;

/* Fails with a message about each address of rank 0; `format` takes rank, host and that text. */
static coll_status fail_at_root(join_state *j, coll_status status, const char *format) {
  char attempts[400];
  boot_dial_describe(&j->dial, attempts, sizeof(attempts));
  return boot_fail(j->b, status, 0, NULL, format, j->b->rank, j->b->mine->host, attempts);
}

/* Dials rank 0; fails if something there refuses for good. */
static coll_status step_root_dial(join_state *j) {
  int result = boot_dial_step(j->b, &j->dial);
  if (result > 0 && j->dial.tls_differs)
    return boot_fail(j->b, COLL_ERR_MISMATCH, 0, NULL,
                     "rank %d (host %s) has COLL_TLS=%d, but rank 0 has COLL_TLS=%d; set it to the "
                     "same on all ranks",
                     j->b->rank, j->b->mine->host, j->b->tls, !j->b->tls);
  if (result > 0 && j->dial.altered)
    return boot_fail_altered(j->b, 0, NULL);
  if (result == COLL_ERR_AUTH)
    return fail_at_root(j, COLL_ERR_AUTH,
                        "rank %d (host %s) and rank 0 do not have the same secret: %s; give all "
                        "ranks the same id or COLL_SECRET");
  if (result > 0)
    return fail_at_root(j, COLL_ERR_MISMATCH,
                        "rank %d (host %s) knows rank 0's secret, but is of another communicator: "
                        "%s; give all ranks the same id, or the same text in COLL_ROOT");
  if (result == COLL_T_DONE) {
    j->conn = j->dial.conn;
    j->checkin.remaining_ms = boot_remaining_ms(j->b->deadline_ns);
  }
  return COLL_OK;
}

/* Rank 0's connection ended without an outcome. */
static coll_status fail_root_lost(const join_state *j) {
  const boot *b = j->b;
  const colli_rank_info *info = j->links->have_table ? &j->links->table[0] : NULL;
  char addr[COLLI_ADDR_TEXT];
  return boot_fail(b, COLL_ERR_PEER_LOST, 0, info,
                   "rank 0 (%s%s) is lost: it closed its connection to rank %d (host %s) before "
                   "all ranks were joined; look for what ended that process",
                   info ? "host " : "at ",
                   info ? info->host : colli_addr_text(&b->id->addrs[0], addr), b->rank,
                   b->mine->host);
}

/* What a link tells about the neighbour: COLL_T_DONE: it sent something, so it has returned from
 * the bootstrap with success; COLL_T_AGAIN: nothing; PEER_LOST: it has closed, so it has failed. */
static int look_at_neighbour(const join_state *j, const boot_link *link) {
  char byte;
  ssize_t got = recv(link->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0)
    return COLL_T_DONE;
  if (got == 0)
    return COLL_ERR_PEER_LOST;
  boot_note_errno(j->b, errno, false);
  const bool wait = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return wait || colli_errno_is_shortage(errno) ? COLL_T_AGAIN : COLL_ERR_PEER_LOST;
}

/*
 * Rank 0's connection ended without an outcome. It may have announced a success to others, in which
 * case the links of all ranks are up. Otherwise a rank with a missing link fails at once. That
 * closes its other links, so its neighbours fail too, and so on. If no link closes, the creation
 * has succeeded, and the first call will find rank 0 lost. In a shrink, another round decides.
 */
static coll_status decide_without_root(const join_state *j, bool *over) {
  boot *b = j->b;
  if (!j->ready || b->nranks == 2 || boot_is_guarded(b))
    return fail_root_lost(j);
  const uint64_t until_ns = colli_now_ns() + DOUBT_NS;
  for (*over = false; !*over;) {
    boot_polls_clear(&b->polls, until_ns);
    *over = colli_now_ns() >= until_ns;
    for (int i = 0; i < j->links->count; i++) {
      const boot_link *link = &j->links->at[i];
      const int result = link->peer == 0 ? COLL_T_AGAIN : look_at_neighbour(j, link);
      if (result > 0) {
        *over = false;
        return fail_root_lost(j);
      }
      *over = *over || result == COLL_T_DONE;
      if (link->peer != 0)
        boot_polls_add(&b->polls, link->conn.fd, POLLIN);
    }
    if (!*over)
      boot_note_errno(b, boot_polls_wait(&b->polls), true);
  }
  colli_log_write(b->log, COLLI_LOG_WARN,
                  "rank 0 is lost, after all ranks were joined and before it told rank %d",
                  b->rank);
  return COLL_OK;
}

/* Sends what there is to send: COLL_T_DONE, COLL_T_AGAIN or an errno. */
static int push_messages(join_state *j) {
  int sent = colli_sealed_push(&j->conn, &j->checkin, sizeof(j->checkin), &j->checkin_done);
  if (sent == COLL_T_DONE)
    sent = colli_sealed_push(&j->conn, j->b->mine, sizeof(*j->b->mine), &j->record_done);
  if (sent == COLL_T_DONE && j->linked && !j->ready) {
    if (!j->asked_ns)
      j->asked_ns = colli_now_ns();
    sent = colli_sealed_push(&j->conn, &j->question, sizeof(j->question), &j->question_done);
  }
  if (sent == COLL_T_DONE && j->ready)
    sent = colli_sealed_push(&j->conn, &j->ready_report, sizeof(j->ready_report), &j->ready_done);
  return sent;
}

/* The links are up. */
static void set_linked(join_state *j) {
  j->linked = true;
  j->ready = !boot_time_asks(j->links->table, j->b->rank);
}

/* Takes an answer of rank 0, and prepares the next question. */
static void take_answer(join_state *j) {
  boot_time_add(&j->ready_report.time, j->asked_ns, &j->outcome.time, colli_now_ns());
  j->asked++;
  j->ready = j->asked == BOOT_QUESTIONS;
  j->asked_ns = 0;
  j->question_done = j->outcome_done = 0;
}

/* Exchanges messages with rank 0. Sets *over when the outcome has arrived and is COLL_OK. */
static coll_status step_root(join_state *j, bool *over) {
  const boot *b = j->b;
  *over = false;
  if (j->conn.fd < 0) {
    coll_status status = step_root_dial(j);
    if (status != COLL_OK || j->conn.fd < 0)
      return status;
  }
  int sent = push_messages(j);
  int result = colli_sealed_pull(&j->conn, &j->outcome, sizeof(j->outcome), &j->outcome_done);
  while (result == COLL_T_DONE && j->outcome.status == BOOT_ASKS_TIME && j->asked_ns && !j->ready) {
    take_answer(j);
    sent = push_messages(j);
    result = colli_sealed_pull(&j->conn, &j->outcome, sizeof(j->outcome), &j->outcome_done);
  }
  if (result == COLL_T_DONE && j->outcome.status != COLL_OK)
    return boot_fail_reported(b, &j->outcome);
  if (result == COLL_T_DONE && j->ready) {
    *over = true;
    return COLL_OK;
  }
  if (result == COLL_T_DONE)
    return boot_fail(b, COLL_ERR_PROTOCOL, 0, NULL,
                     "rank 0 reported success before rank %d had its links", b->rank);
  if (result == EBADMSG)
    return boot_fail_altered(b, 0, j->links->have_table ? &j->links->table[0] : NULL);
  if (result <= 0 && sent <= 0)
    return COLL_OK;
  const int why = result > 0 ? result : sent;
  boot_note_errno(b, why, true);
  if (colli_errno_is_shortage(why))
    return fail_root_lost(j); /* the others see this rank's connection end, not that of rank 0 */
  return decide_without_root(j, over);
}

/* Whether nothing is being sent to rank 0. */
static bool is_idle(const join_state *j) {
  return j->record_done == COLLI_SEALED_BYTES(sizeof(*j->b->mine)) &&
         (!j->linked || j->ready || j->question_done == COLLI_SEALED_BYTES(sizeof(j->question))) &&
         (!j->ready || j->ready_done == COLLI_SEALED_BYTES(sizeof(j->ready_report)));
}

/* Fails because this rank's deadline has passed, and says why. */
static coll_status fail_root_late(join_state *j) {
  const boot *b = j->b;
  if (j->conn.fd < 0)
    return fail_at_root(j, j->dial.answered ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE,
                        "rank %d (host %s) could not reach rank 0 in time: %s; look whether rank 0 "
                        "was started and listens there (COLL_ROOT), and for a firewall "
                        "(COLL_PORT_RANGE) or the wrong interface (COLL_TCP_IFNAME)");
  return boot_fail(b, COLL_ERR_TIMEOUT, 0, NULL,
                   "rank %d (host %s) checked in, but rank 0 told no outcome within %.3g s; look "
                   "whether rank 0's process is stopped",
                   b->rank, b->mine->host,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S);
}

/* Reports this rank's failure to rank 0, so that the others learn the reason. */
static void report_failure(join_state *j, coll_status status) {
  COLLI_ASSERT_RANK(status != COLL_OK, j->b->rank);
  boot *b = j->b;
  boot_report report;
  size_t done = 0;
  uint64_t until_ns = colli_now_ns() + REPORT_NS;
  boot_report_fill(b, &report, status);
  if (!is_idle(j))
    return; /* in the middle of another message; closing the connection must suffice */
  while (colli_sealed_push(&j->conn, &report, sizeof(report), &done) == COLL_T_AGAIN &&
         colli_now_ns() < until_ns) {
    boot_polls_clear(&b->polls, until_ns);
    boot_polls_add(&b->polls, j->conn.fd, colli_sealed_events(&j->conn, POLLOUT));
    boot_polls_wait(&b->polls);
  }
}

/* Waits until something happens. */
static void wait_for_events(join_state *j) {
  boot *b = j->b;
  boot_polls_clear(&b->polls, b->deadline_ns);
  if (j->conn.fd < 0)
    boot_dial_watch(b, &j->dial);
  else
    boot_polls_add(&b->polls, j->conn.fd,
                   colli_sealed_events(&j->conn, is_idle(j) ? POLLIN : POLLIN | POLLOUT));
  boot_links_watch(b, j->links);
  boot_lifelines_watch(b);
  boot_note_errno(b, boot_polls_wait(&b->polls), true);
}

/* Runs until the outcome is known or something fails here. */
static coll_status await_outcome(join_state *j) {
  boot *b = j->b;
  for (;;) {
    bool over;
    coll_status status = step_root(j, &over);
    COLLI_ASSERT_RANK(!over || j->ready, j->b->rank);
    if (status != COLL_OK || over)
      return status;
    int result = (int)boot_lifelines_check(b);
    if (result == COLL_OK)
      result = boot_links_step(b, j->links);
    if (result > 0) {
      report_failure(j, (coll_status)result);
      return (coll_status)result;
    }
    if (result == COLL_T_DONE && !j->linked) {
      set_linked(j);
      continue; /* tell rank 0 */
    }
    if (colli_now_ns() >= b->deadline_ns) {
      status = fail_root_late(j);
      report_failure(j, status);
      return status;
    }
    wait_for_events(j);
  }
}

coll_status boot_join(boot *b, boot_links *links, colli_shared_time *time) {
  COLLI_ASSERT_RANK(b->rank > 0 && b->rank < b->nranks, b->rank);
  join_state *j = calloc(1, sizeof(*j));
  if (!j)
    return boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory at check-in");
  j->b = b;
  j->links = links;
  j->conn = COLLI_SEALED_NONE;
  j->checkin = (boot_checkin){.version = COLL_VERSION, .nranks = b->nranks};
  boot_report_fill(b, &j->ready_report, COLL_OK);
  boot_time_begin(&j->ready_report.time);
  boot_report_fill(b, &j->question, COLL_OK);
  j->question.status = BOOT_ASKS_TIME;
  boot_dial_begin(b, &j->dial, COLLI_HELLO_CHECKIN, 0, b->id->addrs);
  coll_status status = await_outcome(j);
  *time = boot_time_share(&j->outcome.time);
  colli_sealed_close(&j->conn);
  boot_dial_close(&j->dial);
  explicit_bzero(j, sizeof(*j));
  free(j);
  return status;
}
