/* serve.c: the server's part: collects the records, sends the table, announces the
 * outcome. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/roles.h"
#include "libcoll/wireup/bootstrap/time.h"

#define TELL_NS   (100 * COLLI_NS_PER_MS) /* how long to announce a failure to slow readers */
#define LINGER_NS COLLI_NS_PER_S          /* the same, for ranks that have yet to connect */

/* An authenticated connection. */
typedef struct serve_conn {
  colli_sealed conn;
  int rank;
  int poll_index;  /* in boot->polls; -1: not in it yet */
  bool checked_in; /* its record has arrived */
  bool ready;
  boot_checkin checkin;
  size_t checkin_done;
  size_t done; /* bytes of the current message after it */
  union {
    colli_rank_info record;
    boot_report report;
  } msg;
  bool answers; /* it has asked for the time, and msg.report, the answer, is being sent */
  size_t answer_done;
  bool gets_table; /* it is rank 0, and this is being sent: */
  boot_report head;
  size_t head_done, table_done;
} serve_conn;

typedef struct serve_state {
  boot *b;
  boot_links *links;
  colli_door door;
  serve_conn **conns;
  int count, capacity;
  colli_rank_info *all; /* their records, by rank */
  bool *is_in;          /* by rank: has checked in */
  boot_time *times;     /* by rank: what it has measured */
  colli_shared_time time;
  int checked_in, ready; /* how many ranks */
  int tls_differs;       /* a rank whose COLL_TLS differs from ours; -1: none is known */
  bool links_up;
  uint64_t deadline_ns; /* of the rank that gives up first */
} serve_state;

/* The first rank for which `flag` is false. */
static int first_missing(const serve_state *r, const bool *flag) {
  const bool *missing = memchr(flag, false, (size_t)r->b->nranks);
  return missing ? (int)(missing - flag) : r->b->nranks;
}

/* Fails because the deadline passed before all ranks had checked in. */
static coll_status fail_checkin_late(serve_state *r) {
  const boot *b = r->b;
  char list[200], addr[COLLI_ADDR_TEXT], strangers[COLLI_STRANGERS_TEXT];
  int missing = b->nranks - r->checked_in;
  boot_list_ranks(r->is_in, b->nranks, false, list, sizeof(list));
  return boot_fail(b, COLL_ERR_TIMEOUT, first_missing(r, r->is_in), NULL,
                   "rank%s %s of %d did not check in within %.3g s at rank %d (host %s, %s); look "
                   "whether %s started and can reach that address (firewall, COLL_TCP_IFNAME); "
                   "COLL_CREATE_TIMEOUT_MS gives more time%s",
                   missing > 1 ? "s" : "", list, b->nranks,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S, b->rank,
                   b->mine->host, colli_addr_text(&b->id->addrs[0], addr),
                   missing > 1 ? "they were" : "it was", colli_door_strangers(&r->door, strangers));
}

