/* door.c: lets in who proves to know the secret, and keeps next to nothing for all others. */
#include "libcoll/net/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/libc.h"
#include "libcoll/net/filter.h"

#define PATIENCE_NS    (500 * COLLI_NS_PER_MS) /* what a guest that spoke has for its proof */
#define RETRY_NS       (10 * COLLI_NS_PER_MS)  /* from one failed accept() to the next */
#define RECENT_NS      COLLI_NS_PER_S          /* a failure before may be over: nobody came since */
#define ACCEPT_AT_ONCE 256                     /* bounds the work of one call */
#define SOURCE_SHARE   (COLLI_DOOR_GUESTS / 4) /* guests of one source, while others wait */
#define LOGGED_EACH    8                       /* so many strangers have a line of their own */
#define ANSWERED       64                      /* peers with another secret that are told so */

/* ---- the filter ------------------------------------------------------------------------------ */

/* Lets hellos pass that are meant for an open door, and perhaps those of peers with another
 * secret. */
static void filter_for(const colli_door *door, bool others) {
  const colli_filter filter = {door->secret, others, {door->kind, door->kind}, door->rank};
  colli_filter_attach(door->listen_fd, &filter);
}

coll_status colli_door_listen(const char *port_range, const uint8_t secret[COLL_SECRET_BYTES],
                              int *fd, uint16_t *port, coll_error *error) {
  coll_status status = colli_net_listen(port_range, fd, port, error);
  if (status == COLL_OK)
    colli_filter_attach(*fd, &(colli_filter){.secret = secret, .rank = -1});
  return status;
}

void colli_door_expect(int listen_fd, const uint8_t secret[COLL_SECRET_BYTES],
                       colli_hello_kind kind) {
  colli_filter_attach(listen_fd, &(colli_filter){secret, false, {kind, kind}, -1});
}

/* ---- guests ---------------------------------------------------------------------------------- */

/* Has epoll watch the listening socket, or not. */
static void listen_for(colli_door *door, bool wanted) {
  struct epoll_event event = {.events = wanted ? EPOLLIN : 0, .data.fd = door->listen_fd};
  if (wanted != door->listening &&
      epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, door->listen_fd, &event) == 0)
    door->listening = wanted;
}

/* Takes a guest out of the list. Its socket stays open. */
static colli_guest take_out(colli_door *door, int i) {
  COLLI_ASSERT(i >= 0 && i < door->count);
  colli_guest guest = door->guests[i];
  epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, guest.fd, NULL);
  door->count--;
  memmove(&door->guests[i], &door->guests[i + 1],
          (size_t)(door->count - i) * sizeof(door->guests[i]));
  return guest;
}

/* Closes a stranger's connection. */
static void turn_away(colli_door *door, colli_guest *guest, const char *why) {
  char text[COLLI_ADDR_TEXT];
  if (door->strangers.count < LOGGED_EACH)
    colli_log_write(&door->log, COLLI_LOG_INFO, "a connection from %s was turned away: %s",
                    colli_addr_text(&guest->from, text), why);
  colli_strangers_add(&door->strangers, &guest->from);
  colli_fd_close(guest->fd);
}

/* Whether a guest may take its time for the proof: it sent a hello that is meant for this door and
 * wanted now. A recorded one may be meant for another, or be an old one. */
static bool is_promising(const colli_door *door, const colli_guest *guest) {
  const colli_hello *hello = &guest->auth.hello;
  return colli_auth_spoken(&guest->auth) && hello->kind == door->kind &&
         (door->rank < 0 || hello->dst_rank == door->rank) &&
         (!door->wanted || door->wanted(door->wanted_ctx, hello));
}

/* The oldest silent guest, of the same source as `from` (may be NULL) if that has its share; -1:
 * none is silent. */
static int find_silent(const colli_door *door, const colli_addr *from) {
  int oldest = -1, oldest_same = -1, same = 0;
  for (int i = 0; i < door->count; i++) {
    const colli_guest *guest = &door->guests[i];
    bool is_same = from && colli_addr_same_ip(&guest->from, from);
    bool silent = !is_promising(door, guest);
    same += is_same;
    if (silent && oldest < 0)
      oldest = i;
    if (silent && is_same && oldest_same < 0)
      oldest_same = i;
  }
  return oldest_same >= 0 && same >= SOURCE_SHARE ? oldest_same : oldest;
}

