/* bootstrap.c: runs one rank's part in a bootstrap from beginning to end. */
#include "libcoll/wireup/bootstrap/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/net/door.h"
#include "libcoll/wireup/bootstrap/roles.h"

/* Whether a descriptor is a listening socket at the id's port, and not something else that reused
 * its number. */
static bool is_listener(const colli_id *id) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  struct sockaddr_storage name;
  socklen_t name_length = sizeof(name);
  if (getsockopt(id->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 ||
      (listening && getsockname(id->listen_fd, (struct sockaddr *)&name, &name_length) != 0))
    return colli_errno_is_shortage(errno); /* then it is a socket, and probably this one */
  if (!listening)
    return false;
  colli_addr addr;
  const uint16_t port = id->own_addr.port != 0 ? id->own_addr.port : id->addrs[0].port;
  return colli_net_from_sockaddr((struct sockaddr *)&name, &addr) && addr.port == port;
}

/* The server: checks its listener and sets its flags. It is closed at the end in every case. */
static coll_status take_listener(const boot *b, int *listen_fd) {
  if (!is_listener(b->id))
    return boot_fail(b, COLL_ERR_INVALID_USAGE, -1, NULL,
                     "descriptor %d of rank %d, at which it listened for the others, was closed by "
                     "another part of the program; look for a close() too many",
                     b->id->listen_fd, b->rank);
  *listen_fd = b->id->listen_fd;
  int flags = fcntl(*listen_fd, F_GETFL);
  fcntl(*listen_fd, F_SETFL, flags | O_NONBLOCK);
  fcntl(*listen_fd, F_SETFD, FD_CLOEXEC);
  return COLL_OK;
}

/* Runs this rank's role. */
static coll_status run_role(boot *b, boot_links *links, int listen_fd, const colli_params *params,
                            colli_shared_time *time) {
  if (b->nranks > 1) {
    coll_status status = boot_links_open(b, links, params);
    if (status != COLL_OK)
      return status;
    if (b->lifelines && b->lifelines->collect)
      return boot_meet(b, links);
    return boot_check_in(b, links, listen_fd, time);
  }
  links->table = colli_rank_table_create(b->mine, 1);
  return links->table ? COLL_OK : boot_fail_table(b);
}

/* Turns the sockets of a successful bootstrap into control links. */
static coll_status make_ctrl(const boot *b, boot_links *links, const colli_params *params,
                             colli_ctrl **ctrl) {
  int peers[COLLI_CTRL_LINKS_MAX];
  colli_sealed conns[COLLI_CTRL_LINKS_MAX], spares[COLLI_CTRL_LINKS_MAX];
  for (int i = 0; i < links->count; i++) {
    COLLI_ASSERT_RANK(links->at[i].up && links->at[i].conn.fd >= 0, b->rank);
    peers[i] = links->at[i].peer;
    conns[i] = links->at[i].conn;
    spares[i] = links->at[i].spare;
    links->at[i].conn = links->at[i].spare = COLLI_SEALED_NONE;
  }
  coll_status status =
      colli_ctrl_create_net(ctrl, b->rank, b->nranks, peers, conns, spares, links->count,
                            (int)params->number[COLLI_PARAM_HEARTBEAT_MS], b->error);
  explicit_bzero(conns, sizeof(conns));
  explicit_bzero(spares, sizeof(spares));
  if (status == COLL_OK &&
      links->count > 0) /* without memory for it, links do with what they have */
    colli_ctrl_set_spares(
        *ctrl, colli_ctrl_spares_create(b, links->table, params->text[COLLI_PARAM_PORT_RANGE]));
  return status;
}

/* Allocates the memory of a bootstrap; the caller frees boot->polls even if this fails. */
static boot_links *create_links(boot *b) {
  int descriptors = COLLI_CTRL_LINKS_MAX * (BOOT_ATTEMPTS_MAX + 1) + 16;
  descriptors += b->id->listen_fd >= 0 ? 2 * boot_place_children(&b->place) : 0;
  descriptors += b->lifelines ? b->lifelines->nlifelines : 0;
  descriptors += b->lifelines && b->lifelines->watch ? b->nranks : 0;
  boot_links *links = calloc(1, sizeof(*links));
  if (links) {
    links->listen_fd = -1;
    links->server = b->place.depth == 0 ? b->rank : b->id->server;
    links->door = COLLI_DOOR_CLOSED;
  }
  if (boot_polls_create(&b->polls, descriptors) && links)
    return links;
  free(links);
  (void)boot_fail_table(b);
  return NULL;
}

/* Closes and frees what is left of the links. */
static void destroy_links(boot_links *links) {
  boot_links_close(links);
  colli_rank_table_free(links->table);
  explicit_bzero(links, sizeof(*links)); /* handshakes leave keys */
  free(links);
}

coll_status colli_bootstrap(const colli_id *id, int rank, int nranks, colli_rank_info *mine,
                            const colli_params *params, uint64_t deadline_ns, const colli_log *log,
                            colli_lifelines *lifelines, colli_rank_table **table, colli_ctrl **ctrl,
                            coll_error *error) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < nranks, rank);
  *table = NULL;
  *ctrl = NULL;
  if (lifelines)
    lifelines->listen_fd = -1;
  boot_shortage own = {0};
  boot b = {.id = id,
            .shortage = lifelines && lifelines->shortage ? lifelines->shortage : &own,
            .rank = rank,
            .nranks = nranks,
            .mine = mine,
            .log = log,
            .start_ns = colli_now_ns(),
            .deadline_ns = deadline_ns,
            .error = error,
            .lifelines = lifelines,
            .tls = params->number[COLLI_PARAM_TLS] != 0,
            .place = boot_place_find(id->fan_out, rank, nranks, id->listen_fd >= 0)};
  int listen_fd = -1;
  boot_links *links = NULL;
  const bool serves = id->listen_fd >= 0;
  coll_status status = serves ? take_listener(&b, &listen_fd) : COLL_OK;
  if (status == COLL_OK && !(links = create_links(&b)))
    status = COLL_ERR_NO_MEMORY;
  colli_shared_time time = {0};
  if (lifelines && (b.place.depth == 0 || lifelines->collect))
    time = lifelines->time;
  if (status == COLL_OK)
    status = run_role(&b, links, listen_fd, params, &time);
  if (status == COLL_OK)
    status = make_ctrl(&b, links, params, ctrl);
  boot_close(&listen_fd);
  if (status == COLL_OK) {
    COLLI_ASSERT_RANK(links->table && *ctrl, rank);
    *table = links->table;
    links->table = NULL;
  }
  if (status == COLL_OK && lifelines) {
    lifelines->time = time;
    lifelines->listen_fd = links->listen_fd;
    links->listen_fd = -1;
  }
  if (links)
    destroy_links(links);
  boot_polls_destroy(&b.polls);
  return status;
}
