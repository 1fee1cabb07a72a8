/* support_strangers.c: processes that connect to the ports of a job and do not belong to it. */
#include "support_strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int listening_ports(uint16_t *ports, int max, bool filtered) {
  const int none = 0;
  int count = 0;
  for (int fd = 0; fd < 1024 && count < max; fd++) {
    struct sockaddr_in6 name; /* the port is at the same place for IPv4 */
    int listening = 0;
    socklen_t length = sizeof(listening), name_length = sizeof(name);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening &&
        getsockname(fd, (struct sockaddr *)&name, &name_length) == 0 &&
        (name.sin6_family == AF_INET6 || name.sin6_family == AF_INET)) {
      ports[count++] = ntohs(name.sin6_port);
      if (!filtered)
        setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
    }
  }
  return count;
}

/* Begins to connect from one of two addresses; -1: no descriptor. */
static int begin_to_connect(uint16_t port, int number) {
  struct sockaddr_in from = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(0x7f000002u + (uint32_t)(number & 1))};
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -1;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  if (bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0)
    abort();
  (void)connect(fd, (struct sockaddr *)&to, sizeof(to)); /* goes on in the background */
  return fd;
}

/* Says what strangers of a kind say; those that are not connected yet say nothing. */
static void speak(int fd, stranger_kind kind) {
  char garbage[200];
  memset(garbage, 'x', sizeof(garbage));
  if (kind == STRANGERS_GARBAGE)
    (void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL | MSG_DONTWAIT);
  else if (kind == STRANGERS_HALF_HELLO)
    (void)send(fd, "CLih\1\0\1\0", 8, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The process of some strangers. */
static void stay(uint16_t port, int count, stranger_kind kind, int ready, int hold) {
  char byte = 0;
  dup2(ready, 0);
  dup2(hold, 1);
  close_range(3, ~0u, 0); /* above all listeners, which would stay open with this process */
  const struct rlimit limit = {(rlim_t)count + 64, (rlim_t)count + 64};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    abort();
  int *fds = calloc((size_t)count, sizeof(*fds));
  for (int i = 0; fds && i < count; i++)
    fds[i] = begin_to_connect(port, i);
  for (int i = 0; fds && i < count && kind != STRANGERS_SILENT; i++)
    speak(fds[i], kind);
  if (write(0, &byte, 1) == 1)
    while (read(1, &byte, 1) > 0)
      continue;
  _exit(0);
}

strangers strangers_come(uint16_t port, int count, stranger_kind kind) {
  int ready[2], hold[2];
  char byte;
  if (pipe(ready) != 0 || pipe(hold) != 0)
    abort();
  pid_t pid = fork();
  if (pid == 0) {
    stay(port, count, kind, ready[1], hold[0]);
    _exit(1);
  }
  close(ready[1]);
  close(hold[0]);
  if (pid < 0 || read(ready[0], &byte, 1) != 1)
    abort();
  close(ready[0]);
  return (strangers){pid, hold[1]};
}

void strangers_leave(strangers *who) {
  close(who->hold);
  waitpid(who->pid, NULL, 0);
}
