/* tcp_addr.c: who can reach whom, and by which address. */
#include <stdio.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_internal.h"

/*
 * Costs within a host, measured with two ranks; between hosts a guess for an ordinary 10 Gbit/s
 * network.
 */
#define LOOPBACK_ALPHA_NS    5000.0
#define LOOPBACK_NS_PER_BYTE 0.35
#define NETWORK_ALPHA_NS     15000.0
#define NETWORK_NS_PER_BYTE  0.85

/* Whether an address is valid on one link only, which its scope names (fe80::/10). */
static bool is_scoped(const colli_addr *addr) {
  return addr->family == 6 && colli_addr_link_local(addr);
}

/* How good a pair two addresses are; 0: they cannot connect. Symmetric. */
static int affinity(const colli_addr *a, const colli_addr *b, bool one_host) {
  if (colli_addr_loopback(a) != colli_addr_loopback(b) || (colli_addr_loopback(a) && !one_host))
    return 0;
  if (is_scoped(a) != is_scoped(b))
    return 0;
  int one = colli_addr_affinity(a, b), other = colli_addr_affinity(b, a);
  int both = one < other ? one : other;
  return both > 1 && is_scoped(a) ? 1 : both; /* all links have the same prefix */
}

/* Reads a peer's blob; false if it is not valid. */
bool tcp_blob_read(const uint8_t bytes[COLL_BLOB_BYTES], tcp_blob *blob) {
  memcpy(blob, bytes, sizeof(*blob));
  return blob->magic == TCP_BLOB_MAGIC && blob->count <= COLLI_MAX_ADDRS && blob->sockets >= 1 &&
         blob->sockets <= TCP_SOCKETS_MAX;
}

int tcp_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES], coll_link *link) {
  tcp_blob one, other;
  *link = (coll_link){.alpha_ns = NETWORK_ALPHA_NS, .ns_per_byte = NETWORK_NS_PER_BYTE};
  if (!tcp_blob_read(a, &one) || !tcp_blob_read(b, &other)) {
    snprintf(link->reason, sizeof(link->reason), "one of the ranks has no TCP address");
    return 0;
  }
  bool one_host = one.host_id == other.host_id;
  int best = 0;
  for (uint32_t i = 0; i < one.count; i++)
    for (uint32_t j = 0; j < other.count; j++) {
      int fit = affinity(&one.addrs[i], &other.addrs[j], one_host);
      best = fit > best ? fit : best;
    }
  if (best == 0) {
    snprintf(link->reason, sizeof(link->reason),
             "no addresses of the same family on both sides; check COLL_TCP_IFNAME");
    return 0;
  }
  if (one_host) {
    link->alpha_ns = LOOPBACK_ALPHA_NS;
    link->ns_per_byte = LOOPBACK_NS_PER_BYTE;
  }
  const char *way = one_host    ? "same host"
                    : best >= 2 ? "same subnet"
                                : "different subnets, perhaps routed";
  const int rails = tcp_count_rails(&one, &other);
  if (rails > 1)
    snprintf(link->reason, sizeof(link->reason), "%s, %d rails", way, rails);
  else /* creation asks for each rank, and printing takes longer than all else here */
    strncpy(link->reason, way, sizeof(link->reason) - 1);
  return 1;
}

int tcp_count_nics(const tcp_blob *blob) {
  int count = 0;
  for (uint32_t i = 0; i < blob->count; i++) {
    bool is_new = !colli_addr_loopback(&blob->addrs[i]) && blob->addrs[i].scope != 0;
    for (uint32_t j = 0; is_new && j < i; j++)
      is_new = blob->addrs[j].scope != blob->addrs[i].scope;
    count += is_new;
  }
  return count;
}

/* Addresses of those interfaces of a host that are as near to the other host's only one as the
 * nearest, into `near`. Others probably lead elsewhere, and link-local addresses say nothing. */
static void find_near(const tcp_blob *blob, const tcp_blob *other, tcp_blob *near) {
  int best = 1;
  near->count = 0;
  for (uint32_t i = 0; i < blob->count; i++) {
    int fit = 0;
    for (uint32_t j = 0; j < other->count && !is_scoped(&blob->addrs[i]); j++) {
      const int one = affinity(&blob->addrs[i], &other->addrs[j], false);
      fit = one > fit ? one : fit;
    }
    if (fit > best)
      near->count = 0;
    best = fit > best ? fit : best;
    if (fit == best)
      near->addrs[near->count++] = blob->addrs[i];
  }
}

/* The same, and how many interfaces those are. */
static int count_near(const tcp_blob *blob, const tcp_blob *other) {
  tcp_blob near;
  find_near(blob, other, &near);
  return tcp_count_nics(&near);
}

/* Whether an address is of an interface that has another address in a list. */
static bool has_nic(const tcp_blob *list, const colli_addr *addr) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->addrs[i].scope == addr->scope)
      return true;
  return false;
}

