/* test_fault_plan.c: COLL_FAULT is parsed correctly, and refused with a reason if malformed. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "transports/hook/fault.h"
#include "transports/shm/shm.h"
#include "transports/sim/sim.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

static char why[256];

Test(fault_plan, all_words) {
  fault_plan plan;
  cr_assert(
      fault_plan_parse("seed=7,again=10,pending=99,refuse=3,delay_us=50,drop_after=100,cut=1-2@500,"
                       "stall=3-0@0",
                       &plan, why, sizeof(why)));
  cr_assert(plan.seed == 7 && plan.again == 10 && plan.pending == 99 && plan.refuse == 3);
  cr_assert(plan.delay_us == 50 && plan.drop_after == 100 && plan.nlinks == 2);
  cr_assert(plan.links[0].a == 1 && plan.links[0].b == 2 && plan.links[0].at == 500);
  cr_assert(plan.links[0].kind == FAULT_CUT && plan.links[1].kind == FAULT_STALL);
  cr_assert_eq(plan.links[1].at, 0);
}

Test(fault_plan, messages) {
  fault_plan plan;
  cr_assert(
      fault_plan_parse("flip=0-1@3,lose=1-0@4,replay=2-3@5,swap=3-2@6", &plan, why, sizeof(why)));
  for (int i = 0; i < 4; i++) {
    cr_assert_eq((int)plan.links[i].kind, (int)FAULT_FLIP + i);
    cr_assert_eq((int)plan.links[i].at, 3 + i);
  }
  cr_assert(plan.links[2].a == 2 && plan.links[2].b == 3);
}

Test(fault_plan, defaults) {
  fault_plan plan;
  cr_assert(fault_plan_parse("again=1", &plan, why, sizeof(why)));
  cr_assert(plan.seed == 1 && plan.pending == 0 && plan.refuse == 0 &&
            plan.drop_after == UINT64_MAX);
}

Test(fault_plan, malformed) {
  static const char *const bad[] = {
      "agin=10",    "again",        "again=",      "again=100",   "again=-1",
      "again=1x",   "again= 1",     "seed=7,,",    "cut=1@5",     "cut=1-1@5",
      "cut=1-2",    "cut=1-2@",     "cut=-1-2@5",  "cut=1-2@5x",  "seed=99999999999999999999",
      "pending=1;", "drop_after=k", "stall=a-b@1", "delay_us=.5", ","};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
    fault_plan plan;
    why[0] = 0;
    cr_assert(!fault_plan_parse(bad[i], &plan, why, sizeof(why)), "%s", bad[i]);
    cr_assert(strstr(why, "COLL_FAULT"), "%s: %s", bad[i], why);
  }
}

Test(fault_plan, too_many_links) {
  fault_plan plan;
  cr_assert(!fault_plan_parse("cut=0-1@1,cut=0-2@1,cut=0-3@1,cut=0-4@1,cut=0-5@1,cut=0-6@1,"
                              "cut=0-7@1,cut=0-8@1,cut=0-9@1",
                              &plan, why, sizeof(why)));
}

Test(fault_plan, too_long) {
  fault_plan plan;
  char text[2000];
  memset(text, '1', sizeof(text));
  memcpy(text, "seed=", 5);
  text[sizeof(text) - 1] = 0;
  cr_assert(!fault_plan_parse(text, &plan, why, sizeof(why)));
}

/* A decorated transport is chosen and treated like the one inside. */
Test(fault_plan, tables) {
  static const coll_transport_ops *const inner[] = {&shm_transport, &tcp_transport, &sim_transport,
                                                    &verbs_transport, &sim_slot_transport};
  for (size_t i = 0; i < sizeof(inner) / sizeof(*inner); i++) {
    fault_table table, again;
    const coll_transport_ops *over = colli_fault_over(inner[i], &table);
    cr_assert(over && over != inner[i]);
    cr_assert_str_eq(over->name, inner[i]->name);
    if (!inner[i]->send) /* not in this build */
      continue;
    /* Delayed messages are not copied at once. */
    cr_assert_eq(over->caps, inner[i]->caps & ~COLL_CAP_SEND_COPIES, "%s", over->name);
    cr_assert_eq(coll_transport_sends_by_ref(over), coll_transport_sends_by_ref(inner[i]), "%s",
                 over->name);
    cr_assert_eq(coll_transport_shares_work(over), coll_transport_shares_work(inner[i]), "%s",
                 over->name);
    cr_assert_eq(coll_transport_registers(over), coll_transport_registers(inner[i]), "%s",
                 over->name);
    cr_assert_eq(coll_transport_expects(over), coll_transport_expects(inner[i]), "%s", over->name);
    cr_assert_eq(coll_transport_tells_paths(over), coll_transport_tells_paths(inner[i]), "%s",
                 over->name);
    cr_assert_null(colli_fault_over(over, &again));
  }
}
