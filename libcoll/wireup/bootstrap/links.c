/* links.c: makes this rank's control links, and passes the table down the tree. */
#include "libcoll/wireup/bootstrap/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define LINK_MAGIC 0x6b6c4c43u             /* "CLlk" */
#define SPARE_NS   (200 * COLLI_NS_PER_MS) /* how long a spare connection may take */

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
    link->conn = link->spare = link->dial.conn = COLLI_SEALED_NONE;
  }
}

void boot_links_guess_outcome(const boot *b, boot_links *links) {
  const uint64_t now_ns = colli_now_ns();
  const uint64_t left_ns = b->deadline_ns > now_ns ? b->deadline_ns - now_ns : 0;
  const uint64_t last_ns = boot_margin_ns(left_ns);
  links->outcome_ns = b->deadline_ns - last_ns;
  links->margin_ns = boot_margin_ns(left_ns - last_ns);
}

coll_status boot_links_open(const boot *b, boot_links *links, const colli_params *params) {
  uint16_t port;
  colli_addr *addrs = b->mine->control_addrs;
  memset(addrs, 0, sizeof(b->mine->control_addrs));
  links->deadline_ns = b->deadline_ns;
  boot_links_guess_outcome(b, links);
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

/* Whether a connection is not the first one of its link. */
static bool is_spare(const colli_hello *hello) {
  return (hello->word & BOOT_SPARE_WORD) != 0;
}

/* Drops the connections of a link, which may be made once more. */
static void drop_link(boot_link *link) {
  colli_sealed_close(&link->conn);
  colli_sealed_close(&link->spare);
  boot_dial_close(&link->dial);
  link->began = link->headed = link->dialling_spare = false;
}

/* Takes a connection that a neighbour has made: a spare one in place of one that it gave up. */
static void take_connection(boot_link *link, colli_guest *guest) {
  if (is_spare(&guest->auth.hello)) {
    colli_sealed_close(&link->spare);
    colli_sealed_open(&link->spare, &guest->auth);
    return;
  }
  colli_sealed_open(&link->conn, &guest->auth);
  link->head_done = link->table_done = link->spare_done = 0;
}

/* The link to which a new connection belongs; NULL if none. */
static boot_link *link_for(const boot *b, boot_links *links, const colli_hello *hello) {
  if (hello->kind != COLLI_HELLO_CONTROL || hello->comm_id != b->id->comm_id ||
      hello->dst_rank != b->rank)
    return NULL;
  for (int i = 0; i < links->count; i++)
    if (links->at[i].peer == hello->src_rank && !links->at[i].dials && !links->at[i].up &&
        (links->at[i].conn.fd < 0) != is_spare(hello))
      return &links->at[i];
  return NULL;
}

/* Whether each neighbour that dials this rank has made its first connection. */
static bool has_all_first(const boot_links *links) {
  for (int i = 0; i < links->count; i++)
    if (!links->at[i].dials && links->at[i].conn.fd < 0)
      return false;
  return true;
}

/* Accepts the connections of neighbours that dial this rank. */
static int accept_links(const boot *b, boot_links *links) {
  colli_guest guest;
  while (colli_door_next(&links->door, &guest)) {
    boot_link *link = link_for(b, links, &guest.auth.hello);
    if (!link)
      boot_guest_refuse(b, &guest);
    else if (boot_guest_accept(b, &guest))
      take_connection(link, &guest);
    else
      boot_close(&guest.fd);
  }
  if (has_all_first(links))
    return COLL_T_AGAIN; /* spare ones may fail */
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

coll_status boot_links_expect_table(const boot *b, boot_links *links, int from, size_t bytes) {
  if (links->table && links->table->bytes == bytes)
    return COLL_OK;
  if (!colli_rank_table_fits(b->nranks, bytes))
    return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL,
                     "rank %d sends a table of %zu bytes, which is impossible for %d ranks", from,
                     bytes, b->nranks);
  colli_rank_table_free(links->table); /* of a connection that was given up */
  links->table = colli_rank_table_receive(b->nranks, bytes);
  return links->table ? COLL_OK : boot_fail_table(b);
}

/* What is wrong with the record of a rank in a table that was received; NULL: nothing. */
static const char *check_record(colli_rank_walk *walk, int rank) {
  const colli_rank_info *info = colli_rank_walk_to(walk, rank);
  if (!boot_record_ends(info))
    return "texts without an end";
  if (info->host_id != walk->of_host.host_id)
    return "of another host than the table says";
  return boot_record_wrong(info);
}

coll_status boot_links_take_table(const boot *b, boot_links *links, int from, int server,
                                  uint32_t remaining_ms, uint32_t margin_ms) {
  if (server < 0 || server >= b->nranks || server == b->rank)
    return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL,
                     "rank %d of %d says that rank %d serves, which is impossible", from, b->nranks,
                     server);
  if (!colli_rank_table_check(links->table))
    return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL, "rank %d passed on a damaged table of ranks",
                     from);
  colli_rank_walk walk = colli_rank_walk_begin(links->table);
  for (int rank = 0; rank < b->nranks; rank++) {
    const char *wrong = check_record(&walk, rank);
    if (wrong)
      return boot_fail(b, COLL_ERR_PROTOCOL, from, NULL,
                       "rank %d passed on an impossible record (%s) of rank %d", from, wrong, rank);
  }
  links->have_table = true;
  links->server = server;
  const uint64_t deadline_ns = colli_now_ns() + remaining_ms * COLLI_NS_PER_MS;
  if (deadline_ns < links->deadline_ns)
    links->deadline_ns = deadline_ns;
  links->margin_ns = margin_ms * COLLI_NS_PER_MS;
  links->outcome_ns = deadline_ns + links->margin_ns;
  return COLL_OK;
}

