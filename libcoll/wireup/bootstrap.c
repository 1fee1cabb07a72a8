/* bootstrap.c: making ids, and what the parts of bootstrap share. */
#include "libcoll/wireup/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/wireup/bootstrap_internal.h"

_Static_assert(sizeof(colli_rank_info) % 8 == 0, "travels as it is");
_Static_assert(offsetof(boot_checkin, info) == BOOT_CHECKIN_HEAD, "the head comes first");

coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error) {
  uint16_t port;
  memset(id, 0, sizeof(*id));
  id->magic = COLLI_ID_MAGIC;
  id->version = COLLI_ID_VERSION;
  id->pid = getpid();
  id->listen_fd = -1;
  int count =
      colli_net_interfaces(params->text[COLLI_PARAM_TCP_IFNAME], id->addrs, COLLI_MAX_ADDRS, error);
  if (count == 0)
    return error->status;
  int sys_errno = colli_random_secret(id->secret, sizeof(id->secret));
  if (sys_errno == 0)
    sys_errno = colli_random_secret(&id->comm_id, sizeof(id->comm_id));
  if (sys_errno != 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", sys_errno,
                           "no random bytes for a secret");
  coll_status status =
      colli_net_listen(params->text[COLLI_PARAM_PORT_RANGE], &id->listen_fd, &port, error);
  for (int i = 0; i < count; i++)
    id->addrs[i].port = port;
  return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int boot_polls_add(boot_polls *polls, int fd, short events) {
  if (polls->count == polls->room) { /* more than planned: look at it soon instead */
    boot_polls_wake(polls, colli_now_ns() + 10 * COLLI_NS_PER_MS);
    return -1;
  }
  polls->fds[polls->count] = (struct pollfd){.fd = fd, .events = events};
  return polls->count++;
}

void boot_polls_wake(boot_polls *polls, uint64_t at_ns) {
  if (at_ns < polls->wake_ns)
    polls->wake_ns = at_ns;
}

void boot_polls_wait(boot_polls *polls) {
  uint64_t now_ns = colli_now_ns();
  uint64_t left_ns = polls->wake_ns > now_ns ? polls->wake_ns - now_ns : 0;
  uint64_t left_ms = (left_ns + COLLI_NS_PER_MS - 1) / COLLI_NS_PER_MS;
  if (poll(polls->fds, (nfds_t)polls->count, left_ms < 1000 ? (int)left_ms : 1000) < 0)
    for (int i = 0; i < polls->count; i++)
      polls->fds[i].revents = polls->fds[i].events; /* a signal: look at everything */
}

/* ---- messages -------------------------------------------------------------------------------- */

int boot_push(int fd, const void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t sent = send(fd, (const char *)msg + *done, bytes - *done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      *done += (size_t)sent;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  return COLL_T_DONE;
}

int boot_pull(int fd, void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t got = recv(fd, (char *)msg + *done, bytes - *done, MSG_DONTWAIT);
    if (got > 0)
      *done += (size_t)got;
    else if (got == 0)
      return ECONNRESET;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  return COLL_T_DONE;
}

void boot_close(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

/* ---- failures and deadlines ------------------------------------------------------------------ */

coll_status boot_fail(const boot *b, coll_status status, int peer, const colli_rank_info *info,
                      const char *format, ...) {
  coll_error *error = b->error;
  char text[sizeof(error->message)];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  colli_error_set(error, status, "create", "%s", text);
  error->rank = b->rank;
  snprintf(error->host, sizeof(error->host), "%s", b->mine->host);
  error->peer = peer;
  if (info) {
    error->peer_pid = info->pid;
    snprintf(error->peer_host, sizeof(error->peer_host), "%s", info->host);
  }
  return status;
}

coll_status boot_fail_word(const boot *b, boot_word *word) {
  coll_error *said = &word->error;
  said->size = sizeof(*said);
  said->operation[sizeof(said->operation) - 1] = 0;
  said->syscall[sizeof(said->syscall) - 1] = 0;
  said->host[sizeof(said->host) - 1] = 0;
  said->peer_host[sizeof(said->peer_host) - 1] = 0;
  said->message[sizeof(said->message) - 1] = 0;
  bool known = word->status > COLL_IN_PROGRESS && word->status <= COLL_ERR_INTERNAL;
  said->status = known ? (coll_status)word->status : COLL_ERR_PROTOCOL;
  *b->error = *said;
  return said->status;
}

void boot_word_fill(const boot *b, boot_word *word, coll_status status) {
  memset(word, 0, sizeof(*word));
  word->status = (int32_t)status;
  if (status != COLL_OK)
    memcpy(&word->error, b->error, sizeof(word->error));
}

void boot_list_ranks(const bool *flags, int nranks, bool wanted, char *text, size_t bytes) {
  size_t used = 0;
  *text = 0;
  for (int rank = 0; rank < nranks; rank++) {
    int last = rank;
    if (flags[rank] != wanted)
      continue;
    while (last + 1 < nranks && flags[last + 1] == wanted)
      last++;
    if (used + 32 > bytes) {
      snprintf(text + used, bytes - used, " ...");
      return;
    }
    used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", rank);
    if (last > rank)
      used += (size_t)snprintf(text + used, bytes - used, "-%d", last);
    rank = last;
  }
}

uint64_t boot_margin_ns(uint64_t remaining_ns) {
  uint64_t margin_ns = remaining_ns / 5;
  return margin_ns < COLLI_NS_PER_S ? margin_ns : COLLI_NS_PER_S;
}

uint32_t boot_remaining_ms(uint64_t until_ns) {
  uint64_t now_ns = colli_now_ns();
  uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / COLLI_NS_PER_MS : 0;
  return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

/* ---- lifelines ------------------------------------------------------------------------------- */

void boot_lifelines_watch(boot *b) {
  for (int i = 0; b->lifelines && i < b->lifelines->nlifelines; i++)
    boot_polls_add(&b->polls, b->lifelines->lifelines[i], POLLIN);
}

int boot_lifelines_cut(const boot *b) {
  char byte;
  for (int i = 0; b->lifelines && i < b->lifelines->nlifelines; i++) {
    ssize_t got = recv(b->lifelines->lifelines[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      return i;
  }
  return -1;
}

coll_status boot_fail_cut(const boot *b, int lifeline, const colli_rank_info *info) {
  int peer = b->lifelines->lifeline_ranks[lifeline];
  return boot_fail(b, COLL_ERR_PEER_LOST, peer, info,
                   "rank %d of the new communicator is lost, or gave up, before all its ranks were "
                   "joined",
                   peer);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whether a descriptor is the listener that the id names, and not something that took its number.
 */
static bool is_listener(const colli_id *id) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  struct sockaddr_storage name;
  socklen_t name_length = sizeof(name);
  if (id->pid != getpid() || id->listen_fd < 0 ||
      getsockopt(id->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 ||
      !listening || getsockname(id->listen_fd, (struct sockaddr *)&name, &name_length) != 0)
    return false;
  colli_addr addr;
  return colli_net_from_sockaddr((struct sockaddr *)&name, &addr) && addr.port == id->addrs[0].port;
}

/* Rank 0: checks its listener, which is closed at the end in every case, and readies it. */
static coll_status take_listener(const boot *b, int *listen_fd) {
  const colli_id *id = b->id;
  *listen_fd = -1;
  if (is_listener(id)) {
    *listen_fd = id->listen_fd;
    int flags = fcntl(*listen_fd, F_GETFL);
    fcntl(*listen_fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(*listen_fd, F_SETFD, FD_CLOEXEC);
  }
  if (b->nranks == 1 || *listen_fd >= 0)
    return COLL_OK;
  if (id->pid != getpid())
    return boot_fail(b, COLL_ERR_INVALID_USAGE, -1, NULL,
                     "rank 0 must be the process that made the id (pid %d), but this is pid %d; "
                     "give rank 0 to that process, or make the id here",
                     id->pid, (int)getpid());
  return boot_fail(b, COLL_ERR_INVALID_USAGE, -1, NULL,
                   "rank 0's id has no open listener; an id serves one communicator: make a new "
                   "one with coll_unique_id()");
}

/* Runs this rank's role. */
static coll_status run(boot *b, boot_links *links, const colli_params *params) {
  if (b->nranks > 1) {
    coll_status status = boot_links_open(b, links, params);
    if (status != COLL_OK)
      return status;
    return b->rank == 0 ? boot_root(b, links) : boot_join(b, links);
  }
  links->table[0] = *b->mine;
  return COLL_OK;
}

/* Makes the control links of the sockets of a bootstrap that went well. */
static coll_status make_ctrl(const boot *b, boot_links *links, colli_ctrl **ctrl) {
  int peers[COLLI_CTRL_LINKS_MAX], fds[COLLI_CTRL_LINKS_MAX];
  for (int i = 0; i < links->count; i++) {
    peers[i] = links->at[i].peer;
    fds[i] = links->at[i].fd;
    links->at[i].fd = -1;
  }
  return colli_ctrl_create_net(ctrl, b->rank, b->nranks, peers, fds, links->count, b->error);
}

coll_status colli_bootstrap(const colli_id *id, int rank, int nranks, colli_rank_info *mine,
                            const colli_params *params, uint64_t deadline_ns, const colli_log *log,
                            colli_lifelines *lifelines, colli_rank_info **table, colli_ctrl **ctrl,
                            coll_error *error) {
  *table = NULL;
  *ctrl = NULL;
  if (lifelines)
    lifelines->listen_fd = -1;
  boot b = {.id = id,
            .rank = rank,
            .nranks = nranks,
            .mine = mine,
            .log = log,
            .start_ns = colli_now_ns(),
            .deadline_ns = deadline_ns,
            .error = error,
            .lifelines = lifelines};
  int listen_fd = -1;
  coll_status status = rank == 0 ? take_listener(&b, &listen_fd) : COLL_OK;
  boot_links *links = calloc(1, sizeof(*links));
  b.polls.room = 2 * BOOT_GUESTS_MAX + COLLI_CTRL_LINKS_MAX * BOOT_TRIES_MAX + 16;
  b.polls.room += (rank == 0 ? 2 * nranks : 0) + (lifelines ? lifelines->nlifelines : 0);
  b.polls.fds = calloc((size_t)b.polls.room, sizeof(*b.polls.fds));
  if (links) {
    links->pendings.listen_fd = -1;
    links->table = calloc((size_t)nranks, sizeof(*links->table));
  }
  if (status == COLL_OK && (!links || !links->table || !b.polls.fds))
    status =
        boot_fail(&b, COLL_ERR_NO_MEMORY, -1, NULL, "no memory for a table of %d ranks", nranks);
  if (status == COLL_OK)
    status = run(&b, links, params);
  if (status == COLL_OK)
    status = make_ctrl(&b, links, ctrl);
  boot_close(&listen_fd);
  if (status == COLL_OK) {
    *table = links->table;
    links->table = NULL;
    if (lifelines) {
      lifelines->listen_fd = links->pendings.listen_fd;
      links->pendings.listen_fd = -1;
    }
  }
  if (links) {
    boot_links_close(links);
    free(links->table);
    explicit_bzero(links, sizeof(*links)); /* handshakes hold the secret */
  }
  free(links);
  free(b.polls.fds);
  return status;
}
