/*
 * ctrl_net.c: control links over the sockets that bootstrap made, watched by one epoll descriptor.
 *
 * A link has one socket (line), or two in different networks. Every message goes over both, with a
 * number, and is taken from the line that has it first; so while one is cut, nothing is missing,
 * and it is in use again as soon as its network heals.
 *
 * A line that is made while the link is in use must not overtake the other one, or what that one
 * still has would be stale. So its sender waits until the other end's kernel has all that was sent
 * on the other line, and its receiver takes all that has come there first.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/net/path.h"
#include "libcoll/net/sockets.h"
#include "libcoll/wireup/ctrl_line.h"

#define LINES      2
#define STALE_MOST 64      /* messages that are dropped at once */
#define HEALS_MS   3600000 /* for so long one of two lines may be cut */

typedef struct net_link {
  bool left;                /* the neighbour said goodbye, so the end of the link is no failure */
  bool ended;               /* a stream has ended: its process is gone */
  bool reset;               /* its kernel has reset a line that was answered: so is it probably */
  bool silent;              /* its host does not answer; told once */
  bool arrived;             /* at the end: one line has brought everything to its kernel */
  uint64_t numbered, taken; /* the last message that was sent, and that was taken */
  colli_ctrl_line line[LINES];
} net_link;

typedef struct net_ctrl {
  colli_ctrl base;
  int epoll_fd;
  int heartbeat_ms;
  uint64_t look_ns;          /* when to look for silent links again */
  colli_ctrl_spares *spares; /* or NULL */
  net_link links[COLLI_CTRL_LINKS_MAX];
} net_ctrl;

/* Whether anything may still arrive on a link. */
static bool is_open(const net_link *l) {
  bool open = false;
  for (int i = 0; i < LINES; i++)
    open = open || colli_ctrl_line_works(&l->line[i]);
  return open;
}

/* The line of a link that works and has all that was sent; NULL: none. */
static colli_ctrl_line *whole_line(net_link *l) {
  for (int i = 0; i < LINES; i++)
    if (colli_ctrl_line_works(&l->line[i]) && !l->line[i].broken)
      return &l->line[i];
  return NULL;
}

/* Begins to send on a line that was made later, if the other one has delivered everything. */
static void let_join(net_link *l) {
  const colli_ctrl_line *whole = whole_line(l);
  uint64_t queued;
  for (int i = 0; i < LINES; i++)
    if (l->line[i].joins && whole && !colli_ctrl_line_unsent(whole) &&
        colli_path_queued(whole->conn.fd, &queued) && queued == 0)
      l->line[i].joins = l->line[i].broken = false;
}

static void net_send(colli_ctrl *base, int link, const colli_ctrl_msg *msg) {
  COLLI_ASSERT_RANK(link >= 0 && link < base->count, base->rank);
  net_link *l = &((net_ctrl *)base)->links[link];
  colli_ctrl_msg numbered = *msg;
  numbered.number = ++l->numbered;
  let_join(l);
  bool queued[LINES], any = false;
  for (int i = 0; i < LINES; i++) {
    queued[i] = colli_ctrl_line_send(&l->line[i], &numbered, base->nranks);
    any = any || queued[i];
  }
  /* A line that lacks it must not overtake one that has it: a later message would make it stale. */
  for (int i = 0; i < LINES; i++)
    l->line[i].broken = l->line[i].broken || (any && !queued[i]);
}

/* ---- receiving ------------------------------------------------------------------------------- */

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

/*
 * What the end of a line proves; sys_errno 0: the stream ended. If the neighbour's kernel ends it,
 * that process is gone. But a reset after a silence may come from a host that has dropped the line,
 * or was restarted. Where there is another line, that one goes on or ends as well; unless it is
 * cut, which its silence shows.
 */
