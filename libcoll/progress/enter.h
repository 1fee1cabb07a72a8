/* enter.h: the beginning and end of every public call on a communicator. */
#ifndef COLLI_PROGRESS_ENTER_H
#define COLLI_PROGRESS_ENTER_H

#include "libcoll/comm/completion.h"

/*
 * Every public call on a communicator begins with enter and ends with leave, unless enter fails
 * (null, another thread is inside, or this is a forked child of the communicator's process). Code
 * inside the library calls colli_call_run() and the like, never public functions.
 */
static inline coll_status colli_call_enter(coll_comm *comm);
static inline void colli_call_leave(coll_comm *comm);

/* Inside a public call: lets the family's other threads in, until resume. */
void colli_call_pause(coll_comm *comm);
void colli_call_resume(coll_comm *comm);

/* From here on, public calls take the lock. Called by the only thread that is in the base. */
void colli_family_share(colli_family *family, coll_comm *comm);

/* ---- what is inlined, because it is most of a call that ends at once --------------------------
 */

/* The rest of enter where somebody was inside; where calls take the lock; and of leave there. */
__attribute__((cold)) coll_status colli_call_enter_late(coll_comm *comm, int before);
__attribute__((cold)) void colli_call_enter_shared(coll_comm *comm);
__attribute__((cold)) void colli_call_leave_shared(coll_comm *comm);

static inline coll_status colli_call_enter(coll_comm *comm) {
  if (__builtin_expect(!comm, 0))
    return COLL_ERR_INVALID_ARGUMENT;
  int before =
      atomic_exchange_explicit(&comm->entry.guard.inside, COLLI_INSIDE_CALL, memory_order_acquire);
  if (__builtin_expect(before, 0) && colli_call_enter_late(comm, before) != COLL_OK)
    return COLL_ERR_INVALID_USAGE;
  if (__builtin_expect(atomic_load_explicit(&comm->family->shared, memory_order_relaxed), 0))
    colli_call_enter_shared(comm);
  return COLL_OK;
}

static inline void colli_call_leave(coll_comm *comm) {
  colli_completion_deliver(comm->family);
  if (__builtin_expect(comm->entry.locked, 0))
    colli_call_leave_shared(comm);
  atomic_store_explicit(&comm->entry.guard.inside, 0, memory_order_release);
}

#endif
