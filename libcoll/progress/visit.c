/*
 * visit.c: moves a family for a thread that waits elsewhere. A visitor never waits: if a thread is
 * inside the family, or waits for its lock, that one moves it. A family that is not shared has no
 * lock; there the visitor takes the place of a call in the base, and a call that comes meanwhile
 * waits for its end (enter.c).
 */
#include "libcoll/progress/visit.h"

#include <stddef.h>

#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/progress/family_lock.h"
#include "libcoll/progress/poll.h"

#define AGAIN_MS 50 /* a thread was inside, and may have left since */

/* Enters the base of a family without a lock, unless a thread is there. */
static bool enter_base(colli_family *family) {
  coll_comm *base = family->base;
  int nobody = 0;
  if (!base || atomic_load_explicit(&base->entry.guard.inside, memory_order_relaxed) ||
      !atomic_compare_exchange_strong(&base->entry.guard.inside, &nobody, COLLI_INSIDE_VISIT))
    return false;
  return true;
}

/* Leaves it, to a thread that may wait for that. */
static void leave_base(const colli_family *family) {
  colli_entry *entry = &family->base->entry;
  int self = COLLI_INSIDE_VISIT;
  if (!atomic_compare_exchange_strong(&entry->guard.inside, &self, 0))
    atomic_store_explicit(&entry->visited, true, memory_order_release);
}

/* Moves a family that this thread has entered. */
static void move_entered(colli_family *family, colli_mover_needs *needs) {
  needs->moved = colli_family_move(family, &needs->within_ms) != 0;
  colli_completion_deliver(family);
  for (int i = 0; i < family->nports; i++) {
    const colli_port *port = &family->ports[i];
    int fd = port->endpoint ? port->ops->wait_fd(port->endpoint) : -1;
    if (fd >= 0)
      needs->fds[needs->nfds++] = (struct pollfd){.fd = fd, .events = POLLIN};
  }
  needs->fds[needs->nfds++] = (struct pollfd){.fd = colli_ctrl_fd(family->ctrl), .events = POLLIN};
}

/* Moves a family with a lock, unless somebody has it; false if a thread is inside. A progress
 * thread moves operations only: messages for which there is none are left to visitors. */
static bool move_shared(colli_family *family, colli_mover_needs *needs) {
  if (!colli_family_trylock(family))
    return false;
  const bool nobody = family->inside == 0;
  if (nobody)
    move_entered(family, needs);
  colli_family_unlock(family);
  return nobody;
}

/* The same for one without. */
static bool move_unshared(colli_family *family, colli_mover_needs *needs) {
  if (!enter_base(family))
    return false;
  const bool alone = !atomic_load(&family->shared); /* it may have become shared in between */
  if (alone)
    move_entered(family, needs);
  leave_base(family);
  return alone;
}

static void move_family(colli_mover *mover, colli_mover_needs *needs) {
  _Static_assert(COLLI_MAX_TRANSPORTS + 1 <= COLLI_MOVER_FDS, "room for all descriptors");
  colli_family *family = (colli_family *)((char *)mover - offsetof(colli_family, mover));
  if (!(atomic_load(&family->shared) ? move_shared(family, needs) : move_unshared(family, needs)))
    needs->within_ms = AGAIN_MS;
}

void colli_family_receive_visits(colli_family *family, coll_comm *base) {
  if (family->nranks == 1 || !colli_world_is_real(&family->world))
    return;
  family->base = base;
  family->mover.move = move_family;
  (void)colli_movers_add(&family->mover); /* without memory for it, calls move it only */
}

/* Forgets the base. */
static void forget_base(void *arg) {
  ((colli_family *)arg)->base = NULL;
}

void colli_family_hide_base(colli_family *family, const coll_comm *comm) {
  if (comm->uid == 0)
    colli_movers_exclude(forget_base, family);
}
