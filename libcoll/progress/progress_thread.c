/*
 * progress_thread.c: the progress thread. While operations are in flight and no call is running, it
 * does what a waiting call does: it polls, spins for a moment, and sleeps until a doorbell rings.
 * While nothing is in flight it sleeps on the control links only; while a thread is inside a call,
 * on its own descriptor only, and the last call to leave wakes it.
 */
#include "libcoll/progress/progress_thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/family_lock.h"
#include "libcoll/progress/poll.h"

#define SPIN_POLLS      256u /* without success, some 10 us, before it sleeps */
#define POLLS_PER_WATCH 16u
#define NAP_MS          50 /* the longest sleep with operations in flight, for their deadlines */
#define SUSPECT_NAP_MS  10 /* the same while one waits for a notice about a broken connection */

typedef enum stance {
  AWAKE,
  WATCHING, /* asleep; anything but new operations wakes it */
  AWAY      /* asleep while somebody is inside */
} stance;

struct colli_progress {
  colli_family *family;
  pthread_t thread;
  int wake_fd;
  stance stance; /* this and `stop` under the family's lock */
  bool stop;
};

/* Makes the thread's own descriptor readable. */
static void wake_thread(const colli_progress *p) {
  (void)eventfd_write(p->wake_fd, 1); /* fails only if the counter is full: still readable */
}

/* Sleeps without the lock; the first descriptor is the thread's own. */
static void sleep_as(colli_progress *p, stance how, struct pollfd *fds, int count, int timeout_ms) {
  fds[0] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
  COLLI_ASSERT_RANK(p->stance == AWAKE && count >= 1, p->family->rank);
  p->stance = how;
  colli_family_unlock(p->family);
  poll(fds, (nfds_t)count, timeout_ms);
  colli_family_lock(p->family);
  p->stance = AWAKE;
  eventfd_t rings;
  if (fds[0].revents)
    (void)eventfd_read(p->wake_fd, &rings);
}

/* Sleeps while somebody is inside. */
static void stay_away(colli_progress *p) {
  struct pollfd own;
  sleep_as(p, AWAY, &own, 1, -1);
}

/* Nothing is in flight: handles control messages, and sleeps until more arrive. */
static void listen_only(colli_progress *p) {
  struct pollfd fds[2];
  colli_notice_poll(p->family);
  fds[1] = (struct pollfd){.fd = colli_ctrl_fd(p->family->ctrl), .events = POLLIN};
  sleep_as(p, WATCHING, fds, 2, -1);
}

/* How long a sleep may last while operations are in flight. */
static int longest_nap(const colli_family *family) {
  for (const coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (comm->failure.suspended && comm->failure.status == COLL_OK)
      return SUSPECT_NAP_MS;
  return NAP_MS;
}

/* Sleeps until a doorbell rings. If a thread has entered meanwhile, that thread handles the
 * event. */
static void nap(colli_progress *p) {
  colli_family *family = p->family;
  struct pollfd fds[1 + COLLI_MAX_DOORBELLS];
  int count = 1;
  if (colli_doorbells_arm(family, fds, &count) && !colli_family_poll(family) &&
      colli_doorbells_quiet(family))
    sleep_as(p, WATCHING, fds, count, longest_nap(family));
  if (family->inside > 0)
    return;
  colli_doorbells_disarm(family);
  colli_family_watch(family, true);
}

/* Whether spinning would keep a core from another rank. */
static bool is_crowded(const colli_family *family) {
  return family->members && family->members->watch.crowded;
}

/* Works until the family ends. */
static void *run_thread(void *arg) {
  colli_progress *p = arg;
  colli_family *family = p->family;
  unsigned idle = 0;
  colli_family_lock(family);
  while (!p->stop) {
    if (family->inside > 0) {
      stay_away(p);
      idle = 0;
    } else if (!colli_family_busy(family)) {
      listen_only(p);
      idle = 0;
    } else if (colli_family_poll(family)) {
      idle = 0;
    } else if (++idle >= SPIN_POLLS || is_crowded(family)) {
      nap(p);
      idle = 0;
    } else if (idle % POLLS_PER_WATCH == 0) {
      colli_family_watch(family, false);
    }
    colli_completion_deliver(family);
    colli_family_unlock(family); /* for calls that want to come in */
    colli_cpu_relax();
    colli_family_lock(family);
  }
  colli_family_unlock(family);
  return NULL;
}

/* Starts the thread with all signals blocked, because they belong to the program. */
static int start_thread(colli_progress *p) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&p->thread, NULL, run_thread, p);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

coll_status colli_progress_start(colli_family *family, coll_error *error) {
  if (atomic_load(&family->progress))
    return COLL_OK;
  colli_progress *p = calloc(1, sizeof(*p));
  if (!p)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for a progress thread");
  *p = (colli_progress){.family = family,
                        .wake_fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  int failed = p->wake_fd < 0 ? errno : 0;
  const char *call = failed ? "eventfd" : "pthread_create";
  family->shared = true;
  atomic_store(&family->progress, p);
  failed = failed ? failed : start_thread(p);
  if (!failed)
    return COLL_OK;
  atomic_store(&family->progress, NULL);
  if (p->wake_fd >= 0)
    colli_fd_close(p->wake_fd);
  free(p);
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", call, failed,
                         "the progress thread of rank %d cannot be started; raise the limit of "
                         "descriptors or threads, or leave COLL_PROGRESS off",
                         family->rank);
}

void colli_progress_stop(colli_family *family) {
  colli_progress *p = atomic_load(&family->progress);
  if (!p)
    return;
  colli_family_lock(family);
  p->stop = true;
  colli_family_unlock(family);
  wake_thread(p);
  pthread_join(p->thread, NULL);
  colli_fd_close(p->wake_fd);
  free(p);
  atomic_store(&family->progress, NULL);
}

void colli_progress_take_over(colli_family *family) {
  colli_progress *p = atomic_load_explicit(&family->progress, memory_order_relaxed);
  if (!p || p->stance == AWAKE || (p->stance == WATCHING && !colli_family_busy(family)))
    return;
  p->stance = AWAKE; /* it will be */
  wake_thread(p);
}

void colli_progress_wake(colli_family *family) {
  const colli_progress *p = atomic_load(&family->progress);
  if (p)
    wake_thread(p);
}
