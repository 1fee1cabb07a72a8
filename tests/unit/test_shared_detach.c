/*
 * test_shared_detach.c: a part of shared memory is taken away from peers: its contents stay, later
 * writes of peers do not appear, and no write of this process is lost. Also if the system allows no
 * further mapping.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcoll/base/shared.h"
#include "sanitized.h"

#define PAGE  ((size_t)4096)
#define BYTES (64 * PAGE)

#if !SANITIZED
static int refusals; /* how many private mappings of files are refused from now on */

/* Replaces the C library's function. */
void *mmap(void *addr, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool private_file = fd >= 0 && flags & MAP_PRIVATE && flags & MAP_FIXED;
  if (private_file && refusals > 0) {
    refusals--;
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mmap, addr, bytes, protection, flags, fd, offset); /* NOLINT */
}
#endif

/* Memory as its owner sees it, and as a peer does. */
typedef struct pair {
  int fd;
  char *mine, *theirs;
} pair;

static pair share(void) {
  colli_shared_fault fault;
  pair p = {.fd = colli_shared_create(BYTES, &fault)};
  cr_assert_geq(p.fd, 0);
  p.mine = colli_shared_map(p.fd, BYTES, true);
  p.theirs = colli_shared_map(p.fd, BYTES, true);
  cr_assert(p.mine && p.theirs);
  memset(p.mine, 'm', BYTES);
  return p;
}

static void drop(pair *p) {
  munmap(p->mine, BYTES);
  munmap(p->theirs, BYTES);
  close(p->fd);
}

/* Detaches a part, lets the peer write everywhere, and checks that pages first .. end - 1 do not
 * change, and all others do. */
static void check_detached(size_t offset, size_t length, size_t first, size_t end) {
  pair p = share();
  cr_assert(colli_shared_detach(p.fd, p.mine, BYTES, offset, length));
  for (size_t i = 0; i < BYTES; i++)
    cr_assert_eq(p.mine[i], 'm', "byte %zu has changed", i);
  memset(p.theirs, 't', BYTES);
  for (size_t i = 0; i < BYTES; i++) {
    bool own = i / PAGE >= first && i / PAGE < end;
    cr_assert_eq(p.mine[i], own ? 'm' : 't', "byte %zu of %zu at %zu", i, length, offset);
  }
  memset(p.mine, 'n', BYTES);
  cr_expect_eq(p.theirs[first * PAGE], first < end ? 't' : 'n');
  drop(&p);
}

Test(shared_detach, parts) {
  cr_assert_eq(sysconf(_SC_PAGESIZE), (long)PAGE);
  check_detached(0, BYTES, 0, 64);
  check_detached(3 * PAGE, 2 * PAGE, 3, 5);
  check_detached(3 * PAGE + 5, PAGE, 3, 5);
  check_detached(3 * PAGE + 5, 8, 3, 4);
  check_detached(BYTES - 1, 1, 63, 64);
  check_detached(100, 0, 0, 0);
}

/* What a thread writes next to the detached part. */
typedef struct writer {
  _Atomic uint64_t *at;
  atomic_bool stop;
  uint64_t lost, written;
} writer;

static void *write_on(void *arg) {
  writer *w = arg;
  uint64_t last = 0;
  while (!atomic_load(&w->stop)) {
    w->lost += atomic_load(w->at) != last;
    atomic_store(w->at, ++last);
  }
  w->written = last;
  return NULL;
}

/* Meanwhile another thread computes on the same page. */
Test(shared_detach, no_write_is_lost, .timeout = 60) {
  for (int round = 0; round < 200; round++) {
    pair p = share();
    writer w = {.at = (_Atomic uint64_t *)(void *)(p.mine + 7 * PAGE)};
    pthread_t thread;
    atomic_store(w.at, 0);
    cr_assert_eq(pthread_create(&thread, NULL, write_on, &w), 0);
    while (atomic_load(w.at) < 1000)
      ;
    cr_assert(colli_shared_detach(p.fd, p.mine, BYTES, 7 * PAGE + 64, 5 * PAGE));
    uint64_t then = atomic_load(w.at);
    while (atomic_load(w.at) < then + 1000)
      ;
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    cr_assert_eq(w.lost, 0, "%zu writes", (size_t)w.lost);
    drop(&p);
  }
}

#if !SANITIZED
/* With no further mapping the whole memory is detached; with none at all nobody can access it. */
Test(shared_detach, no_more_mappings) {
  refusals = 1;
  check_detached(3 * PAGE, 2 * PAGE, 0, 64);
  pair p = share();
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  refusals = 2;
  cr_expect_not(colli_shared_detach(p.fd, p.mine, BYTES, 3 * PAGE, 2 * PAGE));
  errno = 0;
  cr_expect_eq(write(ends[1], p.mine, 1), -1);
  cr_expect_eq(errno, EFAULT);
  drop(&p);
}
#endif
