/* tcp_rails.c: the sockets of a connection over rails: made, looked after, retired, closed. */
#include "transports/tcp/tcp_rails.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/net/path.h"

/* ---- one socket ------------------------------------------------------------------------------ */

/* The interface of an end of a socket among those of a blob; 0: not known. */
static uint32_t find_nic(int fd, bool there, const tcp_blob *blob) {
  const colli_addr *addr = colli_net_find_end(fd, there, blob->addrs, (int)blob->count);
  return addr ? addr->scope : 0;
}

/* Adds a socket: dials a pair of addresses (NULL: all of the peer's), or waits for the peer to. */
static bool add_socket(tcp_rails *rails, const tcp_pair *pair) {
  tcp_endpoint *ep = rails->ep;
  tcp_conn *conn = tcp_conn_new(ep, &rails->base);
  if (!conn)
    return false;
  conn->rail =
      (tcp_rail){.rails = rails, .spare = rails->was_up, .since_ns = ep->env->now_ns(ep->env->ctx)};
  TAILQ_INSERT_TAIL(&rails->sockets, conn, rail.link);
  rails->nsockets++;
  if (rails->dials)
    tcp_dial_start(conn, &rails->peer, pair);
  else
    tcp_accept_adopt(conn);
  return true;
}

/* ---- looking after the sockets --------------------------------------------------------------- */

/* The place of a socket's pair of interfaces among all, the best first; TCP_PAIRS_MAX: it is not
 * one that a rail is made of. The first socket has an address of any interface. */
static int place_of(const tcp_conn *conn) {
  tcp_pair pairs[TCP_PAIRS_MAX];
  const int count = tcp_pairs(&conn->ep->blob, &conn->rail.rails->peer, pairs);
  int i = 0;
  while (i < count &&
         (pairs[i].from.scope != conn->rail.nic_here || pairs[i].nic_there != conn->rail.nic_there))
    i++;
  return i < count ? i : TCP_PAIRS_MAX;
}

/* Retires what is open beyond the rails of those pairs that rails are made of. */
static void retire_surplus(tcp_rails *rails) {
  tcp_conn *conn;
  if (tcp_rails_missing(rails) > 0)
    return;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn) && conn->rail.place == TCP_PAIRS_MAX)
      tcp_rails_retire(conn);
}

/* Retires those for which a new socket leaves no place: of its pair of interfaces the oldest, and
 * all of pairs that clash with it. */
static void make_place(tcp_rails *rails, const tcp_conn *conn) {
  tcp_conn *other, *oldest = NULL;
  int same = 0;
  TAILQ_FOREACH(other, &rails->sockets, rail.link) {
    if (other == conn || !tcp_rail_is_open(other) || conn->rail.nic_here == 0)
      continue;
    if (other->rail.nic_here == conn->rail.nic_here &&
        other->rail.nic_there == conn->rail.nic_there) {
      oldest = oldest ? oldest : other;
      same++;
      continue;
    }
    if (tcp_rails_clash(rails, conn->rail.nic_here, conn->rail.nic_there, other->rail.nic_here,
                        other->rail.nic_there))
      tcp_rails_retire(other);
  }
  if (same >= rails->each)
    tcp_rails_retire(oldest);
}

/* A socket is established: it joins, and replaces those for which it leaves no place. */
static void join(tcp_rails *rails, tcp_conn *conn) {
  conn->rail.joined = true;
  colli_path_hurry(conn->source.fd, TCP_RAILS_GONE_MS);
  conn->rail.nic_here = find_nic(conn->source.fd, false, &rails->ep->blob);
  conn->rail.nic_there = find_nic(conn->source.fd, true, &rails->peer);
  if (rails->dials)
    make_place(rails, conn);
  if (tcp_rails_share_one(rails))
    conn->rail.place = place_of(conn);
  if (rails->dials)
    retire_surplus(rails);
  rails->was_up = true;
  rails->pause_ns = TCP_RAILS_PAUSE_NS;
  rails->dial_ns = 0;
}

