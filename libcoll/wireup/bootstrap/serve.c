/* serve.c: takes in the ranks that check in at this one, and reads what they say. */
#include "libcoll/wireup/bootstrap/serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/net/path.h"

/* The place of a rank in the arrays of the server. */
static int index_of(const boot_server *s, int rank) {
  return rank - s->b->place.below.first;
}

/* Connections cannot be accepted. */
static coll_status fail_accept(boot_server *s, int sys_errno) {
  const boot *b = s->b;
  colli_error_sys(b->error, COLL_ERR_SYSTEM, "create", "accept4", sys_errno,
                  "rank %d cannot take more check-ins (%d of %d ranks are in); it needs a "
                  "descriptor for each that checks in there: raise the limit (ulimit -n)",
                  b->rank, s->checked_in, s->ranks);
  b->error->rank = b->rank;
  snprintf(b->error->host, sizeof(b->error->host), "%s", b->mine->host);
  return COLL_ERR_SYSTEM;
}

/* ---- check-ins ------------------------------------------------------------------------------- */

/* Checks the record of a rank that has arrived. */
static coll_status check_record(const boot_server *s, int rank, colli_rank_info *info) {
  const boot *b = s->b;
  const char *wrong = boot_record_check(info);
  if (rank < 0 || rank >= b->nranks)
    return boot_fail(b, COLL_ERR_PROTOCOL, -1, info,
                     "a process (host %s, pid %d) checked in as rank %d of %d", info->host,
                     info->pid, rank, b->nranks);
  if (wrong)
    return boot_fail(b, COLL_ERR_PROTOCOL, rank, info,
                     "rank %d (host %s, pid %d) sent an impossible record (%s)", rank, info->host,
                     info->pid, wrong);
  if (s->is_in[index_of(s, rank)]) {
    const colli_rank_info *first = rank == b->rank ? b->mine : &s->all[index_of(s, rank)];
    return boot_fail(b, COLL_ERR_MISMATCH, rank, first,
                     "two processes claim to be rank %d: pid %d on host %s, and pid %d on host %s; "
                     "give each rank to one process",
                     rank, first->pid, first->host, info->pid, info->host);
  }
  return COLL_OK;
}

/* Takes the time into account that a rank has left. */
static void take_deadline(boot_server *s, const boot_checkin *in) {
  const uint64_t left_ns = in->remaining_ms * COLLI_NS_PER_MS;
  const uint64_t give_up_ns = colli_now_ns() + left_ns;
  const uint64_t deadline_ns = give_up_ns - boot_margin_ns(left_ns);
  if (give_up_ns < s->give_up_ns)
    s->give_up_ns = give_up_ns;
  if (deadline_ns < s->deadline_ns)
    s->deadline_ns = deadline_ns;
}

/* Notes in its record, for all ranks, whether the one that checks in is far. */
static void note_far(const serve_conn *conn, colli_rank_info *info) {
  info->far = colli_path_round_trip_ns(conn->conn.fd) >= COLLI_PATH_FAR_NS;
}

/* Checks received records and keeps them. */
static coll_status enter_records(boot_server *s, serve_conn *conn) {
  const boot *b = s->b;
  const boot_checkin *in = &conn->checkin;
  const int count = conn->below.end - conn->below.first;
  colli_rank_info *info = conn->records;
  if (in->nranks != b->nranks) {
    boot_record_check(info); /* its texts end then */
    return boot_fail(
        b, COLL_ERR_MISMATCH, conn->rank, info,
        "rank %d (host %s, pid %d) was started with %d ranks, but rank %d (host %s, pid "
        "%d) with %d; start all with the same number",
        conn->rank, info->host, info->pid, in->nranks, b->rank, b->mine->host, b->mine->pid,
        b->nranks);
  }
  for (int i = 0; i < count; i++) {
    const coll_status status = check_record(s, conn->below.first + i, &info[i]);
    if (status != COLL_OK)
      return status;
  }
  note_far(conn, info);
  memcpy(&s->all[index_of(s, conn->rank)], info, (size_t)count * sizeof(*info));
  memset(&s->is_in[index_of(s, conn->rank)], true, (size_t)count * sizeof(*s->is_in));
  conn->checked_in = true;
  conn->done = 0;
  s->checked_in += count;
  COLLI_ASSERT_RANK(s->checked_in <= s->ranks, b->rank);
  colli_log_write(b->log, COLLI_LOG_DEBUG, "rank %d (host %s, pid %d) has checked in: %d of %d",
                  conn->rank, info->host, info->pid, s->checked_in, s->ranks);
  take_deadline(s, in);
  free(conn->records);
  conn->records = NULL;
  return COLL_OK;
}

