/* test_list.c: a forked child has none of libcoll's descriptors and all others, also if other
 * threads make and close some at that moment; and it finds its parent's objects marked. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/net/unix_socket.h"

enum { THREADS = 2, FORKS = 100, MOST = 1024 };

TestSuite(fork_list, .timeout = 60);

/* Whether a descriptor is open. */
static bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

/* Runs a function in a child; true if it returns true there. */
static bool holds_in_child(bool (*fn)(const int *), const int *arg) {
  int status = -1;
  pid_t pid = fork();
  if (pid == 0)
    _exit(!fn(arg));
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* fds: libcoll's, one that it has closed and somebody else uses, and one of somebody else. */
static bool has_only_foreign(const int *fds) {
  return !is_open(fds[0]) && is_open(fds[1]) && is_open(fds[2]);
}

Test(fork_list, closes_its_own_descriptors_only) {
  int fds[3] = {COLLI_FD(eventfd(0, 0)), COLLI_FD(eventfd(0, 0)), eventfd(0, 0)};
  cr_assert(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0);
  colli_fd_close(fds[1]);
  cr_assert_eq(eventfd(0, 0), fds[1]);
  cr_expect(holds_in_child(has_only_foreign, fds));
  cr_expect(is_open(fds[0]) && is_open(fds[1]) && is_open(fds[2]));
}

static bool has_closed(const int *fds) {
  return !is_open(fds[0]) && !is_open(fds[1]);
}

Test(fork_list, closes_high_and_received_descriptors) {
  int socks[2], fds[2] = {-1, -1};
  char byte = 1;
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
  cr_assert_eq(colli_unix_send(socks[0], &byte, 1, socks, 1), 0);
  cr_assert_eq(colli_unix_recv(socks[1], &byte, 1, &fds[0], 1), 1);
  fds[1] = COLLI_FD(fcntl(socks[0], F_DUPFD, MOST - 1));
  cr_assert_geq(fds[1], MOST - 1);
  cr_expect(holds_in_child(has_closed, fds));
}

/* Makes and closes descriptors until it is told to stop. */
static void *churn(void *stop) {
  while (!atomic_load((atomic_bool *)stop)) {
    int made = COLLI_FD(memfd_create("churned", 0)), socks[2];
    char byte = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) == 0) {
      colli_unix_send(socks[0], &byte, 1, &made, 1);
      int received = -1;
      if (colli_unix_recv(socks[1], &byte, 1, &received, 1) == 1)
        colli_fd_close(received);
      close(socks[0]);
      close(socks[1]);
    }
    colli_fd_close(made);
  }
  return NULL;
}

/* Whether nothing of churn()'s is open, but what is not libcoll's. */
static bool has_nothing_churned(const int *foreign) {
  char path[64], kind[64];
  for (int fd = 0; fd < MOST; fd++) {
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(path, kind, sizeof(kind));
    if (bytes > 0 && memmem(kind, (size_t)bytes, "churned", 7))
      return false;
  }
  return is_open(*foreign);
}

Test(fork_list, is_complete_at_every_moment) {
  pthread_t threads[THREADS];
  atomic_bool stop = false;
  int foreign = eventfd(0, 0);
  for (int i = 0; i < THREADS; i++)
    cr_assert_eq(pthread_create(&threads[i], NULL, churn, &stop), 0);
  for (int i = 0; i < FORKS; i++)
    cr_assert(holds_in_child(has_nothing_churned, &foreign), "fork %d", i);
  atomic_store(&stop, true);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

static colli_fork_guard first, second, removed;

static bool finds_marks(const int *fds) {
  (void)fds;
  colli_fork_guard_remove(&first); /* harmless */
  return first.inherited && first.inside && second.inherited && !removed.inherited &&
         colli_fork_guard_add(&removed) && !removed.inside;
}

/* In the child of a child, what either of them had is inherited. */
static bool finds_more_marks(const int *fds) {
  (void)fds;
  return first.inherited && second.inherited && removed.inherited && removed.inside;
}

static bool finds_marks_twice(const int *fds) {
  return finds_marks(fds) && holds_in_child(finds_more_marks, fds) && !removed.inherited;
}

Test(fork_list, marks_objects) {
  cr_assert(colli_fork_guard_add(&first) && colli_fork_guard_add(&second) &&
            colli_fork_guard_add(&removed));
  colli_fork_guard_remove(&removed);
  cr_expect(holds_in_child(finds_marks_twice, NULL));
  cr_expect(!first.inherited && !first.inside && !second.inherited);
  colli_fork_guard_remove(&second);
  colli_fork_guard_remove(&first);
}
