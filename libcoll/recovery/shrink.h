/*
 * shrink.h: how the survivors of a communicator can meet again. Between processes each rank keeps
 * the listener of its creation, the *door*; threads of one process share a *meeting point*. Both
 * belong to a communicator and to all that are made from it.
 */
#ifndef COLLI_RECOVERY_SHRINK_H
#define COLLI_RECOVERY_SHRINK_H

#include <stdbool.h>

#include "coll/coll_transport.h"

typedef struct colli_shrink_listener colli_shrink_listener;
typedef struct colli_meet colli_meet;

/* The shrink that a communicator came from, so that ranks which have not heard its end yet, because
 * the one that told it died, can be told. comm_id 0: none. */
typedef struct colli_shrink_origin {
  uint64_t comm_id; /* of the communicator that was shrunk, as are these */
  uint64_t number;
  int rank;
  int nranks;
} colli_shrink_origin;

/* A communicator's part. */
typedef struct colli_shrink {
  colli_shrink_listener *listener; /* NULL: one rank, threads, or the simulator */
  colli_meet *meet;                /* NULL: not threads */
  uint64_t count;                  /* shrinks of this communicator so far */
  colli_shrink_origin from;
} colli_shrink;

/* Gives a communicator its door: takes over the listener in every case. Without memory the
 * communicator has none, and cannot be shrunk. */
void colli_shrink_open_listener(coll_comm *comm, int listen_fd,
                                const uint8_t secret[COLL_SECRET_BYTES]);

/* Gives the communicators of one process a meeting point. */
coll_status colli_shrink_open_meet(coll_comm **comms, int nranks, coll_error *error);

/* Notes who the ranks of a new communicator were: `members` by their ranks in `comm`. false: no
 * memory. */
bool colli_shrink_note_origins(coll_comm *child, const coll_comm *comm, const int *members);

/* Makes a communicator share the door or meeting point of the one that it was made from. */
void colli_shrink_share(coll_comm *child, const coll_comm *comm);

/* The communicator is destroyed. */
void colli_shrink_close(coll_comm *comm);

#endif