/* Reads a rank's check-in and the records, or later its report: DONE, AGAIN or an errno. */
static int pull_message(boot_server *s, serve_conn *conn) {
  const size_t count = (size_t)(conn->below.end - conn->below.first);
  int result =
      colli_sealed_pull(&conn->conn, &conn->checkin, sizeof(conn->checkin), &conn->checkin_done);
  if (result != COLL_T_DONE)
    return result;
  conn->came = true;
  if (conn->checkin.version != COLL_VERSION || conn->checkin.follows == BOOT_CHECKIN)
    return result;
  if (!conn->checked_in && conn->checkin.follows == BOOT_RECORDS)
    return colli_sealed_pull(&conn->conn, conn->records, count * sizeof(*conn->records),
                             &conn->done);
  result = colli_sealed_pull(&conn->conn, &conn->report, sizeof(conn->report), &conn->done);
  if (result != COLL_T_DONE || conn->report.status != COLL_OK || !conn->checked_in || conn->ready ||
      count == 1)
    return result;
  return colli_sealed_pull(&conn->conn, &s->ahead[index_of(s, conn->rank) + 1],
                           (count - 1) * sizeof(*s->ahead), &conn->rest_done);
}

/* A rank is ready, and all below it: what it says of their clocks is of its own less theirs. */
static void take_ready(boot_server *s, serve_conn *conn) {
  const int first = index_of(s, conn->below.first), end = index_of(s, conn->below.end);
  conn->ready = true;
  conn->done = conn->rest_done = 0;
  s->ahead[first] = boot_time_of_child(s->b->mine, &s->all[first], conn->report.time.ahead);
  for (int i = first + 1; i < end; i++)
    s->ahead[i] = boot_time_chain(s->ahead[first], s->ahead[i]);
  s->ready++;
  COLLI_ASSERT_RANK(conn->checked_in && s->ready <= boot_place_children(&s->b->place), s->b->rank);
}

/* A rank that has said who it is has closed its connection; or this rank had a shortage. */
static coll_status fail_lost(const boot_server *s, const serve_conn *conn) {
  const boot *b = s->b;
  if (!conn->checked_in)
    return boot_fail(b, COLL_ERR_PEER_LOST, conn->rank, NULL,
                     "rank %d is lost: it closed its connection to rank %d (host %s) while it "
                     "checked in; look for what ended that process",
                     conn->rank, b->rank, b->mine->host);
  const colli_rank_info *info = &s->all[index_of(s, conn->rank)];
  return boot_fail(b, COLL_ERR_PEER_LOST, conn->rank, info,
                   "rank %d (host %s, pid %d) is lost: it closed its connection to rank %d "
                   "after it had checked in and before all ranks were joined; look for what "
                   "ended that process",
                   conn->rank, info->host, info->pid, b->rank);
}

