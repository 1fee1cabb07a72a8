/*
 * progress_thread.c: the progress thread. While operations are in flight and no call is running, it
 * does what a waiting call does: it polls, spins for a moment, and sleeps until a doorbell rings.
 * While nothing is in flight it sleeps on the control links only; while a thread is inside a call,
 * on the same, and the last call to leave wakes it if it leaves anything in flight.
 *
 * A program that calls often makes progress itself, and to wake the thread after each of its calls
 * would cost more than the calls. Then the thread rests: no call wakes it, and it looks after a
 * while whether there were any since. Each rest is twice as long as the one before, as long as
 * there are many calls. So it costs next to nothing beside many calls, and comes late by no more
 * than these took, and never by more than REST_MOST_NS. In a virtual machine the end of a rest
 * costs far more than a wake (docs/decisions/progress-thread.md), so rests are few.
 *
 * It never waits for the lock: whoever has it makes progress. A thread in the queue would make the
 * next call wait until the scheduler has let it run.
 */
#include "libcoll/progress/progress_thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/thread.h"
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
#define REST_LEAST_NS   20000ull
#define REST_CROWDED_NS 200000ull /* the least where ranks outnumber cores */
#define REST_MOST_NS    COLLI_NS_PER_MS
#define SLACK_NS        1000ul /* by which the kernel may lengthen a rest */
/* The program calls often if its calls are on average no further apart. */
#define OFTEN_NS 60000ull

typedef enum stance {
  AWAKE,
  RESTING,  /* for a moment, because the program calls often */
  WATCHING, /* asleep; anything but new operations wakes it */
  AWAY      /* asleep while somebody is inside */
} stance;

struct colli_progress {
  colli_family *family;
  pthread_t thread;
  int wake_fd;
  _Atomic stance stance; /* written under the family's lock, except while it is awaited */
  bool stop;             /* this and the rest under the lock */
  uint64_t rest_ns;      /* how long it rests; the least: calls wake it nevertheless */
  uint64_t counted_ns;   /* when the program's calls were last counted */
};

/* Makes the thread's own descriptor readable. */
static void wake_thread(const colli_progress *p) {
  (void)eventfd_write(p->wake_fd, 1); /* fails only if the counter is full: still readable */
}

/* Sleeps, at most for_ns (0: for any time), until a descriptor is readable; the first is its own.
 */
static void sleep_on(colli_progress *p, struct pollfd *fds, int count, uint64_t for_ns) {
  const struct timespec most = {(time_t)(for_ns / COLLI_NS_PER_S), (long)(for_ns % COLLI_NS_PER_S)};
  eventfd_t rings;
  fds[0] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
  if (ppoll(fds, (nfds_t)count, for_ns ? &most : NULL, NULL) > 0 && fds[0].revents)
    (void)eventfd_read(p->wake_fd, &rings);
}

/* How long the rest after one of rest_ns is. */
static uint64_t longer_rest_ns(uint64_t rest_ns) {
  return 2 * rest_ns < REST_MOST_NS ? 2 * rest_ns : REST_MOST_NS;
}

/* Takes the lock when nobody has it; until then it rests, because the program is inside. */
static void lock_when_free(colli_progress *p) {
  struct pollfd own;
  for (uint64_t rest_ns = p->rest_ns; !colli_family_trylock(p->family);
       rest_ns = longer_rest_ns(rest_ns)) {
    atomic_store(&p->stance, RESTING);
    sleep_on(p, &own, 1, rest_ns);
  }
  atomic_store(&p->stance, AWAKE);
}

/* Sleeps without the lock. */
static void sleep_as(colli_progress *p, stance how, struct pollfd *fds, int count,
                     uint64_t for_ns) {
  COLLI_ASSERT_RANK(p->stance == AWAKE && count >= 1, p->family->rank);
  atomic_store(&p->stance, how);
  colli_family_unlock(p->family);
  sleep_on(p, fds, count, for_ns);
  lock_when_free(p);
}

/* Sleeps while somebody is inside, who is not to be woken for nothing: control messages that arrive
 * after the last call has left are this thread's, those before it are not. */
static void stay_away(colli_progress *p) {
  struct pollfd fds[2] = {[1] = {.fd = colli_ctrl_fd(p->family->ctrl), .events = POLLIN}};
  sleep_as(p, AWAY, fds, 2, 0);
  if (fds[1].revents && p->family->inside > 0)
    sleep_as(p, AWAY, fds, 1, REST_MOST_NS);
}

/* Whether spinning would keep a core from another rank. */
static bool is_crowded(const colli_family *family) {
  return family->members && family->members->watch.crowded;
}

/* Counts the public calls since it did so last. *neglected: a communicator with operations in
 * flight had none, or streams wait for one. */
static unsigned count_calls(const colli_family *family, bool *neglected) {
  unsigned count = 0;
  *neglected = false;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling) {
    const unsigned calls = comm->entry.calls - comm->entry.counted;
    comm->entry.counted += calls;
    count += calls;
    *neglected |= colli_streams_busy(comm->streams) ||
                  (calls == 0 && (comm->exec.oldest || comm->p2p.busy > 0));
  }
  return count;
}

/* Whether the program, which has made calls since the last look, makes progress itself. Where ranks
 * outnumber cores that is so until it has made none for a whole rest: work between two calls would
 * only keep the core from the rank for which the next one waits. */
static bool is_enough(colli_progress *p, unsigned calls) {
  const uint64_t now_ns = colli_now_ns(), passed_ns = now_ns - p->counted_ns;
  const bool enough = is_crowded(p->family) || passed_ns < calls * OFTEN_NS;
  p->counted_ns = now_ns;
  if (!enough)
    p->rest_ns = REST_LEAST_NS;
  return enough;
}