/* The guest that makes room for one from `from`: a silent one, or the oldest if it had its time.
 * -1: none. */
static int find_victim(const colli_door *door, const colli_addr *from, uint64_t now_ns) {
  int silent = find_silent(door, from);
  bool had_time = door->count > 0 && now_ns - door->guests[0].since_ns >= PATIENCE_NS;
  return silent < 0 && had_time ? 0 : silent;
}

/* Whether another guest can be let in, perhaps in place of one. */
static bool has_room(const colli_door *door, uint64_t now_ns) {
  return door->count < COLLI_DOOR_GUESTS || find_victim(door, NULL, now_ns) >= 0;
}

/* Why a handshake failed. */
static const char *reject_reason(int status, int sys_errno) {
  switch (status) {
  case COLL_ERR_AUTH:
    return sys_errno == EALREADY ? "its first message was recorded on another connection"
                                 : "it does not know the secret";
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

/* Notes that nobody can be let in for now. */
static void note_failure(colli_door *door, int sys_errno, bool in_handshake, uint64_t now_ns) {
  if (door->sys_errno == 0)
    door->failing_since_ns = now_ns;
  door->sys_errno = sys_errno;
  door->in_handshake = in_handshake;
  door->failed_ns = now_ns;
  if (!door->logged)
    colli_log_write(&door->log, COLLI_LOG_WARN,
                    "connections cannot be accepted and wait (%s); if descriptors ran out, raise "
                    "the limit (ulimit -n)",
                    strerrordesc_np(sys_errno));
  door->logged = true;
}

/* Counts a hello without the secret. Honest mistakes are few, and are answered. After too many, the
 * kernel drops them. */
static void note_impostor(colli_door *door) {
  if (++door->impostors == door->answers)
    filter_for(door, false);
}

/* Whether a hello was received here before, so that this one is a replay. */
static bool is_replay(colli_door *door, colli_guest *guest) {
  uint64_t code;
  if (guest->noted || !colli_auth_spoken(&guest->auth))
    return false;
  guest->noted = true;
  memcpy(&code, guest->auth.hello.code, sizeof(code));
  const unsigned long count = door->nheard < COLLI_DOOR_HEARD ? door->nheard : COLLI_DOOR_HEARD;
  for (unsigned long i = 0; i < count; i++)
    if (door->heard[i] == code)
      return true;
  door->heard[door->nheard++ % COLLI_DOOR_HEARD] = code;
  return false;
}

/* Advances a guest's handshake: as colli_auth_poll(). */
static int poll_guest(colli_door *door, colli_guest *guest) {
  guest->auth.curt = door->answers > 0 && door->impostors >= door->answers;
  int result = colli_auth_poll(&guest->auth), sys_errno = errno;
  if (result == COLL_T_AGAIN && is_replay(door, guest)) {
    result = COLL_ERR_AUTH;
    sys_errno = EALREADY;
  } else if (result == COLL_ERR_AUTH && sys_errno == EACCES) {
    note_impostor(door);
  }
  errno = sys_errno;
  return result;
}

/* A handshake is over: true if it succeeded and *done is the guest, who has left the list. */
static bool end_handshake(colli_door *door, colli_guest *guest, int result, int sys_errno,
                          colli_guest *done) {
  if (result == COLL_T_DONE) {
    door->sys_errno = 0;
    door->in_handshake = false;
    *done = *guest;
  } else if (colli_errno_is_shortage(sys_errno)) {
    colli_fd_close(guest->fd); /* no stranger, as far as we know: it will come again */
    note_failure(door, sys_errno, true, colli_now_ns());
  } else {
    turn_away(door, guest, reject_reason(result, sys_errno));
  }
  return result == COLL_T_DONE;
}

/* Advances a guest's handshake; true if it is done and *done is the guest, who has left the list.
 */
static bool serve(colli_door *door, int i, colli_guest *done) {
  int result = poll_guest(door, &door->guests[i]), sys_errno = errno;
  if (result == COLL_T_AGAIN)
    return false;
  colli_guest guest = take_out(door, i);
  return end_handshake(door, &guest, result, sys_errno, done);
}

/* ---- accepting ------------------------------------------------------------------------------- */

/* Frees a descriptor: a silent guest's, or the spare one. False if there is neither. */
static bool free_descriptor(colli_door *door) {
  int victim = find_silent(door, NULL);
  if (victim >= 0) {
    colli_guest guest = take_out(door, victim);
    turn_away(door, &guest, "descriptors ran out, and it said nothing");
    return true;
  }
  if (door->spare_fd < 0)
    return false;
  colli_fd_close(door->spare_fd);
  door->spare_fd = -1;
  return true;
}

/* Accepts one connection, also if a descriptor must be freed for it: its descriptor, or -1 with
 * errno. */
static int accept_for_sure(colli_door *door) {
  for (;;) {
    int fd = colli_net_accept(door->listen_fd);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
      return fd;
    int sys_errno = errno;
    /* These errors come even if nobody waits. */
    if (poll(&(struct pollfd){.fd = door->listen_fd, .events = POLLIN}, 1, 0) == 0)
      sys_errno = EAGAIN;
    else if (free_descriptor(door))
      continue;
    errno = sys_errno;
    return -1;
  }
}

/* Accepts one connection; -1 if none waits, or if that fails. */
static int accept_one(colli_door *door, uint64_t now_ns) {
  int fd = accept_for_sure(door);
  if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
    note_failure(door, errno, false, now_ns);
  else if (!door->in_handshake)
    door->sys_errno = 0;
  return fd;
}

/* Lets a new connection in. True: it has proved everything at once, and is *done. */
static bool welcome(colli_door *door, int fd, uint64_t now_ns, colli_guest *done) {
  colli_guest guest = {.fd = fd, .since_ns = now_ns};
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  if (getpeername(fd, (struct sockaddr *)&name, &length) == 0)
    colli_net_from_sockaddr((struct sockaddr *)&name, &guest.from);
  if (!colli_filter_detach(fd)) {
    note_failure(door, errno, true, now_ns);
    colli_fd_close(fd); /* it could receive nothing; it will come again */
    return false;
  }
  colli_auth_accept(&guest.auth, fd, door->secret);
  if (door->tls)
    colli_auth_want_tls(&guest.auth);
  int result = poll_guest(door, &guest), sys_errno = errno;
  if (result != COLL_T_AGAIN)
    return end_handshake(door, &guest, result, sys_errno, done);
  if (door->count == COLLI_DOOR_GUESTS) {
    colli_guest victim = take_out(door, find_victim(door, &guest.from, now_ns));
    turn_away(door, &victim, "there were too many connections that prove nothing");
  }
  if (epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    note_failure(door, errno, true, now_ns);
    colli_fd_close(fd); /* it will come again */
    return false;
  }
  COLLI_ASSERT(door->count < COLLI_DOOR_GUESTS);
  door->guests[door->count++] = guest;
  return false;
}

/* Accepts connections that wait in the kernel; true if one is done at once. */
static bool accept_waiting(colli_door *door, uint64_t now_ns, colli_guest *done) {
  for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
    if (!has_room(door, now_ns)) {
      listen_for(door, false);
      return false;
    }
    int fd = accept_one(door, now_ns);
    if (fd < 0) {
      listen_for(door, door->sys_errno == 0);
      return false;
    }
    if (welcome(door, fd, now_ns, done))
      return true;
  }
  listen_for(door, true);
  return false;
}

/* ---- the door -------------------------------------------------------------------------------- */

int colli_door_open(colli_door *door, int listen_fd, const uint8_t secret[COLL_SECRET_BYTES],
                    colli_hello_kind kind, int rank, const colli_log *log) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listen_fd};
  *door = COLLI_DOOR_CLOSED;
  door->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC));
  if (door->epoll_fd < 0)
    return errno;
  if (epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0) {
    int sys_errno = errno;
    colli_door_close(door);
    return sys_errno;
  }
  door->listen_fd = listen_fd;
  door->listening = true;
  door->secret = secret;
  door->kind = kind;
  door->rank = rank;
  door->answers = kind == COLLI_HELLO_CONTROL || kind == COLLI_HELLO_DATA ? 0 : ANSWERED;
  door->log = *log;
  filter_for(door, false);
  door->spare_fd = COLLI_FD(eventfd(0, EFD_CLOEXEC));
  return 0;
}

