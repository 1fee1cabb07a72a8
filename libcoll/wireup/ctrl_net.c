/* ctrl_net.c: control links over the sockets that bootstrap made, watched by one epoll descriptor.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/net/heartbeat.h"
#include "libcoll/net/path.h"
#include "libcoll/net/sockets.h"
#include "libcoll/wireup/ctrl_links.h"

#define UNANSWERED 2      /* after so many probes without an answer a link was silent */
#define GIVE_UP_MS 120000 /* after this the kernel drops what a closed link still has to send */
#define BEATS_MOST 64     /* sent to a neighbour that does not read */
#define SEALED     COLLI_SEALED_BYTES(sizeof(colli_ctrl_msg)) /* a message on the wire */

typedef struct net_link {
  colli_sealed conn; /* no descriptor: closed */
  bool left;         /* the neighbour said goodbye, so the end of the link is not a failure */
  bool silent;       /* its host does not answer */
  bool broken;       /* nothing more can be sent */
  bool watching;     /* epoll watches for space to send */
  bool shut;         /* our side is shut down */
  colli_ctrl_msg in;
  size_t in_done;
  colli_ctrl_entry out; /* being sent */
  size_t out_done;      /* SEALED: none is */
  colli_ctrl_queue queue;
  colli_heartbeat heartbeat;
  int beats; /* sent since the neighbour's last message */
} net_link;

typedef struct net_ctrl {
  colli_ctrl base;
  int epoll_fd;
  int heartbeat_ms;
  uint64_t look_ns; /* when to look for silent links again */
  net_link links[COLLI_CTRL_LINKS_MAX];
} net_ctrl;

/* Makes epoll watch a link for input and, if `sending`, for space to send. */
static void watch_link(net_ctrl *ctrl, int link, bool sending) {
  net_link *l = &ctrl->links[link];
  if (l->watching == sending)
    return;
  struct epoll_event event = {.events = EPOLLIN | (sending ? EPOLLOUT : 0),
                              .data.u32 = (uint32_t)link};
  if (epoll_ctl(ctrl->epoll_fd, EPOLL_CTL_MOD, l->conn.fd, &event) == 0)
    l->watching = sending;
}

/* Whether anything still has to be sent. */
static bool has_unsent(const net_link *l) {
  return !l->broken && (l->out_done < SEALED || l->queue.count > 0);
}

/* Sends what the socket accepts. */
static void flush_link(net_ctrl *ctrl, int link) {
  net_link *l = &ctrl->links[link];
  while (l->conn.fd >= 0 && has_unsent(l)) {
    COLLI_ASSERT_RANK(l->out_done <= SEALED, ctrl->base.rank);
    if (l->out_done == SEALED && colli_ctrl_queue_pop(&l->queue, &l->out))
      l->out_done = 0;
    int result = colli_sealed_push(&l->conn, &l->out.msg, sizeof(l->out.msg), &l->out_done);
    if (result == COLL_T_AGAIN || colli_sealed_may_go_on(&l->conn, result))
      break; /* a shortage may pass, and the neighbour would miss the goodbye */
    /* Earlier input from the neighbour can still be read; reading then finds the end. */
    l->broken = result > 0;
  }
  if (l->conn.fd >= 0)
    watch_link(ctrl, link, has_unsent(l));
}

static void net_send(colli_ctrl *base, int link, const colli_ctrl_msg *msg) {
  COLLI_ASSERT_RANK(link >= 0 && link < base->count, base->rank);
  net_ctrl *ctrl = (net_ctrl *)base;
  net_link *l = &ctrl->links[link];
  if (l->conn.fd < 0 || l->broken)
    return;
  colli_ctrl_queue_push(&l->queue, link, msg, base->nranks);
  flush_link(ctrl, link);
}

/* Closes one link for good. Closing alone would leave it in epoll while a child that is being
 * forked still holds it. */