/* Whether the table goes over a link from parent to child; `sends`: this rank is the parent. */
static bool carries_table(const boot *b, const boot_links *links, const boot_link *link,
                          bool sends) {
  return link->table && links->server != (sends ? link->peer : b->rank);
}

/* Receives the head and, from the parent, the table: an errno if the connection ends. *status: of
 * the room for the table. */
static int pull_table(const boot *b, boot_links *links, boot_link *link, coll_status *status) {
  const bool table = carries_table(b, links, link, false);
  int result = colli_sealed_pull(&link->conn, &link->head, sizeof(link->head), &link->head_done);
  if (result == COLL_T_DONE &&
      (link->head.magic != LINK_MAGIC || (link->head.table_bytes > 0) != table))
    result = EPROTO;
  if (result == COLL_T_DONE && table) {
    *status = boot_links_expect_table(b, links, link->peer, link->head.table_bytes);
    if (*status != COLL_OK)
      return result;
    result = colli_sealed_pull(&link->conn, links->table->packed, links->table->bytes,
                               &link->table_done);
  }
  link->headed = result == COLL_T_DONE;
  return result;
}

/* Receives what the dialling neighbour sends: head, table, and whether there is a spare connection,
 * which then has come before that. */
static int step_accepted(const boot *b, boot_links *links, boot_link *link) {
  COLLI_ASSERT_RANK(!link->dials && !link->up, b->rank);
  int result = COLL_T_DONE;
  if (!link->headed) {
    const bool table = carries_table(b, links, link, false);
    coll_status status = COLL_OK;
    result = pull_table(b, links, link, &status);
    if (status == COLL_OK && link->headed && table)
      status = boot_links_take_table(b, links, link->peer, link->head.server,
                                     link->head.remaining_ms, link->head.margin_ms);
    if (status != COLL_OK)
      return (int)status;
  }
  if (link->spare.fd >= 0 && colli_sealed_shake(&link->spare) > 0)
    colli_sealed_close(&link->spare); /* the neighbour sees that, too */
  if (result == COLL_T_DONE && link->head.tries_spare)
    result = colli_sealed_pull(&link->conn, &link->has_spare, sizeof(link->has_spare),
                               &link->spare_done);
  if (result == EBADMSG)
    return (int)boot_fail_altered(b, link->peer, NULL);
  const bool broke = result != COLL_T_DONE && result != COLL_T_AGAIN;
  /* The table is in use once it has come, so it cannot come again. */
  const bool final = broke && link->headed && carries_table(b, links, link, false);
  if (colli_errno_is_shortage(result) || final) {
    boot_note_errno(b, result, true);
    return (int)boot_fail(b, COLL_ERR_PEER_LOST, link->peer, NULL, "the control link broke");
  }
  if (broke)
    /* The neighbour gave up this connection, and may dial another address. */
    drop_link(link);
  if (result != COLL_T_DONE)
    return COLL_T_AGAIN;
  if (!link->head.tries_spare || !link->has_spare)
    colli_sealed_close(&link->spare);
  link->up = true;
  return COLL_T_DONE;
}

/* No address of a neighbour leads to it. */
static int fail_dial(const boot *b, const boot_links *links, const boot_link *link, int status) {
  char attempts[400];
  const colli_rank_info info = colli_rank_at(links->table, link->peer);
  if (link->dial.altered)
    return (int)boot_fail_altered(b, link->peer, &info);
  boot_dial_describe(&link->dial, attempts, sizeof(attempts));
  return (int)boot_fail(b, (coll_status)status, link->peer, &info,
                        "rank %d (host %s) found nobody who knows the secret at the addresses of "
                        "rank %d (host %s, pid %d): %s; choose the right interface with "
                        "COLL_TCP_IFNAME",
                        b->rank, b->mine->host, link->peer, info.host, info.pid, attempts);
}

/* Makes the head, and begins to dial a spare connection if there may be one. */
static void begin_head(const boot *b, boot_links *links, boot_link *link) {
  const colli_rank_info peer = colli_rank_at(links->table, link->peer);
  link->conn = link->dial.conn;
  link->dialling_spare =
      boot_dial_begin_spare(b, &link->dial, link->peer, peer.control_addrs, &link->conn);
  link->spare_until_ns = 0;
  link->head_done = link->table_done = link->spare_done = 0;
  link->head = (boot_link_head){
      .magic = LINK_MAGIC,
      .table_bytes = carries_table(b, links, link, true) ? (uint32_t)links->table->bytes : 0,
      .remaining_ms = boot_remaining_ms(links->deadline_ns),
      .margin_ms = (uint32_t)(links->margin_ns / COLLI_NS_PER_MS),
      .server = links->server,
      .tries_spare = link->dialling_spare};
}

