/* shrink_common.c: code that both roles of a shrink share. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/poll.h"
#include "libcoll/recovery/shrink_internal.h"

#define LOOK_NS (50 * COLLI_NS_PER_MS) /* the longest time between two checks for events */

void shrink_take_list(shrink *s, uint64_t ballot, uint64_t list, bool renewed, int newcomers,
                      const uint8_t *flags) {
  COLLI_ASSERT_RANK(ballot > s->ballot, s->b.rank); /* ballots only rise */
  s->ballot = ballot;
  s->proved = s->proved && s->list == list;
  s->list = list;
  s->renewed = renewed;
  s->newcomers = newcomers;
  for (int r = 0; r < s->b.nranks; r++)
    s->listed[r] = flags[r] & SHRINK_LISTED;
}

void shrink_take_latest(shrink *s) {
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1)) {
    const shrink_member *m = &s->members[r];
    if (r != s->b.rank && m->in && m->head.ballot > s->ballot)
      shrink_take_list(s, m->head.ballot, m->head.list, m->head.renewed != 0, m->head.newcomers,
                       m->list);
  }
}

/* ---- those who dial the shrink listener ------------------------------------------------------ */

/* Whether a connection comes from another rank of this shrink. */
static bool is_mine(const shrink *s, const colli_hello *hello) {
  return hello->kind == COLLI_HELLO_SHRINK && hello->comm_id == s->id.comm_id &&
         hello->word == s->b.hello_word && hello->dst_rank == s->b.rank && hello->src_rank >= 0 &&
         hello->src_rank < s->b.nranks && hello->src_rank != s->b.rank;
}

/* Whether it comes from a rank that is still in the shrink that made this communicator. */
static bool is_behind(const shrink *s, const colli_hello *hello) {
  const colli_shrink_origin *from = &s->comm->shrink.from;
  return hello->kind == COLLI_HELLO_SHRINK && from->comm_id && hello->comm_id == from->comm_id &&
         hello->word == from->number && hello->dst_rank == from->rank;
}

/* Whether it comes from a rank that is still in the last agreement of this communicator. */
static bool is_agreeing(const shrink *s, const colli_hello *hello) {
  const colli_agreed *agreed = &s->comm->shrink.agreed;
  return hello->kind == COLLI_HELLO_SHRINK && agreed->number && hello->word == agreed->number &&
         hello->comm_id == s->id.comm_id && hello->dst_rank == s->b.rank;
}

bool shrink_wants(const void *ctx, const colli_hello *hello) {
  const shrink *s = ctx;
  return is_mine(s, hello) || is_behind(s, hello) || is_agreeing(s, hello) ||
         (hello->kind == COLLI_HELLO_SHRINK && s->list && hello->comm_id == s->list);
}

