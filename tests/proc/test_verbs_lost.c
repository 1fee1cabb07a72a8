/*
 * test_verbs_lost.c: the InfiniBand device or its port is taken away in the middle of all-reduces.
 * Every rank gets an error that names it, and continues after a shrink. Only in the virtual machine
 * of tests/vm, which sets TEST_LINK to the network interface below the device rxe0.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/comm/inspect.h"
#include "support_ranks.h"
#include "support_shrink.h"
#include "waits.h"

#define RANKS 4

/* Waits until the port is up. */
#define ACTIVE "timeout 20 sh -c 'until rdma link show rxe0/1 | grep -q ACTIVE; do sleep 0.1; done'"

/* Shared between the ranks and the thread that takes the device away. */
typedef struct scene {
  const char *after; /* the transport that the survivors' communicator is to use */
  atomic_int begun, failed, mended, moved; /* the last one: to the other transport */
  int commands;                            /* status of the commands: 0 */
  coll_status status[RANKS];
  coll_error error[RANKS];
} scene;

/* Runs a command of the shell with $link; 0 if it succeeds. */
static int shell(const char *command) {
  char line[400];
  snprintf(line, sizeof(line), "link=%s; %s", getenv("TEST_LINK"), command);
  return system(line);
}

/* Waits until a counter has reached a value. */
static void await(atomic_int *counter, int value) {
  if (!WAIT_UNTIL(atomic_load(counter) >= value, slow_s(30)))
    abort();
}

static int go_on_without(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child;
  const char *transport;
  char reason[COLLI_LINK_REASON];
  int mask;
  bool right;
  RANK_OK(coll_barrier(comm));
  RANK_OK(colli_comm_link(comm, (rank + 1) % nranks, &transport, reason, sizeof(reason)));
  RANK_CHECK(strcmp(transport, "verbs") == 0);
  atomic_fetch_add(&s->begun, 1);
  s->status[rank] = reduce_for(comm, 100000, 1 << 30);
  s->error[rank] = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &s->error[rank]);
  atomic_fetch_add(&s->failed, 1);
  await(&s->mended, 1);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_OK(colli_comm_link(child, (rank + 1) % nranks, &transport, reason, sizeof(reason)));
  RANK_CHECK(strcmp(transport, s->after) == 0);
  atomic_fetch_add(&s->moved, 1);
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  return coll_comm_destroy(&child) == COLL_OK ? 0 : 3;
}

/* Runs the ranks while another thread takes the device away; all must get an error that says
 * `words`. */
static void play(const char *transport, const char *after, void *(*take_away)(void *),
                 const char *words) {
  if (!getenv("TEST_LINK"))
    cr_skip_test("runs in the virtual machine only (tests/vm)");
  scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_t thread;
  int results[RANKS];
  coll_config config = COLL_CONFIG_INIT;
  setenv("TEST_TRANSPORT", transport, 1);
  config.timeout_ms = slow_ms(20000);
  s->after = after;
  setenv("COLL_VERBS_TIMEOUT", "16", 1); /* two seconds, with its retries */
  cr_assert_eq(pthread_create(&thread, NULL, take_away, s), 0);
  run_processes(RANKS, &config, go_on_without, s, 60, results);
  atomic_store(&s->begun, RANKS); /* in case they never begin */
  atomic_store(&s->failed, RANKS);
  atomic_store(&s->moved, RANKS);
  pthread_join(thread, NULL);
  cr_expect_eq(s->commands, 0);
  for (int r = 0; r < RANKS; r++) {
    cr_expect_eq(results[r], 0, "rank %d ended with %d", r, results[r]);
    cr_expect_eq(s->status[r], COLL_ERR_SYSTEM, "rank %d got %s", r,
                 coll_status_name(s->status[r]));
    cr_expect(strstr(s->error[r].message, words), "rank %d: %s", r, s->error[r].message);
  }
  munmap(s, sizeof(*s));
}

/* The driver waits until all ranks have closed the device, which the test also checks. */
static void *remove_device(void *arg) {
  scene *s = arg;
  await(&s->begun, RANKS);
  atomic_store(&s->mended, 1);
  s->commands = shell("timeout 50 rdma link del rxe0");
  await(&s->moved, RANKS); /* else they would use it again */
  s->commands |= shell("rdma link add rxe0 type rxe netdev $link && " ACTIVE);
  return NULL;
}

Test(verbs_lost, device_removed, .timeout = 100) {
  play("verbs,tcp", "tcp", remove_device, "device rxe0 is being removed");
}

/* The interface below is removed, and the device with it. */
static void *remove_interface(void *arg) {
  scene *s = arg;
  await(&s->begun, RANKS);
  atomic_store(&s->mended, 1);
  s->commands =
      shell("timeout 50 ip link del $link") |
      shell("ip link add $link mtu 4200 type veth peer name v1 mtu 4200 && "
            "ip link set v1 up && ip addr add 10.78.0.1/24 dev $link && "
            "ip link set $link up && rdma link add rxe0 type rxe netdev $link && " ACTIVE);
  return NULL;
}

Test(verbs_lost, interface_removed, .timeout = 100) {
  play("verbs,tcp", "tcp", remove_interface, "rxe0");
}

/* Queue pairs are in the error state afterwards; the new communicator makes new ones. */
static void *port_down_and_up(void *arg) {
  scene *s = arg;
  await(&s->begun, RANKS);
  s->commands = shell("ip link set $link down");
  await(&s->failed, RANKS);
  s->commands |= shell("ip link set $link up && " ACTIVE);
  atomic_store(&s->mended, 1);
  return NULL;
}

Test(verbs_lost, port_down_and_up, .timeout = 100) {
  play("verbs", "verbs", port_down_and_up, "rxe0 port 1"); /* went down, or: could not send it */
}
