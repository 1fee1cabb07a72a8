/*
 * progress_thread.h: the thread that moves a family's operations on while the program is in no
 * call, where it is asked for. It works only while nobody is inside: a call that waits does all
 * that itself.
 */
#ifndef COLLI_PROGRESS_PROGRESS_THREAD_H
#define COLLI_PROGRESS_PROGRESS_THREAD_H

#include "libcoll/comm/family.h"

/* Starts the thread unless there is one; the lock is held, or nobody else knows the family yet. */
coll_status colli_progress_start(colli_family *family, coll_error *error);

/* Ends it, if there is one; nobody is inside any more, nor holds the lock. */
void colli_progress_stop(colli_family *family);

/* The last call goes out, and still holds the lock: wakes the thread if there is anything to do. */
void colli_progress_take_over(colli_family *family);

/* From any thread, without the lock: there is something to do. */
void colli_progress_wake(colli_family *family);

#endif
