/* family_lock.c: the fair lock of a family: threads get it in the order in which they ask. */
#include "libcoll/progress/family_lock.h"

#include "libcoll/base/assert.h"

/* Takes the lock, in turn. */
void colli_family_lock(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  uint64_t turn = turns->asked++;
  COLLI_ASSERT_RANK(turns->served <= turn, family->rank);
  while (turns->served != turn)
    pthread_cond_wait(&turns->next, &turns->mutex);
  pthread_mutex_unlock(&turns->mutex);
}

bool colli_family_trylock(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  bool is_free = turns->served == turns->asked;
  turns->asked += is_free;
  pthread_mutex_unlock(&turns->mutex);
  return is_free;
}

/* Hands the lock to the next thread. */
void colli_family_unlock(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  COLLI_ASSERT_RANK(turns->served < turns->asked, family->rank);
  if (++turns->served != turns->asked)
    pthread_cond_broadcast(&turns->next);
  pthread_mutex_unlock(&turns->mutex);
}

/* Releases the lock and takes it again if another thread waits for it. */
void colli_family_yield(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  COLLI_ASSERT_RANK(turns->served < turns->asked, family->rank);
  bool wanted = turns->asked - turns->served > 1;
  pthread_mutex_unlock(&turns->mutex);
  if (!wanted)
    return;
  colli_family_unlock(family);
  colli_family_lock(family);
}
