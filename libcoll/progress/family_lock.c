/*
 * family_lock.c: the fair lock of a family: threads get it in the order in which they ask. A thread
 * that need not wait takes and releases it with one atomic operation each.
 */
#include "libcoll/progress/family_lock.h"

#include "libcoll/base/assert.h"

/* Sleeps until `turn` is served. */
__attribute__((noinline, cold)) static void await_turn(colli_turns *turns, uint64_t turn) {
  pthread_mutex_lock(&turns->mutex);
  while (atomic_load(&turns->served) != turn)
    pthread_cond_wait(&turns->next, &turns->mutex);
  pthread_mutex_unlock(&turns->mutex);
}

/* Wakes those that sleep, of which one has its turn now. */
__attribute__((noinline, cold)) static void call_next(colli_turns *turns) {
  pthread_mutex_lock(&turns->mutex);
  pthread_cond_broadcast(&turns->next);
  pthread_mutex_unlock(&turns->mutex);
}

/* Takes the lock, in turn. */
void colli_family_lock(colli_family *family) {
  colli_turns *turns = &family->turns;
  const uint64_t turn = atomic_fetch_add(&turns->asked, 1);
  const uint64_t served = atomic_load(&turns->served);
  COLLI_ASSERT_RANK(served <= turn, family->rank);
  if (served != turn)
    await_turn(turns, turn);
}

bool colli_family_trylock(colli_family *family) {
  colli_turns *turns = &family->turns;
  uint64_t turn = atomic_load(&turns->served); /* free if nobody has asked for this one */
  return atomic_compare_exchange_strong(&turns->asked, &turn, turn + 1);
}

/* Hands the lock to the next thread. Either this one sees that it has asked, or it sees that it is
 * served: both first write their own number, then read the other's. */
void colli_family_unlock(colli_family *family) {
  colli_turns *turns = &family->turns;
  const uint64_t served = atomic_fetch_add(&turns->served, 1) + 1;
  const uint64_t asked = atomic_load(&turns->asked);
  COLLI_ASSERT_RANK(served <= asked, family->rank);
  if (served != asked)
    call_next(turns);
}

/* Releases the lock and takes it again if another thread waits for it. */
void colli_family_yield(colli_family *family) {
  const colli_turns *turns = &family->turns;
  const uint64_t served = atomic_load_explicit(&turns->served, memory_order_relaxed);
  const uint64_t asked = atomic_load_explicit(&turns->asked, memory_order_relaxed);
  COLLI_ASSERT_RANK(served < asked, family->rank);
  if (asked - served == 1)
    return;
  colli_family_unlock(family);
  colli_family_lock(family);
}
