/*
 * moves.h: plain TCP sockets between all ranks, and bytes that go and come over them at once. Only
 * sockets.c reads it.
 */
#ifndef PERF_COMPARE_MOVES_H
#define PERF_COMPARE_MOVES_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine.h"

#define MOST_RANKS  64
#define PIECE_BYTES (256u << 10)
#define DEADLINE_S  20

typedef enum wait_kind { SPINS, YIELDS, SLEEPS, WAITS } wait_kind;

/* A rank, and its sockets. */
typedef struct mesh {
  int rank, nranks;
  int sockets[MOST_RANKS]; /* by rank */
  wait_kind wait;
  char *pieces; /* one for each move */
} mesh;

/* Bytes that go to one rank, and others that come from one. */
typedef struct move {
  int to, from; /* sockets */
  const char *out;
  size_t out_left;
  char *in; /* NULL: what comes is added to `own`, which gives `sum` */
  const float *own;
  float *sum;
  size_t in_left;
  size_t kept; /* bytes of a broken float in the move's piece */
} move;

/* Ends the program because of an error that no system call has reported. */
static inline void die_of(int error, const char *what) {
  errno = error;
  die(what);
}

/* Adds whole floats of what has come, and keeps the rest. */
static inline void add_piece(move *v, char *piece, size_t bytes) {
  const size_t floats = bytes / sizeof(float);
  const float *come = (const float *)piece;
  for (size_t i = 0; i < floats; i++)
    v->sum[i] = v->own[i] + come[i];
  v->sum += floats;
  v->own += floats;
  v->kept = bytes % sizeof(float);
  memmove(piece, piece + floats * sizeof(float), v->kept);
}

/* Sends what the socket takes; whether it took something. */
static inline bool push(move *v) {
  if (v->out_left == 0)
    return false;
  const ssize_t sent = send(v->to, v->out, v->out_left, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN)
    die("send");
  if (sent <= 0)
    return false;
  v->out += sent;
  v->out_left -= (size_t)sent;
  return true;
}

/* Takes what has come; whether there was something. */
static inline bool pull(move *v, char *piece) {
  if (v->in_left == 0)
    return false;
  const size_t room = v->in ? v->in_left : PIECE_BYTES - v->kept;
  char *into = v->in ? v->in : piece + v->kept;
  const ssize_t got = recv(v->from, into, room < v->in_left ? room : v->in_left, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN)
    return false;
  if (got <= 0)
    die_of(got == 0 ? ECONNRESET : errno, "recv");
  v->in_left -= (size_t)got;
  if (v->in)
    v->in += got;
  else
    add_piece(v, piece, v->kept + (size_t)got);
  return true;
}

/* Sleeps until a socket is ready. */
static inline void sleep_until_ready(const move *moves, int count) {
  struct pollfd fds[2 * MOST_RANKS];
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (moves[i].out_left > 0)
      fds[n++] = (struct pollfd){.fd = moves[i].to, .events = POLLOUT};
    if (moves[i].in_left > 0)
      fds[n++] = (struct pollfd){.fd = moves[i].from, .events = POLLIN};
  }
  const int ready = poll(fds, (nfds_t)n, DEADLINE_S * 1000);
  if (ready <= 0)
    die_of(ready == 0 ? ETIMEDOUT : errno, "poll");
}

/* Does some moves at once, up to their ends. */
static inline void run_moves(mesh *m, move *moves, int count) {
  double idle_since = 0;
  for (unsigned looks = 0;; looks++) {
    bool left = false, moved = false;
    for (int i = 0; i < count; i++) {
      moved |= push(&moves[i]);
      moved |= pull(&moves[i], m->pieces + (size_t)i * PIECE_BYTES);
      left |= moves[i].out_left > 0 || moves[i].in_left > 0;
    }
    if (!left)
      return;
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (m->wait == SLEEPS)
      sleep_until_ready(moves, count);
    else if (m->wait == YIELDS)
      sched_yield();
    if (looks % 4096 == 0 && idle_since > 0 && now_s() > idle_since + DEADLINE_S)
      die_of(ETIMEDOUT, "recv");
    if (idle_since == 0)
      idle_since = now_s();
  }
}

/* A TCP socket with a control of congestion (NULL: the system's). It has to be set before a
 * connection begins: what BBR has begun with its timers keeps them. */
static inline int open_socket(const char *congestion) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0)
    die("socket");
  if (congestion &&
      setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) != 0)
    die("TCP_CONGESTION");
  return fd;
}

/* Connects to a rank whose number is smaller, once it listens, and tells it its own. */
static inline void dial(mesh *m, int peer, struct sockaddr_in theirs, const char *congestion) {
  for (double end = now_s() + DEADLINE_S;; usleep(1000)) {
    const int fd = open_socket(congestion);
    m->sockets[peer] = fd;
    if (connect(fd, (struct sockaddr *)&theirs, sizeof(theirs)) == 0)
      break;
    if (errno != ECONNREFUSED || now_s() > end)
      die("connect");
    close(fd);
  }
  if (send(m->sockets[peer], &m->rank, sizeof(m->rank), MSG_NOSIGNAL) != sizeof(m->rank))
    die("send");
}

/* Takes a connection from a rank whose number is greater. */
static inline void answer(mesh *m, int listener) {
  struct pollfd come = {.fd = listener, .events = POLLIN};
  int peer = -1;
  const int fd = poll(&come, 1, DEADLINE_S * 1000) == 1 ? accept(listener, NULL, NULL) : -1;
  if (fd < 0 || recv(fd, &peer, sizeof(peer), MSG_WAITALL) != sizeof(peer) || peer <= m->rank ||
      peer >= m->nranks)
    die("accept");
  m->sockets[peer] = fd;
}

/* Connects a rank with all others: rank r is at the r-th address, and its port is port + r. All
 * sockets have that control of congestion (NULL: the system's). */
static inline void mesh_connect(mesh *m, int rank, char *addresses, int port,
                                const char *congestion) {
  struct sockaddr_in at[MOST_RANKS];
  char *rest = NULL;
  *m = (mesh){.rank = rank, .wait = YIELDS};
  for (char *next = strtok_r(addresses, ",", &rest); next; next = strtok_r(NULL, ",", &rest)) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(port + m->nranks))};
    if (inet_pton(AF_INET, next, &to.sin_addr) != 1 || m->nranks == MOST_RANKS)
      die_of(EINVAL, next);
    at[m->nranks++] = to;
  }
  m->pieces = malloc((size_t)m->nranks * PIECE_BYTES);
  if (rank < 0 || rank >= m->nranks || m->nranks < 2 || !m->pieces)
    die_of(m->pieces ? EINVAL : ENOMEM, "a rank and the addresses of all");
  const int listener = open_socket(congestion), one = 1;
  if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(listener, (struct sockaddr *)&at[rank], sizeof(at[0])) != 0 ||
      listen(listener, MOST_RANKS) != 0)
    die("listen");
  for (int peer = 0; peer < m->rank; peer++)
    dial(m, peer, at[peer], congestion);
  for (int peer = m->rank + 1; peer < m->nranks; peer++)
    answer(m, listener);
  close(listener);
  for (int peer = 0; peer < m->nranks; peer++)
    if (peer != m->rank)
      setsockopt(m->sockets[peer], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

#endif
