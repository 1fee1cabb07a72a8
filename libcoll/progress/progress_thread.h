/*
 * progress_thread.h: the optional thread that makes progress on a family's operations while the
 * program is in no call. It works only while no thread is inside, because a waiting call does the
 * same work itself.
 */
#ifndef COLLI_PROGRESS_PROGRESS_THREAD_H
#define COLLI_PROGRESS_PROGRESS_THREAD_H

#include "libcoll/comm/family.h"

/* Starts the thread unless there is one; the lock is held, or nobody else knows the family yet. */
coll_status colli_progress_start(colli_family *family, coll_error *error);

/* Ends it, if there is one. No thread may be inside or hold the lock. */
void colli_progress_stop(colli_family *family);

/* Whether there is a thread that takes over at once when the last call leaves. The lock is held. */
bool colli_progress_is_near(const colli_family *family);

/* The last call leaves, still holding the lock: wakes the thread if there is anything to do, unless
 * the program calls so often that it does it itself. */
void colli_progress_take_over(colli_family *family);

/* From any thread, without the lock: there is something to do. */
void colli_progress_wake(colli_family *family);

#endif
