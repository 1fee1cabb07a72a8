/*
 * test_kernel.c: one program of socket calls runs on this machine's kernel and on the simulated
 * one, and what it observes must be the same.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "support_kernel.h"

static struct {
  char text[8192];
  size_t used;
} observed[2], *notes;

/* Notes what a call did: its name, its result, errno if that is -1. */
static void note(const char *format, ...) {
  va_list list;
  va_start(list, format);
  notes->used +=
      (size_t)vsnprintf(notes->text + notes->used, sizeof(notes->text) - notes->used, format, list);
  va_end(list);
}

#define NOTE(call)                                                                                 \
  do {                                                                                             \
    errno = 0;                                                                                     \
    const long result_ = (long)(call);                                                             \
    note("%s = %ld%s%s\n", #call, result_, result_ < 0 ? ", " : "",                                \
         result_ < 0 ? strerrorname_np(errno) : "");                                               \
  } while (0)

/* Waits for events; notes which came. */
static void await(const char *what, int fd, short events) {
  struct pollfd p = {.fd = fd, .events = events};
  const int ready = poll(&p, 1, 2000);
  note("%s: poll = %d, events %x\n", what, ready, ready > 0 ? p.revents : 0);
}

/* Notes what is ready now. */
static void ready_now(const char *what, int fd) {
  struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
  const int ready = poll(&p, 1, 0);
  note("%s: now %x\n", what, ready > 0 ? p.revents : 0);
}

static int listen_any(uint16_t *port) {
  struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
  socklen_t length = sizeof(name);
  const int off = 0;
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), listens = -1;
  socklen_t listens_length = sizeof(listens);
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  NOTE(bind(fd, (struct sockaddr *)&name, sizeof(name)));
  NOTE(listen(fd, 16));
  NOTE(getsockname(fd, (struct sockaddr *)&name, &length));
  NOTE(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_length));
  note("listens %d, family %d, length %d\n", listens, name.sin6_family == AF_INET6, (int)length);
  *port = name.sin6_port;
  return fd;
}

/* Connects; notes what the end of that is. */
static int dial(uint16_t port) {
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = port};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = -1;
  socklen_t length = sizeof(error);
  if (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0 && errno != EINPROGRESS)
    note("connect: %s\n", strerrorname_np(errno));
  await("connected", fd, POLLOUT);
  NOTE(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
  note("error %s\n", error ? strerrorname_np(error) : "none");
  return fd;
}

