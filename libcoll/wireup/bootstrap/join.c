/* join.c: checks in at another rank, says when this one is ready, hears the outcome. */
#include "libcoll/wireup/bootstrap/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define REPORT_NS (100 * COLLI_NS_PER_MS) /* how long to try to report a failure */

/* The rank at which this one checks in: its parent in a tree, or the one that serves all; -1: not
 * known yet. */
static int parent_of(const boot_joiner *j) {
  return j->b->place.fan_out > 0 ? j->b->place.parent : j->links->server;
}

/* Fails with a message about each address of the server; `format` takes rank, host, the server and
 * that text. */
static coll_status fail_at_server(const boot_joiner *j, coll_status status, const char *format) {
  char attempts[400], server[BOOT_SERVER_TEXT];
  boot_dial_describe(&j->dial, attempts, sizeof(attempts));
  return boot_fail(j->b, status, parent_of(j), NULL, format, j->b->rank, j->b->mine->host,
                   boot_server_text(j->b, parent_of(j), server), attempts);
}

/* Whether this process made the id, and listens no more. */
static bool is_used_up(const boot_joiner *j) {
  const boot *b = j->b;
  if (b->id->server >= 0 || b->id->pid != getpid())
    return false; /* of another process, or it is no id of coll_unique_id() */
  return boot_dial_own(b, b->id->addrs) && boot_dial_gone(&j->dial, true);
}

/* Dials the server; fails if something there refuses for good. */
static coll_status step_dial(boot_joiner *j) {
  char server[BOOT_SERVER_TEXT];
  int result = boot_dial_step(j->b, &j->dial);
  if (result > 0 && j->dial.tls_differs)
    return boot_fail(j->b, COLL_ERR_MISMATCH, parent_of(j), NULL,
                     "rank %d (host %s) has COLL_TLS=%d, but %s has COLL_TLS=%d; set it to the "
                     "same on all ranks",
                     j->b->rank, j->b->mine->host, j->b->tls,
                     boot_server_text(j->b, parent_of(j), server), !j->b->tls);
  if (result > 0 && j->dial.altered)
    return boot_fail_altered(j->b, parent_of(j), NULL);
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
    j->checkin.remaining_ms = boot_remaining_ms(j->deadline_ns);
    if (!j->links->have_table)
      boot_links_guess_outcome(j->b, j->links);
  }
  return COLL_OK;
}

/* A rank's record in *info, if it is here; else NULL. */
static const colli_rank_info *info_of(const boot_joiner *j, int rank, colli_rank_info *info) {
  if (!j->links->have_table)
    return NULL;
  *info = colli_rank_at(j->links->table, rank);
  return info;
}

/* Fails because this rank's deadline has passed, and says why. */
static coll_status fail_server_late(const boot_joiner *j) {
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
  return boot_fail(b, COLL_ERR_TIMEOUT, parent_of(j), info_of(j, parent_of(j), &room),
                   "rank %d (host %s) checked in, but %s told no outcome within %.3g s; look "
                   "whether that process is stopped",
                   b->rank, b->mine->host, boot_server_text(b, parent_of(j), server),
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S);
}

coll_status boot_joiner_fail_lost(const boot_joiner *j) {
  const boot *b = j->b;
  const int lost = j->lost >= 0 ? j->lost : parent_of(j);
  if (j->late)
    return fail_server_late(j);
  colli_rank_info room;
  const colli_rank_info *info = info_of(j, lost, &room);
  char addr[COLLI_ADDR_TEXT], server[BOOT_SERVER_TEXT];
  if (lost != parent_of(j))
    return boot_fail(b, COLL_ERR_PEER_LOST, lost, info,
                     "rank %d%s%s%s is lost: rank %d (host %s) heard of it before all ranks were "
                     "joined; look for what ended that process",
                     lost, info ? " (host " : "", info ? info->host : "", info ? ")" : "", b->rank,
                     b->mine->host);
  return boot_fail(b, COLL_ERR_PEER_LOST, lost, info,
                   "%s%s%s%s is lost: it closed its connection to rank %d (host %s) before "
                   "all ranks were joined; look for what ended that process",
                   boot_server_text(b, lost, server), info ? " (host " : ", at ",
                   info ? info->host : colli_addr_text(&b->id->addrs[0], addr), info ? ")" : ",",
                   b->rank, b->mine->host);
}

/* Sends the report that all are ready, and what is known of their clocks; and a later failure. */
static int push_ready(boot_joiner *j) {
  int sent = colli_sealed_push(&j->conn, &j->ready_report, sizeof(j->ready_report), &j->ready_done);
  if (sent == COLL_T_DONE && j->ranks > 1)
    sent = colli_sealed_push(&j->conn, j->ahead + 1, (size_t)(j->ranks - 1) * sizeof(*j->ahead),
                             &j->rest_done);
  if (sent == COLL_T_DONE && j->fails)
    sent = colli_sealed_push(&j->conn, &j->failure, sizeof(j->failure), &j->failure_done);
  return sent;
}

