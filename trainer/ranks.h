/* ranks.h: checks that all ranks agree, and continues after a rank is lost. */
#ifndef TRAINER_RANKS_H
#define TRAINER_RANKS_H

#include "trainer/worker.h"

/*
 * Before training, collective: `ok` says whether this rank is ready; if not, `why` holds the
 * reason. Returns true if all ranks are ready and have the same options (`asked` is their hash) and
 * data. Otherwise every rank returns false with the same text, so that none is left waiting.
 */
bool agree_start(coll_comm *comm, bool ok, uint64_t asked, uint64_t data, fail *why);

/* Whether all ranks have the same hash of their weights; if not, `why` names those that differ. */
bool agree_weights(coll_comm *comm, uint64_t hash, fail *why);

/* Gives all ranks the state of rank 0: place, weights, and the optimizer's memory. */
bool agree_state(worker *w, fail *why);

/* The first rank that has the most frequent value. */
size_t agree_reference(const uint64_t *values, size_t count);

/*
 * Call this when `why` says that a rank is lost, or that processes wait to join; collective over
 * the ranks that are left. Replaces w->comm by a communicator of those ranks, and of those who wait
 * (--join-file). If one of them had not begun to train, all must start
 * over: w->ready is false then. Otherwise calls the strategy's recover(), or recover_restart() if
 * it has none. The epoch continues with step w->step, and the ranks that are left share the lost
 * rank's part of each batch. Starts again if another rank is lost meanwhile. Some layers may
 * already have the update of the interrupted step and others not, but all ranks have the same.
 * False if `why` is about something else, if the strategy needs all ranks, or if the others
 * continued without this one.
 */
bool recover(worker *w, fail *why);

/* Rank 0: writes --join-file, if it was asked for. */
bool join_offer(worker *w, fail *why);

/* Collective: rank 0 tells all that it has got here, and how many processes wait to join. */
bool join_ask(worker *w, fail *why);

/* Rank 0: removes the file at the end of the run. */
void join_end(const worker *w);

/* All ranks: if processes wait to join, sets `why` as for a lost rank, so that recover() lets them
 * in. */
bool join_nobody(worker *w, fail *why);

/* A process that has joined: takes part in the recovery that the others are in, and may then
 * continue as they do. */
bool recover_joined(worker *w, fail *why);

/* Destroys the earlier communicators, once nothing uses their memory. */
void recover_forget(worker *w);

/* Recovery of strategies that have none of their own: closes the strategy, gives all ranks the
 * model and the position of the rank that is furthest ahead, and opens the strategy again. */
bool recover_restart(worker *w, fail *why);

#endif
