/* meet.c: the others get the id from rank 0, wherever it listens. */
#include "libcoll/create/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/create/meet_wire.h"
#include "libcoll/wireup/resolve.h"

#define FIRST_PORT 20000 /* as collrun's: below the ephemeral ports of common systems */
#define LAST_PORT  32767
#define TRY_NS     (2 * COLLI_NS_PER_S) /* for one address; what is silent may be no rank 0 */
#define PAUSE_MS   50

coll_status colli_meet_ports(colli_meeting *meeting, const colli_params *params, const char *name,
                             coll_error *error) {
  const char *range = params->text[COLLI_PARAM_PORT_RANGE];
  unsigned first = FIRST_PORT, last = LAST_PORT;
  if (*range && strcmp(range, "0") != 0 &&
      (sscanf(range, "%u-%u", &first, &last) != 2 || last > 65535 || first < 1 ||
       last < first + 2 * COLLI_MEET_PORTS - 1))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "COLL_PORT_RANGE=%s: it takes first-last, with %d ports or more", range,
                           2 * COLLI_MEET_PORTS);
  /* The ranks look for their own ports from the start of the range. */
  first += *range ? (last - first + 1) / 2 : 0;
  uint64_t hash = 14695981039346656037ull; /* FNV-1a */
  for (const char *c = name; *c; c++)
    hash = (hash ^ (uint8_t)*c) * 1099511628211ull;
  unsigned choices = (last - first + 1) / COLLI_MEET_PORTS;
  meeting->port = (uint16_t)(first + (unsigned)(hash >> 20) % choices * COLLI_MEET_PORTS);
  return COLL_OK;
}

/* Waits for a socket. False: until_ns passed. */
static bool await(int fd, short events, uint64_t until_ns) {
  struct pollfd ready = {.fd = fd, .events = events};
  uint64_t now = colli_now_ns();
  return now < until_ns && poll(&ready, 1, (int)((until_ns - now) / COLLI_NS_PER_MS + 1)) >= 0;
}

/* Moves all bytes by a time. 0 or an errno. */
static int transfer(int fd, bool out, void *data, size_t bytes, uint64_t until_ns) {
  size_t done = 0;
  int result;
  while ((result = out ? colli_net_push(fd, data, bytes, &done)
                       : colli_net_pull(fd, data, bytes, &done)) == COLL_T_AGAIN)
    if (!await(fd, out ? POLLOUT : POLLIN, until_ns))
      return ETIMEDOUT;
  return result == COLL_T_DONE ? 0 : result;
}

/* Connects, greets, and receives a sealed message. 0 or an errno. */
static int fetch(const colli_addr *addr, uint64_t until_ns, int *fd,
                 uint8_t sealed[COLLI_SEALED_MAX], size_t *bytes) {
  colli_meet_header header;
  colli_meet_greeting greeting = {.magic = COLLI_MEET_GREETING};
  *fd = colli_net_connect(addr);
  if (*fd < 0)
    return errno;
  if (!await(*fd, POLLOUT, until_ns))
    return ETIMEDOUT;
  int failed = colli_net_connect_result(*fd);
  if (!failed)
    failed = transfer(*fd, true, &greeting, sizeof(greeting), until_ns);
  if (!failed)
    failed = transfer(*fd, false, &header, sizeof(header), until_ns);
  if (!failed && (header.magic != COLLI_MEET_MAGIC || header.bytes > COLLI_SEALED_MAX))
    failed = EPROTO;
  *bytes = failed ? 0 : header.bytes;
  return failed ? failed : transfer(*fd, false, sealed, header.bytes, until_ns);
}

/* Acknowledges the id to rank 0, which may have closed the connection because many others came. 0
 * or an errno. */
static int acknowledge(int fd, const colli_meet_message *message, int rank, uint64_t until_ns) {
  colli_meet_receipt receipt = {.rank = (uint32_t)rank};
  if (!colli_hmac(message->key, &receipt.rank, sizeof(receipt.rank), receipt.mac))
    return ENOMEM;
  const int failed = transfer(fd, true, &receipt, sizeof(receipt), until_ns);
  uint8_t counted;
  return failed ? failed : transfer(fd, false, &counted, sizeof(counted), until_ns);
}

