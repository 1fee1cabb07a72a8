/* shrink_build.c: adopts the list of a shrink: makes its communicator. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"

#define SALT_LABEL "coll shrink"

colli_secret *shrink_new_secret(const colli_secret *known, const uint8_t salt[COLL_SECRET_BYTES]) {
  uint8_t text[sizeof(SALT_LABEL) + COLL_SECRET_BYTES];
  colli_secret *secret = colli_secret_create();
  memcpy(text, SALT_LABEL, sizeof(SALT_LABEL));
  memcpy(text + sizeof(SALT_LABEL), salt, COLL_SECRET_BYTES);
  if (secret && !colli_hmac(known->bytes, text, sizeof(text), secret->bytes)) {
    colli_secret_release(secret);
    return NULL;
  }
  return secret;
}

/* The members of a new communicator, which have their records in the old one's table. */
typedef struct known_members {
  colli_rank_walk walk;
  const int *in_old;
  int count; /* further ranks are new */
} known_members;

/* The listener of a member stays where it was. */
static void keep_listener(void *ctx, int rank, colli_rank_info *info) {
  known_members *known = ctx;
  if (rank < known->count)
    memcpy(info->control_addrs,
           colli_rank_walk_to(&known->walk, known->in_old[rank])->control_addrs,
           sizeof(info->control_addrs));
}

/* What a new communicator takes over from the old one. `members`: its first ranks, in the old one.
 * False: out of memory. */
static bool take_over(const shrink *s, coll_comm *child, const int *members, int nmembers) {
  const coll_comm *comm = s->comm;
  colli_shrink_share(child, comm);
  child->shrink.from = (colli_shrink_origin){.comm_id = comm->comm_id,
                                             .number = s->b.hello_word,
                                             .rank = s->b.rank,
                                             .nranks = s->b.nranks};
  known_members known = {colli_rank_walk_begin(comm->table), members, nmembers};
  return colli_shrink_change_records(child, keep_listener, &known) &&
         colli_shrink_inherit(child, comm, members, nmembers);
}

/* ---- while the communicator is made ---------------------------------------------------------- */

/* A rank's number in the new communicator. */
static int new_rank(const shrink *s, int rank) {
  int count = 0;
  for (int r = 0; r < rank; r++)
    count += s->listed[r];
  return count;
}

/* While the communicator is made, errors name its ranks. */
static coll_status fail_inside(const shrink *s, coll_status status) {
  s->b.error->rank = new_rank(s, s->b.rank);
  return status;
}

/* Then they name those of the old one; -1: a newcomer. */
static int old_rank(const shrink *s, int rank) {
  for (int r = 0; rank >= 0 && r < s->b.nranks; r++)
    if (s->listed[r] && rank-- == 0)
      return r;
  return -1;
}

/* Another rank of the list is lost. */
static coll_status fail_lost(const shrink *s, int rank) {
  const int peer = new_rank(s, rank);
  const colli_rank_info info = colli_rank_at(s->comm->table, rank);
  return fail_inside(
      s, boot_fail(&s->b, COLL_ERR_PEER_LOST, peer, &info,
                   "rank %d of the new communicator is lost, or gave up, before all its ranks were "
                   "joined",
                   peer));
}

/* At the coordinator: fails if another rank does. */
static coll_status check_members(shrink *s) {
  for (int r = 0; r < s->b.nranks; r++) {
    shrink_member *m = &s->members[r];
    if (!s->listed[r] || r == s->b.rank)
      continue;
    if (!m->in || !m->awaited) /* lost; it may have come again since */
      return fail_lost(s, r);
    if (m->report && m->report->ballot == s->ballot && m->report->report.status != COLL_OK)
      return fail_lost(s, r); /* it will be asked why */
  }
  return COLL_OK;
}

/* Passes messages on meanwhile. Ends the building if the round is over, or after an abort. */
static coll_status interrupt(void *ctx, coll_error *error) {
  shrink *s = ctx;
  shrink_listen(s);
  if (s->aborter >= 0)
    return colli_shrink_fail_aborted(s->comm, s->aborter, s->task, error);
  shrink_links_read(s);
  if (s->starved)
    return fail_inside(s, shrink_fail_starved(s));
  if (s->up.conn.fd < 0)
    return check_members(s);
  if (shrink_hear_order(s) == COLL_T_AGAIN && shrink_pass_up(s))
    return COLL_OK;
  int leader = 0;
  while (!s->listed[leader])
    leader++;
  return fail_lost(s, leader);
}

/* Adds what interrupt() handles. */
static void watch(void *ctx, boot_polls *polls) {
  shrink *s = ctx;
  boot_polls_wake(polls, shrink_pass_up_ns(s));
  if (s->up.conn.fd >= 0)
    boot_polls_add(polls, s->up.conn.fd, POLLIN);
  for (int r = shrink_next(s, 0); r < s->b.nranks; r = shrink_next(s, r + 1))
    if (s->links[r])
      boot_polls_add(polls, s->links[r]->conn.fd, POLLIN);
}

