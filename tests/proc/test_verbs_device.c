/*
 * test_verbs_device.c: communicators over a fake InfiniBand device that fails: every rank gets an
 * error that names it, continues over TCP after a shrink, and releases everything.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/inspect.h"
#include "support_ranks.h"
#include "support_shrink.h"
#include "support_verbs.h"

#define RANKS 4

typedef struct scene {
  fake_verbs *fake;
  fake_verbs_kill_fn *tell; /* NULL: the device fails silently */
  atomic_int begun;
} scene;

/* The device fails, and the system no longer lists it. */
static void fail_device(scene *s) {
  s->fake->listed = s->fake->count = 0;
  if (s->tell)
    s->tell();
  else
    s->fake->dead = true;
}

static int lose_device(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child;
  coll_error error = COLL_ERROR_INIT;
  const char *transport;
  char reason[COLLI_LINK_REASON];
  int mask;
  bool right;
  RANK_OK(colli_comm_link(comm, (rank + 1) % nranks, &transport, reason, sizeof(reason)));
  RANK_CHECK(strcmp(transport, "verbs") == 0);
  RANK_CHECK(go_on(comm, rank, &mask, &right) == COLL_OK && right);
  RANK_CHECK(reduce_for(comm, 200000, 2) == COLL_OK);
  if (atomic_fetch_add(&s->begun, 1) == nranks - 1)
    fail_device(s);
  coll_status status = reduce_for(comm, 200000, 1 << 30);
  coll_last_error(comm, &error);
  RANK_CHECK(status == COLL_ERR_SYSTEM && strstr(error.message, "device mlx5_0"));
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_OK(colli_comm_link(child, (rank + 1) % nranks, &transport, reason, sizeof(reason)));
  RANK_CHECK(strcmp(transport, "tcp") == 0);
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  return coll_comm_destroy(&child) == COLL_OK ? 0 : 3;
}

/* Runs the ranks over a device with two ports, which fails with or without an event. */
static void play(bool tells) {
  scene s = {.fake = fake_load()};
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs,tcp";
  config.timeout_ms = 20000;
  cr_assert_not_null(s.fake);
  fake_add(s.fake, "mlx5_0", 2);
  if (tells) {
    void *library = dlopen(COLL_PLUGINS "/fake_ibverbs.so", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "fake_verbs_kill") : NULL;
    cr_assert_not_null(symbol);
    memcpy(&s.tell, &symbol, sizeof(symbol));
  }
  cr_assert_eq(run_threads(RANKS, &config, lose_device, &s), 0);
  cr_expect_eq(s.fake->opened, 0);
  cr_expect_eq(s.fake->queues, 0);
  cr_expect_eq(s.fake->registered, 0);
  cr_expect_gt(s.fake->writes, 100);
}

Test(verbs_device, fails, .timeout = 60) {
  play(true);
}

Test(verbs_device, stops_without_a_word, .timeout = 60) {
  play(false);
}
