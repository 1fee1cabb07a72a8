/* bootstrap_pending.c: connections that come to a listener, until they have proved what they are.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/wireup/bootstrap_internal.h"

/* A guest may count on this long before one who comes later takes its place. */
#define PATIENCE_NS (500 * COLLI_NS_PER_MS)

/* Where a connection comes from, as text. */
static const char *origin(int fd, char text[COLLI_ADDR_TEXT]) {
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  colli_addr addr = {0};
  if (getpeername(fd, (struct sockaddr *)&name, &length) == 0)
    colli_net_from_sockaddr((struct sockaddr *)&name, &addr);
  return colli_addr_text(&addr, text);
}

/* Closes a guest's connection with a line in the log, and forgets it. */
static void turn_away(const boot *b, boot_pendings *pendings, int i, const char *why) {
  char text[COLLI_ADDR_TEXT];
  boot_pending *pending = &pendings->list[i];
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection from %s was turned away: %s",
                  origin(pending->fd, text), why);
  boot_close(&pending->fd);
  pendings->count--;
  memmove(pending, pending + 1, (size_t)(pendings->count - i) * sizeof(*pending));
}

/* Makes room for one more guest; false while those who are here may still be honest. */
static bool make_room(const boot *b, boot_pendings *pendings) {
  if (pendings->count < BOOT_GUESTS_MAX)
    return true;
  if (colli_now_ns() - pendings->list[0].since_ns < PATIENCE_NS)
    return false;
  turn_away(b, pendings, 0, "too many connections that say nothing, and it was the oldest");
  return true;
}

/* Takes the connections that wait at the listener. */
static void take_new(const boot *b, boot_pendings *pendings) {
  pendings->sys_errno = 0;
  pendings->again = false;
  while (make_room(b, pendings)) {
    int fd = colli_net_accept(pendings->listen_fd);
    if (fd < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        pendings->sys_errno = errno;
      return;
    }
    boot_pending *pending = &pendings->list[pendings->count++];
    pending->fd = fd;
    pending->since_ns = colli_now_ns();
    colli_auth_accept(&pending->auth, fd, b->id->secret);
  }
  pendings->again = true;
}

/* Why a handshake failed. */
static const char *failure_text(int status) {
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

bool boot_pendings_next(const boot *b, boot_pendings *pendings, boot_pending *out) {
  if (pendings->listen_fd < 0)
    return false;
  take_new(b, pendings);
  for (int i = 0; i < pendings->count;) {
    int result = colli_auth_poll(&pendings->list[i].auth);
    if (result == COLL_T_AGAIN) {
      i++;
      continue;
    }
    if (result != COLL_T_DONE) {
      turn_away(b, pendings, i, failure_text(result));
      continue;
    }
    *out = pendings->list[i];
    pendings->count--;
    memmove(&pendings->list[i], &pendings->list[i + 1],
            (size_t)(pendings->count - i) * sizeof(pendings->list[i]));
    return true;
  }
  return false;
}

void boot_pendings_watch(boot *b, const boot_pendings *pendings) {
  if (pendings->listen_fd < 0)
    return;
  if (pendings->sys_errno != 0) /* the listener stays readable: look again a little later */
    boot_polls_wake(&b->polls, colli_now_ns() + 10 * COLLI_NS_PER_MS);
  else if (!pendings->again)
    boot_polls_add(&b->polls, pendings->listen_fd, POLLIN);
  else
    boot_polls_wake(&b->polls, pendings->list[0].since_ns + PATIENCE_NS);
  for (int i = 0; i < pendings->count; i++) {
    const boot_pending *pending = &pendings->list[i];
    boot_polls_add(&b->polls, pending->fd, colli_auth_events(&pending->auth));
    boot_polls_wake(&b->polls, pending->auth.deadline_ns);
  }
}

void boot_pendings_close(boot_pendings *pendings) {
  for (int i = 0; i < pendings->count; i++)
    boot_close(&pendings->list[i].fd);
  pendings->count = 0;
}

void boot_pending_refuse(const boot *b, boot_pending *pending) {
  char text[COLLI_ADDR_TEXT];
  const colli_hello *hello = &pending->auth.hello;
  colli_log_write(b->log, COLLI_LOG_INFO,
                  "a connection from %s was refused: it knows the secret, but it is rank %d's to "
                  "rank %d of %s communicator",
                  origin(pending->fd, text), hello->src_rank, hello->dst_rank,
                  hello->comm_id == b->id->comm_id ? "this" : "another");
  colli_auth_answer(&pending->auth, false);
  boot_close(&pending->fd);
}