/* At the coordinator: a record is not there, or `wrong`. */
static int fail_record(const shrink *s, int rank, const char *wrong) {
  const int peer = new_rank(s, rank);
  const colli_rank_info info = colli_rank_at(s->comm->table, rank);
  const coll_status status = wrong
                                 ? boot_fail(&s->b, COLL_ERR_PROTOCOL, peer, &info,
                                             "rank %d sent an impossible record (%s)", rank, wrong)
                                 : boot_fail(&s->b, COLL_ERR_TIMEOUT, peer, &info,
                                             "rank %d did not take part in time", rank);
  return (int)fail_inside(s, status);
}

/* Sends this rank's record; at the coordinator, waits for all. */
static int collect(void *ctx, const colli_rank_info *mine, colli_rank_info *all, bool late) {
  shrink *s = ctx;
  if (s->up.conn.fd >= 0)
    return shrink_say_record(s, mine)
               ? COLL_T_DONE
               : (int)fail_inside(s, boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL,
                                               "out of memory for a record"));
  int rank = 0;
  for (int r = 0; r < s->b.nranks; r++) {
    const shrink_member *m = &s->members[r];
    if (!s->listed[r])
      continue;
    if (r != s->b.rank && !m->record)
      return late ? fail_record(s, r, NULL) : COLL_T_AGAIN;
    all[rank] = r == s->b.rank ? *mine : *m->record;
    const char *wrong = boot_record_check(&all[rank]);
    if (wrong)
      return fail_record(s, r, wrong);
    rank++;
  }
  return COLL_T_DONE;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* The members of the list, and this rank's place among them. NULL: out of memory. */
static int *list_members(shrink *s, int *nranks, int *rank) {
  int *members = shrink_alloc(s, (size_t)s->b.nranks * sizeof(*members));
  *nranks = *rank = 0;
  for (int r = 0; members && r < s->b.nranks; r++) {
    *rank = r == s->b.rank ? *nranks : *rank;
    if (s->listed[r])
      members[(*nranks)++] = r;
  }
  COLLI_ASSERT_RANK(!members || (*rank < *nranks && members[*rank] == s->b.rank), s->b.rank);
  return members;
}

/* Creates the communicator of the list. */
static coll_status build(shrink *s, const shrink_order *order, int listen_fd) {
  COLLI_ASSERT_RANK(s->listed[s->b.rank], s->b.rank);
  int fds[COLLI_NEWCOMERS_MAX], ranks[COLLI_NEWCOMERS_MAX];
  for (int i = 0; i < s->called; i++) {
    fds[i] = s->entrance->at[i].conn.fd;
    ranks[i] = new_rank(s, s->b.nranks) + i;
  }
  /* Others may wait for this rank meanwhile, so half the time must suffice. */
  colli_lifelines lifelines = {.lifelines = fds,
                               .lifeline_ranks = ranks,
                               .nlifelines = s->called,
                               .shortage = &s->shortage,
                               .ctx = s,
                               .interrupt = interrupt,
                               .watch = watch,
                               .collect = order->newcomers > 0 ? NULL : collect,
                               .timeout_ms = (long long)(s->patience_ns / COLLI_NS_PER_MS + 1) / 2};
  colli_id id = {.pid = getpid(),
                 .listen_fd = listen_fd,
                 .comm_id = order->comm_id,
                 .secret = shrink_new_secret(s->id.secret, order->salt)};
  memcpy(id.addrs, order->addrs, sizeof(id.addrs));
  int nranks, rank;
  int *members = list_members(s, &nranks, &rank);
  coll_comm_destroy(&s->child);
  coll_status status;
  if (members && id.secret) {
    status = colli_create(&s->child, &id, nranks + order->newcomers, rank, s->settings, &lifelines);
    if (status != COLL_OK && (s->b.error->rank < 0 || s->b.error->rank == rank))
      boot_note_errno(&s->b, s->b.error->sys_errno, true);
    if (status != COLL_OK && status != COLL_ERR_ABORTED) {
      s->b.error->rank = old_rank(s, s->b.error->rank);
      s->b.error->peer = old_rank(s, s->b.error->peer);
    }
  } else {
    colli_id_close(&id);
    status = boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for the ranks");
  }
  colli_id_release(&id);
  if (status == COLL_OK && !take_over(s, s->child, members, nranks)) {
    coll_comm_destroy(&s->child);
    status = boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for the ranks");
  }
  free(members);
  return status;
}

coll_status shrink_adopt(shrink *s, const shrink_order *order, int listen_fd) {
  s->adopted = 0;
  if (s->task == SHRINK_AGREE) {
    s->agreed = (colli_agreed){.number = s->b.hello_word, .list = s->list, .word = order->word};
    for (int r = 0; r < s->b.nranks; r++)
      s->agreed.absent += !s->listed[r];
  } else {
    coll_status status = build(s, order, listen_fd);
    if (status == COLL_ERR_ABORTED) /* here, or a rank said so in the bootstrap */
      shrink_note_abort(s, s->b.error->peer);
    if (status != COLL_OK)
      return status;
  }
  s->adopted = order->comm_id;
  return COLL_OK;
}