static colli_ctrl_event end_line(net_link *l, colli_ctrl_line *line, int sys_errno) {
  const bool shortage = colli_errno_is_shortage(sys_errno);
  const bool garbled = sys_errno == EBADMSG || sys_errno == EPROTO;
  if (!line->fresh) { /* else it may be an attempt that the neighbour has given up */
    l->reset |= sys_errno == ECONNRESET && !l->silent && !colli_ctrl_line_unheard(line);
    l->ended |= sys_errno == 0;
  }
  line->ended_by = sys_errno;
  colli_ctrl_line_mute(line);
  for (int i = 0; i < LINES; i++)
    if (l->line[i].joins) /* what the other one had may be lost */
      colli_ctrl_line_mute(&l->line[i]);
  if (is_open(l) && !garbled && !(l->silent && l->ended))
    return COLLI_CTRL_NOTHING;
  const bool proven = !garbled && (l->ended || l->reset);
  const bool known = l->left || shortage || (l->silent && !proven);
  for (int i = 0; i < LINES && !shortage && !garbled; i++)
    colli_ctrl_line_close(&l->line[i]);
  l->silent = l->silent || shortage || garbled;
  return known ? COLLI_CTRL_NOTHING : proven ? COLLI_CTRL_CLOSED : COLLI_CTRL_SILENT;
}

/* Reads a whole message of a line to line->in, its end, or nothing yet. */
static colli_ctrl_event read_message(net_ctrl *ctrl, net_link *l, colli_ctrl_line *line,
                                     int *sys_errno) {
  int result = colli_ctrl_line_works(line) ? colli_ctrl_line_receive(line) : COLL_T_AGAIN;
  if (result == COLL_T_AGAIN)
    return COLLI_CTRL_NOTHING;
  if (result == COLL_T_DONE && check_message(&line->in, ctrl->base.nranks))
    return COLLI_CTRL_MESSAGE;
  *sys_errno = result == COLL_T_DONE ? EPROTO : result == ESHUTDOWN ? 0 : result;
  return end_line(l, line, *sys_errno);
}

/* Whether a message is to be dropped: a beat, or one that came over the other line. */
static bool is_stale(const net_link *l, const colli_ctrl_msg *msg) {
  return msg->kind == COLLI_CTRL_BEAT || msg->number <= l->taken;
}

/* Takes what the neighbour says about a line that is to be made. */
static void take_spare(net_ctrl *ctrl, int link, const colli_ctrl_msg *msg) {
  colli_ctrl_msg answer;
  if (ctrl->spares && msg->origin == ctrl->base.peers[link] && msg->pending < LINES &&
      colli_ctrl_spare_take(ctrl->spares, link, msg, whole_line(&ctrl->links[link]), &answer))
    net_send(&ctrl->base, link, &answer);
}

/* Whether a message is no news for the caller, after it was handled. */
static bool is_handled(net_ctrl *ctrl, int link, const colli_ctrl_msg *msg) {
  net_link *l = &ctrl->links[link];
  if (is_stale(l, msg))
    return true;
  if (msg->kind != COLLI_CTRL_SPARE)
    return false;
  l->taken = msg->number;
  take_spare(ctrl, link, msg);
  return true;
}

/* Reads the next message of a line to line->in that is for the caller, unless it has been there:
 * others must not delay it. *more: there were too many of these to be read at once. */
static colli_ctrl_event read_line(net_ctrl *ctrl, int link, colli_ctrl_line *line, bool *more,
                                  int *sys_errno) {
  net_link *l = &ctrl->links[link];
  colli_ctrl_event event = line->held ? COLLI_CTRL_MESSAGE : read_message(ctrl, l, line, sys_errno);
  line->held = *more = false;
  for (int i = 0; event == COLLI_CTRL_MESSAGE; i++) {
    if (line->fresh && !is_stale(l, &line->in)) {
      line->held = true;
      return event;
    }
    if (!is_handled(ctrl, link, &line->in))
      return event;
    *more = i == STALE_MOST;
    event = *more ? COLLI_CTRL_NOTHING : read_message(ctrl, l, line, sys_errno);
  }
  return event;
}

