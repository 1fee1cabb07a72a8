/* late.c: finds who is to blame when time is up. */
#include "libcoll/wireup/bootstrap/late.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

/* ---- in a tree ------------------------------------------------------------------------------- */

uint64_t boot_wait_ns(const boot *b, const boot_links *links) {
  const uint64_t levels = (uint64_t)b->place.depths, depth = (uint64_t)b->place.depth;
  const uint64_t links_ns = links->outcome_ns - links->margin_ns;
  return links_ns + links->margin_ns / 2 / levels * (levels - depth);
}

/* The lowest rank that has not made its link with this one; INT_MAX: all have. Without the table,
 * the one that should send it. */
static int missing_neighbour(const boot *b, const boot_links *links) {
  if (!links->have_table)
    return (b->rank - 1) / 2; /* in the tree of control links */
  int lowest = INT_MAX;
  for (int i = 0; i < links->count; i++)
    if (!links->at[i].up && links->at[i].peer < lowest)
      lowest = links->at[i].peer;
  return lowest;
}

int boot_waits_for(const boot *b, const boot_links *links, const boot_server *server) {
  int lowest = missing_neighbour(b, links);
  for (int i = 0; server && i < server->count; i++) {
    const serve_conn *conn = server->conns[i];
    const int culprit = conn->waits_for >= 0 ? conn->waits_for : conn->rank;
    if (conn->checked_in && !conn->ready && culprit < lowest)
      lowest = culprit;
  }
  return lowest == INT_MAX ? -1 : lowest;
}

void boot_server_take_wait(const boot_server *s, serve_conn *conn) {
  const int rank = conn->report.server;
  conn->done = 0;
  conn->waits_for = rank >= 0 && rank < s->b->nranks ? rank : -1;
}

/* ---- at a server ----------------------------------------------------------------------------- */

uint64_t boot_server_late_ns(const boot_server *s) {
  const boot *b = s->b;
  if (b->place.depth == 0)
    return s->deadline_ns;
  if (boot_server_is_full(s))
    return UINT64_MAX;
  /* Ranks deeper in the tree give up first: they know who is missing, and tell those above. */
  const uint64_t levels = (uint64_t)b->place.depths, depth = (uint64_t)b->place.depth;
  const uint64_t step_ns = boot_margin_ns(boot_all_ns(b)) / levels;
  const uint64_t until_ns = b->deadline_ns - step_ns * (levels + depth);
  return until_ns < s->deadline_ns ? until_ns : s->deadline_ns;
}

/* Lists the ranks that have yet to check in directly at this one. *first: one of them. */
static int list_missing(const boot_server *s, char *text, size_t bytes, int *first) {
  const boot *b = s->b;
  int missing = 0;
  bool *is_there = calloc((size_t)b->nranks, sizeof(*is_there));
  *first = -1;
  for (int rank = b->nranks - 1; is_there && rank >= 0; rank--) {
    is_there[rank] = rank == b->rank || boot_place_child(&b->place, rank).end == 0 ||
                     s->is_in[rank - b->place.below.first];
    missing += !is_there[rank];
    *first = is_there[rank] ? *first : rank;
  }
  if (is_there)
    boot_list_ranks(is_there, b->nranks, false, text, bytes);
  else
    snprintf(text, bytes, "(out of memory)");
  free(is_there);
  return missing;
}

/* Fails because the deadline passed before all ranks had checked in. */
static coll_status fail_checkin_late(const boot_server *s) {
  const boot *b = s->b;
  const colli_addr *at = b->place.depth == 0 ? &b->id->addrs[0] : &b->id->own_addr;
  char list[200], addr[COLLI_ADDR_TEXT], strangers[COLLI_STRANGERS_TEXT];
  int first;
  const int missing = list_missing(s, list, sizeof(list), &first);
  return boot_fail(b, COLL_ERR_TIMEOUT, first, NULL,
                   "rank%s %s of %d did not check in within %.3g s at rank %d (host %s, %s); look "
                   "whether %s started and can reach that address (firewall, COLL_TCP_IFNAME); "
                   "COLL_CREATE_TIMEOUT_MS gives more time%s",
                   missing > 1 ? "s" : "", list, b->nranks,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S, b->rank,
                   b->mine->host, colli_addr_text(at, addr), missing > 1 ? "they were" : "it was",
                   colli_door_strangers(&s->door, strangers));
}

/* Lists the ranks that keep the others waiting: all that are not ready, in a star, or the one that
 * others wait for. Returns the lowest. */
static int list_waited_for(const boot_server *s, char *text, size_t bytes) {
  const boot *b = s->b;
  const int first = boot_waits_for(b, s->links, s);
  COLLI_ASSERT_RANK(first >= 0, b->rank);
  bool *waited_for = calloc((size_t)b->nranks, sizeof(*waited_for));
  if (!waited_for) {
    snprintf(text, bytes, "%d", first);
    return first;
  }
  waited_for[first] = true;
  for (int i = 0; i < s->count && b->place.fan_out == 0; i++)
    if (s->conns[i]->checked_in && !s->conns[i]->ready)
      waited_for[s->conns[i]->rank] = true;
  boot_list_ranks(waited_for, b->nranks, true, text, bytes);
  free(waited_for);
  return first;
}

/* Fails because the deadline passed before all ranks had made their control links. */
static coll_status fail_links_late(const boot_server *s) {
  const boot *b = s->b;
  char list[200];
  const int first = list_waited_for(s, list, sizeof(list));
  const colli_rank_info *info = &s->all[first];
  return boot_fail(b, COLL_ERR_TIMEOUT, first, info,
                   "rank(s) %s of %d checked in, but did not make their control links within "
                   "%.3g s (rank %d: host %s, pid %d); look whether they are stopped, or whether a "
                   "firewall lies between the hosts",
                   list, b->nranks, (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S,
                   first, info->host, info->pid);
}

coll_status boot_server_check_late(const boot_server *s) {
  if (colli_now_ns() < boot_server_late_ns(s))
    return COLL_OK;
  return boot_server_is_full(s) ? fail_links_late(s) : fail_checkin_late(s);
}
