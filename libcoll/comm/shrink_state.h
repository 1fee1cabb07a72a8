/*
 * shrink_state.h: the state that a communicator keeps so that its survivors can shrink it (see
 * libcoll/recovery): how they find each other, and which shrink it came from itself.
 */
#ifndef COLLI_COMM_SHRINK_STATE_H
#define COLLI_COMM_SHRINK_STATE_H

#include "libcoll/comm/entrance.h"
#include "libcoll/comm/meeting.h"
#include "libcoll/comm/shrink_listener.h"

/* The shrink that made a communicator. A rank may still be in that shrink because the one that
 * would have told it the outcome died; any rank that has the communicator can tell it. comm_id 0:
 * none. */
typedef struct colli_shrink_origin {
  uint64_t comm_id; /* of the communicator that was shrunk, as is the rest */
  uint64_t number;
  int rank;
  int nranks;
} colli_shrink_origin;

/* The outcome of an agreement. */
typedef struct colli_agreed {
  uint64_t number; /* counted as shrinks are; 0: there was none */
  uint64_t list;   /* of the ranks that took part */
  uint64_t word;
  int absent; /* ranks of the communicator that did not */
} colli_agreed;

/* A communicator's part. */
typedef struct colli_shrink {
  colli_shrink_listener *listener; /* between processes; NULL: one rank, threads, or simulated */
  colli_meeting *meeting;          /* between threads of one process; else NULL */
  uint64_t count;                  /* shrinks and agreements of this communicator so far */
  colli_agreed agreed;             /* the last one, for ranks that are still in it */
  int aborts;                      /* of the communicator before the last shrink or agreement */
  uint64_t aborted;                /* this one, and those before it, are over because of an abort */
  int aborter;                     /* on which rank */
  uint64_t short_number;           /* in this one, a rank ran short and said so: */
  coll_error shortage;
  colli_shrink_origin from;
  uint64_t epoch;           /* shrinks and growths since the first communicator */
  int32_t origins_used;     /* numbers of original ranks given out so far; 0: the base's */
  colli_entrance *entrance; /* rank 0, between processes: for newcomers; NULL: none */
} colli_shrink;

/* Makes a new communicator share the listener or meeting point of its parent. */
void colli_shrink_share(coll_comm *child, const coll_comm *comm);

/* A rank ran short of descriptors or memory in shrink or agreement `number`, so that others may be
 * left out: `error`. The first one counts. */
static inline void colli_shrink_note_short(colli_shrink *shrink, uint64_t number,
                                           const coll_error *error) {
  if (number <= shrink->short_number)
    return;
  shrink->short_number = number;
  shrink->shortage = *error;
}

/* The original rank of the next newcomer: a number that no rank had before. */
int32_t colli_shrink_next_origin(const coll_comm *comm);

/* Records the epoch of a new communicator, and who its ranks were: `members` are the ranks in
 * `comm` of the first `nmembers`; the others are new. False if out of memory. */
bool colli_shrink_inherit(coll_comm *child, const coll_comm *comm, const int *members,
                          int nmembers);

/* The communicator is destroyed. */
void colli_shrink_close(coll_comm *comm);

#endif