/* Fails because the deadline passed before all ranks had made their control links. */
static coll_status fail_links_late(serve_state *r) {
  const boot *b = r->b;
  char list[200];
  bool *ready = calloc((size_t)b->nranks, sizeof(*ready));
  if (!ready)
    return boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for %d ranks", b->nranks);
  ready[b->rank] = r->links_up;
  for (int i = 0; i < r->count; i++)
    if (r->conns[i]->ready)
      ready[r->conns[i]->rank] = true;
  boot_list_ranks(ready, b->nranks, false, list, sizeof(list));
  int first = first_missing(r, ready);
  free(ready);
  const colli_rank_info *info = &r->all[first < b->nranks ? first : 0];
  return boot_fail(b, COLL_ERR_TIMEOUT, first, info,
                   "rank(s) %s of %d checked in, but did not make their control links within "
                   "%.3g s (rank %d: host %s, pid %d); look whether they are stopped, or whether a "
                   "firewall lies between the hosts",
                   list, b->nranks, (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S,
                   first, info->host, info->pid);
}

/* Closes one connection. */
static void drop_conn(serve_state *r, int i) {
  COLLI_ASSERT_RANK(i >= 0 && i < r->count, r->b->rank);
  colli_sealed_close(&r->conns[i]->conn);
  free(r->conns[i]);
  r->conns[i] = r->conns[--r->count];
}

/* Keeps an authenticated connection; false if there are too many or there is no memory. */
static bool add_conn(serve_state *r, colli_guest *guest) {
  COLLI_ASSERT_RANK(r->count <= r->capacity && guest->fd >= 0, r->b->rank);
  if (r->count == r->capacity)
    return false;
  serve_conn *conn = calloc(1, sizeof(*conn));
  boot_note_errno(r->b, conn ? 0 : ENOMEM, false);
  if (!conn)
    return false;
  colli_sealed_open(&conn->conn, &guest->auth);
  conn->rank = guest->auth.hello.src_rank;
  conn->poll_index = -1;
  r->conns[r->count++] = conn;
  return true;
}

/* Turns a rank away whose COLL_TLS differs. */
static void refuse_tls(serve_state *r, colli_guest *guest) {
  r->tls_differs = guest->auth.hello.src_rank;
  colli_auth_answer(&guest->auth, true); /* says so */
  boot_close(&guest->fd);
}

/* Accepts authenticated connections of ranks that check in. */
static void accept_checkins(serve_state *r) {
  const boot *b = r->b;
  colli_guest guest;
  while (colli_door_next(&r->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    bool wanted = hello->kind == COLLI_HELLO_CHECKIN && hello->comm_id == b->id->comm_id;
    if (!wanted)
      boot_guest_refuse(b, &guest);
    else if ((hello->tls != 0) != b->tls)
      refuse_tls(r, &guest);
    else if (!add_conn(r, &guest))
      boot_close(&guest.fd); /* the rank will dial again */
    else if (!boot_guest_accept(b, &guest))
      drop_conn(r, r->count - 1);
  }
}

/* Connections cannot be accepted. */
static coll_status fail_accept(serve_state *r, int sys_errno) {
  const boot *b = r->b;
  colli_error_sys(b->error, COLL_ERR_SYSTEM, "create", "accept4", sys_errno,
                  "rank %d cannot take more check-ins (%d of %d ranks are in); it needs a "
                  "descriptor for each rank: raise the limit (ulimit -n)",
                  b->rank, r->checked_in, b->nranks);
  b->error->rank = b->rank;
  snprintf(b->error->host, sizeof(b->error->host), "%s", b->mine->host);
  return COLL_ERR_SYSTEM;
}

/* Checks a received record and keeps it. */
static coll_status enter_record(serve_state *r, serve_conn *conn) {
  const boot *b = r->b;
  const boot_checkin *in = &conn->checkin;
  colli_rank_info *info = &conn->msg.record;
  const char *wrong = boot_record_check(info);
  if (in->nranks != b->nranks)
    return boot_fail(
        b, COLL_ERR_MISMATCH, conn->rank, info,
        "rank %d (host %s, pid %d) was started with %d ranks, but rank %d (host %s, pid "
        "%d) with %d; start all with the same number",
        conn->rank, info->host, info->pid, in->nranks, b->rank, b->mine->host, b->mine->pid,
        b->nranks);
  if (conn->rank < 0 || conn->rank >= b->nranks)
    return boot_fail(b, COLL_ERR_PROTOCOL, -1, info,
                     "a process (host %s, pid %d) checked in as rank %d of %d", info->host,
                     info->pid, conn->rank, b->nranks);
  if (wrong)
    return boot_fail(b, COLL_ERR_PROTOCOL, conn->rank, info,
                     "rank %d (host %s, pid %d) sent an impossible record (%s)", conn->rank,
                     info->host, info->pid, wrong);
  if (r->is_in[conn->rank]) {
    const colli_rank_info *first = conn->rank == b->rank ? b->mine : &r->all[conn->rank];
    return boot_fail(b, COLL_ERR_MISMATCH, conn->rank, first,
                     "two processes claim to be rank %d: pid %d on host %s, and pid %d on host %s; "
                     "give each rank to one process",
                     conn->rank, first->pid, first->host, info->pid, info->host);
  }
  r->all[conn->rank] = *info;
  r->is_in[conn->rank] = conn->checked_in = true;
  conn->done = 0;
  r->checked_in++;
  COLLI_ASSERT_RANK(r->checked_in <= b->nranks, b->rank);
  colli_log_write(b->log, COLLI_LOG_DEBUG, "rank %d (host %s, pid %d) has checked in: %d of %d",
                  conn->rank, info->host, info->pid, r->checked_in, b->nranks);
  uint64_t left_ns = in->remaining_ms * COLLI_NS_PER_MS;
  uint64_t deadline_ns = colli_now_ns() + left_ns - boot_margin_ns(left_ns);
  if (deadline_ns < r->deadline_ns)
    r->deadline_ns = deadline_ns;
  return COLL_OK;
}

/* Reads a rank's check-in and its record, or later its report: DONE, AGAIN or an errno. */
static int pull_message(serve_conn *conn) {
  const size_t bytes = conn->checked_in ? sizeof(conn->msg.report) : sizeof(conn->msg.record);
  int result =
      colli_sealed_pull(&conn->conn, &conn->checkin, sizeof(conn->checkin), &conn->checkin_done);
  if (result == COLL_T_DONE && conn->checkin.version == COLL_VERSION)
    result = colli_sealed_pull(&conn->conn, &conn->msg, bytes, &conn->done);
  return result;
}

/* Sends the rest of table and answer; whether any is left. Reading finds out what is broken. */
static bool is_sending(const serve_state *r, serve_conn *conn) {
  const colli_rank_table *table = r->links->table;
  int sent = COLL_T_DONE;
  if (conn->gets_table)
    sent = colli_sealed_push(&conn->conn, &conn->head, sizeof(conn->head), &conn->head_done);
  if (conn->gets_table && sent == COLL_T_DONE)
    sent = colli_sealed_push(&conn->conn, table->packed, table->bytes, &conn->table_done);
  conn->gets_table = sent == COLL_T_AGAIN;
  if (!conn->gets_table && conn->answers)
    conn->answers = colli_sealed_push(&conn->conn, &conn->msg.report, sizeof(conn->msg.report),
                                      &conn->answer_done) == COLL_T_AGAIN;
  return conn->gets_table || conn->answers;
}

/* Makes the table of all records, and begins to send it to rank 0, from which it goes down the
 * tree.
 */
static coll_status give_table(serve_state *r) {
  r->links->table = colli_rank_table_create(r->all, r->b->nranks);
  if (!r->links->table)
    return boot_fail_table(r->b);
  r->links->have_table = true;
  const uint64_t left_ns = boot_remaining_ms(r->deadline_ns) * COLLI_NS_PER_MS;
  r->links->deadline_ns = r->deadline_ns - boot_margin_ns(left_ns);
  for (int i = 0; i < r->count; i++) {
    serve_conn *conn = r->conns[i];
    if (conn->rank != 0 || !conn->checked_in)
      continue;
    boot_report_fill(r->b, &conn->head, COLL_OK);
    conn->head.status = BOOT_TABLE;
    conn->head.server = r->b->rank;
    conn->head.table_bytes = (uint32_t)r->links->table->bytes;
    conn->head.remaining_ms = boot_remaining_ms(r->links->deadline_ns);
    conn->gets_table = true;
    (void)is_sending(r, conn);
  }
  return COLL_OK;
}

/* Answers a question for the time. */
static void answer_time(const serve_state *r, serve_conn *conn) {
  const uint64_t heard_ns = colli_now_ns();
  memset(&conn->msg.report, 0, sizeof(conn->msg.report));
  conn->msg.report.status = BOOT_ASKS_TIME;
  conn->done = conn->answer_done = 0;
  conn->msg.report.time = (boot_time){.heard_ns = heard_ns, .told_ns = colli_now_ns()};
  conn->answers = true;
  (void)is_sending(r, conn);
}

/* Reads what a rank sends; *gone: its connection ended before it had checked in. */
static coll_status read_conn(serve_state *r, serve_conn *conn, bool *gone) {
  const boot *b = r->b;
  (void)is_sending(r, conn);
  const int result = conn->answers ? COLL_T_AGAIN : pull_message(conn);
  if (result == COLL_T_AGAIN)
    return COLL_OK;
  if (result == EBADMSG)
    return boot_fail_altered(b, conn->rank, conn->checked_in ? &r->all[conn->rank] : NULL);
  if (result == COLL_T_DONE && conn->checkin.version != COLL_VERSION)
    return boot_fail_version(b, conn->rank, conn->checkin.version);
  if (result == COLL_T_DONE && !conn->checked_in)
    return enter_record(r, conn);
  if (result == COLL_T_DONE && conn->msg.report.status == BOOT_ASKS_TIME) {
    answer_time(r, conn);
    return COLL_OK;
  }
  const colli_rank_info *info = &r->all[conn->checked_in ? conn->rank : b->rank];
  if (result == COLL_T_DONE && conn->msg.report.status == COLL_OK && !conn->ready) {
    conn->ready = true;
    conn->done = 0;
    r->times[conn->rank] = conn->msg.report.time;
    r->ready++;
    COLLI_ASSERT_RANK(conn->checked_in && r->ready < r->checked_in, b->rank);
    return COLL_OK;
  }
  if (result == COLL_T_DONE)
    return boot_fail_reported(b, &conn->msg.report);
  boot_note_errno(b, result, true);
  if (conn->checked_in || colli_errno_is_shortage(result))
    return boot_fail(b, COLL_ERR_PEER_LOST, conn->rank, info,
                     "rank %d (host %s, pid %d) is lost: it closed its connection to rank %d "
                     "after it had checked in and before all ranks were joined; look for what "
                     "ended that process",
                     conn->rank, info->host, info->pid, b->rank);
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection of rank %d closed before it checked in",
                  conn->rank);
  *gone = true;
  return COLL_OK;
}

/* Reads what all ranks send. */
static coll_status read_conns(serve_state *r) {
  const boot_polls *polls = &r->b->polls;
  for (int i = 0; i < r->count;) {
    serve_conn *conn = r->conns[i];
    bool gone = false;
    if (conn->poll_index < 0 || polls->fds[conn->poll_index].revents) {
      coll_status status = read_conn(r, conn, &gone);
      if (status != COLL_OK)
        return status;
    }
    if (gone)
      drop_conn(r, i);
    else
      i++;
  }
  return COLL_OK;
}

/* Sends one rank the outcome; true when done. With `linger`, it is done only when the rank has
 * closed. */
static bool send_outcome(const serve_state *r, serve_conn *conn, const boot_report *outcome,
                         bool linger) {
  if (is_sending(r, conn))
    return false;
  int result = colli_sealed_push(&conn->conn, outcome, sizeof(*outcome), &conn->done);
  boot_note_errno(r->b, result, false);
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

/*
 * Tells every rank the outcome, and returns it, or that a shortage here kept it from a rank. A
 * failure is also announced for a moment to ranks that have yet to connect; otherwise they would
 * find a closed port and not know why.
 */
static coll_status tell_outcome(serve_state *r, coll_status status) {
  boot *b = r->b;
  boot_report outcome;
  boot_report_fill(b, &outcome, status);
  /* Ranks with lifelines notice at once. */
  bool linger = status != COLL_OK && !boot_is_guarded(b);
  uint64_t until_ns = colli_now_ns() + (status == COLL_ERR_TIMEOUT ? TELL_NS : LINGER_NS);
  if (!linger || until_ns > b->deadline_ns)
    until_ns = b->deadline_ns;
  for (int i = 0; i < r->count; i++)
    r->conns[i]->done = 0;
  for (int told = 0;;) {
    for (int i = 0; i < r->count;) {
      if (status == COLL_OK) /* all are in the table */
        boot_time_tell(r->all, b->rank, r->conns[i]->rank, r->times, &r->time, &outcome.time);
      if (send_outcome(r, r->conns[i], &outcome, linger)) {
        drop_conn(r, i);
        told++;
      } else {
        i++;
      }
    }
    if (colli_now_ns() >= until_ns || (r->count == 0 && (!linger || told >= b->nranks - 1)))
      break;
    boot_polls_clear(&b->polls, until_ns);
    for (int i = 0; i < r->count; i++)
      boot_polls_add(&b->polls, r->conns[i]->conn.fd,
                     r->conns[i]->done < COLLI_SEALED_BYTES(sizeof(outcome))
                         ? colli_sealed_events(&r->conns[i]->conn, POLLOUT)
                         : POLLIN);
    if (linger)
      boot_door_watch(b, &r->door);
    boot_polls_wait(&b->polls);
    if (linger)
      accept_checkins(r);
  }
  const bool untold = status == COLL_OK && r->count > 0;
  return untold && boot_fail_short(b, COLL_ERR_TIMEOUT) == COLL_ERR_SYSTEM ? COLL_ERR_SYSTEM
                                                                           : status;
}

/* Waits until something happens. */
static void wait_for_events(serve_state *r) {
  boot *b = r->b;
  boot_polls_clear(&b->polls, r->deadline_ns);
  for (int i = 0; i < r->count; i++) {
    serve_conn *conn = r->conns[i];
    const short events = conn->answers || conn->gets_table ? POLLIN | POLLOUT : POLLIN;
    conn->poll_index =
        boot_polls_add(&b->polls, conn->conn.fd, colli_sealed_events(&conn->conn, events));
  }
  boot_door_watch(b, &r->door);
  boot_links_watch(b, r->links);
  boot_lifelines_watch(b);
  boot_note_errno(b, boot_polls_wait(&b->polls), true);
}

/* Serves the other ranks until all are joined or something fails. */
static coll_status serve_ranks(serve_state *r) {
  boot *b = r->b;
  for (;;) {
    coll_status status = read_conns(r);
    if (status != COLL_OK)
      return status;
    accept_checkins(r);
    if (r->tls_differs >= 0)
      return boot_fail_tls(b, r->tls_differs);
    bool late = colli_now_ns() >= r->deadline_ns;
    int sys_errno = boot_door_failure(b, &r->door, late);
    if (sys_errno != 0)
      return fail_accept(r, sys_errno);
    status = boot_lifelines_check(b);
    if (status != COLL_OK)
      return status;
    bool all_in = r->checked_in == b->nranks;
    if (all_in && !r->links->have_table)
      status = give_table(r);
    if (status != COLL_OK)
      return status;
    int result = boot_links_step(b, r->links);
    if (result > 0)
      return (coll_status)result;
    r->links_up = result == COLL_T_DONE;
    if (r->links_up && r->ready == b->nranks - 1)
      return COLL_OK;
    if (late)
      return all_in ? fail_links_late(r) : fail_checkin_late(r);
    wait_for_events(r);
  }
}

coll_status boot_serve(boot *b, boot_links *links, int listen_fd, const colli_shared_time *time) {
  serve_state *r = calloc(1, sizeof(*r));
  coll_status status = COLL_ERR_NO_MEMORY;
  if (r) {
    r->b = b;
    r->links = links;
    r->door = COLLI_DOOR_CLOSED;
    r->tls_differs = -1;
    r->deadline_ns = b->deadline_ns;
    r->capacity = 2 * b->nranks;
    r->conns = calloc((size_t)r->capacity, sizeof(*r->conns));
    r->all = calloc((size_t)b->nranks, sizeof(*r->all));
    r->is_in = calloc((size_t)b->nranks, sizeof(*r->is_in));
    r->times = calloc((size_t)b->nranks, sizeof(*r->times));
    r->time = *time;
  }
  if (r && r->conns && r->all && r->is_in && r->times) {
    r->checked_in = r->is_in[b->rank] = true;
    r->all[b->rank] = *b->mine;
    status = boot_door_open(b, &r->door, listen_fd, COLLI_HELLO_CHECKIN, BOOT_SERVER);
    /* Any rank may have been given another secret, and dials all addresses. */
    const unsigned long most = (unsigned long)b->nranks * COLLI_MAX_ADDRS;
    r->door.answers = r->door.answers < most ? most : r->door.answers;
    if (status == COLL_OK)
      status = serve_ranks(r);
    status = tell_outcome(r, status);
    colli_door_close(&r->door);
  } else {
    boot_fail(b, status, -1, NULL, "out of memory for the check-in of %d ranks", b->nranks);
  }
  while (r && r->count > 0)
    drop_conn(r, r->count - 1);
  if (!r)
    return status;
  free(r->conns);
  free(r->all);
  free(r->is_in);
  free(r->times);
  explicit_bzero(r, sizeof(*r));
  free(r);
  return status;
}