/* Both ends of a connection. */
static void make_pair(int listener, uint16_t port, int pair[2]) {
  struct sockaddr_in6 name = {0};
  socklen_t length = sizeof(name);
  pair[0] = dial(port);
  await("a connection waits", listener, POLLIN);
  pair[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  NOTE(getpeername(pair[1], (struct sockaddr *)&name, &length));
  note("a mapped address: %d\n", IN6_IS_ADDR_V4MAPPED(&name.sin6_addr));
}

static void exchange(int pair[2]) {
  char text[100] = "";
  int queued = -1;
  struct iovec parts[2] = {{"abc", 3}, {"defgh", 5}}, places[2] = {{text, 2}, {text + 2, 90}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  NOTE(recv(pair[1], text, 10, MSG_DONTWAIT));
  ready_now("nothing sent", pair[1]);
  NOTE(sendmsg(pair[0], &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  await("data", pair[1], POLLIN);
  NOTE(ioctl(pair[1], SIOCINQ, &queued));
  note("%d bytes\n", queued);
  NOTE(recv(pair[1], text, 1, MSG_PEEK | MSG_DONTWAIT));
  NOTE(readv(pair[1], places, 2));
  note("%s\n", text);
  NOTE(recv(pair[1], text, 10, MSG_DONTWAIT));
  for (int looks = 0; looks < 1000000 && ioctl(pair[0], SIOCOUTQ, &queued) == 0 && queued > 0;
       looks++)
    sched_yield();
  note("%d bytes not acknowledged\n", queued);
}

/* One end sends its last, the other end closes after it. */
static void end_in_order(int listener, uint16_t port) {
  char text[100];
  int pair[2];
  note("-- an end in order\n");
  make_pair(listener, port, pair);
  exchange(pair);
  NOTE(send(pair[0], "last", 4, MSG_NOSIGNAL));
  NOTE(shutdown(pair[0], SHUT_WR));
  await("the end", pair[1], POLLRDHUP);
  NOTE(send(pair[0], "more", 4, MSG_NOSIGNAL));
  NOTE(recv(pair[1], text, 100, 0));
  NOTE(recv(pair[1], text, 100, 0));
  ready_now("after the end", pair[1]);
  NOTE(send(pair[1], "answer", 6, MSG_NOSIGNAL));
  await("an answer", pair[0], POLLIN);
  NOTE(recv(pair[0], text, 100, 0));
  NOTE(close(pair[1]));
  await("both ends", pair[0], POLLIN);
  ready_now("both ends", pair[0]);
  NOTE(recv(pair[0], text, 100, 0));
  NOTE(close(pair[0]));
  NOTE(recv(pair[0], text, 100, 0));
}

/* One end closes with unread data, so the other one is reset. */
static void end_by_reset(int listener, uint16_t port) {
  char text[100];
  int pair[2], error = -1;
  socklen_t length = sizeof(error);
  note("-- a reset\n");
  make_pair(listener, port, pair);
  NOTE(send(pair[1], "for you", 7, MSG_NOSIGNAL));
  NOTE(send(pair[0], "unread", 6, MSG_NOSIGNAL));
  await("data", pair[1], POLLIN);
  await("data", pair[0], POLLIN);
  NOTE(close(pair[1]));
  await("the reset", pair[0], POLLRDHUP);
  ready_now("after the reset", pair[0]);
  NOTE(recv(pair[0], text, 100, 0));
  NOTE(recv(pair[0], text, 100, 0));
  NOTE(recv(pair[0], text, 100, 0));
  NOTE(send(pair[0], "late", 4, MSG_NOSIGNAL));
  NOTE(getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &length));
  note("error %d\n", error);
  NOTE(shutdown(pair[0], SHUT_WR));
  NOTE(close(pair[0]));
}

/* Sends to an end that has closed. */
static void send_to_closed(int listener, uint16_t port) {
  int pair[2];
  note("-- sends to a closed end\n");
  make_pair(listener, port, pair);
  NOTE(close(pair[1]));
  await("the end", pair[0], POLLRDHUP);
  NOTE(send(pair[0], "late", 4, MSG_NOSIGNAL));
  await("the reset", pair[0], 0);
  NOTE(send(pair[0], "later", 5, MSG_NOSIGNAL));
  NOTE(close(pair[0]));
}

/* A listener closes with a connection that nobody accepted; then nobody listens there. */
static void close_listener(int listener, uint16_t port) {
  char text[10];
  note("-- a listener closes\n");
  NOTE(accept4(listener, NULL, NULL, 0));
  const int fd = dial(port);
  NOTE(close(listener));
  await("the reset", fd, POLLIN);
  NOTE(recv(fd, text, 10, 0));
  close(fd);
  close(dial(port));
}

/* Events of epoll: levels and edges, also of a nested descriptor. */
static void watch(int listener, uint16_t port) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7}, found[4];
  int pair[2];
  note("-- epoll\n");
  make_pair(listener, port, pair);
  const int level = epoll_create1(EPOLL_CLOEXEC), edge = epoll_create1(EPOLL_CLOEXEC);
  NOTE(epoll_ctl(level, EPOLL_CTL_ADD, pair[1], &event));
  NOTE(epoll_ctl(level, EPOLL_CTL_ADD, pair[1], &event));
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  NOTE(epoll_ctl(edge, EPOLL_CTL_ADD, pair[1], &event));
  for (int round = 0; round < 3; round++) {
    NOTE(epoll_wait(level, found, 4, 0));
    const int count = epoll_wait(edge, found, 4, 0);
    note("edges: %d, %x\n", count, count > 0 ? found[0].events : 0);
    if (round == 0)
      send(pair[0], "x", 1, MSG_NOSIGNAL);
    await("data", pair[1], POLLIN);
    await("nested", level, POLLIN);
  }
  send(pair[0], "x", 1, MSG_NOSIGNAL);
  await("nested", edge, POLLIN);
  NOTE(epoll_wait(edge, found, 4, 0));
  event.events = EPOLLOUT;
  NOTE(epoll_ctl(level, EPOLL_CTL_MOD, pair[1], &event));
  NOTE(epoll_wait(level, found, 4, 0));
  note("%x %d\n", found[0].events, (int)found[0].data.u32);
  NOTE(epoll_ctl(level, EPOLL_CTL_DEL, pair[1], NULL));
  NOTE(epoll_ctl(level, EPOLL_CTL_DEL, pair[1], NULL));
  NOTE(epoll_wait(level, found, 4, 0));
  NOTE(close(pair[1]));
  NOTE(epoll_wait(edge, found, 4, 0));
  close(level);
  close(edge);
  close(pair[0]);
}

/* A buffer fills, and has room again. */
static void fill(int listener, uint16_t port) {
  static char bytes[65536];
  int pair[2];
  size_t sent = 0, got = 0;
  note("-- a full buffer\n");
  make_pair(listener, port, pair);
  struct pollfd room = {.fd = pair[0], .events = POLLOUT}, data = {.fd = pair[1], .events = POLLIN};
  for (int quiet = 0; quiet < 10;) { /* until the kernel has moved all that it can */
    const ssize_t n = send(pair[0], bytes, sizeof(bytes), MSG_NOSIGNAL);
    sent += n > 0 ? (size_t)n : 0;
    quiet = n > 0 ? 0 : quiet + 1;
    if (n < 0)
      poll(&room, 1, 10);
  }
  NOTE(send(pair[0], bytes, sizeof(bytes), MSG_NOSIGNAL));
  ready_now("full", pair[0]);
  while (got < sent && poll(&data, 1, 2000) > 0) {
    const ssize_t n = recv(pair[1], bytes, sizeof(bytes), 0);
    got += n > 0 ? (size_t)n : 0;
  }
  note("all arrived: %d\n", got == sent);
  await("room", pair[0], POLLOUT);
  NOTE(send(pair[0], bytes, 10, MSG_NOSIGNAL));
  close(pair[0]);
  close(pair[1]);
}

/* Other descriptors, and mistakes. */
static void others(void) {
  uint64_t value = 0;
  char byte;
  note("-- others\n");
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ready_now("eventfd", fd);
  NOTE(read(fd, &value, sizeof(value)));
  NOTE(eventfd_write(fd, 3));
  NOTE(eventfd_write(fd, 4));
  ready_now("eventfd", fd);
  NOTE(eventfd_read(fd, &value));
  note("%d\n", (int)value);
  NOTE(recv(fd, &byte, 1, 0));
  NOTE(close(fd));
  fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  ready_now("a fresh socket", fd);
  NOTE(recv(fd, &byte, 1, 0));
  NOTE(send(fd, &byte, 1, MSG_NOSIGNAL));
  NOTE(shutdown(fd, SHUT_WR));
  NOTE((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  NOTE(epoll_ctl(fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN}));
  NOTE(close(fd));
  NOTE(close(fd));
}

/* The program. */
static void observe(int rank, void *arg) {
  uint16_t port;
  (void)rank, (void)arg;
  int listener = listen_any(&port);
  end_in_order(listener, port);
  end_by_reset(listener, port);
  send_to_closed(listener, port);
  watch(listener, port);
  fill(listener, port);
  close_listener(listener, port);
  others();
}

/* Shows the first lines that differ. */
static void compare(const char *real, const char *simulated) {
  while (*real && *simulated) {
    const size_t a = strcspn(real, "\n"), b = strcspn(simulated, "\n");
    cr_expect(a == b && memcmp(real, simulated, a) == 0, "kernel: %.*s; simulated: %.*s", (int)a,
              real, (int)b, simulated);
    real += a + 1;
    simulated += b + 1;
  }
  cr_expect_eq(*real, *simulated);
}

Test(kernel, as_the_real_one, .timeout = 60) {
  const sk_config config = sk_defaults(1, 1, 1);
  notes = &observed[0];
  observe(0, NULL);
  notes = &observed[1];
  sk_open(&config);
  cr_assert(sk_run(observe, NULL, 60 * SK_S));
  sk_close();
  cr_assert_gt(observed[0].used, 1000);
  compare(observed[0].text, observed[1].text);
}
