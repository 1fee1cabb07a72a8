/* test_dial.c: a rank that reaches a peer at several addresses proves itself on one connection. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/net/filter.h"
#include "libcoll/wireup/bootstrap/dial.h"
#include "support_ctrl.h"
#include "waits.h"

enum { DOORS = 3, COMM_ID = 7 };

/* The dialling rank, and the peer's addresses, each with a listener of its own. */
typedef struct scene {
  ctrl_rank rank;
  colli_addr addrs[COLLI_MAX_ADDRS];
  int listeners[DOORS];
  colli_auth guests[DOORS]; /* fd: 0 before it has come */
  int proved[DOORS];        /* COLL_T_DONE: this one believes that it is the rank */
  boot_dial dial;
  int result; /* of the dialling */
} scene;

static void open_scene(scene *s, bool tls) {
  memset(s, 0, sizeof(*s));
  ctrl_rank_open(&s->rank, tls);
  s->rank.id.comm_id = COMM_ID;
  for (int i = 0; i < DOORS; i++) {
    s->addrs[i] = (colli_addr){.family = 4, .prefix = 8, .ip = {127, 0, 0, 1}};
    cr_assert_eq(colli_net_listen("", &s->listeners[i], &s->addrs[i].port, &s->rank.error),
                 COLL_OK);
    s->proved[i] = COLL_T_AGAIN;
  }
  s->result = COLL_T_AGAIN;
  boot_dial_begin(&s->rank.b, &s->dial, COLLI_HELLO_SHRINK, 0, s->addrs);
}

static void close_scene(scene *s) {
  boot_dial_close(&s->dial);
  colli_sealed_close(&s->dial.conn);
  for (int i = 0; i < DOORS; i++) {
    close(s->listeners[i]);
    colli_auth_drop(&s->guests[i]);
    close(s->guests[i].fd);
  }
  ctrl_rank_close(&s->rank);
}

/* The peer is slow: it answers nobody before connections at all addresses are there. */
static bool all_have_come(scene *s) {
  int count = 0;
  s->result = boot_dial_step(&s->rank.b, &s->dial);
  for (int i = 0; i < DOORS; i++) {
    const int fd = s->guests[i].fd ? -1 : colli_net_accept(s->listeners[i]);
    if (fd >= 0) {
      colli_auth_accept(&s->guests[i], fd, s->rank.id.secret->bytes);
      if (s->rank.b.tls)
        colli_auth_want_tls(&s->guests[i]);
    }
    count += s->guests[i].fd > 0;
  }
  return s->result == COLL_T_AGAIN && count == DOORS;
}

/* Both sides go on; returns where the rank has proved itself: a bit for each address. */
static int go_on(scene *s) {
  int where = 0;
  if (s->result == COLL_T_AGAIN)
    s->result = boot_dial_step(&s->rank.b, &s->dial);
  for (int i = 0; i < DOORS; i++) {
    if (s->proved[i] == COLL_T_AGAIN)
      s->proved[i] = colli_auth_poll(&s->guests[i]);
    where |= s->proved[i] == COLL_T_DONE ? 1 << i : 0;
  }
  return where;
}

/* Goes on until the rank has proved itself at an address that is not in `before`. */
static int prove_once(scene *s, int before) {
  int where;
  cr_assert(WAIT_UNTIL((where = go_on(s) & ~before) != 0, 30));
  for (int i = 0; i < 100; i++) /* steps in which it could prove itself elsewhere */
    where |= go_on(s) & ~before;
  cr_assert_eq(where & (where - 1), 0, "proved at several: %x", (unsigned)where);
  cr_assert_eq(s->result, COLL_T_AGAIN);
  return where;
}

/* Answers where the rank has just proved itself. */
static void answer(scene *s, int where, bool accepted) {
  for (int i = 0; i < DOORS; i++)
    if (where == 1 << i)
      cr_assert_eq(colli_auth_answer(&s->guests[i], accepted), 0);
}

/* Refused at one address after the other, the rank gets in at the last. */
Test(dial, proves_itself_again_once_it_is_refused, .timeout = 60) {
  scene s;
  int done = 0;
  open_scene(&s, false);
  cr_assert(WAIT_UNTIL(all_have_come(&s), 30));
  for (int i = 0; i < DOORS; i++) {
    const int where = prove_once(&s, done);
    answer(&s, where, i == DOORS - 1);
    done |= where;
  }
  cr_assert(WAIT_UNTIL((go_on(&s), s.result != COLL_T_AGAIN), 30));
  cr_assert_eq(s.result, COLL_T_DONE);
  close_scene(&s);
}

