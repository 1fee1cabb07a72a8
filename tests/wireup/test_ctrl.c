/* test_ctrl.c: control links of both kinds: order, goodbye, crash, floods, bad bytes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "sockets.h"
#include "support_ctrl.h"
#include "waits.h"

enum { LOCAL, LOCAL_SILENT, NET, KINDS };

/* Control links of either kind for n ranks. */
static void make_ctrls(int kind, int n, colli_ctrl **ctrls) {
  coll_error error = COLL_ERROR_INIT;
  if (kind != NET) {
    cr_assert_eq(colli_ctrl_create_local(ctrls, n, kind == LOCAL, &error), COLL_OK);
    return;
  }
  int fds[16][16], peers[COLLI_CTRL_LINKS_MAX];
  colli_sealed own[COLLI_CTRL_LINKS_MAX];
  for (int a = 0; a < n; a++) {
    int count = colli_ctrl_peers(a, n, peers);
    for (int i = 0; i < count; i++) {
      int pair[2], b = peers[i];
      if (b < a)
        continue;
      tcp_pair(pair);
      fds[a][b] = pair[0];
      fds[b][a] = pair[1];
    }
  }
  for (int a = 0; a < n; a++) {
    int count = colli_ctrl_peers(a, n, peers);
    for (int i = 0; i < count; i++)
      own[i] = ctrl_unkeyed(fds[a][peers[i]]);
    cr_assert_eq(colli_ctrl_create_net(&ctrls[a], a, n, peers, own, NULL, count, 2000, &error),
                 COLL_OK);
  }
}

/* The next event within a second. */
static colli_ctrl_event next_event(colli_ctrl *ctrl, int *peer, colli_ctrl_msg *msg) {
  int sys_errno = 0;
  colli_ctrl_event event;
  (void)WAIT_UNTIL((event = colli_ctrl_poll(ctrl, peer, msg, &sys_errno)) != COLLI_CTRL_NOTHING, 1);
  return event;
}

/* A message of `origin`. */
static colli_ctrl_msg message(colli_ctrl_kind kind, int origin, uint64_t serial) {
  return (colli_ctrl_msg){
      .kind = kind, .origin = origin, .serial = serial, .number = serial, .peer = -1};
}

/* The number of open descriptors. */
static int open_fds(void) {
  int count = 0;
  for (int fd = 0; fd < 512; fd++)
    count += poll(&(struct pollfd){.fd = fd}, 1, 0) == 0;
  return count;
}

Test(ctrl, neighbours_are_mutual_and_connected) {
  for (int n = 1; n <= 70; n++) {
    bool reached[70] = {true};
    for (int round = 0; round < n; round++)
      for (int a = 0; a < n; a++) {
        int peers[COLLI_CTRL_LINKS_MAX], back[COLLI_CTRL_LINKS_MAX];
        int count = colli_ctrl_peers(a, n, peers);
        cr_assert_leq(count, 5);
        for (int i = 0; i < count; i++) {
          bool mutual = false;
          int others = colli_ctrl_peers(peers[i], n, back);
          cr_assert(peers[i] != a && peers[i] >= 0 && peers[i] < n);
          for (int j = 0; j < others; j++)
            mutual = mutual || back[j] == a;
          for (int j = 0; j < i; j++)
            cr_assert_neq(peers[i], peers[j]);
          cr_assert(mutual, "%d and %d of %d", a, peers[i], n);
          reached[peers[i]] = reached[peers[i]] || reached[a];
        }
      }
    for (int a = 0; a < n; a++)
      cr_assert(reached[a]);
  }
  int peers[COLLI_CTRL_LINKS_MAX]; /* the largest communicator does not overflow */
  cr_assert_leq(colli_ctrl_peers(65535, 65536, peers), 5);
}