/* Takes the next message of a line; before the first one of a line that was made later, all that
 * has come on the other line. */
static colli_ctrl_event take_line(net_ctrl *ctrl, int link, colli_ctrl_line *line,
                                  colli_ctrl_msg *msg, int *sys_errno) {
  net_link *l = &ctrl->links[link];
  colli_ctrl_line *from = line;
  bool more;
  colli_ctrl_event event = read_line(ctrl, link, line, &more, sys_errno);
  if (line->held) {
    from = &l->line[line == &l->line[0]];
    event = read_line(ctrl, link, from, &more, sys_errno);
    if (event == COLLI_CTRL_NOTHING && !more) {
      line->fresh = false;
      from = line;
      event = read_line(ctrl, link, line, &more, sys_errno);
    }
  }
  if (event != COLLI_CTRL_MESSAGE)
    return event;
  l->taken = from->in.number;
  if (from->in.kind == COLLI_CTRL_GOODBYE && from->in.origin == ctrl->base.peers[link])
    l->left = true;
  *msg = from->in;
  return COLLI_CTRL_MESSAGE;
}

/* Looks at all lines: whether none is answered. */
static bool look_at_lines(net_ctrl *ctrl, net_link *l, uint64_t now_ns) {
  bool quiet = true;
  for (int i = 0; i < LINES; i++) {
    colli_ctrl_line *line = &l->line[i];
    if (!colli_ctrl_line_works(line))
      continue;
    colli_ctrl_line_look(line, ctrl->base.rank, ctrl->base.nranks, ctrl->heartbeat_ms, now_ns);
    quiet = quiet && line->quiet;
  }
  return quiet;
}

/* ---- the second line ------------------------------------------------------------------------- */

/* Logs when one line of a link is lost, or answers again; asks for a new one if it has ended. */
static void look_after(net_ctrl *ctrl, int link) {
  net_link *l = &ctrl->links[link];
  colli_ctrl_msg msg;
  for (int i = 0; i < LINES; i++) {
    colli_ctrl_line *line = &l->line[i];
    const colli_ctrl_line *other = &l->line[i == 0];
    const bool there = colli_ctrl_line_works(line), lost = !there || line->quiet;
    if (!colli_ctrl_line_works(other) || other->broken || other->quiet)
      continue;
    if (lost != line->told && line->conn.fd >= 0) {
      colli_ctrl_spare_tell(ctrl->spares, link, line, lost, ctrl->heartbeat_ms);
      line->told = lost;
    }
    if (!there && colli_ctrl_spare_ask(ctrl->spares, link, i, other, &msg))
      net_send(&ctrl->base, link, &msg);
  }
}

/* Takes the connection for a line that was made again. */
static void open_again(net_ctrl *ctrl, int link, int number, const colli_sealed *conn) {
  net_link *l = &ctrl->links[link];
  colli_ctrl_line *line = &l->line[number];
  colli_ctrl_line_close(line);
  *line =
      (colli_ctrl_line){.conn = COLLI_SEALED_NONE, .joins = true, .broken = true, .fresh = true};
  if (!colli_ctrl_line_open(line, conn, ctrl->epoll_fd, (uint32_t)(link * LINES + number),
                            ctrl->heartbeat_ms)) {
    colli_ctrl_line_close(line);
    return;
  }
  for (int i = 0; i < LINES; i++)
    colli_path_hurry(l->line[i].conn.fd, HEALS_MS);
  l->reset = false;
  let_join(l);
  colli_ctrl_spare_tell(ctrl->spares, link, line, false, ctrl->heartbeat_ms);
}

/* Advances lines that are being made. Without another one that has everything, a new one could not
 * begin. */
static void make_lines(net_ctrl *ctrl) {
  for (int link = 0; link < ctrl->base.count; link++) {
    colli_sealed conn;
    int number;
    if (!colli_ctrl_spare_step(ctrl->spares, link, &number, &conn))
      continue;
    const colli_ctrl_line *other = &ctrl->links[link].line[number == 0];
    if (colli_ctrl_line_works(other) && !other->broken)
      open_again(ctrl, link, number, &conn);
    else
      colli_sealed_close(&conn);
  }
}

