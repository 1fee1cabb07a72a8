/*
 * test_heartbeat.c: a host counts as silent only if several questions remain without an answer, not
 * because one or two packets were lost. Needs root, ip and nft, for a network that loses packets.
 */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/net/heartbeat.h"
#include "waits.h"

#define LIMIT_MS 2000

/* A TCP connection from this process to itself. */
static void connect_pair(int ends[2]) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(in);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert_eq(bind(listener, (struct sockaddr *)&in, length), 0);
  cr_assert_eq(listen(listener, 1), 0);
  cr_assert_eq(getsockname(listener, (struct sockaddr *)&in, &length), 0);
  cr_assert_eq(connect(ends[0], (struct sockaddr *)&in, length), 0);
  cr_assert_geq(ends[1] = accept(listener, NULL, NULL), 0);
}

typedef struct watch {
  int fd;
  colli_heartbeat beat;
  uint64_t look_ns;
  bool doubted, silent;
} watch;

/* Looks if it is time; whether the other end is silent, or has answered after some doubt. */
static bool is_decided(watch *w) {
  const uint64_t now_ns = colli_now_ns();
  if (now_ns < w->look_ns)
    return false;
  w->look_ns = now_ns + colli_heartbeat_look_ns(LIMIT_MS);
  w->silent = colli_heartbeat_silent(&w->beat, w->fd, LIMIT_MS, now_ns);
  const bool answered = w->doubted && w->beat.unanswered_ns == 0;
  w->doubted |= w->beat.unanswered_ns > 0;
  return w->silent || answered;
}

/* Packets that arrive at this host are lost, up to so many bytes; a question has 52. */
static bool lose(const char *rule) {
  char command[200];
  snprintf(command, sizeof(command),
           "nft add table ip t && nft add chain ip t in '{ type filter hook input priority 0; }' "
           "&& nft add rule ip t in %s drop",
           rule);
  return system(command) == 0;
}

/* Loses packets of an idle connection; whether its other end falls silent. */
static bool loses(const char *rule) {
  int ends[2];
  if (unshare(CLONE_NEWNET) != 0 || system("ip link set lo up") != 0)
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
  connect_pair(ends);
  colli_heartbeat_enable(ends[0], LIMIT_MS);
  if (!lose(rule))
    cr_skip_test("needs nft (nftables)");
  watch w = {.fd = ends[0]};
  cr_assert(WAIT_UNTIL(is_decided(&w), 60), "nothing was lost");
  return w.silent;
}

Test(heartbeat, lost_questions_are_asked_again, .timeout = 100) {
  cr_assert_not(loses("quota until 120 bytes"));
}

Test(heartbeat, silence_is_noticed, .timeout = 100) {
  cr_assert(loses("ip protocol tcp"));
}