/* Checks what a rank says of itself. */
static coll_status check_checkin(const boot_server *s, const serve_conn *conn) {
  const boot *b = s->b;
  if (conn->checkin.version != COLL_VERSION)
    return boot_fail_version(b, conn->rank, conn->checkin.version);
  /* In a tree, the number of ranks also says how many records come. */
  if (b->place.fan_out > 0 && conn->checkin.nranks != b->nranks)
    return boot_fail(b, COLL_ERR_MISMATCH, conn->rank, NULL,
                     "rank %d was started with %d ranks, but rank %d (host %s, pid %d) with %d; "
                     "start all with the same number",
                     conn->rank, conn->checkin.nranks, b->rank, b->mine->host, b->mine->pid,
                     b->nranks);
  return COLL_OK;
}

/* Takes a message that has arrived. */
static coll_status take_message(boot_server *s, serve_conn *conn) {
  if (conn->checkin.follows == BOOT_CHECKIN) {
    conn->checkin_done = 0;
    return COLL_OK;
  }
  if (!conn->checked_in)
    return conn->checkin.follows == BOOT_RECORDS ? enter_records(s, conn)
                                                 : boot_fail_reported(s->b, &conn->report);
  if (conn->report.status == BOOT_ASKS_TIME)
    boot_server_answer_time(s, conn);
  else if (conn->report.status == BOOT_WAITS)
    boot_server_take_wait(s, conn);
  else if (conn->report.status == COLL_OK && !conn->ready)
    take_ready(s, conn);
  else
    return boot_fail_reported(s->b, &conn->report);
  return COLL_OK;
}

/* Reads what a rank sends; *gone: its connection ended before it had said who it is. */
static coll_status read_conn(boot_server *s, serve_conn *conn, bool *gone) {
  const boot *b = s->b;
  (void)boot_server_send(s, conn);
  const int result = conn->answers ? COLL_T_AGAIN : pull_message(s, conn);
  if (result == EBADMSG)
    return boot_fail_altered(b, conn->rank,
                             conn->checked_in ? &s->all[index_of(s, conn->rank)] : NULL);
  const bool whole = conn->checkin_done == COLLI_SEALED_BYTES(sizeof(conn->checkin));
  const coll_status status = whole ? check_checkin(s, conn) : COLL_OK;
  if (status != COLL_OK || result == COLL_T_AGAIN)
    return status;
  if (result == COLL_T_DONE)
    return take_message(s, conn);
  boot_note_errno(b, result, true);
  if (conn->came || colli_errno_is_shortage(result))
    return fail_lost(s, conn);
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection of rank %d closed before it checked in",
                  conn->rank);
  *gone = true;
  return COLL_OK;
}

/* Reads what all ranks send. */
static coll_status read_conns(boot_server *s) {
  const boot_polls *polls = &s->b->polls;
  for (int i = 0; i < s->count;) {
    serve_conn *conn = s->conns[i];
    bool gone = false;
    if (conn->poll_index < 0 || polls->fds[conn->poll_index].revents) {
      coll_status status = read_conn(s, conn, &gone);
      if (status != COLL_OK)
        return status;
    }
    if (gone)
      boot_server_drop(s, i);
    else
      i++;
  }
  return COLL_OK;
}

coll_status boot_server_step(boot_server *s) {
  const boot *b = s->b;
  const coll_status status = read_conns(s);
  if (status != COLL_OK)
    return status;
  boot_server_accept(s);
  if (s->tls_differs >= 0)
    return boot_fail_tls(b, s->tls_differs);
  const int sys_errno = boot_door_failure(b, &s->door, colli_now_ns() >= boot_server_late_ns(s));
  return sys_errno != 0 ? fail_accept(s, sys_errno) : COLL_OK;
}

void boot_server_watch(boot_server *s) {
  boot *b = s->b;
  boot_polls_wake(&b->polls, boot_server_late_ns(s));
  for (int i = 0; i < s->count; i++) {
    serve_conn *conn = s->conns[i];
    const short events = conn->answers || conn->gets_table ? POLLIN | POLLOUT : POLLIN;
    conn->poll_index =
        boot_polls_add(&b->polls, conn->conn.fd, colli_sealed_events(&conn->conn, events));
  }
  boot_door_watch(b, &s->door);
}
