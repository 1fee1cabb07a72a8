/*
 * enter.c: what every public call on a communicator begins and ends with. One flag a communicator
 * finds a second thread inside it; one lock a family, once it has more than the base or a progress
 * thread, lets several threads use its communicators. A thread that waits lets the others in
 * (wait.c).
 */
#include "libcoll/call/call.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/progress_thread.h"

/* Takes the lock, in turn. */
void colli_family_lock(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  uint64_t turn = turns->asked++;
  while (turns->served != turn)
    pthread_cond_wait(&turns->next, &turns->mutex);
  pthread_mutex_unlock(&turns->mutex);
}

/* Hands the lock to the next. */
void colli_family_unlock(colli_family *family) {
  colli_turns *turns = &family->turns;
  pthread_mutex_lock(&turns->mutex);
  if (++turns->served != turns->asked)
    pthread_cond_broadcast(&turns->next);
  pthread_mutex_unlock(&turns->mutex);
}

/* A call begins to look after the family. Not inlined: it would add to the path without a lock. */
__attribute__((noinline, cold)) static void come_in(colli_family *family) {
  colli_family_lock(family);
  if (family->sleepers > 0)
    family->several = true;
  family->inside++;
}

/* It ends to do so: with the last one the progress thread takes over. */
__attribute__((noinline, cold)) static void go_out(colli_family *family) {
  if (--family->inside == 0)
    colli_progress_take_over(family);
  colli_family_unlock(family);
}

/* Begins a public call. */
coll_status colli_call_enter(coll_comm *comm) {
  if (__builtin_expect(!comm, 0))
    return COLL_ERR_INVALID_ARGUMENT;
  if (__builtin_expect(atomic_exchange_explicit(&comm->entry.inside, 1, memory_order_acquire), 0)) {
    atomic_store_explicit(&comm->entry.misused, 1, memory_order_relaxed);
    return COLL_ERR_INVALID_USAGE;
  }
  if (__builtin_expect(comm->family->shared, 0)) {
    come_in(comm->family);
    comm->entry.locked = true;
  }
  return COLL_OK;
}

/* Ends it. */
void colli_call_leave(coll_comm *comm) {
  if (__builtin_expect(comm->entry.locked, 0)) {
    comm->entry.locked = false;
    go_out(comm->family);
  }
  atomic_store_explicit(&comm->entry.inside, 0, memory_order_release);
}

/* From here on public calls take the lock. */
void colli_family_share(colli_family *family, coll_comm *comm) {
  if (family->shared)
    return;
  family->shared = true;
  /* Not in the simulator, whose driver calls the inside. */
  if (atomic_load_explicit(&comm->entry.inside, memory_order_relaxed)) {
    come_in(family);
    comm->entry.locked = true;
  }
}

/* Leaves the family to other threads of it. */
void colli_call_pause(coll_comm *comm) {
  if (comm->entry.locked)
    go_out(comm->family);
}

void colli_call_resume(coll_comm *comm) {
  if (comm->entry.locked)
    come_in(comm->family);
}

/* Lets other threads in if any waits. */
void colli_call_yield(coll_comm *comm) {
  if (!comm->entry.locked)
    return;
  colli_turns *turns = &comm->family->turns;
  pthread_mutex_lock(&turns->mutex);
  bool wanted = turns->asked - turns->served > 1;
  pthread_mutex_unlock(&turns->mutex);
  if (!wanted)
    return;
  colli_family_unlock(comm->family);
  colli_family_lock(comm->family);
}
