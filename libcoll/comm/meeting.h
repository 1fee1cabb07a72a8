/*
 * meeting.h: where ranks that are threads of one process meet to shrink a communicator: a *meeting
 * point*, which the communicators of all ranks and all those made from them share. It knows who
 * waits for the others and who will not come; libcoll/recovery/shrink_local.c decides what to do.
 */
#ifndef COLLI_COMM_MEETING_H
#define COLLI_COMM_MEETING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A waiting rank; defined in shrink_local.c. */
typedef struct colli_meeting_waiter colli_meeting_waiter;

/* What is known about the ranks of one communicator. */
typedef struct colli_meeting_group {
  struct colli_meeting_group *next;
  uint64_t comm_id;
  int nranks;
  int waiting;                     /* ranks with an entry in `waiters` */
  int left;                        /* ranks with a flag in `gone` */
  uint64_t decided;                /* number of the last shrink that is over */
  uint64_t aborted;                /* of the last one that was aborted */
  int aborter;                     /* on which rank */
  bool *gone;                      /* by rank: its communicator was destroyed */
  colli_meeting_waiter *waiters[]; /* by rank; NULL: does not wait */
} colli_meeting_group;

typedef struct colli_meeting {
  pthread_mutex_t mutex;  /* guards all that follows */
  pthread_cond_t changed; /* times by CLOCK_MONOTONIC */
  int refs;               /* communicators */
  colli_meeting_group *groups;
} colli_meeting;

/* Makes a meeting point with `refs` references; NULL if out of memory. */
colli_meeting *colli_meeting_create(int refs);

/* Takes a reference for one more communicator. */
void colli_meeting_acquire(colli_meeting *meeting);

/* A rank's communicator is destroyed, so nobody has to wait for it. Drops a reference; the last one
 * frees the meeting point. */
void colli_meeting_leave(colli_meeting *meeting, uint64_t comm_id, int rank, int nranks);

/* The group of a communicator, created if necessary; NULL if out of memory. The mutex is held. */
colli_meeting_group *colli_meeting_get_group(colli_meeting *meeting, uint64_t comm_id, int nranks);

#endif