static void close_link(net_ctrl *ctrl, net_link *l) {
  if (l->conn.fd >= 0)
    epoll_ctl(ctrl->epoll_fd, EPOLL_CTL_DEL, l->conn.fd, NULL);
  colli_sealed_close(&l->conn);
  colli_ctrl_queue_free(&l->queue);
}

/* Whether a message is valid. Terminates its strings. */
static bool check_message(colli_ctrl_msg *msg, int nranks) {
  if (msg->kind < COLLI_CTRL_FAILED || msg->kind > COLLI_CTRL_LAST_KIND || msg->origin < 0 ||
      msg->origin >= nranks || msg->peer < -1 || msg->peer >= nranks || msg->nmore < 0 ||
      msg->nmore > COLLI_CTRL_MORE)
    return false;
  for (int i = 0; i < msg->nmore; i++)
    if (msg->more[i] < 0 || msg->more[i] >= nranks)
      return false;
  colli_error_terminate(&msg->error);
  return true;
}

/* Whether the neighbour's kernel leaves this one's probes unanswered, or did before the link ended.
 */
static bool is_unanswered(const net_link *l) {
  return colli_path_unheard(l->conn.fd) >= UNANSWERED;
}

/*
 * What the end of a link proves. If the neighbour's kernel ends it, that process is gone. But a
 * reset after a silence may come from a host that has dropped the link, or was restarted.
 */
static colli_ctrl_event end_link(net_ctrl *ctrl, net_link *l, int sys_errno) {
  const bool reset = sys_errno == ECONNRESET && !l->silent && !is_unanswered(l);
  const bool proven = sys_errno == 0 || reset;
  const bool known = l->left || (l->silent && !proven);
  close_link(ctrl, l);
  return known ? COLLI_CTRL_NOTHING : proven ? COLLI_CTRL_CLOSED : COLLI_CTRL_SILENT;
}

/* Stops using a link without closing it: the neighbour would take that for the end of this process.
 */
static colli_ctrl_event mute_link(net_ctrl *ctrl, net_link *l) {
  const bool known = l->left || l->silent;
  epoll_ctl(ctrl->epoll_fd, EPOLL_CTL_DEL, l->conn.fd, NULL);
  l->broken = l->silent = true;
  return known ? COLLI_CTRL_NOTHING : COLLI_CTRL_SILENT;
}

/* Reads a whole message of a link to l->in, its end, or nothing yet. */
static colli_ctrl_event read_message(net_ctrl *ctrl, net_link *l, int *sys_errno) {
  COLLI_ASSERT_RANK(l->conn.fd >= 0 && l->in_done <= SEALED, ctrl->base.rank);
  int result = colli_sealed_pull(&l->conn, &l->in, sizeof(l->in), &l->in_done);
  if (result == COLL_T_AGAIN || colli_sealed_may_go_on(&l->conn, result))
    return COLLI_CTRL_NOTHING; /* a shortage here says nothing about the peer: try again */
  if (colli_errno_is_shortage(result)) { /* nor if nothing can be read any more */
    (void)mute_link(ctrl, l);
    return COLLI_CTRL_NOTHING;
  }
  if (result == EBADMSG) {
    *sys_errno = result;
    return mute_link(ctrl, l);
  }
  if (result != COLL_T_DONE) {
    *sys_errno = result == ESHUTDOWN ? 0 : result;
    return end_link(ctrl, l, *sys_errno);
  }
  l->in_done = 0;
  if (!check_message(&l->in, ctrl->base.nranks)) {
    *sys_errno = EPROTO;
    return mute_link(ctrl, l);
  }
  l->beats = 0;
  return COLLI_CTRL_MESSAGE;
}