/* Nor does it prove itself elsewhere while TLS begins on that connection. */
Test(dial, proves_itself_once_with_tls, .timeout = 60) {
  scene s;
  open_scene(&s, true);
  cr_assert(WAIT_UNTIL(all_have_come(&s), 30));
  const int where = prove_once(&s, 0);
  answer(&s, where, true);
  for (int i = 0; i < 100; i++)
    cr_assert_eq(go_on(&s), where);
  cr_assert_eq(s.result, COLL_T_AGAIN);
  close_scene(&s);
}

/* Whether the first attempt's hello counts from anywhere. */
static bool counts_from_anywhere(const scene *s) {
  const colli_auth *auth = &s->dial.attempts[0].auth;
  colli_tags tags;
  cr_assert(colli_auth_tags(s->rank.id.secret->bytes, &tags));
  return memcmp(auth->hello.tag, tags.anywhere, sizeof(auth->hello.tag)) == 0;
}

/* Nobody answers a hello that counts from one origin only: a kernel drops it, or a proxy takes it.
 * Well before all the time is over, the rank sends one that counts from anywhere. */
static void give_up(bool taken, uint64_t all_ns) {
  scene s;
  const uint64_t start_ns = colli_now_ns();
  open_scene(&s, false);
  s.rank.b.start_ns = start_ns;
  s.rank.b.deadline_ns = start_ns + all_ns;
  s.addrs[DOORS] = (colli_addr){.family = 4, .prefix = 24, .port = 9, .ip = {192, 0, 2, 1}};
  boot_dial_begin(&s.rank.b, &s.dial, COLLI_HELLO_SHRINK, 0, s.addrs); /* through no tunnel */
  for (int i = 0; i < DOORS && !taken; i++)
    colli_filter_attach_word(s.listeners[i], 1, 4);
  const boot_attempt *first = &s.dial.attempts[0];
  cr_assert(WAIT_UNTIL((boot_dial_step(&s.rank.b, &s.dial), first->connected), 30));
  cr_assert(first->bound);
  cr_assert_not(counts_from_anywhere(&s));
  cr_assert(WAIT_UNTIL((boot_dial_step(&s.rank.b, &s.dial), counts_from_anywhere(&s)), 30));
  cr_assert_eq(first->failures, 0, "it looks like a failure");
  cr_assert_lt(colli_now_ns() - start_ns, 3 * COLLI_NS_PER_S);
  close_scene(&s);
}

Test(dial, a_dropped_hello_is_sent_again, .timeout = 60) {
  give_up(false, 60 * COLLI_NS_PER_S);
}

Test(dial, an_unanswered_hello_is_sent_again_before_a_short_deadline, .timeout = 60) {
  give_up(true, COLLI_NS_PER_S);
}

/* While poll() fails, here because it gets more descriptors than the process may have, waiting does
 * not take a whole core. */
Test(dial, a_poll_that_fails_takes_its_time, .timeout = 60) {
  enum { COUNT = 8 };
  const uint64_t until_ns = colli_now_ns() + 100 * COLLI_NS_PER_MS;
  boot_polls polls;
  int rounds = 0, failed = 0;
  cr_assert(boot_polls_create(&polls, COUNT));
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){COUNT / 2, COUNT / 2}), 0);
  for (; colli_now_ns() < until_ns; rounds++) {
    boot_polls_clear(&polls, until_ns);
    for (int i = 0; i < COUNT; i++)
      boot_polls_add(&polls, 0, POLLERR);
    failed += boot_polls_wait(&polls) != 0;
  }
  cr_assert_gt(failed, 0);
  cr_assert_lt(rounds, 200);
  boot_polls_destroy(&polls);
}

/* Describes a dialling of so many addresses of a peer. */
static void describe(colli_hello_kind kind, int count, char text[400]) {
  ctrl_rank rank;
  colli_addr addrs[COLLI_MAX_ADDRS] = {{0}};
  boot_dial dial;
  ctrl_rank_open(&rank, false);
  for (int i = 0; i < count; i++)
    addrs[i] = (colli_addr){.family = 4, .port = 1, .ip = {10, 0, 0, (uint8_t)(i + 1)}};
  boot_dial_begin(&rank.b, &dial, kind, 0, addrs);
  boot_dial_describe(&dial, text, 400);
  boot_dial_close(&dial);
  ctrl_rank_close(&rank);
}

Test(dial, says_that_a_host_may_have_more_addresses) {
  static const colli_hello_kind kinds[] = {COLLI_HELLO_CHECKIN, COLLI_HELLO_CONTROL};
  char text[400];
  for (int i = 0; i < 2; i++) {
    describe(kinds[i], COLLI_MAX_ADDRS - 1, text);
    cr_expect_null(strstr(text, "COLL_TCP_IFNAME"), "%s", text);
    describe(kinds[i], COLLI_MAX_ADDRS, text);
    cr_expect(strstr(text, "and 2 more; its host may have addresses that it could not offer"), "%s",
              text);
    cr_expect(strstr(text, "COLL_TCP_IFNAME"), "%s", text);
  }
}