/* How long to try for a spare connection: less if the links must be up soon. */
static uint64_t spare_time_ns(uint64_t deadline_ns, uint64_t now_ns) {
  const uint64_t most_ns = deadline_ns > now_ns ? (deadline_ns - now_ns) / 4 : 0;
  return most_ns < SPARE_NS ? most_ns : SPARE_NS;
}

/* Makes the spare connection, or gives it up, and says so: as colli_sealed_push(). */
static int push_spare(const boot *b, uint64_t deadline_ns, boot_link *link) {
  if (link->dialling_spare) {
    const uint64_t now_ns = colli_now_ns();
    if (!link->spare_until_ns)
      link->spare_until_ns = now_ns + spare_time_ns(deadline_ns, now_ns);
    const int result = boot_dial_step(b, &link->dial);
    if (result == COLL_T_AGAIN && now_ns < link->spare_until_ns && !boot_dial_failed(&link->dial))
      return result;
    link->has_spare = result == COLL_T_DONE;
    link->spare = link->dial.conn;
    link->dial.conn = COLLI_SEALED_NONE;
    boot_dial_close(&link->dial);
    link->dialling_spare = false;
  }
  return colli_sealed_push(&link->conn, &link->has_spare, sizeof(link->has_spare),
                           &link->spare_done);
}

/* Connects to a neighbour and sends the head, the table to a child, and whether there is a spare
 * connection. */
static int step_dialled(const boot *b, boot_links *links, boot_link *link) {
  COLLI_ASSERT_RANK(link->dials && !link->up && links->have_table, b->rank);
  if (!link->began) {
    boot_dial_begin(b, &link->dial, COLLI_HELLO_CONTROL, link->peer,
                    colli_rank_at(links->table, link->peer).control_addrs);
    link->began = true;
  }
  if (link->conn.fd < 0) {
    int result = boot_dial_step(b, &link->dial);
    if (result != COLL_T_DONE)
      return result == COLL_T_AGAIN ? result : fail_dial(b, links, link, result);
    begin_head(b, links, link);
  }
  int result = colli_sealed_push(&link->conn, &link->head, sizeof(link->head), &link->head_done);
  if (result == COLL_T_DONE && carries_table(b, links, link, true))
    result = colli_sealed_push(&link->conn, links->table->packed, links->table->bytes,
                               &link->table_done);
  link->headed = result == COLL_T_DONE;
  if (link->headed && link->head.tries_spare)
    result = push_spare(b, links->deadline_ns, link);
  if (result > 0) {
    boot_note_errno(b, result, false);
    drop_link(link);
    return COLL_T_AGAIN;
  }
  link->up = result == COLL_T_DONE;
  return result;
}

/* Fails because the deadline of the links has passed, and says which one is missing. */
static int fail_links_late(const boot *b, const boot_links *links) {
  for (int i = 0; i < links->count; i++) {
    const boot_link *link = &links->at[i];
    char attempts[400];
    if (link->up || !link->dials)
      continue;
    const colli_rank_info info = colli_rank_at(links->table, link->peer);
    if (link->conn.fd >= 0)
      snprintf(attempts, sizeof(attempts), "it is connected, but takes no bytes");
    else
      boot_dial_describe(&link->dial, attempts, sizeof(attempts));
    return (int)boot_fail(b, link->dial.answered ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE,
                          link->peer, &info,
                          "rank %d (host %s) could not make its control link to rank %d (host %s, "
                          "pid %d): %s; check the firewall between the hosts, COLL_TCP_IFNAME and "
                          "COLL_PORT_RANGE",
                          b->rank, b->mine->host, link->peer, info.host, info.pid, attempts);
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
    if (link->dialling_spare && link->headed) {
      boot_dial_watch(b, &link->dial);
      boot_polls_wake(&b->polls, link->spare_until_ns);
    } else if (link->conn.fd >= 0) {
      if (link->spare.fd >= 0 && !link->dials && link->spare.wants_tls)
        boot_polls_add(&b->polls, link->spare.fd, colli_sealed_events(&link->spare, POLLIN));
      boot_polls_add(&b->polls, link->conn.fd,
                     colli_sealed_events(&link->conn, link->dials ? POLLOUT : POLLIN));
    } else if (link->began) {
      boot_dial_watch(b, &link->dial);
    } else if (link->dials && links->have_table) {
      boot_polls_wake(&b->polls, now_ns + 20 * COLLI_NS_PER_MS);
    }
  }
}

void boot_links_close(boot_links *links) {
  colli_door_close(&links->door);
  boot_close(&links->listen_fd);
  for (int i = 0; i < links->count; i++)
    drop_link(&links->at[i]);
}
