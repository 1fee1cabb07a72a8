/* meeting.c: the meeting point of ranks that are threads of one process. */
#include "libcoll/comm/meeting.h"

#include <stdlib.h>
#include <time.h>

/* Makes a meeting point. */
colli_meeting *colli_meeting_create(int refs) {
  colli_meeting *meeting = calloc(1, sizeof(*meeting));
  if (!meeting)
    return NULL;
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&meeting->changed, &attr);
  pthread_condattr_destroy(&attr);
  pthread_mutex_init(&meeting->mutex, NULL);
  meeting->refs = refs;
  return meeting;
}

/* Takes a reference. */
void colli_meeting_acquire(colli_meeting *meeting) {
  pthread_mutex_lock(&meeting->mutex);
  meeting->refs++;
  pthread_mutex_unlock(&meeting->mutex);
}

/* The group of a communicator. */
colli_meeting_group *colli_meeting_get_group(colli_meeting *meeting, uint64_t comm_id, int nranks) {
  for (colli_meeting_group *group = meeting->groups; group; group = group->next)
    if (group->comm_id == comm_id)
      return group;
  colli_meeting_group *group = calloc(1, sizeof(*group) + (size_t)nranks * sizeof(*group->waiters));
  if (group)
    group->gone = calloc((size_t)nranks, sizeof(*group->gone));
  if (!group || !group->gone) {
    free(group);
    return NULL;
  }
  group->comm_id = comm_id;
  group->nranks = nranks;
  group->next = meeting->groups;
  meeting->groups = group;
  return group;
}

/* Removes a group from the list and frees it. */
static void free_group(colli_meeting *meeting, colli_meeting_group *group) {
  colli_meeting_group **at = &meeting->groups;
  while (*at != group)
    at = &(*at)->next;
  *at = group->next;
  free(group->gone);
  free(group);
}

/* Records that a rank's communicator is destroyed; the mutex is held. */
static void note_gone(colli_meeting *meeting, uint64_t comm_id, int rank, int nranks) {
  colli_meeting_group *group = colli_meeting_get_group(meeting, comm_id, nranks);
  if (!group)
    return; /* out of memory, so the others wait until they time out */
  group->gone[rank] = true;
  group->left++;
  if (group->left == nranks)
    free_group(meeting, group);
  else
    pthread_cond_broadcast(&meeting->changed);
}

/* A rank's communicator is destroyed. */
void colli_meeting_leave(colli_meeting *meeting, uint64_t comm_id, int rank, int nranks) {
  pthread_mutex_lock(&meeting->mutex);
  note_gone(meeting, comm_id, rank, nranks);
  bool last = --meeting->refs == 0;
  pthread_mutex_unlock(&meeting->mutex);
  if (!last)
    return;
  while (meeting->groups)
    free_group(meeting, meeting->groups);
  pthread_mutex_destroy(&meeting->mutex);
  pthread_cond_destroy(&meeting->changed);
  free(meeting);
}