/* Looks at sockets that are not established: 1 if one joined or failed. */
static int settle(tcp_rails *rails, uint64_t now_ns) {
  tcp_conn *conn, *next;
  int moved = 0;
  bool waits = false;
  for (conn = TAILQ_FIRST(&rails->sockets); conn; conn = next) {
    next = TAILQ_NEXT(conn, rail.link);
    if (conn->state == TCP_ESTABLISHED && !conn->rail.joined) {
      join(rails, conn);
      moved = 1;
    } else if (conn->state == TCP_FAILED && !rails->was_up) {
      tcp_rails_fail(rails, conn->status, conn);
    } else if (conn->state == TCP_FAILED || (conn->state == TCP_DIALING && rails->was_up &&
                                             now_ns - conn->rail.since_ns >= TCP_RAILS_DIAL_NS)) {
      tcp_rails_remove(conn);
      rails->dial_ns = now_ns + rails->pause_ns;
      rails->pause_ns =
          2 * rails->pause_ns < TCP_RAILS_PAUSES_NS ? 2 * rails->pause_ns : TCP_RAILS_PAUSES_NS;
    } else {
      waits |= conn->state < TCP_ESTABLISHED;
    }
  }
  if (!waits && tcp_rails_awaits_more(rails))
    moved |= add_socket(rails, NULL); /* the peer may dial again at any time */
  return moved;
}

bool tcp_rails_is_free(const tcp_rails *rails, const tcp_pair *pair) {
  const tcp_conn *conn;
  int same = 0;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn) || conn->rail.nic_here == 0)
      continue;
    if (conn->rail.nic_here == pair->from.scope && conn->rail.nic_there == pair->nic_there)
      same++;
    else if (tcp_rails_clash(rails, pair->from.scope, pair->nic_there, conn->rail.nic_here,
                             conn->rail.nic_there))
      return false;
  }
  return same < rails->each;
}

/* Dials a pair of interfaces that is free, if it is time. */
static void dial(tcp_rails *rails, uint64_t now_ns) {
  const tcp_conn *conn;
  if (now_ns < rails->dial_ns || rails->nsockets >= TCP_RAILS_SOCKETS ||
      tcp_rails_missing(rails) <= 0)
    return;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (conn->state == TCP_DIALING)
      return;
  tcp_pair pairs[TCP_PAIRS_MAX];
  const int count = tcp_pairs(&rails->ep->blob, &rails->peer, pairs);
  rails->dial_ns = now_ns + rails->pause_ns;
  for (int i = 0; i < count; i++) {
    const tcp_pair *pair = &pairs[(rails->turn + (unsigned)i) % (unsigned)count];
    if (!tcp_rails_is_free(rails, pair))
      continue;
    rails->turn = (rails->turn + (unsigned)i + 1) % (unsigned)count;
    add_socket(rails, pair);
    return;
  }
}

/* Asks the kernel which open rails answer, once for each look: how many do. */
static int count_answering(tcp_rails *rails, uint64_t now_ns) {
  tcp_conn *conn;
  int count = 0;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn)) {
      if (colli_path_unheard(conn->source.fd) < TCP_RAILS_UNHEARD)
        conn->rail.silent_ns = 0;
      else if (conn->rail.silent_ns == 0)
        conn->rail.silent_ns = now_ns;
      count += conn->rail.silent_ns == 0;
    }
  return count;
}

/* Whether another pair of interfaces than that of a rail has one that answers. */
static bool answers_elsewhere(const tcp_conn *conn) {
  const tcp_conn *other;
  TAILQ_FOREACH(other, &conn->rail.rails->sockets, rail.link)
    if (tcp_rail_is_open(other) && other->rail.silent_ns == 0 &&
        (other->rail.nic_here != conn->rail.nic_here ||
         other->rail.nic_there != conn->rail.nic_there))
      return true;
  return false;
}

/* Looks at an open rail. It is retired for one that answers only: if none does, it may be the one
 * that soon will. Another one of the same interfaces may only not have noticed yet that these are
 * cut. */
