/* family_lock.h: the fair lock of a family: threads get it in the order in which they ask. */
#ifndef COLLI_PROGRESS_FAMILY_LOCK_H
#define COLLI_PROGRESS_FAMILY_LOCK_H

#include "libcoll/comm/family.h"

/* Takes the lock, in turn. */
void colli_family_lock(colli_family *family);

/* Takes it if nobody has it or waits for it. */
bool colli_family_trylock(colli_family *family);

/* Hands the lock to the next thread. */
void colli_family_unlock(colli_family *family);

/* Releases the lock and takes it again if another thread waits for it. */
void colli_family_yield(colli_family *family);

#endif