/* Sends for whom this rank waits, and a question for the time: one after the other, each whole. */
static int push_between(boot_joiner *j) {
  int sent = COLL_T_DONE;
  while (sent == COLL_T_DONE) {
    if (!j->sending && j->says_wait) {
      j->sending = &j->wait;
    } else if (!j->sending && j->linked && !j->timed && !j->asked_ns) {
      j->sending = &j->question;
      j->asked_ns = colli_now_ns();
    } else if (!j->sending) {
      break;
    }
    size_t *done = j->sending == &j->wait ? &j->wait_done : &j->question_done;
    sent = colli_sealed_push(&j->conn, j->sending, sizeof(*j->sending), done);
    if (sent == COLL_T_DONE) {
      j->says_wait = j->says_wait && j->sending != &j->wait;
      j->sending = NULL;
    }
  }
  return sent;
}

/* Sends what there is to send: COLL_T_DONE, COLL_T_AGAIN or an errno. */
static int push_messages(boot_joiner *j) {
  int sent = COLL_T_DONE;
  if (j->ranks > 1)
    sent = colli_sealed_push(&j->conn, &j->comes, sizeof(j->comes), &j->comes_done);
  if (sent != COLL_T_DONE || !j->records)
    return sent;
  j->checks_in = true;
  sent = colli_sealed_push(&j->conn, &j->checkin, sizeof(j->checkin), &j->checkin_done);
  if (sent == COLL_T_DONE)
    sent = colli_sealed_push(&j->conn, j->records, (size_t)j->ranks * sizeof(*j->records),
                             &j->records_done);
  if (sent == COLL_T_DONE)
    sent = push_between(j);
  return sent == COLL_T_DONE && j->ready ? push_ready(j) : sent;
}

void boot_joiner_set_wait(boot_joiner *j, int rank) {
  if (!j->records || j->ready || j->says_wait ||
      (j->wait.status == BOOT_WAITS && j->wait.server == rank))
    return;
  boot_report_fill(j->b, &j->wait, COLL_OK);
  j->wait.status = BOOT_WAITS;
  j->wait.server = rank;
  j->wait_done = 0;
  j->says_wait = true;
}

void boot_joiner_set_records(boot_joiner *j, const colli_rank_info *records, uint64_t deadline_ns) {
  if (deadline_ns < j->deadline_ns)
    j->deadline_ns = deadline_ns;
  j->checkin.remaining_ms = boot_remaining_ms(j->deadline_ns);
  j->records = records;
}

void boot_joiner_set_linked(boot_joiner *j) {
  const colli_rank_table *table = j->links->table;
  const bool tree = j->b->place.fan_out > 0;
  j->linked = true;
  j->timed = !(tree ? boot_time_asks_parent(table, parent_of(j), j->b->rank)
                    : boot_time_asks(table, parent_of(j), j->b->rank));
}

void boot_joiner_set_ready(boot_joiner *j, const boot_bounds *ahead, boot_bounds *told) {
  COLLI_ASSERT_RANK(j->records && j->linked && j->timed && (j->ranks == 1 || ahead), j->b->rank);
  j->ready = true;
  j->ahead = ahead;
  j->told = told;
}

void boot_joiner_set_failure(boot_joiner *j, coll_status status) {
  COLLI_ASSERT_RANK(j->ready && status != COLL_OK, j->b->rank);
  if (j->fails)
    return;
  j->fails = true;
  boot_report_fill(j->b, &j->failure, status);
}

/* Takes an answer of the server, and prepares the next question. */
static void take_answer(boot_joiner *j) {
  boot_time_add(&j->ready_report.time.ahead, j->asked_ns, &j->outcome.time, colli_now_ns());
  j->asked++;
  j->timed = j->asked == BOOT_QUESTIONS;
  j->asked_ns = 0;
  j->question_done = j->outcome_done = 0;
}

/* Rank 0: receives the table, whose head is here. *status: whether it is possible. */
static int pull_table(boot_joiner *j, coll_status *status) {
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
  *status = boot_links_take_table(b, links, server, server, j->outcome.remaining_ms,
                                  j->outcome.margin_ms);
  j->outcome_done = 0;
  return COLL_T_DONE;
}

/* Receives what follows the outcome: of a success, what the others below this rank are told. */
static int pull_told(boot_joiner *j) {
  if (j->outcome.status != COLL_OK || j->ranks == 1 || !j->told)
    return COLL_T_DONE;
  j->told[0] = j->outcome.time.ahead;
  return colli_sealed_pull(&j->conn, j->told + 1, (size_t)(j->ranks - 1) * sizeof(*j->told),
                           &j->told_done);
}