static void look_at(tcp_conn *conn, int answering, uint64_t now_ns) {
  const uint64_t silent_ns = conn->rail.silent_ns;
  conn->rail.spare = answering > (silent_ns ? 0 : 1);
  if (conn->rail.spare && silent_ns &&
      (answers_elsewhere(conn) || now_ns - silent_ns >= TCP_RAILS_SIBLING_NS))
    tcp_rails_retire(conn);
}

/* Says what all connections to a peer have, for collctl. */
static void show(const tcp_rails *changed) {
  const coll_transport_env *env = changed->ep->env;
  const tcp_rails *rails;
  int all = 0, lost = 0;
  if (!env->rails)
    return;
  LIST_FOREACH(rails, &changed->ep->rails, link) {
    if (rails->base.peer != changed->base.peer)
      continue;
    all += rails->most;
    lost += rails->most - rails->told;
  }
  env->rails(env->ctx, changed->base.peer, all, lost);
}

/* Logs how many rails there are. */
static void tell_count(const tcp_rails *rails, int open) {
  char reserve[32] = "";
  if (tcp_rails_share_one(rails) && open > 1)
    snprintf(reserve, sizeof(reserve), ", %d of them in reserve", open - 1);
  colli_log_write(&rails->log, COLLI_LOG_INFO,
                  "the connection to rank %d (channel %d) has %d rail%s%s", rails->base.peer,
                  rails->base.channel, open, open == 1 ? "" : "s", reserve);
}

/* Says how many rails work if that has changed, and lasted. */
static void tell(tcp_rails *rails, int open) {
  const bool lasts = open == rails->seen;
  rails->seen = open;
  if (!lasts || open == 0 || open == rails->told)
    return;
  if (open < rails->told)
    colli_log_write(&rails->log, COLLI_LOG_WARN,
                    "the connection to rank %d (channel %d) is degraded: %d of %d rails work; "
                    "look at the network interfaces and cables that both hosts share",
                    rails->base.peer, rails->base.channel, open, rails->told);
  else
    tell_count(rails, open);
  rails->told = open;
  rails->most = open > rails->most ? open : rails->most;
  show(rails);
}

/* Looks at the rails now and then. */
static void look(tcp_rails *rails, uint64_t now_ns) {
  tcp_conn *conn, *next;
  if (now_ns < rails->look_ns)
    return;
  rails->look_ns = now_ns + TCP_RAILS_LOOK_NS;
  const int answering = count_answering(rails, now_ns);
  if (answering == 0) { /* another pair of interfaces is needed soon */
    const uint64_t soon_ns = now_ns + TCP_RAILS_PAUSE_NS;
    rails->pause_ns = TCP_RAILS_PAUSE_NS;
    rails->dial_ns = rails->dial_ns < soon_ns ? rails->dial_ns : soon_ns;
  }
  for (conn = TAILQ_FIRST(&rails->sockets); conn; conn = next) {
    next = TAILQ_NEXT(conn, rail.link);
    if (tcp_rail_is_open(conn))
      look_at(conn, answering, now_ns);
    else if (conn->state == TCP_ESTABLISHED && conn->rail.joined)
      tcp_rails_retire(conn);
  }
  if (!rails->closing && !rails->peeked)
    (void)tcp_rails_find(rails, false); /* finds the ends of rails, too */
  tell(rails, tcp_rails_open(rails));
}

