/* test_door.c: who gets in at a door, who makes room, and what happens when descriptors run out. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/net/door.h"
#include "waits.h"

static const uint8_t secret[COLL_SECRET_BYTES] = {7, 1, 3};
static const colli_log quiet = {COLLI_LOG_NONE, 0};

/* A door and its port. */
typedef struct place {
  colli_door door;
  int listen_fd;
  uint16_t port;
} place;

/* Opens a door; without `filtered` the kernel hands over all connections. */
static void open_place(place *p, bool filtered) {
  coll_error error = COLL_ERROR_INIT;
  const int none = 0;
  cr_assert_eq(colli_door_listen("", secret, &p->listen_fd, &p->port, &error), COLL_OK, "%s",
               error.message);
  cr_assert_eq(colli_door_open(&p->door, p->listen_fd, secret, COLLI_HELLO_DATA, 0, &quiet), 0);
  if (!filtered)
    setsockopt(p->listen_fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
}

static void close_place(place *p) {
  colli_door_close(&p->door);
  close(p->listen_fd);
}

/* Connects from 127.0.0.`host`. */
static int connect_from(const place *p, uint32_t host) {
  struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + host)};
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(p->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
  return fd;
}

/* Begins a connection of a rank. */
static void begin_rank(const place *p, colli_auth *auth, int rank) {
  colli_auth_connect(auth, connect_from(p, 1), secret, COLLI_HELLO_DATA, rank, 0, 5, 0);
  cr_assert_eq(colli_auth_poll(auth), COLL_T_AGAIN);
}

/* Whether the rank is let in; its guest is *guest. */
static bool is_let_in(place *p, colli_auth *auth, colli_guest *guest) {
  colli_auth_poll(auth);
  return colli_door_next(&p->door, guest);
}

/* Lets a rank in, and accepts it. */
static void let_in(place *p, colli_auth *auth, int rank) {
  colli_guest guest;
  cr_assert(WAIT_UNTIL(is_let_in(p, auth, &guest), 5));
  cr_assert_eq(guest.auth.hello.src_rank, rank);
  cr_assert_eq(colli_auth_answer(&guest.auth, true), 0);
  cr_assert(WAIT_UNTIL(colli_auth_poll(auth) == COLL_T_DONE, 5));
  close(guest.fd);
  close(auth->fd);
}

/* Whether the other end has closed a connection. */
static bool is_closed(int fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
}