/* ---- polling --------------------------------------------------------------------------------- */

/* Finds a link that has become silent. It stays open, because the network may heal. */
static bool find_silent(net_ctrl *ctrl, int *link) {
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < ctrl->look_ns)
    return false;
  ctrl->look_ns = now_ns + colli_heartbeat_look_ns(ctrl->heartbeat_ms);
  bool found = false;
  for (int i = 0; i < ctrl->base.count; i++) {
    net_link *l = &ctrl->links[i];
    if (!is_open(l) || l->silent || l->left)
      continue;
    if (!look_at_lines(ctrl, l, now_ns)) {
      let_join(l);
      if (ctrl->spares && !l->ended)
        look_after(ctrl, i);
      continue;
    }
    if (found) {
      ctrl->look_ns = 0; /* one at a time */
    } else {
      found = l->silent = true;
      *link = i;
    }
  }
  return found;
}

static colli_ctrl_event net_poll(colli_ctrl *base, int *link, colli_ctrl_msg *msg, int *sys_errno) {
  net_ctrl *ctrl = (net_ctrl *)base;
  struct epoll_event events[LINES * COLLI_CTRL_LINKS_MAX];
  if (ctrl->spares)
    make_lines(ctrl);
  for (int i = 0; i < base->count * LINES; i++) {
    colli_ctrl_line *line = &ctrl->links[ *link = i / LINES].line[i % LINES];
    colli_ctrl_event event =
        line->held ? take_line(ctrl, *link, line, msg, sys_errno) : COLLI_CTRL_NOTHING;
    if (event != COLLI_CTRL_NOTHING)
      return event;
  }
  int count = epoll_wait(ctrl->epoll_fd, events, LINES * COLLI_CTRL_LINKS_MAX, 0);
  for (int i = 0; i < count; i++) {
    *link = (int)events[i].data.u32 / LINES;
    COLLI_ASSERT_RANK(*link >= 0 && *link < base->count, base->rank);
    colli_ctrl_line *line = &ctrl->links[*link].line[events[i].data.u32 % LINES];
    colli_ctrl_line_flush(line);
    if (!(events[i].events & ~(uint32_t)EPOLLOUT))
      continue;
    colli_ctrl_event event = take_line(ctrl, *link, line, msg, sys_errno);
    if (event != COLLI_CTRL_NOTHING)
      return event; /* the other lines stay ready for the next call */
  }
  if (!find_silent(ctrl, link))
    return COLLI_CTRL_NOTHING;
  *sys_errno = ETIMEDOUT;
  return ctrl->links[*link].ended ? COLLI_CTRL_CLOSED : COLLI_CTRL_SILENT;
}

static bool net_unsent(const colli_ctrl *base) {
  const net_ctrl *ctrl = (const net_ctrl *)base;
  for (int link = 0; link < base->count; link++) {
    bool unsent = false, sent = false; /* what one line has sent need not go over the other */
    for (int i = 0; i < LINES; i++) {
      const colli_ctrl_line *line = &ctrl->links[link].line[i];
      unsent = unsent || colli_ctrl_line_unsent(line);
      sent = sent || (colli_ctrl_line_works(line) && !line->broken && !line->quiet &&
                      !colli_ctrl_line_unsent(line));
    }
    if (unsent && !sent)
      return true;
  }
  return false;
}