int tcp_rails_progress(tcp_endpoint *ep) {
  const uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  tcp_rails *rails;
  int moved = 0;
  LIST_FOREACH(rails, &ep->rails, link) {
    moved |= settle(rails, now_ns);
    if (!rails->was_up || rails->status != COLL_OK)
      continue;
    look(rails, now_ns);
    if (rails->dials)
      dial(rails, now_ns);
    if (rails->first < rails->next)
      tcp_rails_measure(rails, now_ns);
    if (rails->first < rails->next && now_ns - rails->reaped_ns >= TCP_RAILS_REAP_NS)
      tcp_rails_reap(rails);
    if (rails->nwaiting > 0)
      moved |= tcp_rails_give(rails);
  }
  return moved;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

coll_conn *tcp_rails_connect(tcp_endpoint *ep, const coll_conn *base, const tcp_blob *where) {
  const coll_transport_env *env = ep->env;
  tcp_rails *rails = calloc(1, sizeof(*rails));
  if (!rails)
    return NULL;
  rails->base = *base;
  rails->ep = ep;
  rails->dials = env->rank < base->peer;
  rails->peer = *where;
  rails->wanted = tcp_count_rails(&ep->blob, where);
  rails->each = tcp_count_sockets(&ep->blob, where);
  rails->one_here = tcp_count_nics(&ep->blob) == 1 && tcp_count_nics(where) > 1;
  rails->one_there = tcp_count_nics(where) == 1 && tcp_count_nics(&ep->blob) > 1;
  rails->log = colli_log_of(env->param(env->ctx, "COLL_LOG"), env->rank);
  rails->pause_ns = TCP_RAILS_PAUSE_NS;
  rails->acquired = -1;
  TAILQ_INIT(&rails->sockets);
  LIST_INIT(&rails->early);
  LIST_INSERT_HEAD(&ep->rails, rails, link);
  if (add_socket(rails, NULL))
    return &rails->base;
  LIST_REMOVE(rails, link);
  free(rails);
  return NULL;
}

/* Closes all sockets and frees the connection. */
static void free_rails(tcp_rails *rails) {
  LIST_REMOVE(rails, link);
  rails->current = NULL;
  while (!TAILQ_EMPTY(&rails->sockets))
    tcp_rails_remove(TAILQ_FIRST(&rails->sockets));
  free(rails->shown);
  while (!LIST_EMPTY(&rails->early)) {
    tcp_early *early = LIST_FIRST(&rails->early);
    LIST_REMOVE(early, link);
    free(early);
  }
  free(rails->kept);
  free(rails->free);
  free(rails->uses);
  free(rails->slot);
  free(rails->pool);
  free(rails);
}

void tcp_rails_disconnect(coll_conn *base) {
  tcp_rails *rails = (tcp_rails *)base;
  tcp_conn *conn, *next;
  LIST_REMOVE(rails, link);
  show(rails);
  rails->closing = true;
  LIST_INSERT_HEAD(&rails->ep->rails_lingering, rails, link);
  for (conn = TAILQ_FIRST(&rails->sockets); conn; conn = next) {
    next = TAILQ_NEXT(conn, rail.link);
    if (conn->state < TCP_ESTABLISHED)
      tcp_rails_remove(conn);
  }
}

/* Advances a connection that was disconnected: true if nothing is left to wait for. */
static bool step_lingering(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (conn->state == TCP_ESTABLISHED && conn->source.events & (EPOLLERR | EPOLLHUP))
      tcp_rails_retire(conn);
  if (rails->first == rails->next)
    return true;
  const uint64_t first = rails->first;
  tcp_rails_flush(rails);
  look(rails, env->now_ns(env->ctx));
  tcp_rails_reap(rails);
  if (rails->first != first)
    rails->ep->lingered_ns = env->now_ns(env->ctx);
  return rails->first == rails->next || tcp_rails_open(rails) == 0;
}

void tcp_rails_linger(tcp_endpoint *ep) {
  tcp_rails *rails, *next;
  for (rails = LIST_FIRST(&ep->rails_lingering); rails; rails = next) {
    next = LIST_NEXT(rails, link);
    if (step_lingering(rails))
      free_rails(rails);
  }
}

void tcp_rails_close(tcp_endpoint *ep, uint64_t begun_ns) {
  while (!LIST_EMPTY(&ep->rails_lingering) && tcp_linger_goes_on(ep, begun_ns)) {
    tcp_rails_linger(ep);
    if (!LIST_EMPTY(&ep->rails_lingering))
      poll(NULL, 0, 1);
  }
  while (!LIST_EMPTY(&ep->rails_lingering))
    free_rails(LIST_FIRST(&ep->rails_lingering));
}
