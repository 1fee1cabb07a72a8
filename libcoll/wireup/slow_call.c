/* slow_call.c: calls of other libraries that cannot be interrupted, by a deadline. */
#include "libcoll/wireup/slow_call.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/thread.h"

enum { RUNNING, ENDED, ABANDONED };

/* A call. The caller and the thread share it; the last of them frees it. */
typedef struct slow_call {
  void (*make)(void *data);
  void (*discard)(void *data);
  void *data;
  int done_fd;      /* readable after the end of the call */
  atomic_int state; /* tells whose the data is */
  atomic_int refs;
} slow_call;

/* Gives up a reference. */
static void release(slow_call *call) {
  if (atomic_fetch_sub(&call->refs, 1) != 1)
    return;
  colli_fd_close(call->done_fd);
  free(call);
}

/* The thread. */
static void *run(void *arg) {
  slow_call *call = arg;
  call->make(call->data);
  if (atomic_exchange(&call->state, ENDED) == ABANDONED)
    call->discard(call->data);
  eventfd_write(call->done_fd, 1);
  release(call);
  return NULL;
}

/* Starts the thread. 0 or an errno. */
static int start(slow_call *call) {
  pthread_t thread;
  atomic_store(&call->refs, 2);
  int failed = colli_thread_start(&thread, 0, run, call);
  if (failed)
    release(call);
  else
    pthread_detach(thread);
  return failed;
}

/* Waits for the end of the call, or for the deadline. */
static void await(const slow_call *call, uint64_t deadline_ns) {
  struct pollfd done = {.fd = call->done_fd, .events = POLLIN};
  for (;;) {
    uint64_t now = colli_now_ns();
    uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / COLLI_NS_PER_MS + 1 : 0;
    if (poll(&done, 1, left_ms < 1000000 ? (int)left_ms : 1000000) > 0 || left_ms == 0)
      return;
  }
}

/* Makes the call and waits. 0 or an errno. */
static int run_until(slow_call *call, uint64_t deadline_ns) {
  int old; /* a caller that is cancelled while it waits would leak */
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
  int failed = start(call);
  if (!failed) {
    await(call, deadline_ns);
    failed = atomic_exchange(&call->state, ABANDONED) == ENDED ? 0 : ETIMEDOUT;
  }
  pthread_setcancelstate(old, NULL);
  return failed;
}

int colli_slow_call(void (*make)(void *), void (*discard)(void *), void *data, uint64_t deadline_ns,
                    const char **syscall) {
  *syscall = "malloc";
  slow_call *call = malloc(sizeof(*call));
  if (!call)
    return ENOMEM;
  *call = (slow_call){.make = make, .discard = discard, .data = data};
  atomic_init(&call->state, RUNNING);
  atomic_init(&call->refs, 1);
  *syscall = "eventfd";
  call->done_fd = COLLI_FD(eventfd(0, EFD_CLOEXEC));
  int failed = call->done_fd < 0 ? errno : 0;
  if (!failed) {
    *syscall = "pthread_create";
    failed = run_until(call, deadline_ns);
  }
  release(call);
  return failed;
}