/* The addresses of a host that make pairs with the other one's. */
static tcp_blob find_usable(const tcp_blob *blob, const tcp_blob *other) {
  tcp_blob near, usable = *blob;
  if (tcp_count_nics(other) != 1 || tcp_count_nics(blob) < 2)
    return usable;
  find_near(blob, other, &near);
  usable.count = 0;
  for (uint32_t i = 0; i < blob->count; i++)
    if (has_nic(&near, &blob->addrs[i]))
      usable.addrs[usable.count++] = blob->addrs[i];
  return usable;
}

/* How many pairs of interfaces two ranks of different hosts use at most. */
static int count_pairs(const tcp_blob *a, const tcp_blob *b) {
  const int one = tcp_count_nics(a), other = tcp_count_nics(b);
  int most = one < other ? one : other;
  if (most == 1 && one != other)
    most = one > other ? count_near(a, b) : count_near(b, a);
  return most < TCP_PAIRS_USED ? most : TCP_PAIRS_USED;
}

int tcp_count_sockets(const tcp_blob *a, const tcp_blob *b) {
  const int one = tcp_count_nics(a), other = tcp_count_nics(b), pairs = count_pairs(a, b);
  if (pairs < 1 || (one != other && (one == 1 || other == 1)))
    return 1; /* rails that share an interface, of which one is used */
  const int wanted = (int)(a->sockets > b->sockets ? a->sockets : b->sockets);
  return wanted * pairs < TCP_RAILS_MAX ? wanted : TCP_RAILS_MAX / pairs;
}

int tcp_count_rails(const tcp_blob *a, const tcp_blob *b) {
  const int pairs = count_pairs(a, b);
  return a->host_id == b->host_id || pairs < 1 ? 1 : pairs * tcp_count_sockets(a, b);
}

int tcp_pairs(const tcp_blob *self, const tcp_blob *peer, tcp_pair list[TCP_PAIRS_MAX]) {
  const tcp_blob here = find_usable(self, peer), there = find_usable(peer, self);
  const bool leads = self->host_id < peer->host_id;
  int count = 0;
  /* Addresses come in order of preference, so the best pairs have the smallest sum of places. Of
   * equal ones that is first whose address on one host, the same for both ends, is. */
  for (int wanted = 2; wanted >= 1; wanted--)
    for (uint32_t sum = 0; sum + 1 < here.count + there.count; sum++)
      for (uint32_t place = 0; place <= sum; place++) {
        const uint32_t i = leads ? place : sum - place, j = sum - i;
        if (i >= here.count || j >= there.count)
          continue;
        tcp_pair pair = {here.addrs[i], there.addrs[j], there.addrs[j].scope};
        if (affinity(&pair.from, &pair.to, false) != wanted)
          continue;
        if (is_scoped(&pair.to)) /* the same link may have another index here */
          pair.to.scope = pair.from.scope;
        list[count++] = pair;
      }
  return count;
}

/* Inserts an address after those that score as high or higher; returns how many there are. */
static int insert_by_score(colli_addr *list, int *scores, int count, int max,
                           const colli_addr *addr, int score) {
  COLLI_ASSERT(max > 0 && count >= 0 && count <= max);
  int at = count < max ? count : max - 1;
  if (count == max && scores[at] >= score)
    return count;
  for (; at > 0 && scores[at - 1] < score; at--) {
    list[at] = list[at - 1];
    scores[at] = scores[at - 1];
  }
  list[at] = *addr;
  scores[at] = score;
  return count < max ? count + 1 : max;
}

/* The peer's addresses to dial, best first; returns how many. */
int tcp_candidates(const tcp_blob *self, const tcp_blob *peer, colli_addr *list, int max) {
  bool one_host = self->host_id == peer->host_id;
  int scores[TCP_MAX_CANDIDATES], count = 0;
  COLLI_ASSERT(self->count <= COLLI_MAX_ADDRS && peer->count <= COLLI_MAX_ADDRS);
  max = max < TCP_MAX_CANDIDATES ? max : TCP_MAX_CANDIDATES;
  for (uint32_t j = 0; j < peer->count; j++) {
    colli_addr addr = peer->addrs[j];
    int best = 0;
    for (uint32_t i = 0; i < self->count; i++) {
      int fit = affinity(&self->addrs[i], &addr, one_host);
      if (fit > 0 && is_scoped(&addr) && !one_host) {
        addr.scope = self->addrs[i].scope; /* the same link may have another index here */
        count = insert_by_score(list, scores, count, max, &addr, fit);
      } else if (fit > best) {
        best = fit;
      }
    }
    if (best > 0) /* loopback always works where it reaches */
      count =
          insert_by_score(list, scores, count, max, &addr, colli_addr_loopback(&addr) ? 3 : best);
  }
  return count;
}