/* Leaves the family to a program that makes progress itself; moves only what its calls may not have
 * moved, and looks sooner while it has to. */
static void rest(colli_progress *p, bool neglected) {
  colli_family *family = p->family;
  struct pollfd own;
  p->rest_ns = longer_rest_ns(p->rest_ns);
  if (is_crowded(family) && p->rest_ns < REST_CROWDED_NS)
    p->rest_ns = REST_CROWDED_NS;
  if (family->inside == 0 && (neglected || p->rest_ns == REST_MOST_NS)) {
    const int moved = colli_family_watch(family, true) | colli_family_poll(family);
    colli_completion_deliver(family);
    if (neglected && moved)
      p->rest_ns = 2 * REST_LEAST_NS;
  }
  sleep_as(p, RESTING, &own, 1, p->rest_ns);
}

/* Nothing is in flight: handles control messages, and sleeps until more arrive. */
static void listen_only(colli_progress *p) {
  struct pollfd fds[2];
  colli_notice_poll(p->family);
  fds[1] = (struct pollfd){.fd = colli_ctrl_fd(p->family->ctrl), .events = POLLIN};
  sleep_as(p, WATCHING, fds, 2, 0);
}

/* How long a sleep may last while operations are in flight. */
static uint64_t longest_nap_ns(const colli_family *family) {
  uint64_t nap_ns = NAP_MS * COLLI_NS_PER_MS;
  for (const coll_comm *comm = family->members; comm; comm = comm->sibling) {
    if (comm->failure.suspended && comm->failure.status == COLL_OK)
      nap_ns = SUSPECT_NAP_MS * COLLI_NS_PER_MS;
    if (colli_streams_silent(comm->streams))
      return COLLI_STREAMS_NAP_NS;
  }
  return nap_ns;
}

/* Sleeps until a doorbell rings. If a thread has entered meanwhile, that thread handles the
 * event. */
static void nap(colli_progress *p) {
  colli_family *family = p->family;
  struct pollfd fds[1 + COLLI_MAX_DOORBELLS];
  int count = 1;
  if (colli_doorbells_arm(family, fds, &count) && !colli_family_poll(family) &&
      colli_doorbells_quiet(family))
    sleep_as(p, WATCHING, fds, count, longest_nap_ns(family));
  colli_doorbells_disarm(family);
  if (family->inside == 0)
    colli_family_watch(family, true);
}

/* Moves operations while the program is in no call, and sleeps until there is more to do. *idle:
 * polls without success so far. */
static void work(colli_progress *p, unsigned *idle) {
  colli_family *family = p->family;
  if (colli_family_poll(family)) {
    *idle = 0;
  } else if (++*idle >= SPIN_POLLS || is_crowded(family)) {
    nap(p);
    *idle = 0;
  } else if (*idle % POLLS_PER_WATCH == 0) {
    colli_family_watch(family, false);
  }
}

/* Works until the family ends. */
static void *run_thread(void *arg) {
  colli_progress *p = arg;
  colli_family *family = p->family;
  unsigned idle = 0;
  (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
  lock_when_free(p);
  while (!p->stop) {
    bool neglected;
    const unsigned calls = count_calls(family, &neglected);
    if (calls > 0 && is_enough(p, calls)) {
      rest(p, neglected);
      idle = 0;
    } else if (family->inside > 0) {
      stay_away(p);
      idle = 0;
    } else if (!colli_family_busy(family)) {
      listen_only(p);
      idle = 0;
    } else {
      p->rest_ns = REST_LEAST_NS;
      work(p, &idle);
    }
    colli_completion_deliver(family);
    colli_family_unlock(family); /* for calls that want to come in */
    colli_cpu_relax();
    lock_when_free(p);
  }
  colli_family_unlock(family);
  return NULL;
}

coll_status colli_progress_start(colli_family *family, coll_error *error) {
  if (atomic_load(&family->progress))
    return COLL_OK;
  colli_progress *p = calloc(1, sizeof(*p));
  if (!p)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for a progress thread");
  *p = (colli_progress){.family = family,
                        .rest_ns = REST_LEAST_NS,
                        .wake_fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  int failed = p->wake_fd < 0 ? errno : 0;
  const char *call = failed ? "eventfd" : "pthread_create";
  family->shared = true;
  atomic_store(&family->progress, p);
  failed = failed ? failed : colli_thread_start(&p->thread, 0, run_thread, p);
  if (!failed)
    return COLL_OK;
  atomic_store(&family->progress, NULL);
  if (p->wake_fd >= 0)
    colli_fd_close(p->wake_fd);
  free(p);
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", call, failed,
                         "the progress thread of rank %d cannot be started; raise the limit of "
                         "descriptors or threads",
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

bool colli_progress_is_near(const colli_family *family) {
  const colli_progress *p = atomic_load_explicit(&family->progress, memory_order_relaxed);
  return p && (p->rest_ns == REST_LEAST_NS ||
               atomic_load_explicit(&p->stance, memory_order_relaxed) >= WATCHING);
}

void colli_progress_take_over(colli_family *family) {
  colli_progress *p = atomic_load_explicit(&family->progress, memory_order_relaxed);
  if (!p)
    return;
  const stance now = atomic_load_explicit(&p->stance, memory_order_relaxed);
  if (now == AWAKE || (now == RESTING && p->rest_ns > REST_LEAST_NS))
    return;
  if (colli_family_busy(family) || family->ended) {
    atomic_store(&p->stance, AWAKE); /* it will be */
    wake_thread(p);
  }
}

void colli_progress_wake(colli_family *family) {
  const colli_progress *p = atomic_load(&family->progress);
  if (p)
    wake_thread(p);
}
