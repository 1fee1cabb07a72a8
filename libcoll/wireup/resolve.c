/* resolve.c: "host:port" as addresses, by a deadline. */
#include "libcoll/wireup/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

/*
 * One lookup of a name. getaddrinfo() may ask servers for minutes and cannot be interrupted, so a
 * thread makes the call. The caller and the thread share this; the last of them frees it.
 */
typedef struct lookup {
  atomic_int refs;
  char host[256], port[8];
  int done_fd; /* readable once there is a result */
  int result;
  struct addrinfo *list;
} lookup;

/* Gives up a reference. */
static void release(lookup *l) {
  if (atomic_fetch_sub(&l->refs, 1) != 1)
    return;
  if (l->list)
    freeaddrinfo(l->list);
  colli_fd_close(l->done_fd);
  free(l);
}

/* The call. */
static int ask(lookup *l, int flags) {
  const struct addrinfo hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
  return getaddrinfo(l->host, l->port, &hints, &l->list);
}

/* The thread. */
static void *look_up(void *arg) {
  lookup *l = arg;
  l->result = ask(l, 0);
  eventfd_write(l->done_fd, 1);
  release(l);
  return NULL;
}

/* Starts the thread, which takes no signals. 0 or an errno. */
static int start_thread(lookup *l) {
  pthread_t thread;
  pthread_attr_t attr;
  sigset_t all, old;
  sigfillset(&all);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  atomic_fetch_add(&l->refs, 1);
  int failed = pthread_create(&thread, &attr, look_up, l);
  if (failed)
    release(l);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return failed;
}

/* Waits for the result; false at the deadline. */
static bool await_result(const lookup *l, uint64_t deadline_ns) {
  struct pollfd done = {.fd = l->done_fd, .events = POLLIN};
  for (;;) {
    uint64_t now = colli_now_ns();
    uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / COLLI_NS_PER_MS + 1 : 0;
    if (poll(&done, 1, left_ms < 1000000 ? (int)left_ms : 1000000) > 0)
      return true;
    if (left_ms == 0)
      return false;
  }
}

/* Looks the host up: numbers at once, names in the thread. */
static coll_status run_lookup(lookup *l, uint64_t deadline_ns, const char *text,
                              coll_error *error) {
  l->result = ask(l, AI_NUMERICHOST);
  if (l->result == 0)
    return COLL_OK;
  int failed = start_thread(l);
  if (failed)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "pthread_create", failed,
                           "no thread can look up the host \"%s\" in \"%s\"; see ulimit -u, or "
                           "give a number such as 10.0.0.1",
                           l->host, text);
  if (!await_result(l, deadline_ns))
    return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                           "looking up the host \"%s\" in \"%s\" took too long; look at this "
                           "host's name servers (/etc/resolv.conf), give a number such as "
                           "10.0.0.1, or raise COLL_CREATE_TIMEOUT_MS",
                           l->host, text);
  if (l->result != 0)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "the host \"%s\" in \"%s\" has no address (%s); give a number such as "
                           "10.0.0.1, or a name that this host can look up",
                           l->host, text, gai_strerror(l->result));
  return COLL_OK;
}

/* Splits "host:port" or "[v6]:port"; false if malformed. */
static bool split_address(const char *text, lookup *l) {
  const char *colon = strrchr(text, ':');
  if (!colon || colon == text)
    return false;
  const char *first = text;
  size_t length = (size_t)(colon - text);
  if (*text == '[') {
    if (length < 3 || text[length - 1] != ']')
      return false;
    first++;
    length -= 2;
  } else if (memchr(text, ':', length)) {
    return false;
  }
  char *end;
  errno = 0;
  long port = strtol(colon + 1, &end, 10);
  if (colon[1] < '0' || colon[1] > '9' || *end || errno || port < 1 || port > 65535 ||
      length >= sizeof(l->host))
    return false;
  snprintf(l->host, sizeof(l->host), "%.*s", (int)length, first);
  snprintf(l->port, sizeof(l->port), "%u", (unsigned)(uint16_t)port);
  return true;
}

coll_status colli_net_parse(const char *text, uint64_t deadline_ns, colli_addr *addrs, int max,
                            int *count, coll_error *error) {
  *count = 0;
  lookup *l = calloc(1, sizeof(*l));
  if (!l)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for an address");
  atomic_init(&l->refs, 1);
  l->done_fd = COLLI_FD(eventfd(0, EFD_CLOEXEC));
  coll_status status;
  if (!split_address(text, l))
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "\"%s\" is no address with a port; write 10.0.0.1:6000, "
                             "[fd00::1]:6000 or name:6000",
                             text);
  else if (l->done_fd < 0)
    status = colli_error_sys(error, COLL_ERR_SYSTEM, "create", "eventfd", errno,
                             "cannot look up \"%s\"", text);
  else {
    int old; /* a caller that is cancelled while it waits would leak */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    status = run_lookup(l, deadline_ns, text, error);
    pthread_setcancelstate(old, NULL);
  }
  if (status == COLL_OK)
    for (const struct addrinfo *ai = l->list; ai && *count < max; ai = ai->ai_next)
      *count += colli_net_from_sockaddr(ai->ai_addr, &addrs[*count]);
  release(l);
  return status;
}
