/* bootstrap_guests.c: connections that come to a listener, until they have proved what they are. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/comm/bootstrap_parts.h"

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
static void turn_away(const boot *b, boot_guests *guests, int i, const char *why) {
  char text[COLLI_ADDR_TEXT];
  boot_guest *guest = &guests->list[i];
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection from %s was turned away: %s",
                  origin(guest->fd, text), why);
  boot_close(&guest->fd);
  guests->count--;
  memmove(guest, guest + 1, (size_t)(guests->count - i) * sizeof(*guest));
}

/* Makes room for one more guest; false while those who are here may still be honest. */
static bool make_room(const boot *b, boot_guests *guests) {
  if (guests->count < BOOT_GUESTS_MAX)
    return true;
  if (colli_now_ns() - guests->list[0].since_ns < PATIENCE_NS)
    return false;
  turn_away(b, guests, 0, "too many connections that say nothing, and it was the oldest");
  return true;
}

/* Takes the connections that wait at the listener. */
static void take_new(const boot *b, boot_guests *guests) {
  guests->sys_errno = 0;
  guests->again = false;
  while (make_room(b, guests)) {
    int fd = colli_net_accept(guests->listen_fd);
    if (fd < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        guests->sys_errno = errno;
      return;
    }
    boot_guest *guest = &guests->list[guests->count++];
    guest->fd = fd;
    guest->since_ns = colli_now_ns();
    colli_auth_accept(&guest->auth, fd, b->id->secret);
  }
  guests->again = true;
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

bool boot_guests_next(const boot *b, boot_guests *guests, boot_guest *out) {
  if (guests->listen_fd < 0)
    return false;
  take_new(b, guests);
  for (int i = 0; i < guests->count;) {
    int result = colli_auth_poll(&guests->list[i].auth);
    if (result == COLL_T_AGAIN) {
      i++;
      continue;
    }
    if (result != COLL_T_DONE) {
      turn_away(b, guests, i, failure_text(result));
      continue;
    }
    *out = guests->list[i];
    guests->count--;
    memmove(&guests->list[i], &guests->list[i + 1],
            (size_t)(guests->count - i) * sizeof(guests->list[i]));
    return true;
  }
  return false;
}

void boot_guests_watch(boot *b, const boot_guests *guests) {
  if (guests->listen_fd < 0)
    return;
  if (guests->sys_errno != 0) /* the listener stays readable: look again a little later */
    boot_polls_wake(&b->polls, colli_now_ns() + 10 * COLLI_NS_PER_MS);
  else if (!guests->again)
    boot_polls_add(&b->polls, guests->listen_fd, POLLIN);
  else
    boot_polls_wake(&b->polls, guests->list[0].since_ns + PATIENCE_NS);
  for (int i = 0; i < guests->count; i++) {
    const boot_guest *guest = &guests->list[i];
    boot_polls_add(&b->polls, guest->fd, colli_auth_events(&guest->auth));
    boot_polls_wake(&b->polls, guest->auth.deadline_ns);
  }
}

void boot_guests_close(boot_guests *guests) {
  for (int i = 0; i < guests->count; i++)
    boot_close(&guests->list[i].fd);
  guests->count = 0;
}

void boot_guest_refuse(const boot *b, boot_guest *guest) {
  char text[COLLI_ADDR_TEXT];
  const colli_hello *hello = &guest->auth.hello;
  colli_log_write(b->log, COLLI_LOG_INFO,
                  "a connection from %s was refused: it knows the secret, but it is rank %d's to "
                  "rank %d of %s communicator",
                  origin(guest->fd, text), hello->src_rank, hello->dst_rank,
                  hello->comm_id == b->id->comm_id ? "this" : "another");
  colli_auth_answer(&guest->auth, false);
  boot_close(&guest->fd);
}
