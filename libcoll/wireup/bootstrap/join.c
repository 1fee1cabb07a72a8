/* join.c: every rank but the server: checks in, makes its links, waits for the outcome.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/roles.h"
#include "libcoll/wireup/bootstrap/time.h"

#define REPORT_NS (100 * COLLI_NS_PER_MS) /* how long to try to report a failure to the server */
#define DOUBT_NS  COLLI_NS_PER_S /* how long others have to notice that the server is lost */

typedef struct join_state {
  boot *b;
  boot_links *links;
  boot_dial dial;
  colli_sealed conn; /* to the server */
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
  size_t outcome_done, table_done;
} join_state;

/* Fails with a message about each address of the server; `format` takes rank, host, the server and
 * that text. */
static coll_status fail_at_server(join_state *j, coll_status status, const char *format) {
  char attempts[400], server[BOOT_SERVER_TEXT];
  boot_dial_describe(&j->dial, attempts, sizeof(attempts));
  return boot_fail(j->b, status, j->links->server, NULL, format, j->b->rank, j->b->mine->host,
                   boot_server_text(j->b, j->links->server, server), attempts);
}

/* Whether this process made the id, and listens no more. */
static bool is_used_up(const join_state *j) {
  const boot *b = j->b;
  if (b->id->server >= 0 || b->id->pid != getpid())
    return false; /* of another process, or it is no id of coll_unique_id() */
  return boot_dial_own(b, b->id->addrs) && boot_dial_gone(&j->dial, true);
}

/* Dials the server; fails if something there refuses for good. */
static coll_status step_dial(join_state *j) {
  char server[BOOT_SERVER_TEXT];
  int result = boot_dial_step(j->b, &j->dial);
  if (result > 0 && j->dial.tls_differs)
    return boot_fail(j->b, COLL_ERR_MISMATCH, j->links->server, NULL,
                     "rank %d (host %s) has COLL_TLS=%d, but %s has COLL_TLS=%d; set it to the "
                     "same on all ranks",
                     j->b->rank, j->b->mine->host, j->b->tls,
                     boot_server_text(j->b, j->links->server, server), !j->b->tls);
  if (result > 0 && j->dial.altered)
    return boot_fail_altered(j->b, j->links->server, NULL);
  if (result == COLL_ERR_AUTH)
    return fail_at_server(j, COLL_ERR_AUTH,
                          "rank %d (host %s) and %s do not have the same secret: %s; give all "
                          "ranks the same id or COLL_SECRET");
  if (result > 0)
    return fail_at_server(j, COLL_ERR_MISMATCH,
                          "rank %d (host %s) knows the secret of %s, but is of another "
                          "communicator: %s; give all ranks the same id, or the same text in "
                          "COLL_ROOT");
  if (is_used_up(j))
    return boot_fail(j->b, COLL_ERR_INVALID_USAGE, -1, NULL,
                     "rank %d's process made the id, but no longer listens for the others; an id "
                     "serves one communicator: make a new one with coll_unique_id()",
                     j->b->rank);
  if (result == COLL_T_DONE) {
    j->conn = j->dial.conn;
    j->checkin.remaining_ms = boot_remaining_ms(j->b->deadline_ns);
  }
  return COLL_OK;
}

/* The server's record in *info, if it is here; else NULL. */
static const colli_rank_info *server_info(const join_state *j, colli_rank_info *info) {
  if (!j->links->have_table)
    return NULL;
  *info = colli_rank_at(j->links->table, j->links->server);
  return info;
}

