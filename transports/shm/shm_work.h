/*
 * shm_work.h: work on messages by reference that both ends of a connection can do.
 *
 * The receiver writes into the shared segment where its next messages are to go, one entry a
 * message (shm_work), with offsets in regions of its own that the sender has mapped. Whoever of the
 * two has nothing else to do claims an entry whose message has been sent, does the work, and says
 * that it is done; the receiver then gives the message back. The rank with the lower number begins
 * at the front and the other one at the back: in the next operation on the same memory each finds
 * in its cache what it worked on before.
 *
 * Where both have sent each other the operand of the other's fold, one of them reads both and
 * writes both results (a paired reduction).
 *
 * A side that leaves takes back what nobody has claimed, and waits for nothing: the peer may be
 * frozen and never end what it is doing. So the region remembers where the peer is at work
 * (unfinished_work() in coll_transport.h), and its owner takes those pages away from the peer.
 */
#ifndef COLLI_TRANSPORTS_SHM_WORK_H
#define COLLI_TRANSPORTS_SHM_WORK_H

#include "coll/coll_transport.h"

struct shm_conn;

typedef enum shm_work_state {
  SHM_WORK_OPEN = 1,
  SHM_WORK_CLAIMED = 2,
  SHM_WORK_DONE = 3
} shm_work_state;

/* The calls of coll_transport_ops. */
int shm_offer_work(coll_conn *base, const coll_work_offer *offer);
int shm_claim_work(coll_conn *base, coll_work *work);
int shm_finish_work(coll_conn *base, const coll_work *work);

/* The state of the work on the next message; 0: there is none. */
unsigned shm_work_next(const struct shm_conn *conn);

/* This side leaves: takes back what nobody has claimed, and notes in the region what is claimed. */
void shm_work_withdraw(struct shm_conn *conn);

#endif
