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

#include "libcoll/net/auth.h"

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

/* A hello that was recorded: to any rank, of any kind. `port`: that it came to, over a network
 * without routers; 0: over others. */
static void record_hello(colli_hello *hello, int i, const uint8_t *secret, uint64_t comm_id,
                         int nranks, uint16_t port) {
  const colli_addr to = {.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  colli_auth auth;
  int dst_rank = i / COLLI_HELLO_SHRINK % nranks, src_rank = (dst_rank + 1) % nranks;
  colli_hello_kind kind = (colli_hello_kind)(COLLI_HELLO_CHECKIN + i % COLLI_HELLO_SHRINK);
  int fd = port ? colli_net_connect(&to) : -1;
  colli_auth_connect(&auth, fd, secret, kind, src_rank, kind == COLLI_HELLO_CHECKIN ? -1 : dst_rank,
                     comm_id, 0);
  if (port)
    colli_auth_bind(&auth, &to, NULL, 0);
  if (fd >= 0)
    close(fd);
  *hello = auth.hello;
}

void speeches_write(speeches *words, stranger_kind kind, const speech_target *target) {
  const uint8_t guess[COLL_SECRET_BYTES] = {1};
  const bool replay = kind == STRANGERS_REPLAY || kind == STRANGERS_REPLAY_ROUTED;
  colli_hello hello;
  memset(words, 'x', sizeof(*words));
  words->count = kind == STRANGERS_SILENT ? 0 : replay ? 128 : 1;
  words->bytes = kind == STRANGERS_GARBAGE      ? sizeof(words->text[0])
                 : kind == STRANGERS_HALF_HELLO ? 8
                                                : sizeof(hello);
  for (int i = 0; i < words->count && kind != STRANGERS_GARBAGE; i++) {
    record_hello(&hello, i, replay ? target->secret : guess, target->comm_id, target->nranks,
                 kind == STRANGERS_REPLAY ? target->port : 0);
    memcpy(words->text[i], &hello, sizeof(hello));
  }
}

/* Sends one of the messages. Fails silently if the connection is not up yet. */
static void speak(int fd, const speeches *words, int number) {
  if (words->count > 0)
    (void)send(fd, words->text[number % words->count], words->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The process of some strangers. */
static void stay(uint16_t port, int count, const speeches *words, int ready, int hold) {
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
  for (int i = 0; fds && i < count; i++)
    speak(fds[i], words, i);
  if (write(0, &byte, 1) == 1)
    while (read(1, &byte, 1) > 0)
      continue;
  _exit(0);
}

strangers strangers_come(uint16_t port, int count, const speeches *words) {
  int ready[2], hold[2];
  char byte;
  if (pipe(ready) != 0 || pipe(hold) != 0)
    abort();
  pid_t pid = fork();
  if (pid == 0) {
    stay(port, count, words, ready[1], hold[0]);
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
