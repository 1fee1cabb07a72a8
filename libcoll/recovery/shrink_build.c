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

/* What a new communicator takes over from the old one. `members`: its first ranks, in the old one.
 * False: out of memory. */
static bool take_over(const shrink *s, coll_comm *child, const int *members, int nmembers) {
  const coll_comm *comm = s->comm;
  colli_shrink_share(child, comm);
  child->shrink.from = (colli_shrink_origin){.comm_id = comm->comm_id,
                                             .number = s->b.hello_word,
                                             .rank = s->b.rank,
                                             .nranks = s->b.nranks};
  for (int r = 0; r < nmembers; r++) /* their listeners stay where they were */
    memcpy(child->table[r].control_addrs, comm->table[members[r]].control_addrs,
           sizeof(child->table[r].control_addrs));
  return colli_shrink_inherit(child, comm, members, nmembers);
}

/* Ends the bootstrap after an abort. */
static coll_status interrupt(void *ctx, coll_error *error) {
  shrink *s = ctx;
  shrink_listen(s);
  if (s->aborter < 0)
    return COLL_OK;
  return colli_shrink_fail_aborted(s->comm, s->aborter, s->task, error);
}

/* The members of the list, and this rank's place among them. NULL: out of memory. */
static int *list_members(const shrink *s, int *nranks, int *rank) {
  int *members = malloc((size_t)s->b.nranks * sizeof(*members));
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
static coll_status build(shrink *s, const shrink_order *order, int listen_fd, const int *fds,
                         const int *ranks, int nfds) {
  COLLI_ASSERT_RANK(s->listed[s->b.rank], s->b.rank);
  COLLI_ASSERT_RANK(nfds >= 0 && nfds < s->b.nranks + order->newcomers, s->b.rank);
  /* Others may wait for this rank meanwhile, so half the time must suffice. */
  colli_lifelines lifelines = {.lifelines = fds,
                               .lifeline_ranks = ranks,
                               .nlifelines = nfds,
                               .interrupt = interrupt,
                               .interrupt_ctx = s,
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
  } else {
    colli_id_close(&id, rank);
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

coll_status shrink_adopt(shrink *s, const shrink_order *order, int listen_fd, const int *fds,
                         const int *ranks, int nfds) {
  s->adopted = 0;
  if (s->task == SHRINK_AGREE) {
    s->agreed = (colli_agreed){.number = s->b.hello_word, .list = s->list, .word = order->word};
    for (int r = 0; r < s->b.nranks; r++)
      s->agreed.absent += !s->listed[r];
  } else {
    coll_status status = build(s, order, listen_fd, fds, ranks, nfds);
    if (status == COLL_ERR_ABORTED) /* here, or a rank said so in the bootstrap */
      shrink_note_abort(s, s->b.error->peer);
    if (status != COLL_OK)
      return status;
  }
  s->adopted = order->comm_id;
  return COLL_OK;
}

coll_status shrink_adopt_leading(shrink *s, const shrink_order *order, int listen_fd) {
  int count = 0, rank = 0;
  const size_t most = (size_t)(s->b.nranks + s->called);
  int *fds = malloc(2 * most * sizeof(*fds));
  if (!fds) {
    boot_close(&listen_fd);
    return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for a shrink");
  }
  int *ranks = fds + most;
  coll_status status = COLL_OK;
  for (int r = 0; r < s->b.nranks; r++) {
    if (s->listed[r] && r != s->b.rank && !s->conns[r])
      status = boot_fail(&s->b, COLL_ERR_PEER_LOST, rank, &s->comm->table[r],
                         "rank %d of the new communicator was lost before it could be told", rank);
    if (s->listed[r] && r != s->b.rank && s->conns[r]) {
      COLLI_ASSERT_RANK(s->conns[r]->in && count < s->b.nranks - 1, s->b.rank);
      fds[count] = s->conns[r]->conn.fd;
      ranks[count++] = rank;
    }
    rank += s->listed[r];
  }
  for (int i = 0; i < s->called; i++) {
    fds[count] = s->entrance->at[i].conn.fd;
    ranks[count++] = rank + i;
  }
  if (status == COLL_OK)
    status = shrink_adopt(s, order, listen_fd, fds, ranks, count);
  else
    boot_close(&listen_fd);
  free(fds);
  return status;
}