/* The same, without beats, which must not delay the messages behind them. */
static colli_ctrl_event read_link(net_ctrl *ctrl, int link, colli_ctrl_msg *msg, int *sys_errno) {
  net_link *l = &ctrl->links[link];
  colli_ctrl_event event = read_message(ctrl, l, sys_errno);
  for (int i = 0; i < BEATS_MOST && event == COLLI_CTRL_MESSAGE && l->in.kind == COLLI_CTRL_BEAT;
       i++)
    event = read_message(ctrl, l, sys_errno);
  if (event != COLLI_CTRL_MESSAGE || l->in.kind == COLLI_CTRL_BEAT)
    return event == COLLI_CTRL_MESSAGE ? COLLI_CTRL_NOTHING : event;
  if (l->in.kind == COLLI_CTRL_GOODBYE && l->in.origin == ctrl->base.peers[link])
    l->left = true;
  *msg = l->in;
  return COLLI_CTRL_MESSAGE;
}

/* Sends something that the neighbour's kernel has to answer, if the kernel here asks too seldom.
 * A neighbour that does not read gets few: they must not fill its memory. */
static void send_beat(net_ctrl *ctrl, int link) {
  net_link *l = &ctrl->links[link];
  if (ctrl->heartbeat_ms >= COLLI_HEARTBEAT_KERNEL_MS || !l->heartbeat.idle || has_unsent(l) ||
      l->beats >= BEATS_MOST)
    return;
  l->beats++;
  net_send(&ctrl->base, link,
           &(colli_ctrl_msg){.kind = COLLI_CTRL_BEAT, .origin = ctrl->base.rank, .peer = -1});
}

/* Finds a link that has become silent. It stays open, because the network may heal. */
static bool find_silent(net_ctrl *ctrl, int *link) {
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < ctrl->look_ns)
    return false;
  ctrl->look_ns = now_ns + colli_heartbeat_look_ns(ctrl->heartbeat_ms);
  bool found = false;
  for (int i = 0; i < ctrl->base.count; i++) {
    net_link *l = &ctrl->links[i];
    if (l->conn.fd < 0 || l->silent || l->left)
      continue;
    if (!colli_heartbeat_silent(&l->heartbeat, l->conn.fd, ctrl->heartbeat_ms, now_ns)) {
      send_beat(ctrl, i);
    } else if (!found) {
      found = l->silent = true;
      *link = i;
    } else {
      ctrl->look_ns = 0; /* one at a time */
    }
  }
  return found;
}

static colli_ctrl_event net_poll(colli_ctrl *base, int *link, colli_ctrl_msg *msg, int *sys_errno) {
  net_ctrl *ctrl = (net_ctrl *)base;
  struct epoll_event events[COLLI_CTRL_LINKS_MAX];
  int count = epoll_wait(ctrl->epoll_fd, events, COLLI_CTRL_LINKS_MAX, 0);
  for (int i = 0; i < count; i++) {
    *link = (int)events[i].data.u32;
    COLLI_ASSERT_RANK(*link >= 0 && *link < base->count, base->rank);
    if (events[i].events & EPOLLOUT)
      flush_link(ctrl, *link);
    if (!(events[i].events & ~(uint32_t)EPOLLOUT) || ctrl->links[*link].conn.fd < 0)
      continue;
    colli_ctrl_event event = read_link(ctrl, *link, msg, sys_errno);
    if (event != COLLI_CTRL_NOTHING)
      return event; /* the other links stay ready for the next call */
  }
  if (!find_silent(ctrl, link))
    return COLLI_CTRL_NOTHING;
  *sys_errno = ETIMEDOUT;
  return COLLI_CTRL_SILENT;
}

static bool net_unsent(const colli_ctrl *base) {
  const net_ctrl *ctrl = (const net_ctrl *)base;
  for (int link = 0; link < base->count; link++)
    if (ctrl->links[link].conn.fd >= 0 && has_unsent(&ctrl->links[link]))
      return true;
  return false;
}

static int net_fd(const colli_ctrl *base) {
  return ((const net_ctrl *)base)->epoll_fd;
}

/* Discards some of a link's input; closes it at its end. */
static void discard_input(net_ctrl *ctrl, net_link *l) {
  char waste[4096];
  for (int reads = 0; reads < 64; reads++) { /* neighbours may never stop sending */
    ssize_t got = recv(l->conn.fd, waste, sizeof(waste), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR))
      continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    close_link(ctrl, l);
    return;
  }
}

