/*
 * exec.h: the executor. It runs the schedules of collectives over connections, as a state machine
 * that is polled. It never waits and never reads a clock; it allocates nothing itself, but the
 * transport may when a connection is first used (connect.h).
 *
 * Order. Lane l of every collective uses channel l, and a channel works on one lane at a time, in
 * the order in which the operations were started; all ranks start them in the same order, so the
 * k-th message of a connection belongs to the same operation on both ends, without tags to sort by.
 * Point-to-point and one-sided messages have a channel of their own, which the executor only
 * connects; their operations are in its list of those in flight (libcoll/p2p).
 */
#ifndef COLLI_EXEC_EXEC_H
#define COLLI_EXEC_EXEC_H

#include "libcoll/exec/flight.h"

#define COLLI_CHANNEL_P2P COLLI_MAX_LANES
#define COLLI_CHANNELS    (COLLI_MAX_LANES + 1)

/* The result of trying to make progress; MOVED: blocked, but not at once. */
enum {
  COLLI_STEP_DONE = 0,
  COLLI_STEP_BLOCKED = -1,
  COLLI_STEP_FAILED = -2,
  COLLI_STEP_MOVED = -3
};

/* What the executor knows of one peer. */
typedef struct colli_link {
  const coll_transport_ops *ops; /* NULL: no connection was tried yet, so all else is 0 */
  coll_endpoint *endpoint;
  coll_conn *conn[COLLI_CHANNELS];
  uint64_t posted[COLLI_CHANNELS]; /* messages that the connection has taken */
  uint64_t *sent_bytes;            /* of all channels; the owner's, which lets others read it */
  int next;                        /* in colli_exec.connected */
} colli_link;

/* What the executor tells its owner. */
typedef struct colli_exec_events {
  /* A message of another operation arrived: with the tag `got` instead of op->tag. */
  void (*mismatch)(void *ctx, coll_request *op, int peer, const coll_tag *got, size_t got_bytes);
  /* A transport call failed with `status` while `op` was at `step` (-1: at none). */
  void (*failed)(void *ctx, coll_request *op, int peer, int channel, int step, coll_status status);
} colli_exec_events;

typedef struct colli_exec colli_exec;

struct colli_exec {
  int rank;
  int nranks;
  const colli_kernels *kernels;
  colli_link *links; /* nranks of them */
  int connected;     /* 1 + the peer that was connected last, whose link leads to the one before;
                      * 0: none. Of thousands of peers, few are. */
  colli_lane *head[COLLI_MAX_LANES], *tail[COLLI_MAX_LANES];
  unsigned active;               /* bit l: channel l has a lane to run */
  coll_request *newest, *oldest; /* in flight */
  size_t slot_bytes;
  bool shares_work; /* there are enough cores that waiting ranks may work for others */
  void *ctx;
  const colli_exec_events *events;
  /* Connects as a transport's connect() does, and fills in the rest of the link first. */
  int (*connect)(colli_exec *exec, int peer, int channel, coll_conn **conn);
  uint64_t id;                                /* of the communicator, for those who watch it */
  const struct colli_observers *observers;    /* or NULL */
  void (*ended)(void *ctx, coll_request *op); /* an operation is complete; NULL: nobody asked */
  colli_flights flights;
};

/* What runs the steps of a collective; in_rooms: of a reduction of elements that are longer than a
 * slot. */
colli_step_fn *colli_exec_step_of(bool in_rooms);

/* Starts a collective whose fields, except for lanes and list links, are set. */
void colli_exec_start(colli_exec *exec, coll_request *op);

/* Marks an operation of any kind as started and adds it to the list of those in flight. */
void colli_exec_enlist(colli_exec *exec, coll_request *op);

/* Removes an operation of any kind from that list and marks it complete. */
void colli_exec_finish(colli_exec *exec, coll_request *op, coll_status status);

/* Runs all lanes as far as possible. Returns 1 if anything moved, 0 if not, or COLLI_STEP_FAILED
 * after events->failed or events->mismatch, upon which the owner cancels. */
int colli_exec_progress(colli_exec *exec);

/* Ends every operation in flight with `status`. Leaves connections in an undefined state. */
void colli_exec_cancel(colli_exec *exec, coll_status status);

/* A peer that a collective waits for, or -1; *channel and *step say where. */
int colli_exec_waits_for(const coll_request *op, int *channel, int *step);

/* Adds the peers that a collective waits for to a list of at most `max`; the new count. */
int colli_exec_add_waits(const coll_request *op, int *peers, int count, int max);

/* Gives back memory that is lent: no connection uses it any more. */
void colli_exec_return_lent(colli_lent *lent);

/* Adds a peer to a list of at most `max` unless it is there or negative; the new count. */
int colli_exec_add_peer(int *peers, int count, int max, int peer);

#endif
