/* shrink_common.c: code that both roles of a shrink share. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/enter.h"
#include "libcoll/recovery/shrink_internal.h"

#define MAGIC   0x68734c43u /* "CLsh" */
#define SEND_NS COLLI_NS_PER_S
#define LOOK_NS (50 * COLLI_NS_PER_MS) /* the longest time between two checks for events */

/* ---- messages -------------------------------------------------------------------------------- */

bool shrink_send(const shrink *s, colli_sealed *conn, const void *head, size_t bytes,
                 const uint8_t *flags, size_t flag_bytes) {
  size_t done = 0, flags_done = 0;
  const uint64_t until_ns = colli_now_ns() + SEND_NS;
  for (;;) {
    int result = colli_sealed_push(conn, head, bytes, &done);
    if (result == COLL_T_DONE && flags)
      result = colli_sealed_push(conn, flags, flag_bytes, &flags_done);
    if (result == COLL_T_DONE)
      return true;
    boot_note_errno(&s->b, result, true);
    if (result > 0 || colli_now_ns() >= until_ns)
      return false;
    poll(&(struct pollfd){.fd = conn->fd, .events = colli_sealed_events(conn, POLLOUT)}, 1, 10);
  }
}

/* What this rank knows, as flags. */
static void fill_flags(const shrink *s, uint8_t *flags) {
  for (int r = 0; r < s->b.nranks; r++)
    flags[r] = (uint8_t)((s->gone[r] ? SHRINK_GONE : 0) | (s->skipped[r] ? SHRINK_SKIPPED : 0) |
                         (s->listed[r] ? SHRINK_LISTED : 0));
}

void shrink_send_checkin(const shrink *s, colli_sealed *conn) {
  const shrink_checkin head = {.magic = MAGIC,
                               .nranks = s->b.nranks,
                               .ballot = s->ballot,
                               .list = s->list,
                               .adopted = s->adopted,
                               .word = s->word,
                               .renewed = s->renewed,
                               .task = s->task,
                               .aborter = s->aborter};
  uint8_t *flags = malloc((size_t)s->b.nranks);
  if (!flags) { /* the others count this rank as missing */
    boot_note_errno(&s->b, ENOMEM, true);
    return;
  }
  fill_flags(s, flags);
  shrink_send(s, conn, &head, sizeof(head), flags, (size_t)s->b.nranks);
  free(flags);
}

void shrink_take_list(shrink *s, uint64_t ballot, uint64_t list, bool renewed,
                      const uint8_t *flags) {
  COLLI_ASSERT_RANK(ballot > s->ballot, s->b.rank); /* ballots only rise */
  s->ballot = ballot;
  s->proved = s->proved && s->list == list;
  s->list = list;
  s->renewed = renewed;
  for (int r = 0; r < s->b.nranks; r++)
    s->listed[r] = flags[r] & SHRINK_LISTED;
}

/* ---- those who dial the shrink listener
 * -------------------------------------------------------------- */

void shrink_drop(shrink *s, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks, s->b.rank);
  if (s->conns[rank]) {
    colli_sealed_close(&s->conns[rank]->conn);
    free(s->conns[rank]);
    s->conns[rank] = NULL;
  }
}

/* Keeps a rank's new connection in place of the previous one, which it has abandoned. */
static bool keep_guest(shrink *s, colli_guest *guest) {
  int rank = guest->auth.hello.src_rank;
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks && rank != s->b.rank, s->b.rank);
  shrink_conn *conn = calloc(1, sizeof(*conn) + (size_t)s->b.nranks);
  if (!conn)
    return false;
  shrink_drop(s, rank);
  colli_sealed_open(&conn->conn, &guest->auth);
  s->conns[rank] = conn;
  return true;
}

/* Whether a guest belongs to a rank that still is in the shrink that this communicator
 * came from. */
static bool is_behind(const shrink *s, const colli_hello *hello) {
  const colli_shrink_origin *from = &s->comm->shrink.from;
  return hello->kind == COLLI_HELLO_SHRINK && from->comm_id && hello->comm_id == from->comm_id &&
         hello->word == from->number && hello->dst_rank == from->rank;
}

