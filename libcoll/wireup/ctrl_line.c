/* ctrl_line.c: one socket of a control link. */
#include "libcoll/wireup/ctrl_line.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/path.h"
#include "libcoll/net/sockets.h"

#define UNANSWERED 2      /* after so many probes without an answer a line was silent */
#define BEATS_MOST 64     /* sent to a neighbour that does not read */
#define GIVE_UP_MS 120000 /* after this the kernel drops what a closed line still has to send */
#define SEALED     COLLI_SEALED_BYTES(sizeof(colli_ctrl_msg)) /* a message on the wire */

/* Writes the address of one end of a socket, "a local socket" if it has none. */
static void name_end(int fd, bool there, char text[COLLI_ADDR_TEXT]) {
  colli_addr addr;
  if (colli_net_end(fd, there, &addr))
    colli_addr_text(&addr, text);
  else
    snprintf(text, COLLI_ADDR_TEXT, "a local socket");
}

bool colli_ctrl_line_open(colli_ctrl_line *line, const colli_sealed *conn, int epoll_fd,
                          uint32_t epoll_tag, int heartbeat_ms) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = epoll_tag};
  line->conn = *conn;
  line->epoll_fd = epoll_fd;
  line->epoll_tag = epoll_tag;
  line->out_done = SEALED;
  name_end(conn->fd, false, line->here);
  name_end(conn->fd, true, line->there);
  colli_heartbeat_enable(conn->fd, heartbeat_ms);
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) == 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Makes epoll watch for input and, if something waits for it, for space to send. */
static void watch(colli_ctrl_line *line) {
  const bool sending =
      colli_ctrl_line_unsent(line) && (colli_sealed_events(&line->conn, POLLOUT) & POLLOUT) != 0;
  if (line->watching == sending)
    return;
  struct epoll_event event = {.events = EPOLLIN | (sending ? EPOLLOUT : 0),
                              .data.u32 = line->epoll_tag};
  if (epoll_ctl(line->epoll_fd, EPOLL_CTL_MOD, line->conn.fd, &event) == 0)
    line->watching = sending;
}

bool colli_ctrl_line_unsent(const colli_ctrl_line *line) {
  return line->conn.fd >= 0 && !line->broken && (line->out_done < SEALED || line->queue.count > 0);
}

void colli_ctrl_line_flush(colli_ctrl_line *line) {
  while (colli_ctrl_line_unsent(line)) {
    COLLI_ASSERT(line->out_done <= SEALED);
    if (line->out_done == SEALED && colli_ctrl_queue_pop(&line->queue, &line->out))
      line->out_done = 0;
    int result =
        colli_sealed_push(&line->conn, &line->out.msg, sizeof(line->out.msg), &line->out_done);
    if (result == COLL_T_AGAIN || colli_sealed_may_go_on(&line->conn, result))
      break; /* a shortage may pass, and the neighbour would miss the goodbye */
    /* Earlier input from the neighbour can still be read; reading then finds the end. */
    line->broken = result > 0;
    line->broken_by = result > 0 ? result : 0;
  }
  if (colli_ctrl_line_works(line))
    watch(line);
}

bool colli_ctrl_line_send(colli_ctrl_line *line, const colli_ctrl_msg *msg, int nranks) {
  if (line->conn.fd < 0 || line->broken || !colli_ctrl_queue_push(&line->queue, 0, msg, nranks))
    return false;
  colli_ctrl_line_flush(line);
  return true;
}

int colli_ctrl_line_receive(colli_ctrl_line *line) {
  COLLI_ASSERT(colli_ctrl_line_works(line) && line->in_done <= SEALED);
  int result = colli_sealed_pull(&line->conn, &line->in, sizeof(line->in), &line->in_done);
  if (colli_sealed_may_go_on(&line->conn, result))
    return COLL_T_AGAIN; /* a shortage here says nothing about the peer: try again */
  if (result == COLL_T_DONE) {
    line->in_done = 0;
    line->beats = 0;
  }
  /* The kernel tells why a connection broke only once: then the end of the stream is no proof. */
  const bool told = line->broken_by != 0 && line->broken_by != EPIPE;
  return result == ESHUTDOWN && told ? line->broken_by : result;
}

/* ---- silence --------------------------------------------------------------------------------- */

bool colli_ctrl_line_unheard(const colli_ctrl_line *line) {
  return line->was_quiet || colli_path_unheard(line->conn.fd) >= UNANSWERED;
}

/* Sends something that the neighbour's kernel has to answer, if the kernel here asks too seldom.
 * A neighbour that does not read gets few: they must not fill its memory. */
static void send_beat(colli_ctrl_line *line, int rank, int nranks, int heartbeat_ms) {
  if (heartbeat_ms >= COLLI_HEARTBEAT_KERNEL_MS || !line->heartbeat.idle ||
      colli_ctrl_line_unsent(line) || line->beats >= BEATS_MOST)
    return;
  line->beats++;
  (void)colli_ctrl_line_send(
      line, &(colli_ctrl_msg){.kind = COLLI_CTRL_BEAT, .origin = rank, .peer = -1}, nranks);
}

void colli_ctrl_line_look(colli_ctrl_line *line, int rank, int nranks, int heartbeat_ms,
                          uint64_t now_ns) {
  line->quiet = colli_heartbeat_silent(&line->heartbeat, line->conn.fd, heartbeat_ms, now_ns);
  line->was_quiet |= line->quiet;
  if (!line->quiet)
    send_beat(line, rank, nranks, heartbeat_ms);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Has epoll forget it. Closing alone would leave it there while a child that is being forked still
 * holds it. */
static void unwatch(colli_ctrl_line *line) {
  if (colli_ctrl_line_works(line))
    epoll_ctl(line->epoll_fd, EPOLL_CTL_DEL, line->conn.fd, NULL);
}

void colli_ctrl_line_mute(colli_ctrl_line *line) {
  unwatch(line);
  line->broken = line->mute = true;
  line->joins = false;
}

void colli_ctrl_line_close(colli_ctrl_line *line) {
  const int give_up_ms = GIVE_UP_MS;
  unwatch(line);
  if (line->conn.fd >= 0)
    setsockopt(line->conn.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof(give_up_ms));
  colli_sealed_close(&line->conn);
  colli_ctrl_queue_free(&line->queue);
}

/* Discards some of the input; closes the line at its end. */
static void discard_input(colli_ctrl_line *line) {
  char waste[4096];
  for (int reads = 0; reads < 64; reads++) { /* neighbours may never stop sending */
    ssize_t got = recv(line->conn.fd, waste, sizeof(waste), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR))
      continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    colli_ctrl_line_close(line);
    return;
  }
}

bool colli_ctrl_line_end(colli_ctrl_line *line, struct pollfd *pfd) {
  colli_ctrl_line_flush(line);
  if (line->conn.fd >= 0 && !line->shut && !colli_ctrl_line_unsent(line))
    line->shut = shutdown(line->conn.fd, SHUT_WR) == 0 || errno == ENOTCONN;
  if (line->conn.fd >= 0)
    discard_input(line);
  *pfd = (struct pollfd){.fd = line->conn.fd, .events = POLLIN};
  if (line->conn.fd < 0)
    return false;
  if (colli_ctrl_line_unsent(line)) {
    pfd->events |= POLLOUT;
    return true;
  }
  /* Once the neighbour's kernel has all data, nothing can get lost. */
  uint64_t unacknowledged;
  const bool waits = !colli_path_queued(line->conn.fd, &unacknowledged) || unacknowledged > 0;
  if (!waits)
    pfd->fd = -1;
  return waits;
}