Test(door, the_kernel_keeps_who_says_no_hello) {
  enum { STRANGERS = 40 };
  place p;
  colli_guest guest;
  colli_auth auth;
  char text[COLLI_STRANGERS_TEXT];
  int fds[STRANGERS];
  open_place(&p, true);
  for (int i = 0; i < STRANGERS; i++) {
    fds[i] = connect_from(&p, i < 30 ? 2 : 3);
    if (i % 2)
      send(fds[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
  }
  begin_rank(&p, &auth, 4);
  cr_assert(poll(&(struct pollfd){.fd = p.door.epoll_fd, .events = POLLIN}, 1, 5000) == 1);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.count, 1, "only the rank is here");
  let_in(&p, &auth, 4);
  cr_assert_not(colli_door_next(&p.door, &guest));
  /* Roughly: the kernel's table changes while it is read, so that some lines are left out now and
   * then, and it has those of an earlier use of the port. */
  cr_assert(WAIT_UNTIL((colli_door_strangers(&p.door, text),
                        atoi(text + strlen("; meanwhile ")) >= STRANGERS / 4),
                       10),
            "%s", text);
  cr_assert(strstr(text, " of them from 127.0.0."), "%s", text);
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close_place(&p);
}

Test(door, silent_guests_make_room) {
  enum { STRANGERS = 10 * COLLI_DOOR_GUESTS };
  place p;
  colli_auth auth;
  char text[COLLI_STRANGERS_TEXT];
  int fds[STRANGERS];
  open_place(&p, false);
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = connect_from(&p, 2);
  begin_rank(&p, &auth, 1);
  let_in(&p, &auth, 1);
  cr_assert_leq(p.door.count, COLLI_DOOR_GUESTS);
  cr_assert(is_closed(fds[0]));
  cr_assert_not(is_closed(fds[STRANGERS - 1]));
  cr_assert_geq(p.door.strangers.count, STRANGERS - COLLI_DOOR_GUESTS);
  colli_strangers_text(&p.door.strangers, text);
  cr_assert(strstr(text, " of them from 127.0.0.2"), "%s", text);
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close_place(&p);
}

/* Says a hello of a kind to a rank, and nothing more. */
static int say_hello(const place *p, const uint8_t *with, colli_hello_kind kind, int rank) {
  colli_auth auth;
  colli_auth_connect(&auth, connect_from(p, 2), with, kind, 1, rank, 5, 0);
  cr_assert_eq(colli_auth_poll(&auth), COLL_T_AGAIN);
  return auth.fd;
}

/* Whether there is a guest who is in the handshake, or was. */
static bool has_come(place *p, unsigned long nheard) {
  colli_guest guest;
  cr_assert_not(colli_door_next(&p->door, &guest));
  return p->door.nheard == nheard;
}

Test(door, who_has_another_secret_gets_an_answer_at_once_and_many_do_not) {
  enum { MANY = 100 };
  static const uint8_t other[COLL_SECRET_BYTES] = {1};
  place p;
  colli_guest guest;
  colli_auth auth[MANY], rank;
  int answered = 0;
  open_place(&p, true);
  colli_door_close(&p.door);
  cr_assert_eq(colli_door_open(&p.door, p.listen_fd, secret, COLLI_HELLO_CHECKIN, 0, &quiet), 0);
  for (int i = 0; i < MANY; i++) {
    colli_auth_connect(&auth[i], connect_from(&p, 2), other, COLLI_HELLO_CHECKIN, 1, 0, 5, 0);
    cr_assert_eq(colli_auth_poll(&auth[i]), COLL_T_AGAIN);
    cr_assert_not(colli_door_next(&p.door, &guest));
    cr_assert_eq(p.door.count, 0, "it keeps nobody");
  }
  colli_auth_connect(&rank, connect_from(&p, 1), secret, COLLI_HELLO_CHECKIN, 4, 0, 5, 0);
  let_in(&p, &rank, 4);
  for (int i = 0; i < MANY; i++) {
    answered += colli_auth_poll(&auth[i]) == COLL_ERR_AUTH;
    close(auth[i].fd);
  }
  cr_assert_eq((unsigned long)answered, p.door.impostors);
  cr_assert(answered >= 8 && answered < MANY, "%d were answered", answered);
  close_place(&p);
}

/* Serves a door to which no rank comes. */
static unsigned long serve_impostors(place *p) {
  colli_guest guest;
  cr_assert_not(colli_door_next(&p->door, &guest));
  return p->door.impostors;
}

/* They cannot fill the queue of a door that its owner does not serve yet. */
Test(door, who_has_another_secret_waits_until_the_door_is_served) {
  enum { STRANGERS = 40 };
  static const uint8_t other[COLL_SECRET_BYTES] = {1};
  place p;
  int fds[STRANGERS];
  open_place(&p, true);
  colli_door_close(&p.door);
  cr_assert_eq(colli_door_open(&p.door, p.listen_fd, secret, COLLI_HELLO_JOIN, -1, &quiet), 0);
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = say_hello(&p, other, COLLI_HELLO_JOIN, 0);
  cr_assert_eq(serve_impostors(&p), 0);
  cr_assert(WAIT_UNTIL(serve_impostors(&p) > 0, 20), "their kernels send it again");
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close_place(&p);
}

Test(door, the_kernel_keeps_who_has_another_secret_where_nobody_errs) {
  static const uint8_t other[COLL_SECRET_BYTES] = {1};
  place p;
  colli_guest guest;
  colli_auth rank;
  open_place(&p, true);
  int fd = say_hello(&p, other, COLLI_HELLO_DATA, 0);
  begin_rank(&p, &rank, 4);
  let_in(&p, &rank, 4);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.impostors, 0);
  cr_assert_not(is_closed(fd));
  close(fd);
  close_place(&p);
}

Test(door, a_recorded_hello_is_turned_away) {
  place p;
  colli_guest guest;
  colli_auth rank;
  open_place(&p, true);
  begin_rank(&p, &rank, 4);
  cr_assert(WAIT_UNTIL(has_come(&p, 1), 5));
  int fd = connect_from(&p, 2);
  cr_assert_eq(send(fd, &rank.hello, sizeof(rank.hello), 0), (ssize_t)sizeof(rank.hello));
  cr_assert(WAIT_UNTIL(!colli_door_next(&p.door, &guest) && p.door.strangers.count == 1, 5));
  cr_assert_eq(p.door.count, 1, "the rank is still here");
  let_in(&p, &rank, 4);
  close(fd);
  close_place(&p);
}

