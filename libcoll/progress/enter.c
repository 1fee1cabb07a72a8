/*
 * enter.c: the beginning and end of every public call on a communicator. A flag per communicator
 * detects a second thread inside it; in a forked child it is always set. A lock per family, used
 * once the family has more than the base or has a progress thread, lets several threads use its
 * communicators. A waiting thread lets the others in (wait.c).
 */
#include "libcoll/progress/enter.h"

#include <sched.h>

#include "libcoll/base/assert.h"
#include "libcoll/progress/family_lock.h"
#include "libcoll/progress/progress_thread.h"

/* A call takes the lock. */
static void enter_family(colli_family *family) {
  colli_family_lock(family);
  if (family->sleepers > 0)
    family->several = true;
  family->inside++;
}

/* A call releases the lock; after the last one the progress thread takes over. */
static void leave_family(colli_family *family) {
  COLLI_ASSERT_RANK(family->inside > 0, family->rank);
  if (--family->inside == 0)
    colli_progress_take_over(family);
  colli_family_unlock(family);
}

/*
 * A visitor leaves in a moment, and the communicator is this thread's then. But it is refused if
 * another thread is in a call, or if the communicator is one of this process's parent.
 */
coll_status colli_call_enter_late(coll_comm *comm, int before) {
  if (before == COLLI_INSIDE_VISIT && !comm->entry.guard.inherited) {
    while (!atomic_exchange_explicit(&comm->entry.visited, false, memory_order_acquire))
      sched_yield();
    return COLL_OK;
  }
  if (!comm->entry.guard.inherited)
    atomic_store_explicit(&comm->entry.misused, 1, memory_order_relaxed);
  return COLL_ERR_INVALID_USAGE;
}

void colli_call_enter_shared(coll_comm *comm) {
  enter_family(comm->family);
  COLLI_ASSERT_RANK(!comm->entry.locked && comm->family->inside > 0, comm->rank);
  comm->entry.locked = true;
  comm->entry.calls++;
  comm->bell.rung = false;
}

void colli_call_leave_shared(coll_comm *comm) {
  comm->entry.locked = false;
  leave_family(comm->family);
}

/* From here on public calls take the lock. */
void colli_family_share(colli_family *family, coll_comm *comm) {
  if (family->shared)
    return;
  family->shared = true;
  /* Not in the simulator, whose driver calls internal functions. */
  if (atomic_load_explicit(&comm->entry.guard.inside, memory_order_relaxed)) {
    enter_family(family);
    comm->entry.locked = true;
  }
}

/* Leaves the family to its other threads. */
void colli_call_pause(coll_comm *comm) {
  if (!comm->entry.locked)
    return;
  comm->entry.paused = true;
  leave_family(comm->family);
}

void colli_call_resume(coll_comm *comm) {
  if (!comm->entry.locked)
    return;
  enter_family(comm->family);
  comm->entry.paused = false;
}
