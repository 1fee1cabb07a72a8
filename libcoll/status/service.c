/* service.c: starts and ends the service, and is the desk where collctl asks. */
#include "libcoll/status/service.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/prng.h"
#include "libcoll/base/thread.h"
#include "libcoll/status/service_internal.h"

#define STACK_BYTES (256u << 10)

/* The address of a desk: an abstract name. */
static socklen_t desk_address(const char *desk, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  size_t length = strnlen(desk, COLLI_STATUS_DESK - 1);
  memcpy(address->sun_path + 1, desk, length);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* ---- the desk -------------------------------------------------------------------------------- */

/* A client of the desk. */
typedef struct asker {
  const colli_status_service *service;
  int fd;
  uint64_t until_ns;
} asker;

/* Writes all of some bytes. */
static bool tell(const asker *a, const void *bytes, size_t count) {
  size_t done = 0;
  int result;
  while ((result = colli_net_push(a->fd, bytes, count, &done)) == COLL_T_AGAIN)
    if (!status_wait(a->service, a->fd, POLLOUT, a->until_ns))
      return false;
  return result == COLL_T_DONE;
}

/* Passes on a copy. */
static bool pass_on(void *ctx, void *copy, size_t bytes) {
  const uint64_t length = bytes;
  return tell(ctx, &length, sizeof(length)) && tell(ctx, copy, bytes);
}

/* Whether a client that has connected may ask. */
static bool may_ask(int fd) {
  struct ucred who;
  socklen_t length = sizeof(who);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
         (who.uid == geteuid() || who.uid == 0);
}

/* Answers a client. */
static void serve_asker(const colli_status_service *service) {
  asker a = {.service = service,
             .fd = COLLI_FD(accept4(service->desk_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)),
             .until_ns = colli_now_ns() + STATUS_DESK_MS * COLLI_NS_PER_MS};
  if (a.fd < 0) { /* a shortage, perhaps: not again at once */
    (void)status_wait(service, service->stop_fd, POLLIN, colli_now_ns() + 10 * COLLI_NS_PER_MS);
    return;
  }
  const uint64_t end = 0;
  if (may_ask(a.fd)) {
    status_fetch(service, a.until_ns, pass_on, &a);
    (void)tell(&a, &end, sizeof(end));
  }
  colli_fd_close(a.fd);
}

static void *run_desk(void *arg) {
  colli_status_service *service = arg;
  struct pollfd fds[3] = {{.fd = service->stop_fd, .events = POLLIN},
                          {.fd = service->look_fd, .events = POLLIN},
                          {.fd = service->desk_fd, .events = POLLIN}};
  for (;;) {
    const int ready = poll(fds, 3, -1);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready < 0 || fds[0].revents)
      return NULL;
    if (fds[1].revents)
      status_answer_looks(service);
    if (fds[2].revents)
      serve_asker(service);
  }
}

/* Listens under a name that nobody can guess. An errno on failure. */
static int open_desk(colli_status_service *service, char desk[COLLI_STATUS_DESK]) {
  uint64_t random;
  struct sockaddr_un address;
  int error = colli_random_secret(&random, sizeof(random));
  if (error)
    return error;
  snprintf(desk, COLLI_STATUS_DESK, "libcoll-status-%016llx", (unsigned long long)random);
  socklen_t length = desk_address(desk, &address);
  service->desk_fd = COLLI_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return service->desk_fd >= 0 &&
                 bind(service->desk_fd, (const struct sockaddr *)&address, length) == 0 &&
                 listen(service->desk_fd, 8) == 0
             ? 0
             : errno;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Closes and frees everything. */
static void clean_up(colli_status_service *service) {
  colli_door_close(&service->door);
  colli_fd_close(service->plan.listen_fd);
  if (service->desk_fd >= 0)
    colli_fd_close(service->desk_fd);
  if (service->look_fd >= 0)
    colli_fd_close(service->look_fd);
  if (service->stop_fd >= 0)
    colli_fd_close(service->stop_fd);
  colli_secret_release(service->plan.secret);
  free(service->plan.posts);
  free(service);
}

/* Starts both threads, or none. */
static int start_threads(colli_status_service *service) {
  int error = colli_thread_start(&service->door_thread, STACK_BYTES, status_run_door, service);
  if (error)
    return error;
  error = colli_thread_start(&service->desk_thread, STACK_BYTES, run_desk, service);
  if (error) {
    status_signal(service->stop_fd);
    pthread_join(service->door_thread, NULL);
  }
  return error;
}

colli_status_service *colli_status_service_start(const colli_status_plan *plan,
                                                 char desk[COLLI_STATUS_DESK]) {
  colli_status_service *service = calloc(1, sizeof(*service));
  if (!service) {
    colli_fd_close(plan->listen_fd);
    free(plan->posts);
    errno = ENOMEM;
    return NULL;
  }
  service->plan = *plan;
  service->plan.secret = colli_secret_acquire(plan->secret);
  service->door = COLLI_DOOR_CLOSED;
  service->desk_fd = -1;
  service->stop_fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  service->look_fd = service->stop_fd < 0 ? -1 : COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  int error = service->look_fd >= 0 ? open_desk(service, desk) : errno;
  if (!error)
    error = colli_door_open(&service->door, plan->listen_fd, plan->secret->bytes,
                            COLLI_HELLO_STATUS, plan->rank, &plan->log);
  service->door.tls = plan->tls;
  if (!error)
    error = start_threads(service);
  if (!error)
    return service;
  clean_up(service);
  *desk = '\0';
  errno = error;
  return NULL;
}

void colli_status_service_stop(colli_status_service *service) {
  if (!service)
    return;
  status_signal(service->stop_fd);
  pthread_join(service->door_thread, NULL);
  pthread_join(service->desk_thread, NULL);
  clean_up(service);
}