/* Whether it belongs to a rank that still is in the last agreement of this communicator. */
static bool is_agreeing(const shrink *s, const colli_hello *hello) {
  const colli_agreed *agreed = &s->comm->shrink.agreed;
  return hello->kind == COLLI_HELLO_SHRINK && agreed->number && hello->word == agreed->number &&
         hello->comm_id == s->id.comm_id && hello->dst_rank == s->b.rank;
}

/* Tells such a rank the outcome: the list of that many ranks that was committed. */
static void tell_outcome(const shrink *s, colli_guest *guest, int nranks, uint64_t list) {
  shrink_order order;
  uint8_t *flags = calloc(1, (size_t)nranks);
  memset(&order, 0, sizeof(order));
  order.kind = SHRINK_COMMIT;
  order.nranks = nranks;
  order.comm_id = list;
  colli_sealed conn;
  colli_sealed_open(&conn, &guest->auth);
  if (flags && colli_auth_answer(&guest->auth, true) == 0)
    shrink_send(s, &conn, &order, sizeof(order), flags, (size_t)nranks);
  free(flags);
  colli_sealed_close(&conn);
}

/* Accepts connections that belong to this shrink. Others may belong to another communicator's
 * shrink, or to the next one of this, and will dial again. */
static void welcome(shrink *s) {
  colli_guest guest;
  boot_note_errno(&s->b, colli_door_failure(&s->door, 0), true);
  while (colli_door_next(&s->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    bool wanted = hello->kind == COLLI_HELLO_SHRINK && hello->comm_id == s->id.comm_id &&
                  hello->word == s->b.hello_word && hello->dst_rank == s->b.rank &&
                  hello->src_rank >= 0 && hello->src_rank < s->b.nranks &&
                  hello->src_rank != s->b.rank;
    if (wanted && keep_guest(s, &guest))
      colli_auth_answer(&guest.auth, true); /* if that fails, reading finds out */
    else if (wanted)
      boot_close(&guest.fd); /* no memory: it will dial again */
    else if (is_behind(s, hello))
      tell_outcome(s, &guest, s->comm->shrink.from.nranks, s->comm->comm_id);
    else if (is_agreeing(s, hello))
      tell_outcome(s, &guest, s->b.nranks, s->comm->shrink.agreed.list);
    else {
      /* It is already shrinking the new communicator, and will dial again. */
      s->proved = s->proved || (hello->kind == COLLI_HELLO_SHRINK && hello->comm_id == s->list);
      boot_guest_refuse(&s->b, &guest);
    }
  }
}

/* Adopts another rank's knowledge. A lower rank only reports what it knows and hangs up. */
static void take_checkin(shrink *s, int rank, shrink_conn *conn) {
  COLLI_ASSERT_RANK(conn == s->conns[rank] && !conn->in, s->b.rank);
  for (int r = 0; r < s->b.nranks; r++) {
    s->gone[r] = s->gone[r] || (r != s->b.rank && (conn->flags[r] & SHRINK_GONE));
    s->skipped[r] =
        s->skipped[r] || (r < s->b.rank && r != rank && (conn->flags[r] & SHRINK_SKIPPED));
  }
  conn->in = true;
  conn->done = 0;
  shrink_note_abort(s, conn->head.aborter);
  if (conn->head.task != s->task)
    s->astray = rank;
  if (rank < s->b.rank)
    shrink_drop(s, rank);
}

/* Reads a rank's checkin, if it is not here yet: DONE, AGAIN or an errno. */
static int read_checkin(shrink *s, int rank) {
  shrink_conn *conn = s->conns[rank];
  int result = COLL_T_DONE;
  if (!conn->headed)
    result = colli_sealed_pull(&conn->conn, &conn->head, sizeof(conn->head), &conn->done);
  if (result == COLL_T_DONE && (conn->head.magic != MAGIC || conn->head.nranks != s->b.nranks ||
                                !shrink_is_ballot(conn->head.ballot, s->b.nranks)))
    return EPROTO;
  if (result == COLL_T_DONE && !conn->headed) {
    conn->headed = true;
    conn->done = 0;
  }
  if (result == COLL_T_DONE)
    result = colli_sealed_pull(&conn->conn, conn->flags, (size_t)s->b.nranks, &conn->done);
  if (result == COLL_T_DONE)
    take_checkin(s, rank, conn);
  return result;
}

/* Reads a rank's report, if it is not here yet: DONE, AGAIN or an errno. */
static int read_report(shrink *s, shrink_conn *conn) {
  if (conn->said)
    return COLL_T_AGAIN;
  int result = colli_sealed_pull(&conn->conn, &conn->report, sizeof(conn->report), &conn->done);
  if (result == COLL_T_DONE) {
    conn->said = true;
    conn->done = 0;
    if (conn->report.report.status == COLL_ERR_ABORTED)
      shrink_note_abort(s, conn->report.report.error.rank);
  }
  return result;
}

/* Reads one rank's messages; false if its connection ended or a message is invalid. */
static bool read_conn(shrink *s, int rank) {
  const int result = s->conns[rank]->in ? read_report(s, s->conns[rank]) : read_checkin(s, rank);
  boot_note_errno(&s->b, result, true);
  if (result == EBADMSG)
    s->altered = rank;
  return result <= 0;
}

void shrink_listen(shrink *s) {
  coll_comm *comm = s->comm;
  colli_call_resume(comm);
  colli_notice_poll(comm->family);
  for (int r = 0; r < s->b.nranks; r++) {
    s->gone[r] = s->gone[r] || comm->failure.lost[r];
    /* It will not come, but may be alive. */
    s->skipped[r] = s->skipped[r] || comm->failure.left[r] || comm->failure.silent[r];
  }
  shrink_hear_abort(s);
  colli_call_pause(comm);
}

void shrink_tend(shrink *s) {
  shrink_listen(s);
  welcome(s);
  for (int r = 0; r < s->b.nranks; r++)
    if (s->conns[r] && !read_conn(s, r))
      shrink_drop(s, r);
}

void shrink_wait_begin(shrink *s) {
  s->b.polls.count = 0;
  s->b.polls.wake_ns = colli_now_ns() + LOOK_NS;
}

void shrink_wait(shrink *s, uint64_t until_ns) {
  boot *b = &s->b;
  boot_polls_wake(&b->polls, until_ns);
  boot_polls_add(&b->polls, colli_ctrl_fd(s->comm->family->ctrl), POLLIN);
  boot_door_watch(b, &s->door);
  for (int r = 0; r < b->nranks; r++)
    if (s->conns[r] && !s->conns[r]->said)
      boot_polls_add(&b->polls, s->conns[r]->conn.fd, POLLIN);
  boot_note_errno(b, boot_polls_wait(&b->polls), true);
}

/* ---- dialling -------------------------------------------------------------------------------- */

void shrink_dial(shrink *s, boot_dial *dial, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks && rank != s->b.rank, s->b.rank);
  boot_dial_begin(&s->b, dial, COLLI_HELLO_SHRINK, rank, s->comm->table[rank].control_addrs);
}

int shrink_dial_step(shrink *s, boot_dial *dial) {
  const colli_rank_info *table = s->comm->table;
  int result = boot_dial_step(&s->b, dial);
  bool same_host = table[dial->peer].host_id == table[s->b.rank].host_id;
  /* If another program with another secret answers, the rank no longer listens. */
  if (result <= 0 && !(result == COLL_T_AGAIN && boot_dial_gone(dial, same_host)))
    return result;
  COLLI_ASSERT_RANK(dial->peer != s->b.rank, s->b.rank);
  boot_dial_close(dial);
  if (dial->altered) { /* by somebody on the path, which says nothing about that rank */
    s->altered = dial->peer;
    return COLL_ERR_AUTH;
  }
  s->gone[dial->peer] = true;
  return COLL_ERR_PEER_LOST;
}

int shrink_candidate(const shrink *s) {
  int rank = 0;
  while (rank < s->b.rank && (s->gone[rank] || s->skipped[rank]))
    rank++;
  return rank;
}
