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
#include "libcoll/net/sockets.h"

#define GUESTS 64
#define NAMED  8 /* missing ranks that a message names */
/* Before connections are accepted again after a shortage. */
#define SHORT_NS (20 * COLLI_NS_PER_MS)

/* A connection that has not proved anything yet. */
typedef struct guest {
  int fd;
  size_t sent, heard;
  size_t bytes;
  uint8_t out[sizeof(colli_meet_header) + COLLI_SEALED_MAX];
  colli_meet_receipt receipt;
} guest;

/* Rank 0's side of a meeting. */
typedef struct host {
  const colli_meeting *meeting;
  colli_meet_message message;
  int listen_fd;
  int nranks, missing;
  bool *came;
  int count;
  guest *guests;      /* the oldest first */
  uint64_t resume_ns; /* no connections are accepted until then */
} host;

/* Forgets a guest. */
static void drop(host *h, int index) {
  colli_fd_close(h->guests[index].fd);
  h->count--;
  memmove(&h->guests[index], &h->guests[index + 1],
          (size_t)(h->count - index) * sizeof(*h->guests));
}

/* Whether a receipt is a rank's. */
static bool is_proof(const host *h, const colli_meet_receipt *receipt) {
  uint8_t mac[COLLI_MAC_BYTES];
  return receipt->rank > 0 && receipt->rank < (uint32_t)h->nranks &&
         colli_hmac(h->message.key, &receipt->rank, sizeof(receipt->rank), mac) &&
         colli_hmac_equal(mac, receipt->mac);
}

/* Talks to a guest. False: it is done. */
static bool talk(host *h, guest *g) {
  int result = colli_net_push(g->fd, g->out, g->bytes, &g->sent);
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

/* Accepts no more for a while, and closes the connection of the guest `index`, who comes again. */
static void wait_for_memory(host *h, int index) {
  h->resume_ns = colli_now_ns() + SHORT_NS;
  if (h->count > 0)
    drop(h, index);
}

/* Lets in who waits. Each gets a message of its own, since munge opens none twice on a host. */
static coll_status let_in(host *h, uint64_t deadline_ns, coll_error *error) {
  int fd = colli_net_accept(h->listen_fd);
  if (fd < 0 && colli_errno_is_shortage(errno))
    wait_for_memory(h, 0);
  if (fd < 0)
    return COLL_OK;
  if (h->count == GUESTS)
    drop(h, 0);
  guest *g = &h->guests[h->count++];
  *g = (guest){.fd = fd};
  colli_meet_header header = {.magic = COLLI_MEET_MAGIC};
  size_t used = 0;
  coll_status status =
      h->meeting->seal.wrap(&h->meeting->seal, deadline_ns, &h->message, sizeof(h->message),
                            g->out + sizeof(header), &used, error);
  header.bytes = (uint32_t)used;
  memcpy(g->out, &header, sizeof(header));
  g->bytes = sizeof(header) + used;
  if (status != COLL_ERR_NO_MEMORY && status != COLL_ERR_SYSTEM)
    return status;
  wait_for_memory(h, h->count - 1);
  return COLL_OK;
}

/* The deadline passed: says which ranks did not come. */
static coll_status name_missing(const host *h, coll_error *error) {
  char text[NAMED * 12 + 8] = "";
  size_t used = 0;
  int named = 0;
  for (int rank = 1; rank < h->nranks && named <= NAMED; rank++)
    if (!h->came[rank])
      used += (size_t)snprintf(text + used, sizeof(text) - used, named++ == NAMED ? " ..." : " %d",
                               rank);
  return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                         "%d of %d ranks did not come to rank 0 in time:%s; look whether they were "
                         "started and can reach ports %u to %u of %s, or raise "
                         "COLL_CREATE_TIMEOUT_MS",
                         h->missing, h->nranks, text, h->meeting->port,
                         h->meeting->port + COLLI_MEET_PORTS - 1, h->meeting->host);
}

/* Serves until all ranks have come. */
static coll_status serve(host *h, uint64_t deadline_ns, coll_error *error) {
  struct pollfd fds[GUESTS + 1];
  coll_status status = COLL_OK;
  while (h->missing > 0 && status == COLL_OK) {
    uint64_t now = colli_now_ns();
    if (now >= deadline_ns)
      return name_missing(h, error);
    for (int i = 0; i < h->count; i++)
      fds[i] = (struct pollfd){.fd = h->guests[i].fd,
                               .events = h->guests[i].sent < h->guests[i].bytes ? POLLOUT : POLLIN};
    const bool shortage = now < h->resume_ns;
    fds[h->count] = (struct pollfd){.fd = h->listen_fd, .events = shortage ? 0 : POLLIN};
    uint64_t until_ns = shortage && h->resume_ns < deadline_ns ? h->resume_ns : deadline_ns;
    uint64_t left_ms = (until_ns - now) / COLLI_NS_PER_MS + 1;
    if (poll(fds, (nfds_t)h->count + 1, left_ms < 1000000 ? (int)left_ms : 1000000) < 0 &&
        errno != EINTR)
      return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "poll", errno,
                             "rank 0 cannot wait for the others");
    bool waiting = fds[h->count].revents != 0;
    for (int i = h->count - 1; i >= 0; i--)
      if (fds[i].revents && !talk(h, &h->guests[i]))
        drop(h, i);
    if (waiting)
      status = let_in(h, deadline_ns, error);
  }
  return status;
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
  uint16_t port;
  h.came = calloc((size_t)nranks, sizeof(*h.came));
  h.guests = calloc(GUESTS, sizeof(*h.guests));
  coll_status status = h.came && h.guests ? write_message(&h, id, error)
                                          : colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                                                            "out of memory for a meeting");
  snprintf(range, sizeof(range), "%u-%u", meeting->port, meeting->port + COLLI_MEET_PORTS - 1);
  if (status == COLL_OK)
    status = colli_net_listen(range, &h.listen_fd, &port, error);
  if (status == COLL_OK)
    status = serve(&h, deadline_ns, error);
  while (h.count > 0)
    drop(&h, h.count - 1);
  if (h.listen_fd >= 0)
    colli_fd_close(h.listen_fd);
  free(h.guests);
  free(h.came);
  explicit_bzero(&h.message, sizeof(h.message));
  return status;
}
