/* bootstrap_links.c: makes this rank's control links, and passes the table down the tree. */
#include "libcoll/wireup/bootstrap_links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define LINK_MAGIC 0x6b6c4c43u /* "CLlk" */

/* Lists the links of this rank and who dials each. */
static void plan_links(const boot *b, boot_links *links) {
  int peers[COLLI_CTRL_LINKS_MAX];
  links->count = colli_ctrl_peers(b->rank, b->nranks, peers);
  for (int i = 0; i < links->count; i++) {
    boot_link *link = &links->at[i];
    COLLI_ASSERT_RANK(peers[i] >= 0 && peers[i] < b->nranks && peers[i] != b->rank, b->rank);
    link->peer = peers[i];
    link->table = colli_ctrl_tree_joined(b->rank, peers[i]);
    link->dials = link->table ? peers[i] > b->rank : peers[i] == (b->rank + 1) % b->nranks;
    link->conn = link->dial.conn = COLLI_SEALED_NONE;
  }
}

coll_status boot_links_open(const boot *b, boot_links *links, const colli_params *params) {
  uint16_t port;
  colli_addr *addrs = b->mine->control_addrs;
  memset(addrs, 0, sizeof(b->mine->control_addrs));
  links->deadline_ns = b->deadline_ns;
  plan_links(b, links);
  int count =
      colli_net_interfaces(params->text[COLLI_PARAM_TCP_IFNAME], addrs, COLLI_MAX_ADDRS, b->error);
  if (count == 0)
    return b->error->status;
  coll_status status = colli_door_listen(params->text[COLLI_PARAM_PORT_RANGE], b->id->secret->bytes,
                                         &links->listen_fd, &port, b->error);
  for (int i = 0; i < count; i++)
    addrs[i].port = port;
  return status == COLL_OK
             ? boot_door_open(b, &links->door, links->listen_fd, COLLI_HELLO_CONTROL, b->rank)
             : status;
}

/* The link to which a new connection belongs; NULL if none. */
static boot_link *link_for(const boot *b, boot_links *links, const colli_hello *hello) {
  if (hello->kind != COLLI_HELLO_CONTROL || hello->comm_id != b->id->comm_id ||
      hello->dst_rank != b->rank)
    return NULL;
  for (int i = 0; i < links->count; i++)
    if (links->at[i].peer == hello->src_rank && !links->at[i].dials && links->at[i].conn.fd < 0)
      return &links->at[i];
  return NULL;
}

/* Accepts the connections of neighbours that dial this rank. */
static int accept_links(const boot *b, boot_links *links) {
  colli_guest guest;
  while (colli_door_next(&links->door, &guest)) {
    boot_link *link = link_for(b, links, &guest.auth.hello);
    if (!link) {
      boot_guest_refuse(b, &guest);
    } else if (boot_guest_accept(b, &guest)) {
      colli_sealed_open(&link->conn, &guest.auth);
      link->head_done = link->table_done = 0;
    } else {
      boot_close(&guest.fd);
    }
  }
  boot_note_errno(b, colli_door_failure(&links->door, 0), false);
  int sys_errno = boot_door_failure(b, &links->door, colli_now_ns() >= links->deadline_ns);
  if (sys_errno == 0)
    return COLL_T_AGAIN;
  coll_status status =
      colli_error_sys(b->error, COLL_ERR_SYSTEM, "create", "accept4", sys_errno,
                      "rank %d cannot take control connections; if descriptors ran out, raise the "
                      "limit (ulimit -n)",
                      b->rank);
  b->error->rank = b->rank;
  return (int)status;
}

coll_status boot_links_take_table(const boot *b, boot_links *links, int from, int server,
                                  uint32_t remaining_ms) {
  if (server < 0 || server >= b->nranks || server == b->rank)
    return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL,
                     "rank %d of %d says that rank %d serves, which is impossible", from, b->nranks,
                     server);
  for (int rank = 0; rank < b->nranks; rank++) {
    const char *wrong = boot_record_check(&links->table[rank]);
    if (wrong)
      return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL,
                       "rank %d passed on an impossible record (%s) of rank %d", from, wrong, rank);
  }
  links->have_table = true;
  links->server = server;
  const uint64_t deadline_ns = colli_now_ns() + remaining_ms * COLLI_NS_PER_MS;
  if (deadline_ns < links->deadline_ns)
    links->deadline_ns = deadline_ns;
  return COLL_OK;
}

/* Whether the table goes over a link from parent to child; `sends`: this rank is the parent. */
static bool carries_table(const boot *b, const boot_links *links, const boot_link *link,
                          bool sends) {
  return link->table && links->server != (sends ? link->peer : b->rank);
}

/* Receives what the dialling neighbour sends: a head and, from the parent, the table. */
static int step_accepted(const boot *b, boot_links *links, boot_link *link) {
  COLLI_ASSERT_RANK(!link->dials && !link->up, b->rank);
  const bool table = carries_table(b, links, link, false);
  int result = colli_sealed_pull(&link->conn, &link->head, sizeof(link->head), &link->head_done);
  if (result == COLL_T_DONE &&
      (link->head.magic != LINK_MAGIC || link->head.records != (table ? (uint32_t)b->nranks : 0)))
    result = EPROTO;
  if (result == COLL_T_DONE && table)
    result = colli_sealed_pull(&link->conn, links->table, (size_t)b->nranks * sizeof(*links->table),
                               &link->table_done);
  if (result == EBADMSG)
    return (int)boot_fail_altered(b, link->peer, NULL);
  if (colli_errno_is_shortage(result)) {
    boot_note_errno(b, result, true);
    return (int)boot_fail(b, COLL_ERR_PEER_LOST, link->peer, NULL, "the control link broke");
  }
  if (result != COLL_T_DONE && result != COLL_T_AGAIN)
    /* The neighbour gave up this connection, and may dial another address. */
    colli_sealed_close(&link->conn);
  if (result != COLL_T_DONE)
    return COLL_T_AGAIN;
  link->up = true;
  const coll_status status = table ? boot_links_take_table(b, links, link->peer, link->head.server,
                                                           link->head.remaining_ms)
                                   : COLL_OK;
  return status == COLL_OK ? COLL_T_DONE : (int)status;
}

