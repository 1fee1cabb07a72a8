/* meet_host.c: rank 0 hands the id to whoever connects, until each rank has proved that it has it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/prng.h"
#include "libcoll/create/meet_wire.h"
#include "libcoll/net/filter.h"
#include "libcoll/net/sockets.h"
#include "libcoll/net/strangers.h"

#define GUESTS         48
#define SHARE          (GUESTS / 4) /* guests of one source, while others wait */
#define ACCEPT_AT_ONCE 8            /* then guests are served again */
#define NAMED          8            /* missing ranks that a message names */
/* Before connections are accepted again after a shortage. */
#define SHORT_NS (20 * COLLI_NS_PER_MS)

/* A connection that has not proved anything yet. */
typedef struct guest {
  int fd;
  colli_addr from;
  size_t greeted; /* bytes of its greeting */
  size_t sent, heard;
  size_t bytes; /* of rank 0's message; 0: it has not greeted */
  colli_meet_greeting greeting;
  uint8_t out[sizeof(colli_meet_header) + COLLI_SEALED_MAX];
  colli_meet_receipt receipt;
} guest;

/* Rank 0's side of a meeting. */
typedef struct host {
  const colli_meeting *meeting;
  colli_meet_message message;
  int listen_fd;
  uint16_t port;
  int nranks, missing;
  bool *came;
  int count;
  guest *guests; /* the oldest first */
  uint64_t deadline_ns;
  colli_strangers strangers;
  coll_status status; /* of the seal, which may fail for good; then `error` says why */
  coll_error *error;
  uint64_t resume_ns; /* no connections are accepted until then */
} host;

/* Forgets a guest. */
static void drop(host *h, int index) {
  colli_fd_close(h->guests[index].fd);
  h->count--;
  memmove(&h->guests[index], &h->guests[index + 1],
          (size_t)(h->count - index) * sizeof(*h->guests));
}

/* Closes the connection of a guest that has not authenticated, and counts it as a stranger. */
static void turn_away(host *h, int index) {
  colli_strangers_add(&h->strangers, &h->guests[index].from);
  drop(h, index);
}

/* The guest that makes room for one from `from`; there is one. */
static int find_victim(const host *h, const colli_addr *from) {
  int same = 0, oldest_same = -1;
  for (int i = 0; i < h->count; i++) {
    const guest *g = &h->guests[i];
    if (g->bytes == 0)
      return i;
    const bool is_same = colli_addr_same_ip(&g->from, from);
    oldest_same = is_same && oldest_same < 0 ? i : oldest_same;
    same += is_same;
  }
  return same >= SHARE ? oldest_same : 0;
}

/* Whether a receipt is a rank's. */
static bool is_proof(const host *h, const colli_meet_receipt *receipt) {
  uint8_t mac[COLLI_MAC_BYTES];
  return receipt->rank > 0 && receipt->rank < (uint32_t)h->nranks &&
         colli_hmac(h->message.key, &receipt->rank, sizeof(receipt->rank), mac) &&
         colli_hmac_equal(mac, receipt->mac);
}

/* Accepts no more for a while. */
static void wait_for_memory(host *h) {
  h->resume_ns = colli_now_ns() + SHORT_NS;
}

/* Seals a message for a guest: its own, since munge opens none twice on a host. False: the guest
 * must come again. */
static bool seal(host *h, guest *g) {
  colli_meet_header header = {.magic = COLLI_MEET_MAGIC};
  size_t used = 0;
  h->status = h->meeting->seal.wrap(&h->meeting->seal, h->deadline_ns, &h->message,
                                    sizeof(h->message), g->out + sizeof(header), &used, h->error);
  if (h->status == COLL_ERR_NO_MEMORY || h->status == COLL_ERR_SYSTEM) {
    h->status = COLL_OK;
    wait_for_memory(h);
    return false;
  }
  header.bytes = (uint32_t)used;
  memcpy(g->out, &header, sizeof(header));
  g->bytes = sizeof(header) + used;
  return h->status == COLL_OK;
}

/* Hears a guest's greeting, and seals a message for it: as colli_net_pull(). */
static int hear_greeting(host *h, guest *g) {
  int result = colli_net_pull(g->fd, &g->greeting, sizeof(g->greeting), &g->greeted);
  if (result == COLL_T_DONE && g->greeting.magic != COLLI_MEET_GREETING)
    return EPROTO;
  return result == COLL_T_DONE && !seal(h, g) ? ENOMEM : result;
}

/* Talks to a guest. False: it is done. */
static bool talk(host *h, guest *g) {
  int result = g->bytes > 0 ? COLL_T_DONE : hear_greeting(h, g);
  if (result == COLL_T_DONE)
    result = colli_net_push(g->fd, g->out, g->bytes, &g->sent);
  if (result == COLL_T_DONE)
    result = colli_net_pull(g->fd, &g->receipt, sizeof(g->receipt), &g->heard);
  if (result == COLL_T_AGAIN)
    return true;
  if (result != COLL_T_DONE || !is_proof(h, &g->receipt))
    return false;
  const uint8_t counted = 1;
  size_t done = 0;
  h->missing -= !h->came[g->receipt.rank];
  h->came[g->receipt.rank] = true;
  colli_net_push(g->fd, &counted, sizeof(counted), &done); /* there is room for a byte */
  return false;
}