/* Receives messages of the server until there is one that is neither the table nor an answer:
 * COLL_T_DONE; or COLL_T_AGAIN or an errno. *status: of the table. */
static int pull_messages(boot_joiner *j, int *sent, coll_status *status) {
  int result;
  while ((result = colli_sealed_pull(&j->conn, &j->outcome, sizeof(j->outcome),
                                     &j->outcome_done)) == COLL_T_DONE) {
    if (j->outcome.status == BOOT_ASKS_TIME && j->asked_ns && !j->timed &&
        j->sending != &j->question) {
      take_answer(j);
      *sent = push_messages(j);
    } else if (j->outcome.status == BOOT_TABLE && j->b->rank == 0 && !j->links->have_table) {
      const int pulled = pull_table(j, status);
      if (pulled != COLL_T_DONE || *status != COLL_OK)
        return pulled;
    } else {
      return pull_told(j);
    }
  }
  return result;
}

/* Takes the outcome. */
static coll_status take_outcome(boot_joiner *j, bool *over) {
  const boot *b = j->b;
  j->heard = true;
  if (j->outcome.status == BOOT_DOUBT && j->ready && j->outcome.server >= 0 &&
      j->outcome.server < b->nranks) {
    j->lost = j->outcome.server;
    *over = true;
    return COLL_OK;
  }
  if (j->outcome.status != COLL_OK)
    return boot_fail_reported(b, &j->outcome);
  *over = j->ready;
  if (j->ready)
    return COLL_OK;
  return boot_fail(b, COLL_ERR_PROTOCOL, parent_of(j), NULL,
                   "the server reported success before rank %d had its links", b->rank);
}

/* Whether a success has arrived. */
static bool has_outcome(const boot_joiner *j) {
  return j->ready && j->outcome_done == COLLI_SEALED_BYTES(sizeof(j->outcome)) &&
         j->outcome.status == COLL_OK;
}

coll_status boot_joiner_step(boot_joiner *j, bool *over) {
  const boot *b = j->b;
  *over = false;
  if (j->conn.fd < 0) {
    coll_status status = step_dial(j);
    j->heard = status != COLL_OK;
    if (status != COLL_OK || j->conn.fd < 0)
      return status;
  }
  int sent = push_messages(j);
  coll_status status = COLL_OK;
  const int result = pull_messages(j, &sent, &status);
  if (status != COLL_OK)
    return status;
  if (result == COLL_T_DONE)
    return take_outcome(j, over);
  if (result == EBADMSG) {
    colli_rank_info room;
    return boot_fail_altered(b, parent_of(j), info_of(j, parent_of(j), &room));
  }
  if (result <= 0 && sent <= 0)
    return COLL_OK;
  const int why = result > 0 ? result : sent;
  boot_note_errno(b, why, true);
  j->heard = true;
  if (has_outcome(j)) { /* but not all that follows it */
    for (int i = 0; i < j->ranks && j->told; i++)
      j->told[i] = BOOT_BOUNDS_NONE;
    return take_outcome(j, over);
  }
  /* After a shortage, the others see this rank's connection end. */
  if (colli_errno_is_shortage(why) || !j->ready || b->nranks == 2 || boot_is_guarded(b))
    return boot_joiner_fail_lost(j);
  j->lost = parent_of(j);
  *over = true;
  return COLL_OK;
}

/* Sends a failure, instead of the records if they are not here yet: as colli_sealed_push(). */
static int push_failure(boot_joiner *j, const boot_report *report, size_t *done) {
  int sent = COLL_T_DONE;
  if (!j->records) {
    j->checkin.follows = BOOT_FAILURE;
    if (j->ranks > 1)
      sent = colli_sealed_push(&j->conn, &j->comes, sizeof(j->comes), &j->comes_done);
    if (sent == COLL_T_DONE)
      sent = colli_sealed_push(&j->conn, &j->checkin, sizeof(j->checkin), &j->checkin_done);
  }
  return sent == COLL_T_DONE ? colli_sealed_push(&j->conn, report, sizeof(*report), done) : sent;
}

/* Whether nothing is being sent. */
static bool is_idle(const boot_joiner *j) {
  const size_t others = (size_t)j->ranks - 1;
  if (!j->records)
    return others == 0 || j->comes_done == COLLI_SEALED_BYTES(sizeof(j->comes));
  if (j->records_done != COLLI_SEALED_BYTES((others + 1) * sizeof(*j->records)))
    return false;
  if (j->sending || j->says_wait || (j->linked && !j->timed && !j->asked_ns))
    return false;
  if (j->ready && j->ready_done != COLLI_SEALED_BYTES(sizeof(j->ready_report)))
    return false;
  if (j->ready && others > 0 && j->rest_done != COLLI_SEALED_BYTES(others * sizeof(*j->ahead)))
    return false;
  return !j->fails || j->failure_done == COLLI_SEALED_BYTES(sizeof(j->failure));
}

