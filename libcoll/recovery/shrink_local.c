/*
 * shrink_local.c: shrinks and agreements where ranks are threads of one process. They meet in
 * memory: the rank that completes the meeting, or finds that time is up, decides for all who came.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/poll.h"
#include "libcoll/recovery/shrink_internal.h"

#define LISTEN_NS (10 * COLLI_NS_PER_MS) /* how often a waiting rank passes notices on */

/* A rank that waits; on its own stack. */
struct colli_meeting_waiter {
  colli_settings *settings;
  uint64_t number;
  shrink_task task;
  uint64_t word;
  shrink_outcome outcome;
  coll_status status;
  bool done;
};

/* Whether all who wait make the same call; if not, says who does not. */
static bool same_task(const colli_meeting_group *group, coll_error *error) {
  int first = 0;
  while (!group->waiters[first])
    first++;
  for (int rank = first; rank < group->nranks; rank++)
    if (group->waiters[rank] && group->waiters[rank]->task != group->waiters[first]->task) {
      colli_error_set(error, COLL_ERR_MISMATCH, "shrink",
                      "rank %d is in %s while rank %d is in %s; all ranks must make the same call",
                      rank, colli_shrink_name(group->waiters[rank]->task), first,
                      colli_shrink_name(group->waiters[first]->task));
      error->peer = rank;
      return false;
    }
  return true;
}

/* All who wait in a group leave with this status, and `children` or `agreed`. */
static void dismiss(coll_comm *comm, colli_meeting_group *group, coll_status status,
                    coll_comm **children, colli_agreed agreed, const coll_error *error) {
  int count = 0;
  for (int rank = 0; rank < group->nranks; rank++) {
    colli_meeting_waiter *waiter = group->waiters[rank];
    if (!waiter)
      continue;
    COLLI_ASSERT_RANK(!waiter->done && !waiter->outcome.child, rank);
    group->waiters[rank] = NULL;
    group->decided = waiter->number > group->decided ? waiter->number : group->decided;
    if (status == COLL_OK)
      waiter->outcome = (shrink_outcome){children ? children[count++] : NULL, agreed};
    else
      waiter->settings->error = *error;
    waiter->status = status;
    waiter->done = true;
    if (waiter->outcome.child) {
      waiter->outcome.child->shrink.meeting = comm->shrink.meeting;
      comm->shrink.meeting->refs++;
    }
  }
  group->waiting = 0;
}

/* Creates the communicators of all who wait in a group; the meeting point's mutex is held. */
static void make_children(coll_comm *comm, colli_meeting_group *group) {
  int count = 0;
  coll_error error;
  coll_status status = COLL_ERR_NO_MEMORY;
  coll_comm **children = calloc((size_t)group->waiting, sizeof(coll_comm *));
  colli_settings **settings = calloc((size_t)group->waiting, sizeof(colli_settings *));
  int *members = calloc((size_t)group->waiting, sizeof(*members));
  colli_error_set(&error, status, "shrink", "out of memory for %d ranks", group->waiting);
  for (int rank = 0; settings && members && rank < group->nranks; rank++)
    if (group->waiters[rank]) {
      members[count] = rank;
      settings[count++] = group->waiters[rank]->settings;
    }
  COLLI_ASSERT_RANK(!settings || !members || count == group->waiting, comm->rank);
  if (children && settings && members)
    status = colli_create_local(children, count, settings, &error);
  for (int i = 0; status == COLL_OK && i < count; i++)
    if (!colli_shrink_inherit(children[i], comm, members, count))
      status = colli_error_set(&error, COLL_ERR_NO_MEMORY, "shrink", "out of memory for the ranks");
  for (int i = 0; status != COLL_OK && children && i < count; i++)
    coll_comm_destroy(&children[i]);
  dismiss(comm, group, status, children, (colli_agreed){0}, &error);
  free(children);
  free(settings);
  free(members);
}

