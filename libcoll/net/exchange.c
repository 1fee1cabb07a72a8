/* exchange.c: processes of one host give each other descriptors. */
#include "libcoll/net/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

#define STRANGERS 16                      /* the most that have proved nothing, besides all ranks */
#define GRACE_NS  (250 * COLLI_NS_PER_MS) /* what these have before others push them out */
#define ACCEPTS   256                     /* bounds the work of one call */

/* What comes with a descriptor. */
typedef struct note {
  uint64_t bytes;
} note;

/* Closes a connection. */
static void end_link(colli_exchange_link *link) {
  if (link->stage == COLLI_EXCHANGE_FREE)
    return;
  if (link->fd >= 0)
    colli_fd_close(link->fd);
  colli_auth_drop(&link->auth);
  explicit_bzero(&link->auth, sizeof(link->auth));
  link->fd = -1;
  link->stage = COLLI_EXCHANGE_FREE;
}

/* This rank takes nothing more. */
static void give_up(colli_exchange *exchange) {
  for (int rank = 0; rank < exchange->party.nranks; rank++)
    end_link(&exchange->takes[rank]);
}

/* The same because of the system. The first reason counts. */
static void fail(colli_exchange *exchange, const colli_exchange_link *link, const char *syscall,
                 int error) {
  if (exchange->error->status == COLL_OK)
    (void)colli_error_sys(
        exchange->error, COLL_ERR_SYSTEM, NULL, syscall, error,
        "cannot take a descriptor of rank %d%s", link->peer,
        error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n)" : "");
  give_up(exchange);
}

/* The same because of the peer. */
static void refuse(colli_exchange *exchange, const colli_exchange_link *link, coll_status status,
                   const char *what) {
  if (exchange->error->status == COLL_OK)
    (void)colli_error_set(exchange->error, status, NULL, "rank %d %s", link->peer, what);
  give_up(exchange);
}

/* ---- takers ---------------------------------------------------------------------------------- */

/* Dials a giver; if its queue is full, again at the next poll. */
static bool dial(colli_exchange *exchange, colli_exchange_link *link) {
  const colli_exchange_party *own = &exchange->party;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const socklen_t bytes =
      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + link->place.name_bytes);
  pid_t pid;
  memcpy(address.sun_path, link->place.name, link->place.name_bytes);
  if (link->fd < 0)
    link->fd = COLLI_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (link->fd < 0) {
    fail(exchange, link, "socket", errno);
    return true;
  }
  if (connect(link->fd, (const struct sockaddr *)&address, bytes) != 0) {
    if (errno == EAGAIN || errno == EINTR)
      return false;
    fail(exchange, link, "connect", errno);
    return true;
  }
  if (!colli_unix_is_same_user(link->fd, geteuid(), &pid)) {
    if (errno == EACCES)
      refuse(exchange, link, COLL_ERR_AUTH, "belongs to another user at its socket");
    else
      fail(exchange, link, "getsockopt", errno);
    return true;
  }
  colli_auth_connect(&link->auth, link->fd, own->secret, COLLI_HELLO_MEMORY, own->rank, link->peer,
                     own->comm_id, own->word);
  link->auth.deadline_ns = UINT64_MAX; /* the caller's deadline counts: drivers may wait long */
  link->stage = COLLI_EXCHANGE_AUTH;
  return true;
}

void colli_exchange_take(colli_exchange *exchange, int peer, const colli_exchange_place *place,
                         uint64_t bytes) {
  colli_exchange_link *link = &exchange->takes[peer];
  *link = (colli_exchange_link){
      .stage = COLLI_EXCHANGE_DIAL, .fd = -1, .peer = peer, .all = bytes, .place = *place};
  if (place->name_bytes < 2 || place->name_bytes > COLLI_UNIX_NAME)
    refuse(exchange, link, COLL_ERR_PEER_LOST, "gives no descriptors");
}

/* Advances a taker's handshake. */
static bool shake_hands(colli_exchange *exchange, colli_exchange_link *link) {
  const int result = colli_auth_poll(&link->auth);
  if (result == COLL_T_AGAIN)
    return false;
  if (result == COLL_T_DONE)
    link->stage = COLLI_EXCHANGE_OPEN;
  else if (result == COLL_ERR_AUTH)
    refuse(exchange, link, COLL_ERR_AUTH, "does not know this communicator's secret");
  else if (result == COLL_ERR_PEER_LOST)
    refuse(exchange, link, COLL_ERR_PEER_LOST, "has closed its socket for descriptors");
  else if (result == COLL_ERR_SYSTEM)
    fail(exchange, link, "handshake", errno);
  else
    refuse(exchange, link, COLL_ERR_PROTOCOL,
           "does not speak this version's handshake; all ranks must run the same libcoll");
  return true;
}

