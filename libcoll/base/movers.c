/* movers.c: the list of what moves while this process waits. */
#include "libcoll/base/movers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"

#define MOST_FDS   128       /* descriptors of one poll; with more, the others move at intervals */
#define BLIND_MS   10        /* such an interval */
#define BETWEEN_NS 500000ull /* the least time between two moves of all by threads that poll */
#define SHARE      32        /* they use one part in so many of the time for it */

static struct {
  pthread_once_t once;
  int failed; /* errno of pthread_atfork(), or 0 */
  pthread_mutex_t mutex;
  LIST_HEAD(, colli_mover) all;
  atomic_int count;
  _Atomic uint64_t next_ns; /* when threads that poll move all again */
} process = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* Before fork(): waits until nothing moves. */
static void before_fork(void) {
  pthread_mutex_lock(&process.mutex);
}

static void after_fork(void) {
  pthread_mutex_unlock(&process.mutex);
}

/* In the child, whose parent moves what is in the list. */
static void begin_child(void) {
  LIST_INIT(&process.all);
  atomic_store(&process.count, 0);
  pthread_mutex_unlock(&process.mutex);
}

/* A move may make a descriptor, so these handlers must take their mutex before those of fork.c take
 * theirs: handlers that were set later run first. */
static void set_handlers(void) {
  colli_fork_hold();
  colli_fork_release();
  process.failed = pthread_atfork(before_fork, after_fork, begin_child);
}

bool colli_movers_add(colli_mover *mover) {
  pthread_once(&process.once, set_handlers);
  if (process.failed)
    return false;
  pthread_mutex_lock(&process.mutex);
  COLLI_ASSERT(!mover->listed && mover->move);
  mover->listed = true;
  LIST_INSERT_HEAD(&process.all, mover, link);
  atomic_fetch_add(&process.count, 1);
  pthread_mutex_unlock(&process.mutex);
  return true;
}

void colli_movers_remove(colli_mover *mover) {
  if (!mover->listed)
    return;
  pthread_mutex_lock(&process.mutex);
  LIST_REMOVE(mover, link);
  mover->listed = false;
  atomic_fetch_sub(&process.count, 1);
  pthread_mutex_unlock(&process.mutex);
}

void colli_movers_exclude(void (*change)(void *arg), void *arg) {
  pthread_mutex_lock(&process.mutex);
  change(arg);
  pthread_mutex_unlock(&process.mutex);
}

/* Whether there is any but `mine`. */
static bool has_others(const colli_mover *mine) {
  const bool listed = mine && mine->listed;
  return atomic_load_explicit(&process.count, memory_order_relaxed) > listed;
}

/* Moves all but `mine`; the mutex is held. Not 0 if something moved. */
static bool move_all(const colli_mover *mine) {
  const uint64_t begin_ns = colli_now_ns();
  bool moved = false;
  colli_mover *mover;
  LIST_FOREACH(mover, &process.all, link) {
    if (mover == mine)
      continue;
    mover->needs.moved = false;
    mover->needs.within_ms = -1;
    mover->needs.nfds = 0;
    mover->move(mover, &mover->needs);
    moved |= mover->needs.moved;
    mover->blind &= !mover->needs.moved;
  }
  const uint64_t end_ns = colli_now_ns();
  const uint64_t pause_ns = (end_ns - begin_ns) * SHARE;
  atomic_store_explicit(&process.next_ns, end_ns + (pause_ns > BETWEEN_NS ? pause_ns : BETWEEN_NS),
                        memory_order_relaxed);
  return moved;
}

void colli_movers_move(const colli_mover *mine) {
  if (!has_others(mine) ||
      colli_now_ns() < atomic_load_explicit(&process.next_ns, memory_order_relaxed) ||
      pthread_mutex_trylock(&process.mutex) != 0)
    return;
  move_all(mine);
  pthread_mutex_unlock(&process.mutex);
}

/* A set of descriptors and a time. */
typedef struct waiting {
  const colli_mover *mine;
  struct pollfd fds[MOST_FDS];
  const colli_mover *whose[MOST_FDS]; /* of those behind the caller's; it may be gone by now */
  int own;                            /* the caller's */
  int count;
  int timeout_ms;
} waiting;

/* Sleeps no longer than so. */
static void limit_wait(waiting *w, int ms) {
  if (ms >= 0 && (w->timeout_ms < 0 || ms < w->timeout_ms))
    w->timeout_ms = ms;
}

/* Adds what the others wait for; the mutex is held. */
static void add_needs(waiting *w) {
  const colli_mover *mover;
  LIST_FOREACH(mover, &process.all, link) {
    if (mover == w->mine)
      continue;
    limit_wait(w, mover->needs.within_ms);
    if (mover->blind || w->count + mover->needs.nfds > MOST_FDS) {
      limit_wait(w, BLIND_MS);
      continue;
    }
    for (int i = 0; i < mover->needs.nfds; i++) {
      w->whose[w->count] = mover;
      w->fds[w->count++] = mover->needs.fds[i];
    }
  }
}

/* Whether a descriptor of a mover is ready. */
static bool is_ready(const waiting *w, const colli_mover *mover) {
  for (int i = w->own; i < w->count; i++)
    if (w->whose[i] == mover && w->fds[i].revents)
      return true;
  return false;
}

/* Descriptors of others were ready: moves them. Those that do not move then would be ready again
 * and again. */
static void move_ready(const waiting *w) {
  if (pthread_mutex_trylock(&process.mutex) != 0)
    return;
  move_all(w->mine);
  colli_mover *mover;
  LIST_FOREACH(mover, &process.all, link)
    mover->blind |= !mover->needs.moved && is_ready(w, mover);
  pthread_mutex_unlock(&process.mutex);
}

/* Sleeps: as poll() for the caller's descriptors. */
static int sleep_on(waiting *w, struct pollfd *fds) {
  int ready = poll(w->fds, (nfds_t)w->count, w->timeout_ms), mine = 0;
  if (ready < 0)
    return ready;
  for (int i = 0; i < w->own; i++) {
    fds[i].revents = w->fds[i].revents;
    mine += fds[i].revents != 0;
  }
  if (ready > mine)
    move_ready(w);
  return mine;
}

int colli_movers_poll(struct pollfd *fds, int count, int timeout_ms, const colli_mover *mine) {
  if (!has_others(mine))
    return poll(fds, (nfds_t)count, timeout_ms);
  waiting w = {.mine = mine, .timeout_ms = timeout_ms, .own = count, .count = count};
  if (count > MOST_FDS - COLLI_MOVER_FDS) {
    colli_movers_move(mine);
    limit_wait(&w, BLIND_MS);
    return poll(fds, (nfds_t)count, w.timeout_ms);
  }
  memcpy(w.fds, fds, (size_t)count * sizeof(*fds));
  if (pthread_mutex_trylock(&process.mutex) != 0) {
    limit_wait(&w, BLIND_MS); /* another thread moves them now */
  } else {
    if (move_all(mine))
      limit_wait(&w, 0);
    add_needs(&w);
    pthread_mutex_unlock(&process.mutex);
  }
  return sleep_on(&w, fds);
}
