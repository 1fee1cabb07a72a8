/* shrink_build.c: adopts the list of a shrink: makes its communicator. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"

#define SALT_LABEL "coll shrink"

/* The secret of the new communicator. NULL: out of memory. */
static colli_secret *new_secret(const shrink *s, const shrink_order *order) {
  uint8_t text[sizeof(SALT_LABEL) + sizeof(order->salt)];
  colli_secret *secret = colli_secret_create();
  memcpy(text, SALT_LABEL, sizeof(SALT_LABEL));
  memcpy(text + sizeof(SALT_LABEL), order->salt, sizeof(order->salt));
  if (secret && !colli_hmac(s->id.secret->bytes, text, sizeof(text), secret->bytes)) {
    colli_secret_release(secret);
    return NULL;
  }
  return secret;
}

/* Creates the communicator of the list. */
static coll_status build(shrink *s, const shrink_order *order, int listen_fd, const int *fds,
                         const int *ranks, int nfds) {
  const coll_comm *comm = s->comm;
  COLLI_ASSERT_RANK(s->listed[s->b.rank], s->b.rank);
  COLLI_ASSERT_RANK(nfds >= 0 && nfds < s->b.nranks, s->b.rank);
  /* Others may wait for this rank meanwhile, so half the time must suffice. */
  colli_lifelines lifelines = {.lifelines = fds,
                               .lifeline_ranks = ranks,
                               .nlifelines = nfds,
                               .timeout_ms = (long long)(s->patience_ns / COLLI_NS_PER_MS + 1) / 2};
  colli_id id = {.pid = getpid(),
                 .listen_fd = listen_fd,
                 .comm_id = order->comm_id,
                 .secret = new_secret(s, order)};
  memcpy(id.addrs, order->addrs, sizeof(id.addrs));
  int nranks = 0, rank = 0;
  int *members = malloc((size_t)s->b.nranks * sizeof(*members));
  for (int r = 0; members && r < s->b.nranks; r++) {
    rank = r == s->b.rank ? nranks : rank;
    if (s->listed[r])
      members[nranks++] = r;
  }
  COLLI_ASSERT_RANK(!members || (rank < nranks && members[rank] == s->b.rank), s->b.rank);
  coll_comm_destroy(&s->child);
  coll_status status;
  if (members && id.secret) {
    status = colli_create(&s->child, &id, nranks, rank, s->settings, &lifelines);
    if (status != COLL_OK && (s->b.error->rank < 0 || s->b.error->rank == rank))
      boot_note_errno(&s->b, s->b.error->sys_errno, true);
  } else {
    colli_id_close(&id, rank);
    status = boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for the ranks");
  }
  colli_id_release(&id);
  if (status == COLL_OK && !colli_shrink_note_origins(s->child, comm, members)) {
    coll_comm_destroy(&s->child);
    status = boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for the ranks");
  }
  if (status != COLL_OK) {
    free(members);
    return status;
  }
  colli_shrink_share(s->child, comm);
  s->child->shrink.from = (colli_shrink_origin){.comm_id = comm->comm_id,
                                                .number = s->b.hello_word,
                                                .rank = s->b.rank,
                                                .nranks = s->b.nranks};
  for (int r = 0; r < nranks; r++) /* the listener stays where it was */
    memcpy(s->child->table[r].control_addrs, comm->table[members[r]].control_addrs,
           sizeof(s->child->table[r].control_addrs));
  free(members);
  return COLL_OK;
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
    if (status != COLL_OK)
      return status;
  }
  s->adopted = order->comm_id;
  return COLL_OK;
}
