/* wait.c: waiting, for all parts of a bootstrap. */
#include "libcoll/wireup/bootstrap/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/movers.h"

#define FULL_WAIT_NS (10 * COLLI_NS_PER_MS) /* how long to wait if descriptors do not fit */
#define MAX_WAIT_MS  1000

bool boot_polls_create(boot_polls *polls, int capacity) {
  *polls = (boot_polls){.fds = calloc((size_t)capacity, sizeof(*polls->fds)), .capacity = capacity};
  return polls->fds != NULL;
}

void boot_polls_destroy(boot_polls *polls) {
  free(polls->fds);
  *polls = (boot_polls){0};
}

void boot_polls_clear(boot_polls *polls, uint64_t wake_ns) {
  polls->count = 0;
  polls->wake_ns = wake_ns;
}

int boot_polls_add(boot_polls *polls, int fd, short events) {
  COLLI_ASSERT(fd >= 0 && polls->count <= polls->capacity);
  if (polls->count == polls->capacity) {
    boot_polls_wake(polls, colli_now_ns() + FULL_WAIT_NS);
    return -1;
  }
  polls->fds[polls->count] = (struct pollfd){.fd = fd, .events = events};
  return polls->count++;
}

void boot_polls_wake(boot_polls *polls, uint64_t at_ns) {
  if (at_ns < polls->wake_ns)
    polls->wake_ns = at_ns;
}

int boot_polls_wait(boot_polls *polls) {
  uint64_t now_ns = colli_now_ns();
  uint64_t left_ns = polls->wake_ns > now_ns ? polls->wake_ns - now_ns : 0;
  uint64_t left_ms = (left_ns + COLLI_NS_PER_MS - 1) / COLLI_NS_PER_MS;
  if (left_ms > MAX_WAIT_MS)
    left_ms = MAX_WAIT_MS;
  if (colli_movers_poll(polls->fds, polls->count, (int)left_ms, NULL) >= 0)
    return 0;
  int sys_errno = errno;
  if (sys_errno != EINTR && left_ms > 0)
    usleep(1000); /* a shortage may last, and must not take a whole core */
  for (int i = 0; i < polls->count; i++)
    polls->fds[i].revents = polls->fds[i].events; /* a signal, mostly: assume that all are ready */
  return sys_errno;
}

void boot_close(int *fd) {
  if (*fd >= 0)
    colli_fd_close(*fd);
  *fd = -1;
}

uint32_t boot_remaining_ms(uint64_t until_ns) {
  uint64_t now_ns = colli_now_ns();
  uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / COLLI_NS_PER_MS : 0;
  return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

uint64_t boot_margin_ns(uint64_t remaining_ns) {
  const uint64_t fifth_ns = remaining_ns / 5;
  return fifth_ns < COLLI_NS_PER_S ? fifth_ns : COLLI_NS_PER_S;
}