/* Whether this rank can open anything: if not, waiting for rank 0 is pointless. */
static coll_status try_seal(const colli_meeting *meeting, uint64_t deadline_ns, coll_error *error) {
  uint8_t sealed[COLLI_SEALED_MAX];
  size_t bytes;
  return meeting->seal.wrap(&meeting->seal, deadline_ns, "", 1, sealed, &bytes, error);
}

/* Asks at one address. COLL_OK: *message is rank 0's. AUTH: not here, or not yet; see *failed. */
static coll_status ask(const colli_meeting *meeting, const colli_addr *addr, int rank,
                       uint64_t deadline_ns, colli_meet_message *message, int *failed,
                       coll_error *error) {
  uint8_t sealed[COLLI_SEALED_MAX];
  size_t bytes = 0;
  int fd;
  uint64_t until_ns = colli_now_ns() + TRY_NS;
  until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
  coll_status status = COLL_ERR_AUTH;
  *failed = fetch(addr, until_ns, &fd, sealed, &bytes);
  if (*failed == 0) {
    status = meeting->seal.unwrap(&meeting->seal, deadline_ns, sealed, bytes, message,
                                  sizeof(*message), error);
    *failed = status == COLL_OK ? 0 : EPROTO;
  }
  if (status == COLL_OK && memcmp(message->job, meeting->job, sizeof(message->job)) != 0)
    *failed = EPROTO;
  if (*failed == 0)
    *failed = acknowledge(fd, message, rank, until_ns);
  if (fd >= 0)
    colli_fd_close(fd);
  return status == COLL_OK && *failed ? COLL_ERR_AUTH : status;
}

/* Tries all addresses until one is rank 0's. */
static coll_status search(const colli_meeting *meeting, const colli_addr *addrs, int count,
                          int rank, uint64_t deadline_ns, colli_meet_message *message,
                          coll_error *error) {
  char text[COLLI_ADDR_TEXT];
  int failed = ECONNREFUSED, last = failed;
  colli_addr at = addrs[0];
  while (colli_now_ns() < deadline_ns) {
    for (int i = 0; i < count * COLLI_MEET_PORTS; i++) {
      colli_addr addr = addrs[i % count]; /* most often it is at the first port */
      addr.port = (uint16_t)(meeting->port + i / count);
      coll_status status = ask(meeting, &addr, rank, deadline_ns, message, &failed, error);
      if (status != COLL_ERR_AUTH)
        return status;
      /* the most telling failure; a rank 0 that gives up resets connections */
      if (last != EPROTO && (failed != ECONNREFUSED || last == ECONNREFUSED)) {
        last = failed;
        at = addr;
      }
    }
    poll(NULL, 0, PAUSE_MS);
  }
  return colli_error_set(
      error, COLL_ERR_TIMEOUT, "create",
      "rank 0 did not hand over the id in time at ports %u to %u of %s (%s: %s); look whether it "
      "was started, or export COLL_ROOT=address:port of its host and COLL_SECRET_FILE",
      meeting->port, meeting->port + COLLI_MEET_PORTS - 1, meeting->host,
      colli_addr_text(&at, text),
      last == EPROTO ? "another job or program answers" : strerror(last));
}

coll_status colli_meet(const colli_meeting *meeting, uint64_t deadline_ns, int rank, int nranks,
                       colli_id *id, coll_error *error) {
  colli_addr addrs[COLLI_MAX_ADDRS];
  char text[sizeof(meeting->host) + 16];
  int count = 0;
  if (rank == 0)
    return colli_meet_host(meeting, deadline_ns, nranks, id, error);
  snprintf(text, sizeof(text), strchr(meeting->host, ':') ? "[%s]:%u" : "%s:%u", meeting->host,
           meeting->port);
  coll_status status = colli_net_parse(text, deadline_ns, addrs, COLLI_MAX_ADDRS, &count, error);
  colli_meet_message message;
  if (status == COLL_OK && count == 0)
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "the host \"%s\" has no address", meeting->host);
  if (status == COLL_OK)
    status = try_seal(meeting, deadline_ns, error);
  if (status == COLL_OK)
    status = search(meeting, addrs, count, rank, deadline_ns, &message, error);
  if (status != COLL_OK)
    return status;
  status = message.has_id
               ? colli_id_unpack(&message.id, id, error)
               : colli_error_set(error, COLL_ERR_SYSTEM, "create", "rank 0 failed; see its error");
  explicit_bzero(&message, sizeof(message));
  return status == COLL_ERR_INVALID_ARGUMENT ? COLL_ERR_SYSTEM : status;
}
