/*
 * completion.h: who is told that operations are complete without asking for it: callbacks of
 * requests, and event loops that wait for a communicator's descriptor. Costs nothing until a
 * program asks for one of them.
 */
#ifndef COLLI_COMM_COMPLETION_H
#define COLLI_COMM_COMPLETION_H

#include "libcoll/comm/comm.h"

/* From now on the ends of a communicator's operations are noted. A thread is inside. */
void colli_completion_watch(coll_comm *comm);

/* What a request stands for has ended, though no executor ran it. A thread is inside, or the family
 * is locked. */
void colli_completion_end(coll_request *request);

/* Calls the callbacks that are due. Called where a thread has the family to itself, and nothing
 * is half done in it. */
void colli_completion_call(colli_family *family);

/* The same if there are any. */
static inline void colli_completion_deliver(colli_family *family) {
  if (__builtin_expect(family->ended != NULL, 0))
    colli_completion_call(family);
}

/* Makes the descriptor; 0, or errno. It is readable at first. A thread is inside. */
int colli_bell_make(coll_comm *comm);

/* Something has happened: makes the descriptor readable, if there is one. A thread is inside, or
 * the family is locked. */
void colli_bell_ring(coll_comm *comm);

/* The same from any thread. */
void colli_bell_ring_anyway(coll_comm *comm);

void colli_bell_free(coll_comm *comm);

#endif
