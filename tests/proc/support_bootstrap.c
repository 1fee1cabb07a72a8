/* support_bootstrap.c: threads or processes that run only the bootstrap. */
#include "support_bootstrap.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/wireup/ctrl_links.h"
#include "waits.h"

/* Whether every link carries messages both ways. */
static bool links_work(const member *m, colli_ctrl *ctrl) {
  int peers[8], expected[8];
  int count = colli_ctrl_neighbours(ctrl, peers), heard = 0, gone = 0;
  if (count != colli_ctrl_peers(m->rank, m->nranks, expected))
    return false;
  for (int i = 0; i < count; i++) {
    colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING, .origin = m->rank, .peer = peers[i]};
    colli_ctrl_send(ctrl, peers[i], &msg);
    msg.kind = COLLI_CTRL_GOODBYE;
    colli_ctrl_send(ctrl, peers[i], &msg);
  }
  uint64_t until_ns = colli_now_ns() + 5 * COLLI_NS_PER_S;
  while (gone < count && colli_now_ns() < until_ns) {
    colli_ctrl_msg msg;
    int peer, sys_errno;
    switch (colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno)) {
    case COLLI_CTRL_MESSAGE:
      if (msg.origin != peer || (msg.kind == COLLI_CTRL_WAITING && msg.peer != m->rank))
        return false;
      heard += msg.kind == COLLI_CTRL_WAITING;
      gone += msg.kind == COLLI_CTRL_GOODBYE;
      break;
    case COLLI_CTRL_CLOSED:
    case COLLI_CTRL_SILENT:
      return false;
    case COLLI_CTRL_NOTHING:
      poll(&(struct pollfd){.fd = colli_ctrl_fd(ctrl), .events = POLLIN}, 1, 100);
    }
  }
  return heard == count && gone == count;
}

/* Takes part once. */
void *take_part(void *arg) {
  member *m = arg;
  colli_params params;
  colli_rank_info mine;
  colli_rank_table *table = NULL;
  colli_ctrl *ctrl = NULL;
  colli_error_clear(&m->error);
  memset(&mine, 0, sizeof(mine));
  snprintf(mine.host, sizeof(mine.host), "host%d", m->rank);
  mine.pid = m->pid;
  mine.cpus[0] = 77 + (uint64_t)m->rank;
  if (m->damaged)
    memset(&mine.calibration, 0xff, sizeof(mine.calibration)); /* no numbers */
  if (colli_params_load(&params, &m->error) != COLL_OK)
    abort();
  if (m->ifname)
    colli_params_set_text(&params, COLLI_PARAM_TCP_IFNAME, m->ifname);
  if (m->begins && !WAIT_UNTIL(m->begins(m->arg), 20))
    abort();
  atomic_store(&m->thread, gettid());
  const colli_log log = {m->log_level, -1};
  uint64_t start_ns = colli_now_ns();
  m->status = colli_bootstrap(&m->id, m->rank, m->nranks, &mine, &params,
                              start_ns + (uint64_t)m->timeout_ms * COLLI_NS_PER_MS, &log, NULL,
                              &table, &ctrl, &m->error);
  m->took_ms = (colli_now_ns() - start_ns) / COLLI_NS_PER_MS;
  atomic_store(&m->over, true);
  m->sound = m->status == COLL_OK && table && ctrl;
  for (int rank = 0; m->sound && rank < m->nranks; rank++) {
    char host[64];
    snprintf(host, sizeof(host), "host%d", rank);
    const colli_rank_info info = colli_rank_at(table, rank);
    m->sound = strcmp(info.host, host) == 0 && info.pid == 1000 + rank &&
               info.cpus[0] == 77 + (uint64_t)rank &&
               (m->nranks == 1 || info.control_addrs[0].port != 0);
  }
  m->sound = m->sound && links_work(m, ctrl);
  colli_ctrl_close(ctrl, 1000);
  colli_rank_table_free(table);
  return NULL;
}

bool member_waits(void *arg) {
  return sleeps(atomic_load(&((member *)arg)->thread));
}

bool member_is_over(void *arg) {
  return atomic_load(&((member *)arg)->over);
}