/* Decides for all who wait in a group; the mutex is held. */
static void decide(coll_comm *comm, colli_meeting_group *group, const colli_meeting_waiter *mine) {
  coll_error error;
  colli_agreed agreed = {.word = mine->word, .absent = group->nranks - group->waiting};
  if (!same_task(group, &error)) {
    dismiss(comm, group, COLL_ERR_MISMATCH, NULL, agreed, &error);
  } else if (mine->task == SHRINK_AGREE) {
    for (int rank = 0; rank < group->nranks; rank++)
      agreed.word &= group->waiters[rank] ? group->waiters[rank]->word : agreed.word;
    dismiss(comm, group, COLL_OK, NULL, agreed, NULL);
  } else {
    make_children(comm, group);
  }
}

/* Ends the call for all who wait in a group, because it was aborted on this rank. */
static void end_aborted(coll_comm *comm, colli_meeting_group *group,
                        const colli_meeting_waiter *mine) {
  coll_error error;
  group->aborted = mine->number;
  group->aborter = comm->rank;
  colli_shrink_fail_aborted(comm, comm->rank, mine->task, &error);
  dismiss(comm, group, COLL_ERR_ABORTED, NULL, (colli_agreed){0}, &error);
}

/* Waits in a group until a rank has decided. The mutex is held, except while checking for
 * events. */
static void wait_for_others(coll_comm *comm, colli_meeting_group *group, colli_meeting_waiter *mine,
                            uint64_t until_ns) {
  colli_meeting *meeting = comm->shrink.meeting;
  while (!mine->done) {
    if (colli_shrink_was_aborted(comm))
      end_aborted(comm, group, mine);
    else if (group->waiting + group->left >= group->nranks || colli_now_ns() >= until_ns)
      decide(comm, group, mine);
    if (mine->done) {
      pthread_cond_broadcast(&meeting->changed);
      return;
    }
    uint64_t wake_ns = colli_now_ns() + LISTEN_NS;
    struct timespec wake = {.tv_sec = (time_t)(wake_ns / COLLI_NS_PER_S),
                            .tv_nsec = (long)(wake_ns % COLLI_NS_PER_S)};
    pthread_cond_timedwait(&meeting->changed, &meeting->mutex, &wake);
    if (mine->done)
      return;
    pthread_mutex_unlock(&meeting->mutex);
    colli_call_resume(comm);
    colli_comm_serve(comm); /* ranks that still wait may need notices forwarded */
    colli_call_pause(comm);
    colli_movers_move(NULL);
    pthread_mutex_lock(&meeting->mutex);
  }
}

coll_status colli_shrink_local(coll_comm *comm, colli_settings *settings, shrink_task task,
                               uint64_t word, shrink_outcome *outcome) {
  colli_meeting *meeting = comm->shrink.meeting;
  colli_meeting_waiter mine = {
      .settings = settings, .number = comm->shrink.count, .task = task, .word = word};
  long long patience_ms = settings->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS];
  colli_call_pause(comm); /* threads in other communicators of the family can work meanwhile */
  pthread_mutex_lock(&meeting->mutex);
  colli_meeting_group *group = colli_meeting_get_group(meeting, comm->comm_id, comm->nranks);
  if (!group) {
    mine.status = colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                                  "out of memory for a shrink of %d ranks", comm->nranks);
  } else if (mine.number <= group->aborted) {
    mine.status = colli_shrink_fail_aborted(comm, group->aborter, task, &settings->error);
  } else if (mine.number <= group->decided) {
    mine.status = colli_error_set(
        &settings->error, COLL_ERR_TIMEOUT, "shrink",
        "rank %d was left out: the others had waited for it for as long as COLL_CREATE_TIMEOUT_MS "
        "allows, and went on without it",
        comm->rank);
  } else {
    COLLI_ASSERT_RANK(!group->waiters[comm->rank] && group->waiting < group->nranks, comm->rank);
    group->waiters[comm->rank] = &mine;
    group->waiting++;
    wait_for_others(comm, group, &mine, colli_now_ns() + (uint64_t)patience_ms * COLLI_NS_PER_MS);
  }
  pthread_mutex_unlock(&meeting->mutex);
  colli_call_resume(comm);
  COLLI_ASSERT_RANK(
      (mine.status == COLL_OK && task != SHRINK_AGREE) == (mine.outcome.child != NULL), comm->rank);
  if (mine.status != COLL_OK)
    settings->error.rank = comm->rank;
  *outcome = mine.outcome;
  return mine.status;
}
