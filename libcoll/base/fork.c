/* fork.c: closes libcoll's descriptors in forked children, and marks what they inherit. */
#include "libcoll/base/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "libcoll/base/assert.h"

#define FD_MAX    (1 << 20) /* the kernel's default for the most descriptors of a process */
#define WORD_BITS 64

static struct {
  pthread_once_t once;
  int failed; /* errno of pthread_atfork(), or 0 */
  pthread_mutex_t mutex;
  LIST_HEAD(, colli_fork_guard) guards;
  int words;                        /* of `fds` in use */
  uint64_t fds[FD_MAX / WORD_BITS]; /* a bit for each descriptor */
} process = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* Before fork(): waits until the lists are complete. */
static void before_fork(void) {
  pthread_mutex_lock(&process.mutex);
}

/* After fork(), in the parent. */
static void after_fork(void) {
  pthread_mutex_unlock(&process.mutex);
}

/* After fork(), in the child, in which there is no other thread. Calls only functions that are safe
 * in signal handlers. */
static void begin_child(void) {
  for (int word = 0; word < process.words; word++) {
    for (uint64_t bits = process.fds[word]; bits; bits &= bits - 1)
      close(word * WORD_BITS + __builtin_ctzll(bits));
    process.fds[word] = 0;
  }
  process.words = 0;
  colli_fork_guard *guard;
  LIST_FOREACH(guard, &process.guards, link) {
    guard->inherited = true;
    atomic_store_explicit(&guard->inside, 1, memory_order_relaxed);
  }
  LIST_INIT(&process.guards);
  pthread_mutex_unlock(&process.mutex);
}

static void set_handlers(void) {
  process.failed = pthread_atfork(before_fork, after_fork, begin_child);
}

void colli_fork_hold(void) {
  int sys_errno = errno;
  pthread_once(&process.once, set_handlers);
  pthread_mutex_lock(&process.mutex);
  errno = sys_errno;
}

void colli_fork_release(void) {
  int sys_errno = errno;
  pthread_mutex_unlock(&process.mutex);
  errno = sys_errno;
}

void colli_fd_enlist(int fd) {
  if (fd < 0 || fd >= FD_MAX)
    return;
  int word = fd / WORD_BITS;
  process.fds[word] |= UINT64_C(1) << fd % WORD_BITS;
  process.words = word < process.words ? process.words : word + 1;
}

void colli_fd_delist(int fd) {
  if (fd >= 0 && fd < FD_MAX)
    process.fds[fd / WORD_BITS] &= ~(UINT64_C(1) << fd % WORD_BITS);
}

int colli_fd_made(int fd) {
  colli_fd_enlist(fd);
  colli_fork_release();
  return fd;
}

void colli_fd_close(int fd) {
  colli_fork_hold();
  colli_fd_delist(fd);
  close(fd);
  colli_fork_release();
}

void colli_fd_disown(int fd) {
  colli_fork_hold();
  colli_fd_delist(fd);
  colli_fork_release();
}

bool colli_fork_guard_add(colli_fork_guard *guard) {
  colli_fork_hold();
  COLLI_ASSERT(!guard->link.le_prev && !guard->inherited);
  bool fine = process.failed == 0;
  if (fine)
    LIST_INSERT_HEAD(&process.guards, guard, link);
  colli_fork_release();
  return fine;
}

void colli_fork_guard_remove(colli_fork_guard *guard) {
  colli_fork_hold();
  if (guard->link.le_prev && !guard->inherited)
    LIST_REMOVE(guard, link);
  guard->link.le_prev = NULL;
  colli_fork_release();
}