static int net_fd(const colli_ctrl *base) {
  return ((const net_ctrl *)base)->epoll_fd;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Advances the end of a link; true while there is something to wait for: one line is enough. */
static bool end_link(net_link *l, struct pollfd fds[LINES]) {
  bool waits = false;
  for (int i = 0; i < LINES; i++) {
    const bool used = colli_ctrl_line_works(&l->line[i]) && !l->line[i].broken;
    const bool busy = colli_ctrl_line_end(&l->line[i], &fds[i]);
    waits = waits || busy;
    l->arrived = l->arrived || (used && !busy);
  }
  return waits && !l->arrived;
}

static void net_close(colli_ctrl *base, int timeout_ms) {
  net_ctrl *ctrl = (net_ctrl *)base;
  uint64_t deadline_ns = colli_now_ns() + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
  for (;;) {
    struct pollfd fds[LINES * COLLI_CTRL_LINKS_MAX];
    bool wait = false;
    for (int link = 0; link < base->count; link++)
      wait = end_link(&ctrl->links[link], &fds[link * LINES]) || wait;
    if (!wait || colli_now_ns() >= deadline_ns)
      break;
    poll(fds, (nfds_t)(base->count * LINES), 1); /* acknowledgements cause no event, so poll */
  }
  for (int i = 0; i < base->count * LINES; i++)
    colli_ctrl_line_close(&ctrl->links[i / LINES].line[i % LINES]);
  colli_ctrl_spares_free(ctrl->spares);
  colli_fd_close(ctrl->epoll_fd);
  free(ctrl);
}

void colli_ctrl_set_spares(colli_ctrl *ctrl, colli_ctrl_spares *spares) {
  ((net_ctrl *)ctrl)->spares = spares;
}

/* ---- creation -------------------------------------------------------------------------------- */

static const colli_ctrl_ops net_ops = {net_send, net_poll, net_unsent, net_fd, net_close};

/* The spare connection of a link. */
static const colli_sealed *spare_of(const colli_sealed *spares, int link) {
  static const colli_sealed none = {.fd = -1};
  return spares ? &spares[link] : &none;
}

/* Opens the lines of a link: false with errno. */
static bool open_link(net_ctrl *ctrl, int link, const colli_sealed *conns[LINES],
                      int heartbeat_ms) {
  const bool both = conns[0]->fd >= 0 && conns[1]->fd >= 0;
  bool ok = true;
  for (int i = 0; i < LINES && ok; i++) {
    if (conns[i]->fd < 0)
      continue;
    if (both)
      colli_path_hurry(conns[i]->fd, HEALS_MS);
    ok = colli_ctrl_line_open(&ctrl->links[link].line[i], conns[i], ctrl->epoll_fd,
                              (uint32_t)(link * LINES + i), heartbeat_ms);
  }
  return ok;
}

/* Opens all links: false with errno. */
static bool open_links(net_ctrl *ctrl, const colli_sealed *conns, const colli_sealed *spares,
                       int count, int heartbeat_ms) {
  bool ok = (ctrl->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC))) >= 0;
  for (int i = 0; i < LINES * COLLI_CTRL_LINKS_MAX; i++)
    ctrl->links[i / LINES].line[i % LINES].conn = COLLI_SEALED_NONE;
  for (int link = 0; ok && link < count; link++)
    ok = open_link(ctrl, link, (const colli_sealed *[]){&conns[link], spare_of(spares, link)},
                   heartbeat_ms);
  return ok;
}

/* Closes a connection that could not be opened as a line. */
static void drop(const colli_sealed *conn) {
  colli_sealed dropped = *conn;
  colli_sealed_close(&dropped);
}

coll_status colli_ctrl_create_net(colli_ctrl **out, int rank, int nranks, const int *peers,
                                  const colli_sealed *conns, const colli_sealed *spares, int count,
                                  int heartbeat_ms, coll_error *error) {
  COLLI_ASSERT_RANK(count >= 0 && count <= COLLI_CTRL_LINKS_MAX, rank);
  net_ctrl *ctrl = calloc(1, sizeof(*ctrl));
  *out = NULL;
  if (ctrl && open_links(ctrl, conns, spares, count, heartbeat_ms)) {
    for (int link = 0; link < count; link++)
      ctrl->base.peers[link] = peers[link];
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
    drop(&conns[link]);
    drop(spare_of(spares, link));
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
