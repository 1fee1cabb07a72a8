/* shrink_agree.c: one rank's part in a shrink between processes, from its call to the outcome: it
 * follows one rank after the other until it is its own turn to lead. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/outsider.h"
#include "libcoll/recovery/shrink_internal.h"

#define LIMIT 5u /* the longest time of a call, as a multiple of the patience */

/* The time for all of it is over. */
static coll_status shrink_timed_out(shrink *s) {
  char list[200];
  boot_list_ranks(s->skipped, s->b.nranks, true, list, sizeof(list));
  return boot_fail(
      &s->b, COLL_ERR_TIMEOUT, -1, NULL,
      "rank %d (host %s) was left out: within %.3g s it met no rank that led the others (no answer "
      "from: %s); look whether they called %s too; COLL_CREATE_TIMEOUT_MS gives more time",
      s->b.rank, s->b.mine->host, (double)(colli_now_ns() - s->b.start_ns) / (double)COLLI_NS_PER_S,
      list, colli_shrink_name(s->task));
}

/* Takes part until the end. */
static coll_status take_part(shrink *s) {
  bool over = false;
  while (colli_now_ns() < s->limit_ns) {
    shrink_tend(s);
    if (s->aborter >= 0)
      return shrink_fail_aborted(s);
    if (s->starved)
      return shrink_fail_starved(s);
    int leader = shrink_candidate(s);
    COLLI_ASSERT_RANK(leader >= 0 && leader <= s->b.rank, s->b.rank);
    if (leader == s->b.rank)
      return shrink_lead(s);
    coll_status status = shrink_follow(s, shrink_parent(s, leader), &over);
    if (over)
      return status;
  }
  return shrink_timed_out(s);
}

/* Sets up the state of a call; false if out of memory. */
static bool prepare_shrink(shrink *s, coll_comm *comm, colli_settings *settings) {
  const size_t n = (size_t)comm->nranks;
  const colli_shrink_listener *listener = comm->shrink.listener;
  COLLI_ASSERT_RANK(listener && !comm->shrink.meeting && comm->shrink.count > 0, comm->rank);
  s->comm = comm;
  s->own = colli_rank_at(comm->table, comm->rank);
  s->door = COLLI_DOOR_CLOSED;
  s->settings = settings;
  s->patience_ns =
      (uint64_t)settings->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS] * COLLI_NS_PER_MS;
  s->quorum = (coll_shrink_quorum)settings->params.number[COLLI_PARAM_SHRINK_QUORUM];
  s->id = (colli_id){
      .listen_fd = -1, .comm_id = comm->comm_id, .secret = colli_secret_acquire(listener->secret)};
  s->shortage.lasts = true;
  s->b = (boot){.id = &s->id,
                .shortage = &s->shortage,
                .rank = comm->rank,
                .nranks = comm->nranks,
                .mine = &s->own,
                .log = &settings->log,
                .start_ns = colli_now_ns(),
                .error = &settings->error,
                .hello_word = comm->shrink.count,
                .tls = settings->params.number[COLLI_PARAM_TLS] != 0};
  s->limit_ns = s->b.deadline_ns = s->b.start_ns + LIMIT * s->patience_ns;
  s->altered = s->astray = s->aborter = -1;
  s->b.polls.capacity = 17 * BOOT_ATTEMPTS_MAX + comm->nranks + COLLI_NEWCOMERS_MAX + 16;
  s->b.polls.fds = calloc((size_t)s->b.polls.capacity, sizeof(*s->b.polls.fds));
  s->gone = calloc(n, sizeof(*s->gone));
  s->skipped = calloc(n, sizeof(*s->skipped));
  s->listed = calloc(n, sizeof(*s->listed));
  s->slow = calloc(n, sizeof(*s->slow));
  s->links = calloc(n, sizeof(shrink_link *));
  s->members = calloc(n, sizeof(*s->members));
  s->met = calloc((n + 63) / 64, sizeof(*s->met));
  if (s->met)
    shrink_meet(s, comm->rank);
  s->up.conn = COLLI_SEALED_NONE;
  s->up.flags = malloc(n);
  return s->met && s->b.polls.fds && s->gone && s->skipped && s->listed && s->slow && s->links &&
         s->members && s->up.flags;
}

/* Frees what prepare_shrink() allocated. */
static void release_shrink(shrink *s) {
  if (s->links && s->members)
    shrink_links_drop(s);
  for (int r = shrink_next(s, 0); s->members && r < s->b.nranks; r = shrink_next(s, r + 1)) {
    free(s->members[r].list);
    shrink_forget_round(&s->members[r]);
  }
  free(s->members);
  free(s->met);
  free(s->links);
  free(s->up.flags);
  free(s->slow);
  free(s->listed);
  free(s->skipped);
  free(s->gone);
  free(s->b.polls.fds);
  colli_id_release(&s->id);
}

coll_status colli_shrink_agree(coll_comm *comm, colli_settings *settings, shrink_task task,
                               uint64_t word, shrink_outcome *outcome) {
  coll_status status = COLL_ERR_NO_MEMORY;
  shrink *s = calloc(1, sizeof(*s));
  settings->log.rank = comm->rank;
  colli_outsider_leave(comm->family);
  colli_call_pause(comm);
  if (s && prepare_shrink(s, comm, settings)) {
    s->task = task == SHRINK_GROW ? SHRINK_SHRINK : task;
    s->entrance = task == SHRINK_GROW ? comm->shrink.entrance : NULL;
    s->word = word;
    status =
        boot_door_open(&s->b, &s->door, comm->shrink.listener->listen_fd, COLLI_HELLO_SHRINK, -1);
    s->door.wanted = shrink_wants;
    s->door.wanted_ctx = s;
    if (status == COLL_OK)
      status = take_part(s);
    status = shrink_explain(s, status);
    if (status == COLL_ERR_ABORTED && s->aborter == comm->rank)
      shrink_tell_abort(s);
    shrink_tell_shortage(s, status);
  } else {
    colli_error_set(&settings->error, status, "shrink", "out of memory for a shrink of %d ranks",
                    comm->nranks);
  }
  if (s) {
    COLLI_ASSERT_RANK(status != COLL_OK || s->adopted, comm->rank);
    if (status == COLL_OK)
      *outcome = (shrink_outcome){s->child, s->agreed};
    else
      coll_comm_destroy(&s->child);
    colli_door_close(&s->door);
    release_shrink(s);
  }
  free(s);
  colli_call_resume(comm);
  return status;
}