/* The guest with a descriptor; -1: none. */
static int find_guest(const colli_door *door, int fd) {
  for (int i = 0; i < door->count; i++)
    if (door->guests[i].fd == fd)
      return i;
  return -1;
}

bool colli_door_next(colli_door *door, colli_guest *guest) {
  struct epoll_event events[COLLI_DOOR_GUESTS + 1];
  if (door->listen_fd < 0)
    return false;
  if (!door->served && door->answers > 0)
    filter_for(door, true);
  door->served = true;
  int count = epoll_wait(door->epoll_fd, events, COLLI_DOOR_GUESTS + 1, 0);
  for (int i = 0; count < 0 && i < door->count; i++) /* nothing is known of any */
    if (serve(door, i, guest))
      return true;
  for (int i = 0; i < count; i++) {
    int index = find_guest(door, events[i].data.fd);
    if (index >= 0 && serve(door, index, guest))
      return true;
  }
  const uint64_t now_ns = colli_now_ns();
  while (door->count > 0 && now_ns >= door->guests[0].auth.deadline_ns)
    if (serve(door, 0, guest))
      return true;
  if (door->sys_errno != 0 && now_ns < door->failed_ns + RETRY_NS)
    return false;
  bool done = accept_waiting(door, now_ns, guest);
  if (door->spare_fd < 0 && door->sys_errno == 0)
    door->spare_fd = COLLI_FD(eventfd(0, EFD_CLOEXEC));
  return done;
}

