/* shrink_reasons.c: why a shrink fails, where that is not what this rank itself sees. */
#include <errno.h>
#include <stdlib.h>

#include "libcoll/comm/notice_send.h"
#include "libcoll/progress/enter.h"
#include "libcoll/recovery/shrink_internal.h"

coll_status shrink_fail_few(shrink *s, const bool *takes) {
  const int nranks = s->b.nranks;
  char list[200];
  int count = 0, first = -1;
  bool *missing = shrink_alloc(s, (size_t)nranks * sizeof(*missing));
  if (!missing)
    return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for a shrink");
  for (int r = 0; r < nranks; r++) {
    count += takes[r];
    missing[r] = !takes[r] && !s->gone[r];
    first = first < 0 && missing[r] ? r : first;
  }
  boot_list_ranks(missing, nranks, true, list, sizeof(list));
  free(missing);
  const colli_rank_info info = colli_rank_at(s->comm->table, first < 0 ? 0 : first);
  return boot_fail(&s->b, COLL_ERR_TIMEOUT, first, first < 0 ? NULL : &info,
                   "%d rank(s) met, led by rank %d (host %s), but rank(s) %s did not come within "
                   "%.3g s, and nothing shows that they died. They may have gone on without these "
                   "ranks, which are fewer than most, and left out; look whether they called "
                   "%s too and can be reached; COLL_CREATE_TIMEOUT_MS gives more time, and "
                   "COLL_SHRINK_QUORUM=reachable goes on all the same",
                   count, s->b.rank, s->b.mine->host, list,
                   (double)(colli_now_ns() - s->b.start_ns) / (double)COLLI_NS_PER_S,
                   colli_shrink_name(s->task));
}

coll_status shrink_fail_astray(const shrink *s) {
  const shrink_member *m = &s->members[s->astray];
  const char *other = m->in ? colli_shrink_name((shrink_task)m->head.task) : "another call";
  const colli_rank_info info = colli_rank_at(s->comm->table, s->astray);
  return boot_fail(
      &s->b, COLL_ERR_MISMATCH, s->astray, &info,
      "rank %d (host %s) is in %s while rank %d (host %s) is in %s; all ranks must make "
      "the same call",
      s->astray, info.host, other, s->b.rank, s->b.mine->host, colli_shrink_name(s->task));
}

coll_status shrink_fail_starved(shrink *s) {
  return boot_fail(&s->b, COLL_ERR_NO_MEMORY, -1, NULL,
                   "rank %d (host %s) ran out of memory for what other ranks say in %s", s->b.rank,
                   s->b.mine->host, colli_shrink_name(s->task));
}

/* ---- shortages that leave ranks out ---------------------------------------------------------- */

void shrink_note_short(shrink *s) {
  colli_call_resume(s->comm);
  colli_shrink_note_short(&s->comm->shrink, s->b.hello_word, s->b.error);
  colli_call_pause(s->comm);
}

coll_status shrink_explain(shrink *s, coll_status status) {
  const colli_shrink *state = &s->comm->shrink;
  if (status != COLL_ERR_TIMEOUT && status != COLL_ERR_UNREACHABLE && status != COLL_ERR_PEER_LOST)
    return status;
  shrink_listen(s); /* what others said before they left */
  colli_call_resume(s->comm);
  if (state->short_number == s->b.hello_word && state->shortage.rank != s->b.rank) {
    *s->b.error = state->shortage;
    status = state->shortage.status;
  }
  colli_call_pause(s->comm);
  return status;
}

/* Whether the call ends for this rank without one that may be alive. */
static bool leaves_any_out(const shrink *s, coll_status status) {
  bool any = status != COLL_OK;
  for (int r = 0; r < s->b.nranks; r++)
    any = any || (!s->listed[r] && !s->gone[r]);
  return any;
}

void shrink_tell_shortage(shrink *s, coll_status status) {
  coll_error *error = s->b.error;
  if (shrink_ran_short(s, status) && (error->rank < 0 || error->rank == s->b.rank))
    boot_note_errno(&s->b, error->sys_errno ? error->sys_errno : ENOMEM, true);
  if (!leaves_any_out(s, status))
    return;
  const coll_error kept = *error;
  if (boot_fail_short(&s->b, COLL_ERR_TIMEOUT) == COLL_ERR_SYSTEM) {
    colli_ctrl_msg msg = {.kind = COLLI_CTRL_SHORT,
                          .peer = colli_comm_base_rank(s->comm, s->b.rank),
                          .sequence = s->b.hello_word,
                          .error = *error};
    colli_call_resume(s->comm);
    colli_notice_send(s->comm->family, s->comm->uid, &msg);
    colli_call_pause(s->comm);
  }
  *error = kept;
}