/* Takes what has come. */
static bool take_all(colli_exchange *exchange, colli_exchange_link *link) {
  bool moved = false;
  while (link->stage == COLLI_EXCHANGE_OPEN) {
    note n;
    int fd = -1;
    const int result = colli_unix_recv(link->fd, &n, sizeof(n), &fd, 1);
    if (result < 0 && errno == EAGAIN)
      return moved;
    moved = true;
    if (result == 0 || (result < 0 && errno == ECONNRESET)) {
      refuse(exchange, link, COLL_ERR_PEER_LOST, "has closed its socket for descriptors");
    } else if (result < 0 && errno != EPROTO) {
      fail(exchange, link, "recvmsg", errno);
    } else if (result < 0 || n.bytes == 0 || n.bytes > link->all - link->done) {
      refuse(exchange, link, COLL_ERR_PROTOCOL, "gives other descriptors than it said");
    } else if (!exchange->calls.take(exchange->calls.context, link->peer, fd, n.bytes)) {
      give_up(exchange);
    } else {
      link->done += n.bytes;
      if (link->done == link->all) /* that it is closed says as much as the byte */
        end_link(link);
      else if (send(link->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1 && errno != EPIPE)
        fail(exchange, link, "send", errno);
    }
    if (fd >= 0)
      colli_fd_close(fd);
  }
  return moved;
}

/* Advances a taker. */
static bool advance_taker(colli_exchange *exchange, colli_exchange_link *link) {
  bool moved = false;
  if (link->stage == COLLI_EXCHANGE_DIAL)
    moved |= dial(exchange, link);
  if (link->stage == COLLI_EXCHANGE_AUTH)
    moved |= shake_hands(exchange, link);
  if (link->stage == COLLI_EXCHANGE_OPEN)
    moved |= take_all(exchange, link);
  return moved;
}

/* ---- givers ---------------------------------------------------------------------------------- */

/* Room for one more connection, perhaps in place of the oldest one that has proved nothing; or
 * NULL.
 */
static colli_exchange_link *find_room(colli_exchange *exchange) {
  colli_exchange_link *oldest = NULL;
  for (int i = 0; i < exchange->nguests; i++) {
    colli_exchange_link *link = &exchange->guests[i];
    if (link->stage == COLLI_EXCHANGE_FREE)
      return link;
    if (link->stage == COLLI_EXCHANGE_AUTH && (!oldest || link->since_ns < oldest->since_ns))
      oldest = link;
  }
  if (!oldest || colli_now_ns() - oldest->since_ns < GRACE_NS)
    return NULL;
  end_link(oldest);
  return oldest;
}

/* Accepts who comes: other users not, and no more than there is room for. */
static bool accept_all(colli_exchange *exchange) {
  colli_exchange_link *link;
  bool moved = false;
  for (int i = 0; i < ACCEPTS && (link = find_room(exchange)); i++) {
    pid_t pid;
    const int fd = COLLI_FD(accept4(exchange->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0)
      return moved; /* a shortage may pass until the caller's deadline */
    moved = true;
    if (!colli_unix_is_same_user(fd, geteuid(), &pid)) {
      colli_fd_close(fd);
      continue;
    }
    *link = (colli_exchange_link){.stage = COLLI_EXCHANGE_AUTH,
                                  .fd = fd,
                                  .peer = -1,
                                  .all = exchange->own,
                                  .since_ns = colli_now_ns()};
    colli_auth_accept(&link->auth, fd, exchange->party.secret);
    link->auth.deadline_ns = UINT64_MAX;
  }
  return moved;
}

/* Whether a connection that has proved to know the secret is for this exchange, and the only one of
 * its rank. */
static bool fits(const colli_exchange *exchange, const colli_hello *hello) {
  const colli_exchange_party *own = &exchange->party;
  if (hello->kind != COLLI_HELLO_MEMORY || hello->comm_id != own->comm_id ||
      hello->word != own->word || hello->dst_rank != own->rank || hello->src_rank < 0 ||
      hello->src_rank >= own->nranks || hello->src_rank == own->rank)
    return false;
  for (int i = 0; i < exchange->nguests; i++)
    if (exchange->guests[i].stage == COLLI_EXCHANGE_OPEN &&
        exchange->guests[i].peer == hello->src_rank)
      return false;
  return true;
}

/* Advances a giver's handshake. Who fails says so itself. */
static bool welcome(colli_exchange *exchange, colli_exchange_link *link) {
  const int result = colli_auth_poll(&link->auth);
  if (result == COLL_T_AGAIN)
    return false;
  const bool taken = result == COLL_T_DONE && fits(exchange, &link->auth.hello);
  if (result != COLL_T_DONE || colli_auth_answer(&link->auth, taken) != 0 || !taken) {
    end_link(link);
  } else {
    link->peer = link->auth.hello.src_rank;
    link->stage = COLLI_EXCHANGE_OPEN;
  }
  return true;
}

/* Reads what the taker says; false if that was its end. */
static bool hear(colli_exchange_link *link, bool *moved) {
  char bytes[COLLI_EXCHANGE_AHEAD];
  const ssize_t got = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  *moved = true;
  if (got == 0 || (size_t)got > link->ahead)
    return false;
  link->ahead -= (unsigned)got;
  return true;
}

/* Gives one more; false if that is impossible now. */
static bool give_one(colli_exchange *exchange, colli_exchange_link *link) {
  note n = {.bytes = 0};
  const int fd = exchange->calls.give(exchange->calls.context, link->done, &n.bytes);
  if (fd < 0) {
    end_link(link);
    return false;
  }
  const int failed = colli_unix_send(link->fd, &n, sizeof(n), &fd, 1);
  const bool later = failed && (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS);
  colli_fd_close(fd);
  if (failed && !later)
    end_link(link);
  if (failed)
    return false;
  link->done += n.bytes;
  link->ahead++;
  return true;
}

/* Advances a giver. */
static bool advance_giver(colli_exchange *exchange, colli_exchange_link *link) {
  bool moved = false;
  if (link->stage == COLLI_EXCHANGE_AUTH)
    moved = welcome(exchange, link);
  if (link->stage != COLLI_EXCHANGE_OPEN)
    return moved;
  if (!hear(link, &moved)) {
    end_link(link);
    return true;
  }
  while (link->stage == COLLI_EXCHANGE_OPEN && link->ahead < COLLI_EXCHANGE_AHEAD &&
         link->done < link->all && give_one(exchange, link))
    moved = true;
  return moved;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Listens, and says where. */
static coll_status begin_to_listen(colli_exchange *exchange, colli_exchange_place *place,
                                   coll_error *error) {
  struct sockaddr_un address;
  socklen_t bytes;
  const char *syscall;
  exchange->listen_fd = colli_unix_listen(exchange->nguests, &address, &bytes, &syscall);
  if (exchange->listen_fd < 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, NULL, syscall, errno,
                           "cannot give descriptors to other processes");
  place->name_bytes = (uint32_t)(bytes - offsetof(struct sockaddr_un, sun_path));
  memcpy(place->name, address.sun_path, place->name_bytes);
  return COLL_OK;
}

coll_status colli_exchange_open(colli_exchange *exchange, const colli_exchange_party *party,
                                const colli_exchange_calls *calls, uint64_t own,
                                colli_exchange_place *place, coll_error *error) {
  *place = (colli_exchange_place){.name_bytes = 0};
  *exchange = (colli_exchange){.party = *party,
                               .calls = *calls,
                               .own = own,
                               .listen_fd = -1,
                               .nguests = own > 0 ? party->nranks + STRANGERS : 0,
                               .error = error};
  const size_t count = (size_t)party->nranks + (size_t)exchange->nguests;
  exchange->takes = calloc(count, sizeof(*exchange->takes));
  if (!exchange->takes)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for %zu connections",
                           count);
  exchange->guests = exchange->takes + party->nranks;
  return own > 0 ? begin_to_listen(exchange, place, error) : COLL_OK;
}

bool colli_exchange_poll(colli_exchange *exchange) {
  bool moved = exchange->listen_fd >= 0 && accept_all(exchange);
  for (int i = 0; i < exchange->nguests; i++)
    moved |= advance_giver(exchange, &exchange->guests[i]);
  for (int rank = 0; rank < exchange->party.nranks; rank++)
    moved |= advance_taker(exchange, &exchange->takes[rank]);
  return moved;
}

int colli_exchange_lacks(const colli_exchange *exchange) {
  for (int rank = 0; exchange->takes && rank < exchange->party.nranks; rank++)
    if (exchange->takes[rank].done < exchange->takes[rank].all)
      return rank;
  return -1;
}

void colli_exchange_close(colli_exchange *exchange) {
  for (int i = 0; exchange->takes && i < exchange->party.nranks + exchange->nguests; i++)
    end_link(&exchange->takes[i]);
  if (exchange->takes && exchange->listen_fd >= 0)
    colli_fd_close(exchange->listen_fd);
  free(exchange->takes);
  *exchange = (colli_exchange){.listen_fd = -1};
}