Test(ctrl, messages_arrive_in_order_with_all_their_bytes) {
  for (int kind = 0; kind < KINDS; kind++) {
    colli_ctrl *ctrls[5];
    int before = open_fds();
    make_ctrls(kind, 5, ctrls);
    for (int a = 0; a < 5; a++) {
      int peers[8], count = colli_ctrl_neighbours(ctrls[a], peers);
      for (int i = 0; i < count; i++)
        for (uint64_t serial = 1; serial <= 10; serial++) {
          colli_ctrl_msg msg = message(COLLI_CTRL_WAITING, a, serial);
          msg.peer = peers[i];
          msg.sequence = serial * 1000003;
          msg.signature[2] = ~serial;
          snprintf(msg.error.message, sizeof(msg.error.message), "from %d to %d", a, peers[i]);
          colli_ctrl_send(ctrls[a], peers[i], &msg);
        }
    }
    for (int a = 0; a < 5; a++) {
      int peers[8], count = colli_ctrl_neighbours(ctrls[a], peers), peer;
      uint64_t heard[5] = {0};
      colli_ctrl_msg msg;
      char text[64];
      for (int i = 0; i < count * 10; i++) {
        cr_assert_eq(next_event(ctrls[a], &peer, &msg), COLLI_CTRL_MESSAGE, "kind %d", kind);
        cr_assert_eq(msg.origin, peer);
        cr_assert_eq(msg.peer, a);
        cr_assert_eq(msg.serial, ++heard[peer]);
        cr_assert_eq(msg.sequence, msg.serial * 1000003);
        cr_assert_eq(msg.signature[2], ~msg.serial);
        snprintf(text, sizeof(text), "from %d to %d", peer, a);
        cr_assert_str_eq(msg.error.message, text);
      }
      int sys_errno;
      cr_assert_eq(colli_ctrl_poll(ctrls[a], &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
    }
    for (int a = 0; a < 5; a++)
      colli_ctrl_close(ctrls[a], 0);
    cr_assert_eq(open_fds(), before, "kind %d", kind);
  }
}

Test(ctrl, the_descriptor_tells_when_to_poll) {
  for (int kind = 0; kind < KINDS; kind++) {
    colli_ctrl *ctrls[2];
    colli_ctrl_msg msg = message(COLLI_CTRL_WAITING, 0, 1);
    int peer, sys_errno;
    make_ctrls(kind, 2, ctrls);
    int fd = colli_ctrl_fd(ctrls[1]);
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    if (kind == LOCAL_SILENT) {
      cr_assert_eq(fd, -1);
    } else {
      for (int round = 0; round < 3; round++) {
        cr_assert_eq(poll(&pfd, 1, 0), 0, "kind %d", kind);
        colli_ctrl_send(ctrls[0], 1, &msg);
        colli_ctrl_send(ctrls[0], 1, &msg);
        cr_assert_eq(poll(&pfd, 1, 1000), 1, "kind %d", kind);
        cr_assert_eq(next_event(ctrls[1], &peer, &msg), COLLI_CTRL_MESSAGE);
        cr_assert_eq(next_event(ctrls[1], &peer, &msg), COLLI_CTRL_MESSAGE);
        cr_assert_eq(colli_ctrl_poll(ctrls[1], &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
      }
    }
    colli_ctrl_close(ctrls[0], 0);
    if (fd >= 0)
      cr_assert_eq(poll(&pfd, 1, 1000), 1, "an end makes it readable too");
    cr_assert_eq(next_event(ctrls[1], &peer, &msg), COLLI_CTRL_CLOSED);
    if (fd >= 0) {
      colli_ctrl_poll(ctrls[1], &peer, &msg, &sys_errno);
      cr_assert_eq(poll(&pfd, 1, 0), 0, "reported once");
    }
    colli_ctrl_close(ctrls[1], 0);
  }
}

Test(ctrl, a_crash_is_reported_once_and_after_what_was_sent) {
  for (int kind = 0; kind < KINDS; kind++) {
    colli_ctrl *ctrls[4];
    colli_ctrl_msg msg = message(COLLI_CTRL_FAILED, 1, 1);
    int peer = -1, sys_errno;
    make_ctrls(kind, 4, ctrls);
    colli_ctrl_send(ctrls[1], 0, &msg);
    colli_ctrl_close(ctrls[1], 0);
    cr_assert_eq(next_event(ctrls[0], &peer, &msg), COLLI_CTRL_MESSAGE);
    cr_assert_eq(msg.kind, COLLI_CTRL_FAILED);
    cr_assert_eq(next_event(ctrls[0], &peer, &msg), COLLI_CTRL_CLOSED);
    cr_assert_eq(peer, 1);
    cr_assert_eq(colli_ctrl_poll(ctrls[0], &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
    colli_ctrl_send(ctrls[0], 1, &msg); /* to a closed link: dropped */
    cr_assert_eq(next_event(ctrls[3], &peer, &msg), COLLI_CTRL_CLOSED);
    cr_assert_eq(peer, 1, "kind %d: rank 3 is rank 1's child", kind);
    for (int a = 0; a < 4; a++)
      if (a != 1)
        colli_ctrl_close(ctrls[a], 0);
  }
}

Test(ctrl, after_a_goodbye_the_end_is_no_failure) {
  for (int kind = 0; kind < KINDS; kind++) {
    colli_ctrl *ctrls[3];
    int peer, sys_errno;
    make_ctrls(kind, 3, ctrls);
    colli_ctrl_msg goodbye = message(COLLI_CTRL_GOODBYE, 1, 1), msg;
    colli_ctrl_send(ctrls[1], 0, &goodbye);
    goodbye.origin = 0; /* a forwarded goodbye of another rank is not rank 1's */
    colli_ctrl_send(ctrls[1], 2, &goodbye);
    colli_ctrl_close(ctrls[1], 500);
    cr_assert_eq(next_event(ctrls[0], &peer, &msg), COLLI_CTRL_MESSAGE);
    if (kind == NET) /* that the link has ended, which is all that comes yet */
      cr_assert_eq(poll(&(struct pollfd){colli_ctrl_fd(ctrls[0]), POLLIN, 0}, 1, 10000), 1);
    cr_assert_eq(colli_ctrl_poll(ctrls[0], &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
    cr_assert_eq(colli_ctrl_poll(ctrls[0], &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
    cr_assert_eq(next_event(ctrls[2], &peer, &msg), COLLI_CTRL_MESSAGE);
    cr_assert_eq(next_event(ctrls[2], &peer, &msg), COLLI_CTRL_CLOSED, "kind %d", kind);
    colli_ctrl_close(ctrls[0], 0);
    colli_ctrl_close(ctrls[2], 0);
  }
}

Test(ctrl, a_flood_never_blocks_and_the_latest_and_the_failure_arrive) {
  const uint64_t flood = 20000;
  for (int kind = 0; kind < KINDS; kind++) {
    colli_ctrl *ctrls[2];
    colli_ctrl_msg msg;
    int peer;
    make_ctrls(kind, 2, ctrls);
    for (uint64_t serial = 1; serial <= flood; serial++) {
      msg = message(COLLI_CTRL_WAITING, (int)(serial % 2), serial);
      colli_ctrl_send(ctrls[0], 1, &msg);
    }
    msg = message(COLLI_CTRL_FAILED, 0, flood + 1);
    colli_ctrl_send(ctrls[0], 1, &msg);
    uint64_t last = 0, heard = 0;
    while (last < flood + 1) {
      int none;
      colli_ctrl_poll(ctrls[0], &none, &msg, &none); /* sends what is queued */
      cr_assert_eq(next_event(ctrls[1], &peer, &msg), COLLI_CTRL_MESSAGE, "kind %d", kind);
      cr_assert_gt(msg.serial, last, "in order");
      if (msg.kind == COLLI_CTRL_FAILED)
        cr_assert_eq(last, flood, "no latest message was dropped");
      last = msg.serial;
      heard++;
    }
    cr_assert_lt(heard, flood / 2, "superseded messages are dropped");
    colli_ctrl_close(ctrls[0], 0);
    colli_ctrl_close(ctrls[1], 0);
  }
}

/* A neighbour that reads slowly: from when rank 0, which is the main thread, waits. Returns whether
 * all came. */
static void *read_slowly(void *ctrl) {
  colli_ctrl_msg msg = {.serial = 0};
  uint64_t last = 0;
  int peer;
  WAIT_UNTIL(sleeps(getpid()), 2); /* closing has begun */
  while (next_event(ctrl, &peer, &msg) == COLLI_CTRL_MESSAGE)
    last = msg.serial;
  return last == 5001 && msg.kind == COLLI_CTRL_GOODBYE ? ctrl : NULL;
}

Test(ctrl, closing_delivers_what_waits) {
  colli_ctrl *ctrls[2];
  colli_ctrl_msg msg;
  pthread_t neighbour;
  make_ctrls(NET, 2, ctrls);
  cr_assert_eq(pthread_create(&neighbour, NULL, read_slowly, ctrls[1]), 0);
  for (uint64_t serial = 1; serial <= 5000; serial++) {
    msg = message(COLLI_CTRL_WAITING, 0, serial);
    colli_ctrl_send(ctrls[0], 1, &msg);
  }
  msg = message(COLLI_CTRL_GOODBYE, 0, 5001);
  colli_ctrl_send(ctrls[0], 1, &msg);
  colli_ctrl_close(ctrls[0], 3000);
  void *all;
  pthread_join(neighbour, &all);
  cr_assert_eq(all, ctrls[1]);
  colli_ctrl_close(ctrls[1], 0);
}

Test(ctrl, closing_ends_in_time_while_the_neighbour_sleeps) {
  colli_ctrl *ctrls[2];
  colli_ctrl_msg msg;
  make_ctrls(NET, 2, ctrls);
  for (uint64_t serial = 1; serial <= 20000; serial++) {
    msg = message(COLLI_CTRL_WAITING, 0, serial);
    colli_ctrl_send(ctrls[0], 1, &msg);
  }
  uint64_t start_ns = colli_now_ns();
  colli_ctrl_close(ctrls[0], 300);
  cr_assert_leq(colli_now_ns() - start_ns, 1500 * COLLI_NS_PER_MS);
  colli_ctrl_close(ctrls[1], 0);
}

/* The bytes of a message on the wire. */
static void seal(const colli_ctrl_msg *msg, uint8_t bytes[COLLI_SEALED_BYTES(sizeof(*msg))]) {
  int pair[2];
  size_t done = 0;
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  colli_sealed sealed = ctrl_unkeyed(pair[0]);
  cr_assert_eq(colli_sealed_push(&sealed, msg, sizeof(*msg), &done), COLL_T_DONE);
  cr_assert_eq(recv(pair[1], bytes, done, MSG_WAITALL), (ssize_t)done);
  colli_sealed_close(&sealed);
  close(pair[1]);
}

/* The event that rank 0 of 2 polls after the first `count` bytes of a message from its neighbour,
 * of which the first is changed by `flip`, and which then closes if `then_close`. */
static colli_ctrl_event event_after(const colli_ctrl_msg *bad, int flip, size_t count,
                                    bool then_close, int *sys_errno) {
  int pair[2], peer = 1;
  colli_ctrl *ctrl;
  colli_ctrl_msg msg;
  uint8_t sealed[COLLI_SEALED_BYTES(sizeof(msg))];
  coll_error error = COLL_ERROR_INIT;
  tcp_pair(pair);
  const colli_sealed end = ctrl_unkeyed(pair[0]);
  cr_assert_eq(colli_ctrl_create_net(&ctrl, 0, 2, &peer, &end, NULL, 1, 2000, &error), COLL_OK);
  seal(bad, sealed);
  sealed[0] ^= (uint8_t)flip;
  cr_assert_eq(send(pair[1], sealed, count, 0), (ssize_t)count);
  if (then_close)
    close(pair[1]);
  colli_ctrl_event event;
  (void)WAIT_UNTIL((event = colli_ctrl_poll(ctrl, &peer, &msg, sys_errno)) != COLLI_CTRL_NOTHING,
                   0.2);
  colli_ctrl_close(ctrl, 0);
  if (!then_close)
    close(pair[1]);
  return event;
}

Test(ctrl, bad_bytes_mute_the_link) {
  int sys_errno;
  enum { SEALED = COLLI_SEALED_BYTES(sizeof(colli_ctrl_msg)) };
  colli_ctrl_msg good = message(COLLI_CTRL_WAITING, 1, 1);
  cr_assert_eq(event_after(&good, 0, SEALED, false, &sys_errno), COLLI_CTRL_MESSAGE);
  for (int i = 0; i < 8; i++) {
    colli_ctrl_msg bad = good;
    bad.kind = i == 0 ? 0 : i == 1 ? COLLI_CTRL_LAST_KIND + 1 : bad.kind;
    bad.origin = i == 2 ? 2 : i == 3 ? -1 : bad.origin;
    bad.peer = i == 4 ? 2 : i == 5 ? -2 : bad.peer;
    bad.nmore = i == 6 ? COLLI_CTRL_MORE + 1 : i == 7 ? 1 : 0;
    bad.more[0] = 2;
    cr_assert_eq(event_after(&bad, 0, SEALED, false, &sys_errno), COLLI_CTRL_SILENT, "%d", i);
    cr_assert_eq(sys_errno, EPROTO, "%d", i);
  }
  cr_assert_eq(event_after(&good, 0, SEALED / 2, true, &sys_errno), COLLI_CTRL_CLOSED);
  cr_assert_eq(event_after(&good, 0, SEALED / 2, false, &sys_errno), COLLI_CTRL_NOTHING);
  cr_assert_eq(event_after(&good, 1, SEALED, false, &sys_errno), COLLI_CTRL_SILENT);
  cr_assert_eq(sys_errno, EBADMSG);
}

Test(ctrl, strings_of_a_message_end) {
  int pair[2], peer = 1, sys_errno;
  colli_ctrl *ctrl;
  colli_ctrl_msg msg = message(COLLI_CTRL_FAILED, 1, 1);
  coll_error error = COLL_ERROR_INIT;
  memset(&msg.error, 'x', sizeof(msg.error));
  uint8_t sealed[COLLI_SEALED_BYTES(sizeof(msg))];
  tcp_pair(pair);
  const colli_sealed end = ctrl_unkeyed(pair[0]);
  cr_assert_eq(colli_ctrl_create_net(&ctrl, 0, 2, &peer, &end, NULL, 1, 2000, &error), COLL_OK);
  seal(&msg, sealed);
  cr_assert_eq(send(pair[1], sealed, sizeof(sealed), 0), (ssize_t)sizeof(sealed));
  cr_assert(WAIT_UNTIL(colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno) != COLLI_CTRL_NOTHING, 10));
  cr_assert_lt(strnlen(msg.error.message, sizeof(msg.error.message)), sizeof(msg.error.message));
  cr_assert_lt(strnlen(msg.error.host, sizeof(msg.error.host)), sizeof(msg.error.host));
  colli_ctrl_close(ctrl, 0);
  close(pair[1]);
}

/* A process that computes or is stopped does not read, but its kernel answers. */
Test(ctrl, a_neighbour_that_does_not_read_is_not_silent) {
  enum { LIMIT_MS = 100 };
  int pair[2], peer = 1, sys_errno, queued = 0;
  colli_ctrl *ctrl;
  colli_ctrl_msg msg;
  coll_error error = COLL_ERROR_INIT;
  tcp_pair(pair);
  const colli_sealed end = ctrl_unkeyed(pair[0]);
  cr_assert_eq(colli_ctrl_create_net(&ctrl, 0, 2, &peer, &end, NULL, 1, LIMIT_MS, &error), COLL_OK);
  const uint64_t until_ns = colli_now_ns() + 5 * LIMIT_MS * COLLI_NS_PER_MS;
  while (colli_now_ns() < until_ns)
    cr_assert_eq(colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno), COLLI_CTRL_NOTHING);
  cr_assert_eq(ioctl(pair[1], FIONREAD, &queued), 0);
  cr_assert_gt(queued, 0, "with such a limit links send beats");
  colli_ctrl_close(ctrl, 0);
  close(pair[1]);
}

Test(ctrl, beats_do_not_fill_the_memory_of_a_neighbour_that_does_not_read) {
  enum { SEALED = COLLI_SEALED_BYTES(sizeof(colli_ctrl_msg)), MOST = 64 };
  int pair[2], peer = 1, sys_errno, queued = 0;
  colli_ctrl *ctrl;
  colli_ctrl_msg msg;
  coll_error error = COLL_ERROR_INIT;
  tcp_pair(pair);
  const colli_sealed end = ctrl_unkeyed(pair[0]);
  cr_assert_eq(colli_ctrl_create_net(&ctrl, 0, 2, &peer, &end, NULL, 1, 1, &error), COLL_OK);
  const uint64_t until_ns = colli_now_ns() + 100 * COLLI_NS_PER_MS; /* of the limit */
  while (colli_now_ns() < until_ns)
    colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno);
  cr_assert_eq(ioctl(pair[1], FIONREAD, &queued), 0);
  cr_assert_leq(queued, MOST * SEALED);
  colli_ctrl_close(ctrl, 0);
  close(pair[1]);
}