/* Their tag is right, but not their kind or rank. */
Test(door, the_kernel_keeps_hellos_recorded_at_other_doors) {
  enum { STRANGERS = 40 };
  place p;
  colli_guest guest;
  colli_auth rank;
  int fds[STRANGERS];
  open_place(&p, true);
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = i % 2 ? say_hello(&p, secret, COLLI_HELLO_DATA, 3)
                   : say_hello(&p, secret, COLLI_HELLO_CONTROL, 0);
  begin_rank(&p, &rank, 4);
  let_in(&p, &rank, 4);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.nheard, 1, "only the rank was heard");
  colli_door_close(&p.door);
  cr_assert_eq(colli_door_open(&p.door, p.listen_fd, secret, COLLI_HELLO_SHRINK, -1, &quiet), 0);
  int again = say_hello(&p, secret, COLLI_HELLO_SHRINK, 2);
  cr_assert(WAIT_UNTIL(has_come(&p, 1), 5), "to any rank");
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close(again);
  close_place(&p);
}

/* The door's owner wants hellos of this word. */
/* Connects over ::1; -1: there is no IPv6. */
static int connect_v6(const place *p) {
  const struct sockaddr_in6 to = {
      .sin6_family = AF_INET6, .sin6_port = htons(p->port), .sin6_addr = in6addr_loopback};
  int fd = socket(AF_INET6, SOCK_STREAM, 0);
  if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
    return fd;
  close(fd);
  return -1;
}

/* A rank dials from this host, or from a host of its network. Copies of its hello come before it,
 * from other ports and addresses. */
static void send_copies(bool v6) {
  enum { STRANGERS = 40 };
  place p;
  colli_guest guest;
  colli_auth rank;
  int fds[STRANGERS];
  open_place(&p, true);
  const int fd = v6 ? connect_v6(&p) : connect_from(&p, 1);
  colli_addr to = {.family = v6 ? 6 : 4, .port = p.port, .ip = {127, 0, 0, 1}};
  if (fd < 0)
    cr_skip_test("this host has no IPv6");
  if (v6)
    memcpy(to.ip, &in6addr_loopback, 16);
  colli_auth_connect(&rank, fd, secret, COLLI_HELLO_DATA, 4, 0, 5, 0);
  colli_auth_bind(&rank, &to, NULL, 0);
  for (int i = 0; i < STRANGERS; i++) {
    fds[i] = v6 ? connect_v6(&p) : connect_from(&p, 1 + (uint32_t)i % 2);
    cr_assert_eq(send(fds[i], &rank.hello, sizeof(rank.hello), 0), (ssize_t)sizeof(rank.hello));
  }
  let_in(&p, &rank, 4);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.strangers.count, 0, "%lu copies came in", p.door.strangers.count);
  cr_assert_eq(p.door.count, 0);
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close_place(&p);
}

Test(door, the_kernel_keeps_copies_of_a_hello_from_elsewhere) {
  send_copies(false);
}

Test(door, the_kernel_keeps_copies_of_a_hello_from_elsewhere_over_ipv6) {
  send_copies(true);
}

/* Where routers may change addresses, a hello counts from anywhere. */
Test(door, a_hello_to_another_network_counts_from_anywhere) {
  const colli_addr own = {.family = 4, .prefix = 8, .ip = {127, 0, 0, 1}};
  const colli_addr far = {.family = 4, .prefix = 24, .ip = {192, 0, 2, 1}};
  place p;
  colli_auth rank;
  open_place(&p, true);
  colli_auth_connect(&rank, connect_from(&p, 1), secret, COLLI_HELLO_DATA, 4, 0, 5, 0);
  const colli_hello before = rank.hello;
  colli_auth_bind(&rank, &far, &own, 1);
  cr_assert_eq(memcmp(&rank.hello, &before, sizeof(before)), 0);
  cr_assert_eq(colli_auth_poll(&rank), COLL_T_AGAIN);
  let_in(&p, &rank, 4);
  close_place(&p);
}