/* Lets in one who waits; false if nobody does. */
static bool let_one_in(host *h) {
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  int fd = colli_net_accept(h->listen_fd);
  if (fd < 0 && colli_errno_is_shortage(errno)) {
    wait_for_memory(h);
    if (h->count > 0)
      turn_away(h, 0); /* a rank comes again */
  }
  if (fd < 0)
    return false;
  guest new = {.fd = fd};
  if (!colli_filter_detach(fd)) { /* it could receive nothing */
    colli_fd_close(fd);
    return true;
  }
  if (getpeername(fd, (struct sockaddr *)&name, &length) == 0)
    colli_net_from_sockaddr((struct sockaddr *)&name, &new.from);
  if (h->count == GUESTS)
    turn_away(h, find_victim(h, &new.from));
  h->guests[h->count++] = new;
  if (!talk(h, &h->guests[h->count - 1]))
    drop(h, h->count - 1);
  return true;
}

/* Lets in who waits. */
static void let_in(host *h) {
  for (int i = 0; i < ACCEPT_AT_ONCE && h->missing > 0 && h->status == COLL_OK; i++)
    if (!let_one_in(h))
      return;
}

/* The deadline passed: says which ranks did not come. */
static coll_status name_missing(host *h) {
  char text[NAMED * 12 + 8] = "", strangers[COLLI_STRANGERS_TEXT];
  size_t used = 0;
  int named = 0;
  for (int rank = 1; rank < h->nranks && named <= NAMED; rank++)
    if (!h->came[rank])
      used += (size_t)snprintf(text + used, sizeof(text) - used, named++ == NAMED ? " ..." : " %d",
                               rank);
  while (h->count > 0)
    turn_away(h, h->count - 1);
  colli_strangers_add_silent(&h->strangers, h->port);
  return colli_error_set(h->error, COLL_ERR_TIMEOUT, "create",
                         "%d of %d ranks did not come to rank 0 in time:%s; look whether they were "
                         "started and can reach ports %u to %u of %s, or raise "
                         "COLL_CREATE_TIMEOUT_MS%s",
                         h->missing, h->nranks, text, h->meeting->port,
                         h->meeting->port + COLLI_MEET_PORTS - 1, h->meeting->host,
                         colli_strangers_text(&h->strangers, strangers));
}

/* Serves until all ranks have come. */
static coll_status serve(host *h) {
  struct pollfd fds[GUESTS + 1];
  while (h->missing > 0 && h->status == COLL_OK) {
    uint64_t now = colli_now_ns();
    if (now >= h->deadline_ns)
      return name_missing(h);
    for (int i = 0; i < h->count; i++)
      fds[i] = (struct pollfd){.fd = h->guests[i].fd,
                               .events = h->guests[i].sent < h->guests[i].bytes ? POLLOUT : POLLIN};
    const bool shortage = now < h->resume_ns;
    fds[h->count] = (struct pollfd){.fd = h->listen_fd, .events = shortage ? 0 : POLLIN};
    uint64_t until_ns = shortage && h->resume_ns < h->deadline_ns ? h->resume_ns : h->deadline_ns;
    uint64_t left_ms = (until_ns - now) / COLLI_NS_PER_MS + 1;
    if (poll(fds, (nfds_t)h->count + 1, left_ms < 1000000 ? (int)left_ms : 1000000) < 0 &&
        errno != EINTR)
      return colli_error_sys(h->error, COLL_ERR_SYSTEM, "create", "poll", errno,
                             "rank 0 cannot wait for the others");
    bool waiting = fds[h->count].revents != 0;
    for (int i = h->count - 1; i >= 0; i--)
      if (fds[i].revents && !talk(h, &h->guests[i]))
        drop(h, i);
    if (waiting)
      let_in(h);
  }
  return h->status;
}

/* Fills in what the others get. */
static coll_status write_message(host *h, const colli_id *id, coll_error *error) {
  int failed = colli_random_secret(h->message.key, sizeof(h->message.key));
  if (failed)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", failed,
                           "no random bytes for a key");
  memcpy(h->message.job, h->meeting->job, sizeof(h->message.job));
  h->message.has_id = id != NULL;
  if (id)
    colli_id_pack(id, &h->message.id);
  return COLL_OK;
}

coll_status colli_meet_host(const colli_meeting *meeting, uint64_t deadline_ns, int nranks,
                            const colli_id *id, coll_error *error) {
  host h = {.meeting = meeting, .listen_fd = -1, .nranks = nranks, .missing = nranks - 1};
  char range[16];
  h.deadline_ns = deadline_ns;
  h.error = error;
  h.came = calloc((size_t)nranks, sizeof(*h.came));
  h.guests = calloc(GUESTS, sizeof(*h.guests));
  coll_status status = h.came && h.guests ? write_message(&h, id, error)
                                          : colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                                                            "out of memory for a meeting");
  snprintf(range, sizeof(range), "%u-%u", meeting->port, meeting->port + COLLI_MEET_PORTS - 1);
  if (status == COLL_OK)
    status = colli_net_listen(range, &h.listen_fd, &h.port, error);
  if (status == COLL_OK) {
    colli_filter_attach_word(h.listen_fd, COLLI_MEET_GREETING, sizeof(colli_meet_greeting));
    status = serve(&h);
  }
  while (h.count > 0)
    drop(&h, h.count - 1);
  if (h.listen_fd >= 0)
    colli_fd_close(h.listen_fd);
  free(h.guests);
  free(h.came);
  explicit_bzero(&h.message, sizeof(h.message));
  return status;
}