/* The server's connection ended without an outcome. */
static coll_status fail_server_lost(const join_state *j) {
  const boot *b = j->b;
  colli_rank_info room;
  const colli_rank_info *info = server_info(j, &room);
  char addr[COLLI_ADDR_TEXT], server[BOOT_SERVER_TEXT];
  return boot_fail(b, COLL_ERR_PEER_LOST, j->links->server, info,
                   "%s%s%s%s is lost: it closed its connection to rank %d (host %s) before "
                   "all ranks were joined; look for what ended that process",
                   boot_server_text(b, j->links->server, server), info ? " (host " : ", at ",
                   info ? info->host : colli_addr_text(&b->id->addrs[0], addr), info ? ")" : ",",
                   b->rank, b->mine->host);
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
 * The server's connection ended without an outcome. It may have announced a success to others, in
 * which case the links of all ranks are up. Otherwise a rank with a missing link fails at once.
 * That closes its other links, so its neighbours fail too, and so on. If no link closes, the
 * creation has succeeded, and the first call will find the server lost. In a shrink, another round
 * decides.
 */
static coll_status decide_without_server(const join_state *j, bool *over) {
  boot *b = j->b;
  if (!j->ready || b->nranks == 2 || boot_is_guarded(b))
    return fail_server_lost(j);
  const uint64_t until_ns = colli_now_ns() + DOUBT_NS;
  for (*over = false; !*over;) {
    boot_polls_clear(&b->polls, until_ns);
    *over = colli_now_ns() >= until_ns;
    for (int i = 0; i < j->links->count; i++) {
      const boot_link *link = &j->links->at[i];
      const int result = link->peer == j->links->server ? COLL_T_AGAIN : look_at_neighbour(j, link);
      if (result > 0) {
        *over = false;
        return fail_server_lost(j);
      }
      *over = *over || result == COLL_T_DONE;
      if (link->peer != j->links->server)
        boot_polls_add(&b->polls, link->conn.fd, POLLIN);
    }
    if (!*over)
      boot_note_errno(b, boot_polls_wait(&b->polls), true);
  }
  colli_log_write(b->log, COLLI_LOG_WARN,
                  "rank %d is lost, after all ranks were joined and before it told rank %d",
                  j->links->server, b->rank);
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
  j->ready = !boot_time_asks(j->links->table, j->links->server, j->b->rank);
}

/* Takes an answer of the server, and prepares the next question. */
static void take_answer(join_state *j) {
  boot_time_add(&j->ready_report.time, j->asked_ns, &j->outcome.time, colli_now_ns());
  j->asked++;
  j->ready = j->asked == BOOT_QUESTIONS;
  j->asked_ns = 0;
  j->question_done = j->outcome_done = 0;
}

/* Rank 0: receives the table, whose head is here. *status: whether it is possible. */
static int pull_table(join_state *j, coll_status *status) {
  const boot *b = j->b;
  boot_links *links = j->links;
  const int server = j->outcome.server;
  *status = boot_links_expect_table(b, links, server, j->outcome.table_bytes);
  if (*status != COLL_OK)
    return COLL_T_DONE;
  const int result =
      colli_sealed_pull(&j->conn, links->table->packed, links->table->bytes, &j->table_done);
  if (result != COLL_T_DONE)
    return result;
  *status = boot_links_take_table(b, links, server, server, j->outcome.remaining_ms);
  j->outcome_done = 0;
  return COLL_T_DONE;
}

/* Receives messages of the server until there is one that is neither the table nor an answer:
 * COLL_T_DONE; or COLL_T_AGAIN or an errno. *status: of the table. */
static int pull_messages(join_state *j, int *sent, coll_status *status) {
  int result;
  while ((result = colli_sealed_pull(&j->conn, &j->outcome, sizeof(j->outcome),
                                     &j->outcome_done)) == COLL_T_DONE) {
    if (j->outcome.status == BOOT_ASKS_TIME && j->asked_ns && !j->ready) {
      take_answer(j);
      *sent = push_messages(j);
    } else if (j->outcome.status == BOOT_TABLE && j->b->rank == 0 && !j->links->have_table) {
      const int pulled = pull_table(j, status);
      if (pulled != COLL_T_DONE || *status != COLL_OK)
        return pulled;
    } else {
      return COLL_T_DONE;
    }
  }
  return result;
}

/* Exchanges messages with the server. Sets *over when the outcome has arrived and is COLL_OK. */
static coll_status step_server(join_state *j, bool *over) {
  const boot *b = j->b;
  *over = false;
  if (j->conn.fd < 0) {
    coll_status status = step_dial(j);
    if (status != COLL_OK || j->conn.fd < 0)
      return status;
  }
  int sent = push_messages(j);
  coll_status status = COLL_OK;
  const int result = pull_messages(j, &sent, &status);
  if (status != COLL_OK)
    return status;
  if (result == COLL_T_DONE && j->outcome.status != COLL_OK)
    return boot_fail_reported(b, &j->outcome);
  if (result == COLL_T_DONE && j->ready) {
    *over = true;
    return COLL_OK;
  }
  if (result == COLL_T_DONE)
    return boot_fail(b, COLL_ERR_PROTOCOL, j->links->server, NULL,
                     "the server reported success before rank %d had its links", b->rank);
  if (result == EBADMSG) {
    colli_rank_info room;
    return boot_fail_altered(b, j->links->server, server_info(j, &room));
  }
  if (result <= 0 && sent <= 0)
    return COLL_OK;
  const int why = result > 0 ? result : sent;
  boot_note_errno(b, why, true);
  if (colli_errno_is_shortage(why)) /* the others see this rank's connection end */
    return fail_server_lost(j);
  return decide_without_server(j, over);
}

/* Whether nothing is being sent to the server. */
static bool is_idle(const join_state *j) {
  return j->record_done == COLLI_SEALED_BYTES(sizeof(*j->b->mine)) &&
         (!j->linked || j->ready || j->question_done == COLLI_SEALED_BYTES(sizeof(j->question))) &&
         (!j->ready || j->ready_done == COLLI_SEALED_BYTES(sizeof(j->ready_report)));
}

/* Fails because this rank's deadline has passed, and says why. */
static coll_status fail_server_late(join_state *j) {
  const boot *b = j->b;
  char server[BOOT_SERVER_TEXT];
  colli_rank_info room;
  const coll_status status = j->dial.answered ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE;
  if (j->conn.fd < 0 && b->id->server < 0)
    return fail_at_server(j, status,
                          "rank %d (host %s) could not reach %s in time: %s; look whether that "
                          "process runs and has called coll_comm_create(), and for a firewall "
                          "(COLL_PORT_RANGE) or the wrong interface (COLL_TCP_IFNAME)");
  if (j->conn.fd < 0)
    return fail_at_server(j, status,
                          "rank %d (host %s) could not reach %s in time: %s; look whether it "
                          "was started and listens there (COLL_ROOT), and for a firewall "
                          "(COLL_PORT_RANGE) or the wrong interface (COLL_TCP_IFNAME)");
  return boot_fail(b, COLL_ERR_TIMEOUT, j->links->server, server_info(j, &room),
                   "rank %d (host %s) checked in, but %s told no outcome within %.3g s; look "
                   "whether that process is stopped",
                   b->rank, b->mine->host, boot_server_text(b, j->links->server, server),
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S);
}

/* Reports this rank's failure to the server, so that the others learn the reason. */
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
    coll_status status = step_server(j, &over);
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
      continue; /* tell the server */
    }
    if (colli_now_ns() >= b->deadline_ns) {
      status = fail_server_late(j);
      report_failure(j, status);
      return status;
    }
    wait_for_events(j);
  }
}

coll_status boot_join(boot *b, boot_links *links, colli_shared_time *time) {
  COLLI_ASSERT_RANK(links->server != b->rank && b->rank < b->nranks, b->rank);
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
  boot_dial_begin(b, &j->dial, COLLI_HELLO_CHECKIN, BOOT_SERVER, b->id->addrs);
  coll_status status = await_outcome(j);
  *time = boot_time_share(&j->outcome.time);
  colli_sealed_close(&j->conn);
  boot_dial_close(&j->dial);
  explicit_bzero(j, sizeof(*j));
  free(j);
  return status;
}
