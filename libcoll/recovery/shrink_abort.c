/*
 * shrink_abort.c: coll_comm_abort() during a shrink or an agreement. The rank on which it was
 * called tells the others over the control links, and ranks that it has no control link to over
 * connections of the shrink. These messages carry the number of the shrink, so that they do not end
 * another one.
 *
 * Ranks that do not know of the abort yet know nothing about a rank that has left because of it: it
 * may have adopted a list, or even returned with it.
 */
#include <stdio.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/recovery/shrink_internal.h"

#define VERDICT_NS (300 * COLLI_NS_PER_MS) /* how long a follower waits for its leader */

bool colli_shrink_was_aborted(const coll_comm *comm) {
  return atomic_load(&comm->failure.aborts) != comm->shrink.aborts;
}

coll_status colli_shrink_fail_aborted(const coll_comm *comm, int aborter, shrink_task task,
                                      coll_error *error) {
  COLLI_ASSERT_RANK(aborter >= 0 && aborter < comm->nranks, comm->rank);
  const colli_rank_info info = colli_rank_at(comm->table, aborter);
  colli_error_set(error, COLL_ERR_ABORTED, task == SHRINK_AGREE ? "agree" : "shrink",
                  "coll_comm_abort() was called on rank %d (host %s, pid %d) during %s", aborter,
                  info.host, info.pid, colli_shrink_name(task));
  error->rank = error->peer = aborter;
  error->peer_pid = info.pid;
  snprintf(error->host, sizeof(error->host), "%s", info.host);
  snprintf(error->peer_host, sizeof(error->peer_host), "%s", info.host);
  return COLL_ERR_ABORTED;
}

void shrink_note_abort(shrink *s, int aborter) {
  if (s->aborter >= 0 || aborter < 0 || aborter >= s->b.nranks)
    return;
  s->aborter = aborter;
  s->verdict_ns = colli_now_ns() + VERDICT_NS;
}

void shrink_hear_abort(shrink *s) {
  coll_comm *comm = s->comm;
  colli_shrink *state = &comm->shrink;
  if (state->aborted >= s->b.hello_word) {
    shrink_note_abort(s, state->aborter);
    return;
  }
  if (colli_shrink_was_aborted(comm))
    shrink_note_abort(s, comm->rank);
  if (s->aborter < 0)
    return;
  state->aborted = s->b.hello_word;
  state->aborter = s->aborter;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_ABORTED,
                        .peer = colli_comm_base_rank(comm, s->aborter),
                        .sequence = s->b.hello_word};
  colli_notice_send(comm->family, comm->uid, &msg);
}

coll_status shrink_fail_aborted(const shrink *s) {
  return colli_shrink_fail_aborted(s->comm, s->aborter, s->task, s->b.error);
}
