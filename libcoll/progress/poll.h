/*
 * poll.h: the work of a waiting rank: it polls operations, transports and control links, and checks
 * deadlines. Nothing here blocks.
 */
#ifndef COLLI_PROGRESS_POLL_H
#define COLLI_PROGRESS_POLL_H

#include "libcoll/comm/comm.h"
#include "libcoll/p2p/engine.h"

/* How long a broken connection waits for notices: a kernel repeats a lost packet after 200 ms. */
#define COLLI_SUSPECT_NS (300 * COLLI_NS_PER_MS)

/* Polls the operations of one communicator, unless it has failed or waits for notices about a
 * broken connection: not 0 if something moved. */
static inline int colli_comm_poll(coll_comm *comm) {
  int moved = 0;
  if (__builtin_expect(comm->streams != NULL, 0)) /* also of one that has failed: streams wait */
    moved = comm->streams->move(comm);
  if (comm->failure.status != COLL_OK || comm->failure.suspended)
    return moved;
  return moved | colli_engine_progress(&comm->exec, &comm->p2p);
}

/* Polls the other communicators of the family, except those with a thread inside. */
int colli_comm_poll_siblings(coll_comm *comm);

/* Takes in messages of a communicator that has no operation open, as far as they may be kept: their
 * senders may wait until they are on their way. */
int colli_comm_listen(coll_comm *comm);

/* For a rank that waits in a call on `comm`: polls transports and sibling communicators; from time
 * to time also control links and deadlines. */
int colli_comm_watch(coll_comm *comm);

/* For a thread that is inside `comm` and waits for something else than its operations: moves its
 * family, and handles control links. */
void colli_comm_serve(coll_comm *comm);

/* Whether any communicator has operations, messages, windows or stream-ordered calls open. */
bool colli_family_busy(const colli_family *family);

/* Polls all communicators that have any: not 0 if something moved. */
int colli_family_poll(colli_family *family);

/* As colli_comm_watch(), for the whole family. `now`: polls control links and deadlines each time.
 */
int colli_family_watch(colli_family *family, bool now);

/*
 * For a thread that waits for something else: moves a family in which no thread is inside.
 * Deadlines of operations do not come closer by it. Not 0 if something moved; *within_ms: when it
 * has to be moved again, if that is soon, or as it was.
 */
int colli_family_move(colli_family *family, int *within_ms);

#endif
