/*
 * support_calls.c: the system calls that the linker puts where libc's would be (--wrap; the build
 * takes the list from this file). Outside ranks they are libc's.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "support_machine.h"

#define CLOCK_NS 25          /* of reading the clock */
#define IDLE_NS  (10 * 1000) /* between polls that find nothing, unless there is an event */

#define INSIDE(fd) (sk.current && (fd) >= SK_FD_BASE)

/* Declares the wrapper of a function, and the function itself. */
#define WRAP(result, name, ...)                                                                    \
  result __real_##name(__VA_ARGS__);                                                               \
  result __wrap_##name(__VA_ARGS__);                                                               \
  result __wrap_##name(__VA_ARGS__)

/* A socket of the running rank; NULL with errno. */
static sk_file *get_socket(int fd) {
  sk_file *file = sk_file_get(fd);
  if (file && file->kind != SK_SOCKET) {
    errno = ENOTSOCK;
    return NULL;
  }
  return file;
}

/* ---- sockets ----------------------------------------------------------------------------------
 */

WRAP(int, socket, int family, int type, int protocol) {
  if (!sk.current)
    return __real_socket(family, type, protocol);
  sk_enter(true);
  return sk_tcp_create(family, type);
}

WRAP(int, bind, int fd, const struct sockaddr *name, socklen_t length) {
  if (!INSIDE(fd))
    return __real_bind(fd, name, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_bind(file, name) : -1;
}

WRAP(int, listen, int fd, int backlog) {
  if (!INSIDE(fd))
    return __real_listen(fd, backlog);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_listen(file, backlog) : -1;
}

WRAP(int, connect, int fd, const struct sockaddr *name, socklen_t length) {
  if (!INSIDE(fd))
    return __real_connect(fd, name, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_connect(file, name) : -1;
}

WRAP(int, accept4, int fd, struct sockaddr *name, socklen_t *length, int flags) {
  if (!INSIDE(fd))
    return __real_accept4(fd, name, length, flags);
  sk_enter(true);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_accept(file, flags) : -1;
}

WRAP(int, shutdown, int fd, int how) {
  if (!INSIDE(fd))
    return __real_shutdown(fd, how);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_shutdown(file, how) : -1;
}

WRAP(int, setsockopt, int fd, int level, int option, const void *value, socklen_t length) {
  if (!INSIDE(fd))
    return __real_setsockopt(fd, level, option, value, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  int number = 0;
  memcpy(&number, value, length < sizeof(number) ? length : sizeof(number));
  return file ? sk_tcp_set(file, level, option, number) : -1;
}

WRAP(int, getsockopt, int fd, int level, int option, void *value, socklen_t *length) {
  if (!INSIDE(fd))
    return __real_getsockopt(fd, level, option, value, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_get(file, level, option, value, length) : -1;
}

WRAP(int, getsockname, int fd, struct sockaddr *name, socklen_t *length) {
  if (!INSIDE(fd))
    return __real_getsockname(fd, name, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_name(file, false, name, length) : -1;
}

WRAP(int, getpeername, int fd, struct sockaddr *name, socklen_t *length) {
  if (!INSIDE(fd))
    return __real_getpeername(fd, name, length);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  return file ? sk_tcp_name(file, true, name, length) : -1;
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* Sends, and counts. */
static ssize_t send_parts(int fd, const struct iovec *iov, size_t count) {
  sk_rank *r = sk.current;
  sk_enter(false);
  sk_file *file = get_socket(fd);
  ssize_t done = 0;
  for (size_t i = 0; file && i < count; i++) {
    const ssize_t sent = iov[i].iov_len ? sk_tcp_send(file, iov[i].iov_base, iov[i].iov_len) : 0;
    if (sent < 0 && done == 0)
      return -1;
    done += sent > 0 ? sent : 0;
    if (sent < (ssize_t)iov[i].iov_len)
      break;
  }
  r->now_ns += (uint64_t)((double)done * sk.config.copy_ns_per_byte);
  if (done > 0)
    sk_tcp_count(file, (size_t)done);
  return file ? done : -1;
}

static ssize_t receive_parts(int fd, const struct iovec *iov, size_t count, int flags) {
  sk_rank *r = sk.current;
  sk_enter(false);
  sk_file *file = get_socket(fd);
  ssize_t done = 0;
  for (size_t i = 0; file && i < count; i++) {
    if (iov[i].iov_len == 0 || (done > 0 && sk_tcp_queued(file, true) <= 0))
      continue;
    const ssize_t got = sk_tcp_recv(file, iov[i].iov_base, iov[i].iov_len, flags & MSG_PEEK);
    if (got < 0 && done == 0)
      return -1;
    done += got > 0 ? got : 0;
    if (got < (ssize_t)iov[i].iov_len)
      break;
  }
  r->now_ns += (uint64_t)((double)done * sk.config.copy_ns_per_byte);
  return file ? done : -1;
}

WRAP(ssize_t, send, int fd, const void *bytes, size_t count, int flags) {
  if (!INSIDE(fd))
    return __real_send(fd, bytes, count, flags);
  return send_parts(fd, &(struct iovec){(void *)bytes, count}, 1);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags) {
  if (!INSIDE(fd))
    return __real_sendmsg(fd, msg, flags);
  return send_parts(fd, msg->msg_iov, msg->msg_iovlen);
}

WRAP(ssize_t, recv, int fd, void *bytes, size_t count, int flags) {
  if (!INSIDE(fd))
    return __real_recv(fd, bytes, count, flags);
  return receive_parts(fd, &(struct iovec){bytes, count}, 1, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags) {
  if (!INSIDE(fd))
    return __real_recvmsg(fd, msg, flags);
  msg->msg_controllen = 0;
  msg->msg_flags = 0;
  return receive_parts(fd, msg->msg_iov, msg->msg_iovlen, flags);
}

WRAP(ssize_t, readv, int fd, const struct iovec *iov, int count) {
  if (!INSIDE(fd))
    return __real_readv(fd, iov, count);
  return receive_parts(fd, iov, (size_t)count, 0);
}

WRAP(ssize_t, read, int fd, void *bytes, size_t count) {
  if (!INSIDE(fd))
    return __real_read(fd, bytes, count);
  sk_eventfd *file = (sk_eventfd *)sk_file_get(fd);
  if (file && file->file.kind == SK_SOCKET)
    return receive_parts(fd, &(struct iovec){bytes, count}, 1, 0);
  sk_enter(false);
  if (!file || count < sizeof(file->count) || file->count == 0) {
    errno = !file ? EBADF : count < sizeof(file->count) ? EINVAL : EAGAIN;
    return -1;
  }
  memcpy(bytes, &file->count, sizeof(file->count));
  file->count = 0;
  return sizeof(file->count);
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t count) {
  if (!INSIDE(fd))
    return __real_write(fd, bytes, count);
  sk_eventfd *file = (sk_eventfd *)sk_file_get(fd);
  if (file && file->file.kind == SK_SOCKET)
    return send_parts(fd, &(struct iovec){(void *)bytes, count}, 1);
  sk_enter(false);
  uint64_t more;
  if (!file || count < sizeof(more)) {
    errno = file ? EINVAL : EBADF;
    return -1;
  }
  memcpy(&more, bytes, sizeof(more));
  file->count += more;
  sk_file_notify(&file->file, POLLIN);
  return sizeof(more);
}

/* ---- other descriptors ------------------------------------------------------------------------
 */

WRAP(int, eventfd, unsigned count, int flags) {
  if (!sk.current)
    return __real_eventfd(count, flags);
  sk_enter(true);
  return sk_eventfd_create(count, flags);
}

WRAP(int, eventfd_read, int fd, eventfd_t *value) {
  return __wrap_read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
}

WRAP(int, eventfd_write, int fd, eventfd_t value) {
  return __wrap_write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

WRAP(int, close, int fd) {
  if (!INSIDE(fd))
    return __real_close(fd);
  sk_enter(true);
  sk_file *file = sk_file_get(fd);
  if (file)
    sk_file_close(file);
  return file ? 0 : -1;
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long arg = va_arg(list, long);
  va_end(list);
  if (!INSIDE(fd))
    return __real_fcntl(fd, command, arg);
  sk_enter(false);
  sk_file *file = sk_file_get(fd);
  if (!file)
    return -1;
  if (command == F_SETFL)
    file->flags = (int)arg;
  return command == F_GETFL ? file->flags : 0;
}

int __real_ioctl(int fd, unsigned long command, ...);
int __wrap_ioctl(int fd, unsigned long command, ...);
int __wrap_ioctl(int fd, unsigned long command, ...) {
  va_list list;
  va_start(list, command);
  void *arg = va_arg(list, void *);
  va_end(list);
  if (!INSIDE(fd))
    return __real_ioctl(fd, command, arg);
  sk_enter(false);
  sk_file *file = get_socket(fd);
  const int queued = file ? sk_tcp_queued(file, command == SIOCINQ) : -1;
  if (queued >= 0)
    memcpy(arg, &queued, sizeof(queued));
  return queued >= 0 ? 0 : -1;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* Waits for the next look; false: the time is over. */
static bool wait_for_look(uint64_t begin_ns, int timeout_ms) {
  const uint64_t now_ns = sk.current->now_ns;
  uint64_t until_ns = timeout_ms < 0 ? UINT64_MAX : begin_ns + (uint64_t)timeout_ms * SK_MS;
  if (timeout_ms == 0)
    until_ns = begin_ns + IDLE_NS;
  if (now_ns >= until_ns)
    return false;
  sk_wait(until_ns, true);
  return true;
}

/* Looks at descriptors. */
static int look(struct pollfd *fds, nfds_t count) {
  int ready = 0;
  for (nfds_t i = 0; i < count; i++) {
    fds[i].revents = 0;
    if (fds[i].fd < 0)
      continue;
    sk_file *file = sk_file_get(fds[i].fd);
    const unsigned always = POLLERR | POLLHUP;
    fds[i].revents =
        (short)(file ? sk_file_ready(file) & ((unsigned)fds[i].events | always) : POLLNVAL);
    ready += fds[i].revents != 0;
  }
  return ready;
}

WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout_ms) {
  if (!sk.current)
    return __real_poll(fds, count, timeout_ms);
  sk_enter(false);
  sk_wait(sk.current->now_ns, false); /* others get as far as this rank */
  const uint64_t begin_ns = sk.current->now_ns;
  int ready;
  while ((ready = look(fds, count)) == 0 && wait_for_look(begin_ns, timeout_ms))
    ;
  return ready;
}

WRAP(int, epoll_create1, int flags) {
  if (!sk.current)
    return __real_epoll_create1(flags);
  sk_enter(true);
  return sk_epoll_create();
}

WRAP(int, epoll_ctl, int epoll_fd, int op, int fd, struct epoll_event *event) {
  if (!INSIDE(epoll_fd))
    return __real_epoll_ctl(epoll_fd, op, fd, event);
  sk_enter(false);
  return sk_epoll_ctl(epoll_fd, op, fd, event ? event->events : 0, event ? event->data.u64 : 0);
}

WRAP(int, epoll_wait, int epoll_fd, struct epoll_event *events, int most, int timeout_ms) {
  if (!INSIDE(epoll_fd))
    return __real_epoll_wait(epoll_fd, events, most, timeout_ms);
  sk_enter(false);
  sk_wait(sk.current->now_ns, false);
  const uint64_t begin_ns = sk.current->now_ns;
  sk_file *file = sk_file_get(epoll_fd);
  if (!file || file->kind != SK_EPOLL) {
    errno = file ? EINVAL : EBADF;
    return -1;
  }
  int count;
  while ((count = sk_epoll_collect((sk_epoll *)file, events, most)) == 0 &&
         wait_for_look(begin_ns, timeout_ms))
    ;
  return count;
}

WRAP(int, sched_yield, void) {
  if (!sk.current)
    return __real_sched_yield();
  sk_enter(false);
  sk_wait(sk.current->now_ns, false);
  return 0;
}

WRAP(int, getrusage, int who, struct rusage *usage) {
  if (!sk.current)
    return __real_getrusage(who, usage);
  memset(usage, 0, sizeof(*usage)); /* nobody interrupts a rank */
  return 0;
}

WRAP(int, clock_gettime, clockid_t clock, struct timespec *now) {
  if (!sk.current)
    return __real_clock_gettime(clock, now);
  sk.current->now_ns += CLOCK_NS;
  *now = (struct timespec){.tv_sec = (time_t)(sk.current->now_ns / SK_S),
                           .tv_nsec = (long)(sk.current->now_ns % SK_S)};
  return 0;
}