/* Makes an id; its listener belongs to rank 0. */
static colli_id make_id(void) {
  colli_id id;
  colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK ||
      colli_id_make(&id, &params, &error) != COLL_OK) {
    fprintf(stderr, "make_id: %s\n", error.message);
    abort();
  }
  colli_fd_disown(id.listen_fd); /* a forked member may have it */
  static uint8_t bytes[COLL_SECRET_BYTES];
  static colli_secret secret = {.refs = 1, .bytes = bytes}; /* so that nobody must release it */
  memcpy(bytes, id.secret->bytes, sizeof(bytes));
  colli_id_release(&id);
  id.secret = &secret;
  return id;
}

/* Makes correct members 0 .. n-1. */
member *make_members(int n, int timeout_ms) {
  member *members = calloc((size_t)n, sizeof(*members));
  colli_id id = make_id();
  for (int i = 0; i < n; i++) {
    members[i] =
        (member){.id = id, .rank = i, .nranks = n, .timeout_ms = timeout_ms, .pid = 1000 + i};
    if (i > 0)
      members[i].id.listen_fd = -1;
  }
  return members;
}

void give_listener(member *members, int n, int maker) {
  const int listen_fd = members[0].id.listen_fd;
  for (int i = 0; i < n; i++) {
    members[i].id.listen_fd = i == maker ? listen_fd : -1;
    members[i].id.server = -1;
    members[i].id.pid = 4711;
  }
}

/* Runs all members but `absent` as threads. */
void run_members(member *members, int n, int absent) {
  pthread_t threads[128];
  for (int i = 0; i < n; i++)
    if (i != absent && pthread_create(&threads[i], NULL, take_part, &members[i]) != 0)
      abort();
  for (int i = 0; i < n; i++)
    if (i != absent)
      pthread_join(threads[i], NULL);
}

/* ---- somebody on the way --------------------------------------------------------------------- */

/* Changes a byte of the stream to or from rank 0. */
typedef struct proxy {
  int listener;
  colli_addr root;
  bool to_root;
  size_t place;
} proxy;

/* Passes on what one side has sent; false at its end. */
static bool pass_on(int from, int to, size_t *count, size_t place) {
  char bytes[4096];
  ssize_t got = recv(from, bytes, sizeof(bytes), 0);
  if (got > 0 && place >= *count && place < *count + (size_t)got)
    bytes[place - *count] ^= 1;
  *count += got > 0 ? (size_t)got : 0;
  return got > 0 && send(to, bytes, (size_t)got, MSG_NOSIGNAL) == got;
}

static void *run_proxy(void *arg) {
  const proxy *p = arg;
  size_t counts[2] = {0, 0};
  poll(&(struct pollfd){.fd = p->listener, .events = POLLIN}, 1, 10000);
  int rank = colli_net_accept(p->listener), root = colli_net_connect(&p->root);
  if (rank < 0 || root < 0)
    abort();
  struct pollfd fds[2] = {{.fd = rank, .events = POLLIN}, {.fd = root, .events = POLLIN}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    poll(fds, 2, 10000);
    for (int i = 0; i < 2; i++) {
      const int to = i == 0 ? root : rank;
      const size_t place = p->to_root == (i == 0) ? p->place : SIZE_MAX;
      if (fds[i].fd >= 0 && fds[i].revents && !pass_on(fds[i].fd, to, &counts[i], place)) {
        shutdown(to, SHUT_WR); /* what it sent last must still arrive */
        fds[i].fd = -1;
      }
    }
  }
  close(rank);
  close(root);
  close(p->listener);
  return NULL;
}

member *run_through_proxy(bool to_root, size_t place, int timeout_ms) {
  member *members = make_members(3, timeout_ms);
  proxy p = {.to_root = to_root, .place = place, .root = members[0].id.addrs[0]};
  uint16_t port;
  pthread_t thread;
  if (colli_net_listen("", &p.listener, &port, &members[1].error) != COLL_OK)
    abort();
  memset(members[1].id.addrs, 0, sizeof(members[1].id.addrs));
  members[1].id.addrs[0] = (colli_addr){.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  pthread_create(&thread, NULL, run_proxy, &p);
  run_members(members, 3, -1);
  pthread_join(thread, NULL);
  return members;
}