/* To an IPv4 address that is written as an IPv6 one, the packets are of IPv4. */
Test(door, a_hello_to_a_mapped_address_gets_in) {
  colli_addr to = {.family = 6, .ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
  place p;
  colli_auth rank;
  open_place(&p, true);
  to.port = p.port;
  const int fd = colli_net_connect(&to);
  if (fd < 0)
    cr_skip_test("this host has no IPv6");
  colli_auth_connect(&rank, fd, secret, COLLI_HELLO_DATA, 4, 0, 5, 0);
  colli_auth_bind(&rank, &to, NULL, 0);
  let_in(&p, &rank, 4);
  close_place(&p);
}

static bool is_wanted(const void *ctx, const colli_hello *hello) {
  return hello->word == *(const uint64_t *)ctx;
}

Test(door, hellos_that_are_not_wanted_make_room) {
  enum { STRANGERS = 4 * COLLI_DOOR_GUESTS };
  const uint64_t word = 1;
  place p;
  colli_auth rank;
  int fds[STRANGERS];
  open_place(&p, true);
  p.door.wanted = is_wanted;
  p.door.wanted_ctx = &word;
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = say_hello(&p, secret, COLLI_HELLO_DATA, 0);
  colli_auth_connect(&rank, connect_from(&p, 1), secret, COLLI_HELLO_DATA, 4, 0, 5, word);
  const uint64_t begin_ns = colli_now_ns();
  let_in(&p, &rank, 4);
  cr_assert_lt(colli_now_ns() - begin_ns, 400 * COLLI_NS_PER_MS, "nobody had to wait for them");
  cr_assert_geq(p.door.strangers.count, STRANGERS - COLLI_DOOR_GUESTS);
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close_place(&p);
}

Test(door, hellos_recorded_at_other_doors_make_room) {
  enum { STRANGERS = 10 * COLLI_DOOR_GUESTS };
  place p;
  colli_auth rank;
  int fds[STRANGERS];
  open_place(&p, false);
  int first = say_hello(&p, secret, COLLI_HELLO_DATA, 0);
  cr_assert(WAIT_UNTIL(has_come(&p, 1), 5));
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = i % 2 ? say_hello(&p, secret, COLLI_HELLO_DATA, 3)
                   : say_hello(&p, secret, COLLI_HELLO_CONTROL, 0);
  begin_rank(&p, &rank, 4);
  let_in(&p, &rank, 4);
  cr_assert_leq(p.door.count, COLLI_DOOR_GUESTS);
  cr_assert_geq(p.door.strangers.count, STRANGERS - COLLI_DOOR_GUESTS);
  cr_assert_eq(p.door.guests[0].auth.hello.dst_rank, 0, "its hello is meant for this door");
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close(first);
  close_place(&p);
}

Test(door, a_crowd_from_one_source_leaves_room_for_another) {
  enum { STRANGERS = 10 * COLLI_DOOR_GUESTS };
  place p;
  colli_guest guest;
  int fds[STRANGERS];
  open_place(&p, false);
  int slow = connect_from(&p, 3);
  for (int i = 0; i < STRANGERS; i++)
    fds[i] = connect_from(&p, 2);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.strangers.count, STRANGERS + 1 - COLLI_DOOR_GUESTS);
  cr_assert_not(is_closed(slow));
  for (int i = 0; i < STRANGERS; i++)
    close(fds[i]);
  close(slow);
  close_place(&p);
}

/* Allows no more descriptors than there are; returns the limit before. */
static struct rlimit forbid_descriptors(void) {
  struct rlimit before, limit;
  uint8_t mac[COLLI_MAC_BYTES];
  cr_assert(colli_hmac(secret, "", 0, mac)); /* the first one reads files */
  getrlimit(RLIMIT_NOFILE, &before);
  int top = dup(0);
  close(top);
  limit = before;
  limit.rlim_cur = (rlim_t)top;
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return before;
}

Test(door, a_spare_descriptor_lets_one_rank_in_and_others_wait) {
  place p;
  colli_guest guest;
  colli_auth one, two;
  open_place(&p, true);
  begin_rank(&p, &one, 1);
  begin_rank(&p, &two, 2);
  struct rlimit before = forbid_descriptors();
  cr_assert(WAIT_UNTIL(is_let_in(&p, &one, &guest), 5));
  cr_assert_eq(guest.auth.hello.src_rank, 1);
  cr_assert_eq(p.door.spare_fd, -1);
  cr_assert_not(colli_door_next(&p.door, &(colli_guest){0}));
  cr_assert_eq(colli_door_failure(&p.door, 0), EMFILE);
  cr_assert_eq(colli_door_failure(&p.door, 60000000000), 0, "it has just begun");
  cr_assert_eq(poll(&(struct pollfd){.fd = p.door.epoll_fd, .events = POLLIN}, 1, 0), 0,
               "nobody spins");
  cr_assert_lt(colli_door_wake_ns(&p.door), UINT64_MAX);
  setrlimit(RLIMIT_NOFILE, &before);
  let_in(&p, &two, 2);
  cr_assert_eq(colli_door_failure(&p.door, 0), 0);
  cr_assert_geq(p.door.spare_fd, 0, "there is a spare one again");
  close(guest.fd);
  close(one.fd);
  close_place(&p);
}

Test(door, silent_guests_give_their_descriptors_to_ranks) {
  place p;
  colli_guest guest;
  colli_auth one;
  open_place(&p, false);
  int silent = connect_from(&p, 2);
  cr_assert_not(colli_door_next(&p.door, &guest));
  cr_assert_eq(p.door.count, 1);
  begin_rank(&p, &one, 1);
  struct rlimit before = forbid_descriptors();
  let_in(&p, &one, 1);
  cr_assert_geq(p.door.spare_fd, 0, "it was not needed");
  cr_assert(is_closed(silent));
  setrlimit(RLIMIT_NOFILE, &before);
  close(silent);
  close_place(&p);
}
