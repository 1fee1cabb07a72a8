/* bootstrap_listener.c: accepts a listener's connections and authenticates them. */
#include "libcoll/wireup/bootstrap_listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"

/* A pending connection is safe for this long before a later one may take its place. */
#define PATIENCE_NS (500 * COLLI_NS_PER_MS)

/* Where a connection comes from, as text. */
static const char *origin_text(int fd, char text[COLLI_ADDR_TEXT]) {
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  colli_addr addr = {0};
  if (getpeername(fd, (struct sockaddr *)&name, &length) == 0)
    colli_net_from_sockaddr((struct sockaddr *)&name, &addr);
  return colli_addr_text(&addr, text);
}

/* Closes a pending connection, with a line in the log. */
static void reject_pending(const boot *b, boot_listener *listener, int i, const char *why) {
  char text[COLLI_ADDR_TEXT];
  COLLI_ASSERT_RANK(i >= 0 && i < listener->count, b->rank);
  boot_pending *pending = &listener->pending[i];
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection from %s was turned away: %s",
                  origin_text(pending->fd, text), why);
  boot_close(&pending->fd);
  listener->count--;
  memmove(pending, pending + 1, (size_t)(listener->count - i) * sizeof(*pending));
}

/* Makes room for one more connection by rejecting the oldest one if necessary. False while that one
 * may still authenticate itself. */
static bool evict_oldest(const boot *b, boot_listener *listener) {
  if (listener->count < BOOT_PENDING_MAX)
    return true;
  if (colli_now_ns() - listener->pending[0].since_ns < PATIENCE_NS)
    return false;
  reject_pending(b, listener, 0, "too many connections that say nothing, and it was the oldest");
  return true;
}

/* Accepts the connections queued in the kernel. */
static void accept_new(const boot *b, boot_listener *listener) {
  listener->sys_errno = 0;
  listener->full = false;
  while (evict_oldest(b, listener)) {
    int fd = colli_net_accept(listener->fd);
    if (fd < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        listener->sys_errno = errno;
      return;
    }
    COLLI_ASSERT_RANK(listener->count < BOOT_PENDING_MAX, b->rank);
    boot_pending *pending = &listener->pending[listener->count++];
    pending->fd = fd;
    pending->since_ns = colli_now_ns();
    colli_auth_accept(&pending->auth, fd, b->id->secret);
  }
  listener->full = true;
}

/* Why a handshake failed. */
static const char *reject_reason(int status) {
  switch (status) {
  case COLL_ERR_AUTH:
    return "it does not know the secret";
  case COLL_ERR_PROTOCOL:
    return "it does not speak this version's protocol";
  case COLL_ERR_TIMEOUT:
    return "it did not finish the handshake in time";
  case COLL_ERR_PEER_LOST:
    return "it closed during the handshake";
  default:
    return "its socket failed";
  }
}

bool boot_listener_next(const boot *b, boot_listener *listener, boot_pending *out) {
  if (listener->fd < 0)
    return false;
  accept_new(b, listener);
  for (int i = 0; i < listener->count;) {
    int result = colli_auth_poll(&listener->pending[i].auth);
    if (result == COLL_T_AGAIN) {
      i++;
      continue;
    }
    if (result != COLL_T_DONE) {
      reject_pending(b, listener, i, reject_reason(result));
      continue;
    }
    *out = listener->pending[i];
    listener->count--;
    memmove(&listener->pending[i], &listener->pending[i + 1],
            (size_t)(listener->count - i) * sizeof(listener->pending[i]));
    return true;
  }
  return false;
}

void boot_listener_watch(boot *b, const boot_listener *listener) {
  if (listener->fd < 0)
    return;
  if (listener->sys_errno != 0) /* the listener stays readable, so poll it again later */
    boot_polls_wake(&b->polls, colli_now_ns() + 10 * COLLI_NS_PER_MS);
  else if (!listener->full)
    boot_polls_add(&b->polls, listener->fd, POLLIN);
  else
    boot_polls_wake(&b->polls, listener->pending[0].since_ns + PATIENCE_NS);
  for (int i = 0; i < listener->count; i++) {
    const boot_pending *pending = &listener->pending[i];
    boot_polls_add(&b->polls, pending->fd, colli_auth_events(&pending->auth));
    boot_polls_wake(&b->polls, pending->auth.deadline_ns);
  }
}

void boot_listener_drop_pending(boot_listener *listener) {
  for (int i = 0; i < listener->count; i++)
    boot_close(&listener->pending[i].fd);
  listener->count = 0;
}

void boot_pending_refuse(const boot *b, boot_pending *pending) {
  char text[COLLI_ADDR_TEXT];
  const colli_hello *hello = &pending->auth.hello;
  colli_log_write(b->log, COLLI_LOG_INFO,
                  "a connection from %s was refused: it knows the secret, but it is rank %d's to "
                  "rank %d of %s communicator",
                  origin_text(pending->fd, text), hello->src_rank, hello->dst_rank,
                  hello->comm_id == b->id->comm_id ? "this" : "another");
  colli_auth_answer(&pending->auth, false);
  boot_close(&pending->fd);
}