/* By when there must be an outcome. In a tree, ranks nearer to the root give up first: they know
 * best who owes it to them, and tell those below. They count from when the root should have told
 * it, which is the same for all that have the table. */
static uint64_t give_up_ns(const boot_joiner *j) {
  const boot_place *place = &j->b->place;
  if (place->fan_out == 0)
    return j->b->deadline_ns;
  const uint64_t late_ns = j->links->outcome_ns + j->links->margin_ns / 2 /
                                                      (uint64_t)place->depths *
                                                      (uint64_t)place->depth;
  return late_ns < j->b->deadline_ns ? late_ns : j->b->deadline_ns;
}

coll_status boot_joiner_check_late(boot_joiner *j, bool *over) {
  if (colli_now_ns() < give_up_ns(j))
    return COLL_OK;
  j->heard = j->conn.fd < 0; /* then nothing can be reported there */
  if (!j->ready || parent_of(j) == j->links->server)
    return fail_server_late(j);
  j->heard = j->late = *over = true;
  j->lost = parent_of(j);
  return COLL_OK;
}

/* Connects if it is not, and sends a failure: as boot_dial_step() and colli_sealed_push(). */
static int step_report(boot_joiner *j, const boot_report *report, size_t *done) {
  if (j->conn.fd < 0) {
    const int result = boot_dial_step(j->b, &j->dial);
    if (result != COLL_T_DONE)
      return result;
    j->conn = j->dial.conn;
  }
  return push_failure(j, report, done);
}

void boot_joiner_report(boot_joiner *j, coll_status status) {
  COLLI_ASSERT_RANK(status != COLL_OK, j->b->rank);
  boot *b = j->b;
  boot_report report;
  size_t done = 0;
  uint64_t until_ns = colli_now_ns() + REPORT_NS;
  boot_report_fill(b, &report, status);
  if (!j->checks_in)
    j->records = NULL; /* the failure goes instead */
  if (!j->sending) {   /* what has not begun is of no interest now */
    j->says_wait = false;
    j->timed = true;
  }
  /* In the middle of another message, closing the connection must suffice. One who speaks for
   * others connects in order to say it. */
  if (j->heard || (j->conn.fd >= 0 ? !is_idle(j) : j->ranks == 1))
    return;
  while (step_report(j, &report, &done) == COLL_T_AGAIN && colli_now_ns() < until_ns) {
    boot_polls_clear(&b->polls, until_ns);
    if (j->conn.fd < 0)
      boot_dial_watch(b, &j->dial);
    else
      boot_polls_add(&b->polls, j->conn.fd, colli_sealed_events(&j->conn, POLLOUT));
    boot_polls_wait(&b->polls);
  }
}

void boot_joiner_watch(boot_joiner *j) {
  boot *b = j->b;
  boot_polls_wake(&b->polls, give_up_ns(j));
  if (j->conn.fd < 0)
    boot_dial_watch(b, &j->dial);
  else
    boot_polls_add(&b->polls, j->conn.fd,
                   colli_sealed_events(&j->conn, is_idle(j) ? POLLIN : POLLIN | POLLOUT));
}

boot_joiner *boot_joiner_open(boot *b, boot_links *links) {
  COLLI_ASSERT_RANK(links->server != b->rank && b->rank < b->nranks, b->rank);
  boot_joiner *j = calloc(1, sizeof(*j));
  if (!j) {
    boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory at check-in");
    return NULL;
  }
  j->b = b;
  j->links = links;
  j->conn = COLLI_SEALED_NONE;
  j->lost = -1;
  j->ranks = b->place.below.end - b->place.below.first;
  j->deadline_ns = b->deadline_ns;
  j->checkin = (boot_checkin){.version = COLL_VERSION, .nranks = b->nranks};
  j->comes = j->checkin;
  j->comes.follows = BOOT_CHECKIN;
  boot_report_fill(b, &j->ready_report, COLL_OK);
  j->ready_report.time.ahead = BOOT_BOUNDS_ALL;
  boot_report_fill(b, &j->question, COLL_OK);
  j->question.status = BOOT_ASKS_TIME;
  boot_dial_begin(b, &j->dial, COLLI_HELLO_CHECKIN, b->place.parent, b->id->addrs);
  return j;
}

void boot_joiner_close(boot_joiner *j) {
  if (!j)
    return;
  colli_sealed_close(&j->conn);
  boot_dial_close(&j->dial);
  explicit_bzero(j, sizeof(*j));
  free(j);
}
