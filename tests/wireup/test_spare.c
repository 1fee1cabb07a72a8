/* test_spare.c: which addresses a rank dials for a second control connection. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/wireup/bootstrap/dial.h"
#include "sockets.h"
#include "support_ctrl.h"
#include "waits.h"

/* A rank, its neighbour's addresses, and the first connection, which is over loopback. */
typedef struct scene {
  ctrl_rank rank;
  colli_addr addrs[COLLI_MAX_ADDRS];
  boot_dial dial;
  int fds[2];
  colli_sealed first;
} scene;

/* An address 10.NET.0.HOST/16 of interface number `scope`. */
static colli_addr address(uint8_t net, uint8_t host, uint32_t scope) {
  return (colli_addr){
      .family = 4, .prefix = 16, .port = 9, .scope = scope, .ip = {10, net, 0, host}};
}

/* The ends of the first connection, as if they were on interfaces number 1 and 11. */
static colli_addr first_end(uint32_t scope) {
  return (colli_addr){.family = 4, .prefix = 8, .scope = scope, .ip = {127, 0, 0, 1}};
}

static void open_scene(scene *s) {
  memset(s, 0, sizeof(*s));
  ctrl_rank_open(&s->rank, false);
  tcp_pair(s->fds);
  s->first = ctrl_unkeyed(s->fds[0]);
  s->rank.mine.control_addrs[0] = first_end(1);
  s->addrs[0] = first_end(11);
  s->addrs[1] = address(2, 2, 12);
}

static bool begins(scene *s) {
  return boot_dial_begin_spare(&s->rank.b, &s->dial, 0, s->addrs, &s->first);
}

static void close_scene(scene *s) {
  boot_dial_close(&s->dial);
  close(s->fds[0]);
  close(s->fds[1]);
  ctrl_rank_close(&s->rank);
}

Test(spare, leads_from_an_interface_to_another_one) {
  scene s;
  open_scene(&s);
  cr_assert_not(begins(&s), "this host has no other interface");
  s.rank.mine.control_addrs[1] = (colli_addr){.family = 6, .scope = 3, .ip = {0xfd}};
  cr_assert_not(begins(&s), "it is of another family");
  s.rank.mine.control_addrs[2] = address(2, 1, 4);
  cr_assert(begins(&s));
  cr_assert_eq(s.dial.count, 1);
  cr_assert(colli_addr_same_ip(&s.dial.attempts[0].from, &s.rank.mine.control_addrs[2]));
  cr_assert(colli_addr_same_ip(&s.dial.attempts[0].addr, &s.addrs[1]));
  cr_assert_eq(s.dial.word, BOOT_SPARE_WORD);
  close_scene(&s);
}

Test(spare, uses_other_interfaces_than_the_first_connection) {
  scene s;
  open_scene(&s);
  s.rank.mine.control_addrs[1] = address(2, 1, 1);
  s.rank.mine.control_addrs[2] = (colli_addr){.family = 6, .scope = 3, .ip = {0xfd}};
  cr_assert_not(begins(&s), "this host's interface has it");
  s.rank.mine.control_addrs[1].scope = 3;
  s.rank.mine.control_addrs[2].family = 0;
  s.addrs[1].scope = 11;
  s.addrs[2] = (colli_addr){.family = 6, .scope = 12, .ip = {0xfd}};
  cr_assert_not(begins(&s), "the neighbour's interface has it");
  s.addrs[1].scope = 12;
  cr_assert(begins(&s));
  close_scene(&s);
}

/* Where a host has no other interface, both connections share that. */
Test(spare, shares_the_only_interface_of_a_host) {
  scene s;
  open_scene(&s);
  s.rank.mine.control_addrs[1] = address(2, 1, 1);
  cr_assert(begins(&s), "this host's");
  cr_assert_eq(s.dial.count, 1);
  cr_assert(colli_addr_same_ip(&s.dial.attempts[0].addr, &s.addrs[1]));
  s.rank.mine.control_addrs[1].scope = 3;
  s.addrs[1].scope = 11;
  cr_assert(begins(&s), "the neighbour's");
  s.rank.mine.control_addrs[1].scope = 1;
  cr_assert_not(begins(&s), "the same interfaces on both hosts");
  close_scene(&s);
}

/* Bridges of containers often have the same address on each host. */
Test(spare, does_not_lead_to_an_address_of_this_host) {
  scene s;
  open_scene(&s);
  s.rank.mine.control_addrs[1] = s.addrs[1];
  s.addrs[2] = address(4, 2, 13); /* else the neighbour counts as of this host */
  cr_assert(begins(&s));
  cr_assert_eq(s.dial.count, 1);
  cr_assert(colli_addr_same_ip(&s.dial.attempts[0].addr, &s.addrs[2]));
  close_scene(&s);
}

Test(spare, is_given_up_when_all_attempts_have_failed, .timeout = 60) {
  scene s;
  open_scene(&s);
  s.rank.mine.control_addrs[1] =
      address(2, 1, 3); /* no address of this machine: it cannot be bound */
  cr_assert(begins(&s));
  cr_assert_not(boot_dial_failed(&s.dial));
  cr_assert(WAIT_UNTIL(
      boot_dial_step(&s.rank.b, &s.dial) == COLL_T_AGAIN && boot_dial_failed(&s.dial), 10));
  cr_assert_eq(s.rank.shortage.sys_errno, 0);
  close_scene(&s);
}
