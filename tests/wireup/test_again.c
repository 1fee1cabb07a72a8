/* test_again.c: one of the two sockets of a control link ends, and is made again while messages go
 * both ways. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets.h"
#include "support_ctrl.h"
#include "waits.h"

enum { LINES = 2, LIMIT_MS = 200, DESCRIPTORS = 1024 };

/* Two ranks, of which each believes to be on a host of its own. */
typedef struct scene {
  ctrl_rank rank[2];
  colli_ctrl *ctrl[2];
  int fd[LINES];            /* rank 1's ends */
  uint64_t sent[2], got[2]; /* messages; by the rank that sent or got them */
  FILE *log;
} scene;

/* An address of interface number `scope`. */
static colli_addr address(uint8_t a, uint8_t b, uint8_t d, uint32_t scope) {
  return (colli_addr){.family = 4, .prefix = 8, .scope = scope, .ip = {a, b, 0, d}};
}

/* A network namespace with an address for each rank. Both also have loopback, for the first line:
 * nothing says that it is another network for ranks. */
static void make_network(void) {
  if (unshare(CLONE_NEWNET) != 0 ||
      system("ip link set lo up && ip link add a0 type veth peer name b0 && ip link set a0 up && "
             "ip addr add 10.2.0.1/16 dev a0 && ip addr add 10.2.0.2/16 dev a0") != 0)
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
}

static void open_scene(scene *s) {
  colli_rank_info info[2] = {0};
  colli_sealed ends[2][LINES];
  memset(s, 0, sizeof(*s));
  make_network();
  s->log = tmpfile();
  cr_assert(s->log && dup2(fileno(s->log), STDERR_FILENO) >= 0);
  for (int line = 0; line < LINES; line++) {
    int pair[2];
    tcp_pair(pair);
    for (int r = 0; r < 2; r++)
      ends[r][line] = ctrl_unkeyed(pair[r]);
    s->fd[line] = pair[1];
  }
  for (int r = 0; r < 2; r++) {
    snprintf(info[r].host, sizeof(info[r].host), "host%d", r);
    info[r].control_addrs[0] = address(127, 0, 1, r ? 11 : 1);
    info[r].control_addrs[1] = address(10, 2, (uint8_t)(r + 1), r ? 12 : 2);
  }
  colli_rank_table *table = colli_rank_table_create(info, 2);
  for (int r = 0; r < 2; r++) {
    const int peer = !r;
    coll_error error;
    ctrl_rank_open(&s->rank[r], false);
    s->rank[r].b.rank = r;
    s->rank[r].b.id = &s->rank[0].id;
    s->rank[r].log = (colli_log){COLLI_LOG_INFO, r};
    cr_assert_eq(colli_ctrl_create_net(&s->ctrl[r], r, 2, &peer, &ends[r][0], &ends[r][1], 1,
                                       LIMIT_MS, &error),
                 COLL_OK);
    colli_ctrl_set_spares(s->ctrl[r], colli_ctrl_spares_create(&s->rank[r].b, table, ""));
  }
  colli_rank_table_free(table);
}

static void close_scene(scene *s) {
  for (int r = 0; r < 2; r++) {
    colli_ctrl_close(s->ctrl[r], 0);
    ctrl_rank_close(&s->rank[r]);
  }
  fclose(s->log);
}

/* Resets a line, which its ends notice sooner or later. */
static void reset_line(scene *s, int line) {
  cr_assert_eq(
      connect(s->fd[line], &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)), 0);
}

/* Takes what a rank gets: nothing but the other one's messages, each once, in order. */
static void take(scene *s, int r) {
  colli_ctrl_msg msg;
  colli_ctrl_event event;
  int peer, sys_errno = 0;
  while ((event = colli_ctrl_poll(s->ctrl[r], &peer, &msg, &sys_errno)) != COLLI_CTRL_NOTHING) {
    cr_assert_eq(event, COLLI_CTRL_MESSAGE, "event %d at rank %d, errno %d", event, r, sys_errno);
    cr_assert_eq(msg.serial, ++s->got[r], "rank %d got %llu instead", r,
                 (unsigned long long)msg.serial);
  }
}

/* Both send a message, and take what has come. */
static void talk(scene *s) {
  for (int r = 0; r < 2; r++) {
    const colli_ctrl_msg msg = {
        .kind = COLLI_CTRL_AFFECTED, .origin = r, .peer = -1, .serial = ++s->sent[r]};
    colli_ctrl_send(s->ctrl[r], !r, &msg);
  }
  for (int r = 0; r < 2; r++)
    take(s, r);
}

/* How often both ranks have said something. */
static int count_said(scene *s, const char *what) {
  static char text[100000];
  int count = 0;
  const ssize_t bytes = pread(fileno(s->log), text, sizeof(text) - 1, 0);
  text[bytes > 0 ? bytes : 0] = '\0';
  for (const char *at = text; (at = strstr(at, what)); at++)
    count++;
  return count;
}

/* How many of this process's sockets the kernel keeps for an hour of silence: all ends of links
 * that have two. */
static int count_kept(void) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS; fd++) {
    int ms = 0;
    socklen_t bytes = sizeof(ms);
    count += getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes) == 0 && ms == 3600000;
  }
  return count;
}

/* Takes all that is under way: whether nothing was lost. */
static bool is_complete(scene *s) {
  for (int r = 0; r < 2; r++)
    take(s, r);
  return s->got[0] == s->sent[1] && s->got[1] == s->sent[0];
}

Test(again, a_line_that_was_reset_is_made_again, .timeout = 60) {
  scene s;
  open_scene(&s);
  reset_line(&s, 1);
  cr_assert(WAIT_UNTIL((talk(&s), count_said(&s, "there are two control sockets")) == 2, 20));
  cr_expect_eq(count_said(&s, "is lost: Connection reset by peer; the other one carries on"), 1);
  cr_expect_eq(count_said(&s, "of rank 0 (host host0, 127.0.0.1:"), 1);
  cr_expect_eq(count_said(&s, "and rank 1 (host host1, 127.0.0.1:"), 1);
  cr_expect_eq(count_kept(), 2 * LINES);
  cr_assert(WAIT_UNTIL((talk(&s), is_complete(&s)), 10));
  reset_line(&s, 0); /* now all depends on the new one */
  for (int i = 0; i < 20; i++)
    talk(&s);
  cr_assert(WAIT_UNTIL(is_complete(&s), 10));
  close_scene(&s);
}

Test(again, a_line_is_made_although_nothing_is_sent, .timeout = 60) {
  scene s;
  open_scene(&s);
  const colli_ctrl_msg bye = {.kind = COLLI_CTRL_GOODBYE, .origin = 0, .peer = -1, .serial = 1};
  reset_line(&s, 1);
  cr_assert(WAIT_UNTIL((is_complete(&s), count_said(&s, "there are two control sockets")) == 2, 20),
            "nobody sends anything else");
  reset_line(&s, 0);
  colli_ctrl_send(s.ctrl[0], 1, &bye);
  s.sent[0]++;
  cr_assert(WAIT_UNTIL(is_complete(&s), 10));
  close_scene(&s);
}