/* Tells such a rank the outcome: the list of that many ranks that was committed. */
static void tell_outcome(shrink *s, colli_guest *guest, int nranks, uint64_t list) {
  shrink_order order;
  uint8_t *flags = malloc((size_t)nranks);
  memset(&order, 0, sizeof(order));
  if (flags)
    memset(flags, SHRINK_FOR, (size_t)nranks);
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

/* Lets a rank in, or it dials again. */
static void let_in(shrink *s, colli_guest *guest) {
  const int rank = guest->auth.hello.src_rank;
  if (!shrink_link_open(s, rank, &guest->auth))
    boot_close(&guest->fd);
  else if (!boot_guest_accept(&s->b, guest))
    shrink_link_drop(s, rank);
}

/* Accepts connections that belong to this shrink. Others may belong to another communicator's
 * shrink, or to the next one of this, and will dial again. */
static void welcome(shrink *s) {
  colli_guest guest;
  boot_note_errno(&s->b, colli_door_failure(&s->door, 0), true);
  while (colli_door_next(&s->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    bool wanted = is_mine(s, hello);
    if (wanted)
      let_in(s, &guest);
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

/* Whether a rank that has destroyed the communicator may have returned from this shrink with the
 * list that this rank has adopted. Then its listener tells so when it shrinks the new one; or it
 * has ended, and its port is closed. */
static bool may_have_returned(const shrink *s, int rank) {
  return s->adopted && s->adopted == s->list && s->listed[rank];
}

/* Whether a rank has said goodbye: it will not come, but may be alive, or have ended well. */
static bool has_left(const shrink *s, int rank) {
  return s->comm->failure.left[rank] && !may_have_returned(s, rank);
}

void shrink_listen(shrink *s) {
  coll_comm *comm = s->comm;
  colli_call_resume(comm);
  colli_comm_serve(comm);
  for (int r = 0; r < s->b.nranks; r++) {
    s->gone[r] = s->gone[r] || comm->failure.lost[r];
    s->skipped[r] = s->skipped[r] || has_left(s, r) || comm->failure.silent[r];
  }
  shrink_hear_abort(s);
  colli_call_pause(comm);
}

void shrink_tend(shrink *s) {
  shrink_listen(s);
  welcome(s);
  shrink_links_read(s);
}

void shrink_wait_begin(shrink *s) {
  s->b.polls.count = 0;
  s->b.polls.wake_ns = colli_now_ns() + LOOK_NS;
}

void shrink_wait(shrink *s, uint64_t until_ns) {
  boot_door_watch(&s->b, &s->door);
  shrink_wait_inside(s, until_ns);
}

void shrink_wait_inside(shrink *s, uint64_t until_ns) {
  boot *b = &s->b;
  boot_polls_wake(&b->polls, until_ns);
  boot_polls_add(&b->polls, colli_ctrl_fd(s->comm->family->ctrl), POLLIN);
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1))
    if (s->links[r])
      boot_polls_add(&b->polls, s->links[r]->conn.fd, POLLIN);
  boot_note_errno(b, boot_polls_wait(&b->polls), true);
}

/* ---- dialling -------------------------------------------------------------------------------- */

bool colli_shrink_change_records(coll_comm *child, colli_rank_change_fn change, void *ctx) {
  if (colli_call_enter(child) != COLL_OK)
    return false;
  const bool changed =
      colli_rank_table_change(child->table, COLLI_RANK_FIELD(control_addrs), change, ctx);
  colli_call_leave(child);
  return changed;
}

void shrink_dial(shrink *s, boot_dial *dial, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks && rank != s->b.rank, s->b.rank);
  boot_dial_begin(&s->b, dial, COLLI_HELLO_SHRINK, rank,
                  colli_rank_at(s->comm->table, rank).control_addrs);
}

int shrink_dial_step(shrink *s, boot_dial *dial) {
  const colli_rank_table *table = s->comm->table;
  int result = boot_dial_step(&s->b, dial);
  bool same_host = colli_rank_host(table, dial->peer) == colli_rank_host(table, s->b.rank);
  /* If another program with another secret answers, the rank no longer listens. */
  if (result <= 0 && !(result == COLL_T_AGAIN && boot_dial_gone(dial, same_host)))
    return result;
  COLLI_ASSERT_RANK(dial->peer != s->b.rank, s->b.rank);
  boot_dial_close(dial);
  if (dial->altered) { /* by somebody on the path, which says nothing about that rank */
    s->altered = dial->peer;
    return COLL_ERR_AUTH;
  }
  shrink_listen(s); /* its goodbye came before its port was closed: then it may have gone on */
  s->gone[dial->peer] = s->gone[dial->peer] || !has_left(s, dial->peer);
  return COLL_ERR_PEER_LOST;
}

int shrink_candidate(const shrink *s) {
  int rank = 0;
  while (rank < s->b.rank && (s->gone[rank] || s->skipped[rank]))
    rank++;
  return rank;
}

bool shrink_ran_short(const shrink *s, coll_status status) {
  return status == COLL_ERR_NO_MEMORY ||
         (status == COLL_ERR_SYSTEM && colli_errno_is_shortage(s->b.error->sys_errno));
}