/* Advances the closing of a link; true while there is something to wait for. */
static bool step_closing(net_ctrl *ctrl, int link, struct pollfd *pfd) {
  net_link *l = &ctrl->links[link];
  flush_link(ctrl, link);
  if (l->conn.fd >= 0 && !l->shut && !has_unsent(l))
    l->shut = shutdown(l->conn.fd, SHUT_WR) == 0 || errno == ENOTCONN;
  if (l->conn.fd >= 0)
    discard_input(ctrl, l);
  *pfd = (struct pollfd){.fd = l->conn.fd, .events = POLLIN};
  if (l->conn.fd < 0)
    return false;
  if (has_unsent(l)) {
    pfd->events |= POLLOUT;
    return true;
  }
  /* Once the neighbour's kernel has all data, nothing can get lost. */
  uint64_t unacknowledged;
  return !colli_path_queued(l->conn.fd, &unacknowledged) || unacknowledged > 0;
}

static void net_close(colli_ctrl *base, int timeout_ms) {
  net_ctrl *ctrl = (net_ctrl *)base;
  uint64_t deadline_ns = colli_now_ns() + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
  for (;;) {
    struct pollfd fds[COLLI_CTRL_LINKS_MAX];
    bool wait = false;
    for (int link = 0; link < base->count; link++) {
      bool busy = step_closing(ctrl, link, &fds[link]);
      wait = wait || busy;
      if (!busy)
        fds[link].fd = -1;
    }
    if (!wait || colli_now_ns() >= deadline_ns)
      break;
    poll(fds, (nfds_t)base->count, 1); /* acknowledgements cause no event, so poll */
  }
  const int give_up_ms = GIVE_UP_MS;
  for (int link = 0; link < base->count; link++) {
    setsockopt(ctrl->links[link].conn.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms,
               sizeof(give_up_ms));
    close_link(ctrl, &ctrl->links[link]);
  }
  colli_fd_close(ctrl->epoll_fd);
  free(ctrl);
}

static const colli_ctrl_ops net_ops = {net_send, net_poll, net_unsent, net_fd, net_close};

coll_status colli_ctrl_create_net(colli_ctrl **out, int rank, int nranks, const int *peers,
                                  const colli_sealed *conns, int count, int heartbeat_ms,
                                  coll_error *error) {
  COLLI_ASSERT_RANK(count >= 0 && count <= COLLI_CTRL_LINKS_MAX, rank);
  net_ctrl *ctrl = calloc(1, sizeof(*ctrl));
  *out = NULL;
  bool ok = ctrl && (ctrl->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC))) >= 0;
  for (int link = 0; ok && link < count; link++) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)link};
    ctrl->base.peers[link] = peers[link];
    ctrl->links[link].conn = conns[link];
    ctrl->links[link].out_done = SEALED;
    colli_heartbeat_enable(conns[link].fd, heartbeat_ms);
    ok = epoll_ctl(ctrl->epoll_fd, EPOLL_CTL_ADD, conns[link].fd, &event) == 0;
  }
  if (ok) {
    ctrl->heartbeat_ms = heartbeat_ms;
    ctrl->base.ops = &net_ops;
    ctrl->base.rank = rank;
    ctrl->base.nranks = nranks;
    ctrl->base.count = count;
    *out = &ctrl->base;
    return COLL_OK;
  }
  int sys_errno = errno;
  for (int link = 0; link < count; link++) {
    colli_sealed conn = conns[link];
    colli_sealed_close(&conn);
  }
  if (ctrl && ctrl->epoll_fd >= 0)
    colli_fd_close(ctrl->epoll_fd);
  free(ctrl);
  return colli_error_sys(error, sys_errno == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM,
                         "create", "epoll_create1", sys_errno,
                         "the control links of rank %d cannot be watched; if descriptors ran out, "
                         "raise the limit (ulimit -n)",
                         rank);
}