/* No address of a neighbour leads to it. */
static int fail_dial(const boot *b, const boot_links *links, const boot_link *link, int status) {
  char attempts[400];
  const colli_rank_info *info = &links->table[link->peer];
  if (link->dial.altered)
    return (int)boot_fail_altered(b, link->peer, info);
  boot_dial_describe(&link->dial, attempts, sizeof(attempts));
  return (int)boot_fail(b, (coll_status)status, link->peer, info,
                        "rank %d (host %s) found nobody who knows the secret at the addresses of "
                        "rank %d (host %s, pid %d): %s; choose the right interface with "
                        "COLL_TCP_IFNAME",
                        b->rank, b->mine->host, link->peer, info->host, info->pid, attempts);
}

/* Connects to a neighbour and sends the head, and the table to a child. */
static int step_dialled(const boot *b, boot_links *links, boot_link *link) {
  COLLI_ASSERT_RANK(link->dials && !link->up && links->have_table, b->rank);
  if (!link->began) {
    boot_dial_begin(b, &link->dial, COLLI_HELLO_CONTROL, link->peer,
                    links->table[link->peer].control_addrs);
    link->began = true;
  }
  if (link->conn.fd < 0) {
    int result = boot_dial_step(b, &link->dial);
    if (result != COLL_T_DONE)
      return result == COLL_T_AGAIN ? result : fail_dial(b, links, link, result);
    link->conn = link->dial.conn;
    link->dial.conn = COLLI_SEALED_NONE;
    link->head_done = link->table_done = 0;
    link->head =
        (boot_link_head){.magic = LINK_MAGIC,
                         .records = carries_table(b, links, link, true) ? (uint32_t)b->nranks : 0,
                         .remaining_ms = boot_remaining_ms(links->deadline_ns),
                         .server = links->server};
  }
  int result = colli_sealed_push(&link->conn, &link->head, sizeof(link->head), &link->head_done);
  if (result == COLL_T_DONE && carries_table(b, links, link, true))
    result = colli_sealed_push(&link->conn, links->table, (size_t)b->nranks * sizeof(*links->table),
                               &link->table_done);
  if (result > 0) {
    boot_note_errno(b, result, false);
    colli_sealed_close(&link->conn);
    link->began = false;
    return COLL_T_AGAIN;
  }
  link->up = result == COLL_T_DONE;
  return result;
}

/* Fails because the deadline of the links has passed, and says which one is missing. */
static int fail_links_late(const boot *b, const boot_links *links) {
  for (int i = 0; i < links->count; i++) {
    const boot_link *link = &links->at[i];
    const colli_rank_info *info = &links->table[link->peer];
    char attempts[400];
    if (link->up || !link->dials)
      continue;
    boot_dial_describe(&link->dial, attempts, sizeof(attempts));
    return (int)boot_fail(b, link->dial.answered ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE,
                          link->peer, info,
                          "rank %d (host %s) could not make its control link to rank %d (host %s, "
                          "pid %d): %s; check the firewall between the hosts, COLL_TCP_IFNAME and "
                          "COLL_PORT_RANGE",
                          b->rank, b->mine->host, link->peer, info->host, info->pid, attempts);
  }
  return COLL_T_AGAIN; /* the missing link is another rank's, which tells the server */
}

int boot_links_step(const boot *b, boot_links *links) {
  int result = accept_links(b, links);
  bool all_up = true;
  if (result > 0)
    return result;
  for (int i = 0; i < links->count; i++) {
    boot_link *link = &links->at[i];
    if (!link->up && !link->dials && link->conn.fd >= 0)
      result = step_accepted(b, links, link);
    if (result > 0)
      return result;
  }
  for (int i = 0; i < links->count; i++) {
    boot_link *link = &links->at[i];
    if (!link->up && link->dials && links->have_table) {
      result = step_dialled(b, links, link);
      if (result > 0)
        return result;
    }
    COLLI_ASSERT_RANK(!link->up || link->conn.fd >= 0, b->rank);
    all_up = all_up && link->up;
  }
  if (all_up)
    return COLL_T_DONE;
  if (links->have_table && colli_now_ns() >= links->deadline_ns)
    return fail_links_late(b, links);
  return COLL_T_AGAIN;
}

void boot_links_watch(boot *b, const boot_links *links) {
  uint64_t now_ns = colli_now_ns();
  boot_door_watch(b, &links->door);
  if (links->deadline_ns > now_ns)
    boot_polls_wake(&b->polls, links->deadline_ns);
  for (int i = 0; i < links->count; i++) {
    const boot_link *link = &links->at[i];
    if (link->up)
      continue;
    if (link->conn.fd >= 0)
      boot_polls_add(&b->polls, link->conn.fd,
                     colli_sealed_events(&link->conn, link->dials ? POLLOUT : POLLIN));
    else if (link->began)
      boot_dial_watch(b, &link->dial);
    else if (link->dials && links->have_table)
      boot_polls_wake(&b->polls, now_ns + 20 * COLLI_NS_PER_MS);
  }
}

void boot_links_close(boot_links *links) {
  colli_door_close(&links->door);
  boot_close(&links->listen_fd);
  for (int i = 0; i < links->count; i++) {
    colli_sealed_close(&links->at[i].conn);
    boot_dial_close(&links->at[i].dial);
  }
}