uint64_t colli_door_wake_ns(const colli_door *door) {
  uint64_t wake_ns = UINT64_MAX;
  if (door->count > 0)
    wake_ns = door->guests[0].auth.deadline_ns;
  if (door->count == COLLI_DOOR_GUESTS && !door->listening &&
      door->guests[0].since_ns + PATIENCE_NS < wake_ns)
    wake_ns = door->guests[0].since_ns + PATIENCE_NS;
  if (door->sys_errno != 0 && !door->listening && door->failed_ns + RETRY_NS < wake_ns)
    wake_ns = door->failed_ns + RETRY_NS;
  return wake_ns;
}

int colli_door_failure(const colli_door *door, uint64_t ns) {
  bool still = door->sys_errno != 0 && colli_now_ns() - door->failed_ns < RECENT_NS;
  return still && door->failed_ns - door->failing_since_ns >= ns ? door->sys_errno : 0;
}

void colli_door_close(colli_door *door) {
  char text[COLLI_STRANGERS_TEXT];
  while (door->count > 0)
    colli_fd_close(take_out(door, door->count - 1).fd);
  if (door->strangers.count > LOGGED_EACH)
    colli_log_write(&door->log, COLLI_LOG_INFO, "the port is closed%s",
                    colli_strangers_text(&door->strangers, text));
  if (door->listen_fd >= 0) { /* until it is opened again, nobody gets an answer */
    const colli_filter filter = {door->secret, false, {door->kind, COLLI_HELLO_SHRINK}, -1};
    colli_filter_attach(door->listen_fd, &filter);
  }
  if (door->epoll_fd >= 0)
    colli_fd_close(door->epoll_fd);
  if (door->spare_fd >= 0)
    colli_fd_close(door->spare_fd);
  explicit_bzero(door->guests, sizeof(door->guests)); /* keys */
  *door = COLLI_DOOR_CLOSED;
}

const char *colli_door_strangers(const colli_door *door, char text[COLLI_STRANGERS_TEXT]) {
  colli_strangers all = door->strangers;
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  colli_addr here;
  for (int i = 0; i < door->count; i++)
    colli_strangers_add(&all, &door->guests[i].from);
  if (getsockname(door->listen_fd, (struct sockaddr *)&name, &length) == 0 &&
      colli_net_from_sockaddr((struct sockaddr *)&name, &here))
    colli_strangers_add_silent(&all, here.port);
  return colli_strangers_text(&all, text);
}
