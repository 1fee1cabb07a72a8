/* support_shortage.c: system calls and allocations of the library that fail on purpose. */
#include "support_shortage.h"

#include <errno.h>
#include <ifaddrs.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "libcoll/base/prng.h"

static struct {
  bool on, for_good;
  shortage_call call; /* SHORTAGE_COUNT: any */
  int nth, failed;
  int sys_errno; /* instead of the call's usual one, if it is not 0 */
  unsigned odds;
  colli_prng prng;
} plan; /* a rank has one thread */

const char *shortage_name(shortage_call call) {
#define SHORTAGE_NAME(name, error) #name,
  static const char *const names[] = {SHORTAGE_CALLS(SHORTAGE_NAME)};
  return names[call];
}

void shortage_begin(shortage_call call, int nth, bool for_good, int sys_errno) {
  plan.call = call;
  plan.sys_errno = sys_errno;
  plan.nth = nth;
  plan.for_good = for_good;
  plan.failed = 0;
  plan.on = true;
}

void shortage_begin_random(unsigned long long seed, unsigned odds) {
  plan.call = SHORTAGE_COUNT;
  plan.sys_errno = 0;
  plan.prng = (colli_prng){seed};
  plan.odds = odds;
  plan.failed = 0;
  plan.on = true;
}

int shortage_end(void) {
  plan.on = false;
  return plan.failed;
}

/* Whether this call fails; sets errno if so. */
static bool strikes(shortage_call call, int sys_errno) {
  bool fails = false;
  if (!plan.on)
    return false;
  if (plan.call == SHORTAGE_COUNT)
    fails = colli_prng_below(&plan.prng, plan.odds) == 0;
  else if (plan.call == call)
    fails = --plan.nth == 0 || (plan.nth < 0 && plan.for_good);
  plan.failed += fails;
  if (fails)
    errno = plan.sys_errno ? plan.sys_errno : sys_errno;
  return fails;
}

#define WRAP(result, name, sys_errno, failure, params, args)                                       \
  result __real_##name params;                                                                     \
  result __wrap_##name params;                                                                     \
  result __wrap_##name params {                                                                    \
    return strikes(SHORTAGE_##name, sys_errno) ? failure : __real_##name args;                     \
  }

WRAP(int, socket, EMFILE, -1, (int a, int b, int c), (a, b, c))
WRAP(int, bind, ENOMEM, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, listen, ENOMEM, -1, (int fd, int n), (fd, n))
WRAP(int, accept4, EMFILE, -1, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
WRAP(int, connect, ENOMEM, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, getsockopt, ENOBUFS, -1, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n))
WRAP(int, setsockopt, ENOBUFS, -1, (int fd, int l, int o, const void *v, socklen_t n),
     (fd, l, o, v, n))
WRAP(int, getsockname, ENOBUFS, -1, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP(int, getpeername, ENOBUFS, -1, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP(int, getifaddrs, EMFILE, -1, (struct ifaddrs * *list), (list))
WRAP(ssize_t, getrandom, ENOSYS, -1, (void *p, size_t n, unsigned f), (p, n, f))
WRAP(int, epoll_create1, EMFILE, -1, (int f), (f))
WRAP(int, epoll_ctl, ENOMEM, -1, (int e, int o, int fd, struct epoll_event *v), (e, o, fd, v))
WRAP(int, epoll_wait, EINTR, -1, (int e, struct epoll_event *v, int n, int ms), (e, v, n, ms))
WRAP(int, eventfd, EMFILE, -1, (unsigned n, int f), (n, f))
WRAP(int, poll, ENOMEM, -1, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
WRAP(ssize_t, send, ENOBUFS, -1, (int fd, const void *p, size_t n, int f), (fd, p, n, f))
WRAP(ssize_t, recv, ENOMEM, -1, (int fd, void *p, size_t n, int f), (fd, p, n, f))
WRAP(ssize_t, sendmsg, ENOMEM, -1, (int fd, const struct msghdr *m, int f), (fd, m, f))
WRAP(ssize_t, recvmsg, ENOMEM, -1, (int fd, struct msghdr *m, int f), (fd, m, f))
WRAP(void *, malloc, ENOMEM, NULL, (size_t n), (n))
WRAP(void *, calloc, ENOMEM, NULL, (size_t n, size_t m), (n, m))
WRAP(void *, realloc, ENOMEM, NULL, (void *p, size_t n), (p, n))
WRAP(void *, aligned_alloc, ENOMEM, NULL, (size_t a, size_t n), (a, n))
WRAP(unsigned char *, HMAC, ENOMEM, NULL,
     (const EVP_MD *e, const void *k, int kn, const unsigned char *d, size_t n, unsigned char *m,
      unsigned *mn),
     (e, k, kn, d, n, m, mn))
