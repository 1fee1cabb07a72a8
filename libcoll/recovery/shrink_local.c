/*
 * shrink_local.c: shrinking where ranks are threads of one process. They meet in memory: whoever
 * completes the meeting, or finds that the time is over, makes the communicators of all who came.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"

#define LISTEN_NS (10 * COLLI_NS_PER_MS) /* how often a waiting rank passes news on */

/* A rank that waits; on its own stack. */
typedef struct slot {
  colli_settings *settings;
  uint64_t number;
  coll_comm *child;
  coll_status status;
  bool done;
} slot;

/* What is known of one communicator. */
typedef struct place {
  struct place *next;
  uint64_t comm_id;
  int nranks;
  int came, left;
  uint64_t decided; /* number of the last shrink that is over */
  bool *gone;       /* by rank: its communicator was destroyed */
  slot *slots[];    /* by rank: waits here */
} place;

struct colli_meet {
  pthread_mutex_t mutex;
  pthread_cond_t news;
  int refs;
  place *locality;
};

coll_status colli_shrink_open_meet(coll_comm **comms, int nranks, coll_error *error) {
  colli_meet *meet = calloc(1, sizeof(*meet));
  if (!meet)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for a meeting point");
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&meet->news, &attr);
  pthread_condattr_destroy(&attr);
  pthread_mutex_init(&meet->mutex, NULL);
  meet->refs = nranks;
  for (int rank = 0; rank < nranks; rank++)
    comms[rank]->shrink.meet = meet;
  return COLL_OK;
}

void colli_meet_hold(colli_meet *meet) {
  pthread_mutex_lock(&meet->mutex);
  meet->refs++;
  pthread_mutex_unlock(&meet->mutex);
}

/* The place of a communicator, made if there is none yet; NULL without memory. */
static place *find_place(colli_meet *meet, uint64_t comm_id, int nranks) {
  for (place *p = meet->locality; p; p = p->next)
    if (p->comm_id == comm_id)
      return p;
  place *p = calloc(1, sizeof(*p) + (size_t)nranks * sizeof(*p->slots));
  if (p)
    p->gone = calloc((size_t)nranks, sizeof(*p->gone));
  if (!p || !p->gone) {
    free(p);
    return NULL;
  }
  p->comm_id = comm_id;
  p->nranks = nranks;
  p->next = meet->locality;
  meet->locality = p;
  return p;
}

/* Forgets a place. */
static void free_place(colli_meet *meet, place *gone) {
  for (place **at = &meet->locality; *at; at = &(*at)->next)
    if (*at == gone) {
      *at = gone->next;
      break;
    }
  free(gone->gone);
  free(gone);
}

void colli_meet_leave(colli_meet *meet, uint64_t comm_id, int rank, int nranks) {
  pthread_mutex_lock(&meet->mutex);
  place *p = find_place(meet, comm_id, nranks);
  if (p) { /* without memory the others wait until their time is over */
    p->gone[rank] = true;
    p->left++;
    if (p->left == nranks)
      free_place(meet, p);
    else
      pthread_cond_broadcast(&meet->news);
  }
  bool last = --meet->refs == 0;
  pthread_mutex_unlock(&meet->mutex);
  if (!last)
    return;
  while (meet->locality)
    free_place(meet, meet->locality);
  pthread_mutex_destroy(&meet->mutex);
  pthread_cond_destroy(&meet->news);
  free(meet);
}

/* Makes the communicators of all who wait at a place; the meeting point's mutex is held. */
static void decide(coll_comm *comm, place *p) {
  int count = 0;
  coll_error error;
  coll_status status = COLL_ERR_NO_MEMORY;
  coll_comm **children = calloc((size_t)p->came, sizeof(coll_comm *));
  colli_settings **settings = calloc((size_t)p->came, sizeof(colli_settings *));
  int *members = calloc((size_t)p->came, sizeof(*members));
  colli_error_set(&error, status, "shrink", "no memory for %d ranks", p->came);
  for (int rank = 0; settings && members && rank < p->nranks; rank++)
    if (p->slots[rank]) {
      members[count] = rank;
      settings[count++] = p->slots[rank]->settings;
    }
  if (children && settings && members)
    status = colli_create_local(children, count, settings, &error);
  for (int i = 0; status == COLL_OK && i < count; i++)
    if (!colli_shrink_note_origins(children[i], comm, members))
      status = colli_error_set(&error, COLL_ERR_NO_MEMORY, "shrink", "no memory for the ranks");
  for (int i = 0; status != COLL_OK && children && i < count; i++)
    coll_comm_destroy(&children[i]);
  count = 0;
  for (int rank = 0; rank < p->nranks; rank++) {
    slot *s = p->slots[rank];
    if (!s)
      continue;
    p->slots[rank] = NULL;
    p->decided = s->number > p->decided ? s->number : p->decided;
    if (status == COLL_OK)
      s->child = children[count++];
    else
      s->settings->error = error;
    s->status = status;
    s->done = true;
    if (s->child)
      s->child->shrink.meet = comm->shrink.meet;
  }
  p->came = 0;
  free(children);
  free(settings);
  free(members);
}

/* Waits at a place until somebody has decided; the mutex is held, but for looking around. */
static void wait_there(coll_comm *comm, place *p, slot *mine, uint64_t until_ns) {
  colli_meet *meet = comm->shrink.meet;
  while (!mine->done) {
    if (p->came + p->left >= p->nranks || colli_now_ns() >= until_ns) {
      int made = p->came;
      decide(comm, p);
      if (mine->child)
        meet->refs += made;
      pthread_cond_broadcast(&meet->news);
      return;
    }
    uint64_t wake_ns = colli_now_ns() + LISTEN_NS;
    struct timespec wake = {.tv_sec = (time_t)(wake_ns / COLLI_NS_PER_S),
                            .tv_nsec = (long)(wake_ns % COLLI_NS_PER_S)};
    pthread_cond_timedwait(&meet->news, &meet->mutex, &wake);
    if (mine->done)
      return;
    pthread_mutex_unlock(&meet->mutex);
    colli_call_resume(comm);
    colli_comm_poll_notices(
        comm); /* what failed may have to be passed on to ranks that still wait */
    colli_call_pause(comm);
    pthread_mutex_lock(&meet->mutex);
  }
}

coll_status colli_shrink_local(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  colli_meet *meet = comm->shrink.meet;
  slot mine = {.settings = settings, .number = comm->shrink.count};
  long long patience_ms = settings->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS];
  colli_call_pause(comm); /* threads in other communicators of the family go on meanwhile */
  pthread_mutex_lock(&meet->mutex);
  place *p = find_place(meet, comm->comm_id, comm->nranks);
  if (!p) {
    mine.status = colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                                  "no memory to meet %d ranks", comm->nranks);
  } else if (mine.number <= p->decided) {
    mine.status = colli_error_set(
        &settings->error, COLL_ERR_TIMEOUT, "shrink",
        "rank %d was left out: the others had waited for it for as long as COLL_CREATE_TIMEOUT_MS "
        "allows, and went on without it",
        comm->rank);
  } else {
    p->slots[comm->rank] = &mine;
    p->came++;
    wait_there(comm, p, &mine, colli_now_ns() + (uint64_t)patience_ms * COLLI_NS_PER_MS);
  }
  pthread_mutex_unlock(&meet->mutex);
  colli_call_resume(comm);
  if (mine.status != COLL_OK)
    settings->error.rank = comm->rank;
  *child = mine.child;
  return mine.status;
}
