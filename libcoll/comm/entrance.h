/*
 * entrance.h: where newcomers wait until a communicator grows: a listener of rank 0 with a secret
 * of its own. It moves on to the communicator that comes out of a shrink or growth.
 */
#ifndef COLLI_COMM_ENTRANCE_H
#define COLLI_COMM_ENTRANCE_H

#include "libcoll/net/door.h"
#include "libcoll/net/sealed.h"
#include "libcoll/wireup/id.h"

#define COLLI_NEWCOMERS_MAX 64 /* that wait at a time; more are refused and dial again */

/* A process that waits. It says nothing until it is called. */
typedef struct colli_newcomer {
  colli_sealed conn;
  bool shaking; /* its TLS handshake is in progress */
  int32_t pid;
  colli_addr from;
  uint64_t built; /* the communicator that it has made, once that message is `in`; */
  size_t done;    /* its bytes so far */
  bool in;
} colli_newcomer;

typedef struct colli_entrance {
  colli_id id;
  colli_door door;
  int count;
  colli_newcomer at[COLLI_NEWCOMERS_MAX]; /* in the order of their arrival */
} colli_entrance;

/* Begins to listen; NULL: see `error`. */
colli_entrance *colli_entrance_open(const colli_params *params, const colli_log *log,
                                    coll_error *error);

/* Closes it, and turns all waiting newcomers away. NULL is allowed. */
void colli_entrance_close(colli_entrance *entrance);

/* Admits newcomers and forgets those that left. Waits up to `ns` for handshakes in progress. */
void colli_entrance_tend(colli_entrance *entrance, uint64_t ns);

/* Forgets the first `count` newcomers. */
void colli_entrance_drop(colli_entrance *entrance, int count);

#endif
