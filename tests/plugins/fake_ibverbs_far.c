/*
 * fake_ibverbs_far.c: the fake libibverbs: connections with queue pairs of other processes, so that
 * those can be killed or stopped. What is written travels in datagrams over a socket that is named
 * after the receiver's queue pair, to a thread there, which plays the device. A datagram that has
 * left the receiver's queue, where it stays until it was carried out, is acknowledged.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_ibverbs_parts.h"

#define PIECE   32768u
#define TICK_US 1000 /* looks for acknowledgements */

/* A datagram. */
typedef struct piece {
  fake_far_head head;
  uint8_t data[PIECE];
} piece;

struct fake_far {
  int fd;
  uint32_t peer;
  atomic_bool ends;
  pthread_t thread;
  void *qp;
};

/* The name of a queue pair's socket. */
static socklen_t name_of(uint32_t number, struct sockaddr_un *name) {
  *name = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "libcoll-fake-%llx-%x",
                        (unsigned long long)fake.run, number);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Takes what comes, until the queue pair ends. */
static void *receive(void *arg) {
  fake_far *far = arg;
  piece *p = malloc(sizeof(*p));
  if (!p)
    abort();
  while (!atomic_load(&far->ends)) {
    ssize_t got = recv(far->fd, p, sizeof(*p), MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      fake_far_tick(far->qp);
      continue;
    }
    if (got < (ssize_t)sizeof(p->head))
      break;
    while (!atomic_load(&far->ends) &&
           !fake_far_arrived(far->qp, &p->head, p->data, (size_t)got - sizeof(p->head)))
      usleep(100); /* no receive request: the sender tries again after its RNR timer */
    if (recv(far->fd, NULL, 0, 0) < 0)
      break;
  }
  free(p);
  return NULL;
}

fake_far *fake_far_open(void *qp, uint32_t number, uint32_t peer) {
  struct sockaddr_un name;
  socklen_t length = name_of(number, &name);
  fake_far *far = malloc(sizeof(*far));
  if (!far)
    abort();
  *far = (fake_far){.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), .peer = peer, .qp = qp};
  struct timeval tick = {.tv_usec = TICK_US};
  if (far->fd < 0 || bind(far->fd, (struct sockaddr *)&name, length) != 0 ||
      setsockopt(far->fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof(tick)) != 0 ||
      pthread_create(&far->thread, NULL, receive, far) != 0)
    abort();
  return far;
}

void fake_far_close(fake_far *far) {
  atomic_store(&far->ends, true);
  shutdown(far->fd, SHUT_RDWR);
  pthread_join(far->thread, NULL);
  close(far->fd);
  free(far);
}

int fake_far_send(const fake_far *far, const fake_far_head *what, const uint8_t *data,
                  size_t *moved) {
  struct sockaddr_un name;
  socklen_t length = name_of(far->peer, &name);
  fake_far_head head = *what;
  do {
    size_t bytes = what->bytes - *moved < PIECE ? what->bytes - *moved : PIECE;
    head.at = what->at + *moved;
    head.last = *moved + bytes == what->bytes;
    struct iovec parts[] = {{&head, sizeof(head)}, {(void *)(uintptr_t)(data + *moved), bytes}};
    struct msghdr message = {
        .msg_name = &name, .msg_namelen = length, .msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(far->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
      return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -1;
    *moved += bytes;
  } while (!head.last);
  return 1;
}

bool fake_far_acknowledged(const fake_far *far) {
  int queued = 0;
  if (ioctl(far->fd, SIOCOUTQ, &queued) != 0)
    abort();
  return queued == 0;
}
