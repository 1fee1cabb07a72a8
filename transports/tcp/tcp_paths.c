/* tcp_paths.c: which ways through the network a connection has, in words, for coll_topo, and how
 * long they take. */
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "transports/tcp/tcp_rails.h"

/* Adds "eth0 10.0.0.1 to 10.0.0.2" to a text, with a comma before it unless it is the first. */
static void add_path(const tcp_pair *pair, const char *state, char *text, size_t bytes) {
  char device[IF_NAMESIZE] = "", from[COLLI_ADDR_TEXT], to[COLLI_ADDR_TEXT];
  const size_t used = strlen(text);
  if (pair->from.scope == 0 || !if_indextoname(pair->from.scope, device))
    *device = '\0';
  snprintf(text + used, bytes - used, "%s%s%s%s to %s%s", used > 0 ? ", " : "", device,
           *device ? " " : "", colli_addr_host_text(&pair->from, from),
           colli_addr_host_text(&pair->to, to), state);
}

/* Adds the way of a socket, and what is to be said of it. */
static void add_socket(const tcp_conn *conn, const char *state, char *text, size_t bytes) {
  const tcp_blob *own = &conn->ep->blob;
  tcp_pair pair;
  if (!colli_net_end(conn->source.fd, false, &pair.from) ||
      !colli_net_end(conn->source.fd, true, &pair.to))
    return;
  const colli_addr *known = colli_net_find_end(conn->source.fd, false, own->addrs, (int)own->count);
  if (known)
    pair.from = *known; /* which says the interface */
  add_path(&pair, state, text, bytes);
}

/* Adds the way of the rails of a pair of interfaces, at the first of them. */
static void add_rails(const tcp_rails *rails, const tcp_conn *conn, char *text, size_t bytes) {
  const tcp_conn *other, *first = NULL;
  char state[32] = "";
  int count = 0;
  TAILQ_FOREACH(other, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(other) || other->rail.nic_here != conn->rail.nic_here ||
        other->rail.nic_there != conn->rail.nic_there)
      continue;
    first = first ? first : other;
    count++;
  }
  if (count > 1)
    snprintf(state, sizeof(state), " (%d sockets)", count);
  if (first == conn)
    add_socket(conn, state, text, bytes);
}

/* Adds so many pairs of interfaces that could have rails and have none. */
static void add_lost(const tcp_rails *rails, int lost, char *text, size_t bytes) {
  tcp_pair pairs[TCP_PAIRS_MAX];
  const tcp_pair *added[TCP_PAIRS_USED];
  const int count = tcp_pairs(&rails->ep->blob, &rails->peer, pairs);
  lost = lost < TCP_PAIRS_USED ? lost : TCP_PAIRS_USED;
  for (int i = 0, done = 0; i < count && done < lost; i++) {
    bool free = tcp_rails_is_free(rails, &pairs[i]);
    for (int j = 0; free && j < done; j++)
      free = !tcp_rails_clash(rails, pairs[i].from.scope, pairs[i].nic_there, added[j]->from.scope,
                              added[j]->nic_there);
    if (!free)
      continue;
    add_path(&pairs[i], " (not connected)", text, bytes);
    added[done++] = &pairs[i];
  }
}

int tcp_paths(coll_conn *base, char *text, size_t bytes) {
  const tcp_conn *conn = (const tcp_conn *)base;
  *text = '\0';
  if (conn->state != TCP_ESTABLISHED)
    return 1;
  add_socket(conn, "", text, bytes);
  return 0;
}

int tcp_rails_paths(coll_conn *base, char *text, size_t bytes) {
  const tcp_rails *rails = (const tcp_rails *)base;
  const tcp_conn *conn;
  const int lost = tcp_rails_missing(rails);
  *text = '\0';
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn))
      add_rails(rails, conn, text, bytes);
  add_lost(rails, lost, text, bytes);
  return lost > 0 ? lost : 0;
}

double tcp_round_trip(coll_conn *base) {
  const tcp_conn *conn = (const tcp_conn *)base;
  return conn->state == TCP_ESTABLISHED ? colli_path_round_trip_ns(conn->source.fd) : 0;
}

double tcp_rails_round_trip(coll_conn *base) {
  const tcp_rails *rails = (const tcp_rails *)base;
  const tcp_conn *conn;
  double shortest = 0;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    const double ns = tcp_rail_is_open(conn) ? colli_path_round_trip_ns(conn->source.fd) : 0;
    if (ns > 0 && (shortest == 0 || ns < shortest))
      shortest = ns;
  }
  return shortest;
}
