/* support_check_end.c: ends of connections, sleeping and waking. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/conformance/support_world.h"
#include "waits.h"

void conf_disconnect_delivers(const conf_transport *transport) {
  for (int with_unread = 0; with_unread < 2; with_unread++) {
    conf_world *world = conf_begin(transport, 2, -1);
    conf_end a, b;
    conf_pair(world, 0, 1, 0, &a, &b);
    size_t slot = world->slot_bytes;
    char *buf = malloc(slot);
    cr_assert_not_null(buf);
    if (with_unread) { /* input that the leaving side never reads */
      memset(buf, 1, slot);
      while (conf_try_send(&b, CONF_SLOT, 5, buf, slot) == COLL_T_AGAIN)
        conf_round(world);
      conf_rounds(world);
    }
    data_fill_bytes(buf, slot, 9);
    uint64_t taken = 0;
    for (int tries = 0; taken < world->slot_count || tries < 20; tries++) {
      int status = conf_try_send(&a, taken % 2 ? CONF_SLOT : CONF_SEND, 9, buf, slot);
      cr_assert_leq(status, 0);
      taken += status != COLL_T_AGAIN;
      if (status == COLL_T_AGAIN && taken < world->slot_count)
        conf_round(world);
    }
    uint64_t sure = 0; /* those behind a pending one may be lost with it */
    cr_assert_eq(a.conn->ops->sent(a.conn, &sure), COLL_OK);
    sure -= a.posted - taken;
    conf_disconnect(&a);
    memset(buf, 0xee, slot); /* the caller's again */
    for (uint64_t i = 0; i < sure; i++)
      conf_receive(world, &b, i % 2 ? CONF_RECV : CONF_PEEK, 9, slot);
    cr_assert_eq(world->rank[1].failures, 0, "a failure before the last message");
    int status; /* what else comes is whole */
    while ((status = conf_try_recv(&b, CONF_RECV, 9, buf, slot)) <= 0)
      conf_round(world);
    cr_assert_eq(status, COLL_ERR_PEER_LOST);
    free(buf);
    conf_disconnect(&b);
    conf_finish(world);
  }
}

/* A pair of which rank 0 has said something and is gone. */
static conf_world *leave(const conf_transport *transport, conf_end *b) {
  conf_world *world = conf_begin(transport, 2, -1);
  conf_end a;
  conf_pair(world, 0, 1, 2, &a, b);
  char last[50];
  data_fill_bytes(last, sizeof(last), 9);
  while (conf_try_send(&a, CONF_SLOT, 9, last, sizeof(last)) == COLL_T_AGAIN)
    conf_round(world);
  conf_disconnect(&a);
  conf_close(world, 0);
  conf_rounds(world);
  cr_assert_eq(world->rank[1].failures, 0, "what was sent was not read yet");
  return world;
}

/* Asserts that rank 1 was told of the loss of rank 0. */
static void assert_told(const conf_world *world) {
  cr_assert_geq(world->rank[1].failures, 1);
  cr_assert_eq(world->rank[1].last.status, COLL_ERR_PEER_LOST);
  cr_assert_eq(world->rank[1].last.peer, 0);
  cr_assert_eq(world->rank[1].last.channel, 2);
}

void conf_peer_close(const conf_transport *transport) {
  conf_end b;
  conf_world *world = leave(transport, &b);
  conf_receive(world, &b, CONF_RECV, 9, 50);
  for (int i = 0; i < 3; i++)
    cr_assert_eq(conf_receive_error(world, &b), COLL_ERR_PEER_LOST);
  assert_told(world);
  conf_disconnect(&b);
  conf_finish(world);
}

void conf_peer_close_send(const conf_transport *transport) {
  conf_end b;
  conf_world *world = leave(transport, &b);
  char buf[64] = {0};
  int status;
  while ((status = conf_try_send(&b, CONF_SEND, 3, buf, sizeof(buf))) <= 0)
    conf_round(world);
  cr_assert_eq(status, COLL_ERR_PEER_LOST);
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 3, buf, sizeof(buf)), COLL_ERR_PEER_LOST);
  assert_told(world);
  conf_disconnect(&b);
  conf_finish(world);
}

/* The descriptor of a rank; skips the test if there is none. */
static int wait_fd(conf_world *world, int rank) {
  int fd = world->ops->wait_fd(world->rank[rank].ep);
  if (fd < 0) {
    const char *name = world->ops->name;
    conf_finish(world);
    cr_skip_test("%s has no descriptor to wait on", name);
  }
  return fd;
}

/* Arms a rank, which must be possible soon: it may wait for an acknowledgement. */
static void arm(conf_world *world, int rank) {
  while (conf_real_ns() < world->deadline_ns) {
    if (world->ops->arm(world->rank[rank].ep) == 0)
      return;
    world->ops->disarm(world->rank[rank].ep);
    conf_round(world);
  }
  cr_assert_fail("arm() never lets rank %d sleep", rank);
}

static int poll_fd(int fd, int timeout_ms) {
  struct pollfd pfd = {.fd = fd, .events = POLLIN};
  return poll(&pfd, 1, timeout_ms);
}

/* Sends from a second thread, once the first one sleeps. */
static void *send_later(void *arg) {
  (void)WAIT_UNTIL(sleeps(getpid()), 2);
  char text[32];
  data_fill_bytes(text, sizeof(text), 9);
  (void)WAIT_UNTIL(conf_try_send(arg, CONF_SEND, 9, text, sizeof(text)) != COLL_T_AGAIN, 10);
  return NULL;
}

/* Sends until no more fits, and arms the sender: how many messages were taken. What had to be
 * acknowledged first may make room again until then. */
static uint64_t fill_and_arm(conf_end *from, const char *buf) {
  conf_world *world = from->world;
  uint64_t taken = 0;
  bool full = false;
  while (!full) {
    for (int refused = 0; refused < 100;) {
      full = conf_try_send(from, CONF_SLOT, 7, buf, world->slot_bytes) == COLL_T_AGAIN;
      refused = full ? refused + 1 : 0;
      taken += !full;
      conf_round(world);
    }
    arm(world, 0);
    full = conf_try_send(from, CONF_SLOT, 7, buf, world->slot_bytes) == COLL_T_AGAIN;
    taken += !full;
    if (!full)
      world->ops->disarm(world->rank[0].ep);
  }
  return taken;
}

void conf_wait_fd(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 2, -1);
  int fd = wait_fd(world, 0);
  conf_end a, b, late;
  conf_pair(world, 0, 1, 0, &a, &b);
  for (int i = 0; i < 5; i++) { /* a message */
    pthread_t thread;
    char in[32];
    arm(world, 0);
    cr_assert_eq(conf_try_recv(&a, CONF_RECV, 9, in, sizeof(in)), COLL_T_AGAIN);
    cr_assert_eq(poll_fd(fd, 0), 0, "readable though nothing came");
    cr_assert_eq(pthread_create(&thread, NULL, send_later, &b), 0);
    cr_assert_eq(poll_fd(fd, 5000), 1, "a message did not wake");
    world->ops->disarm(world->rank[0].ep);
    pthread_join(thread, NULL);
    conf_receive(world, &a, CONF_RECV, 9, sizeof(in));
  }
  char *buf = calloc(1, world->slot_bytes); /* credit */
  cr_assert_not_null(buf);
  data_fill_bytes(buf, world->slot_bytes, 7);
  const uint64_t taken = fill_and_arm(&a, buf);
  for (uint64_t i = 0; i < taken; i++) {
    while (conf_try_recv(&b, CONF_RECV, 7, buf, world->slot_bytes) == COLL_T_AGAIN) {
      /* The last ones may be in hands of rank 0, which sleeps until it is woken. */
      if (poll_fd(fd, 0) == 1)
        world->ops->progress(world->rank[0].ep);
      cr_assert_lt(conf_real_ns(), world->deadline_ns, "credit did not wake");
    }
    if (i + 1 == world->slot_count && taken < 2 * world->slot_count)
      cr_assert_eq(poll_fd(fd, 5000), 1, "credit did not wake");
  }
  world->ops->disarm(world->rank[0].ep);
  free(buf);
  conf_rounds(world);
  late = conf_connect(world, 1, 0, 1); /* no rank accepts this one */
  conf_rounds(world);
  arm(world, 0); /* the death of a peer */
  char in;
  cr_assert_eq(conf_try_recv(&a, CONF_RECV, 9, &in, 1), COLL_T_AGAIN);
  conf_disconnect(&b);
  conf_disconnect(&late);
  conf_close(world, 1);
  cr_assert_eq(poll_fd(fd, 5000), 1, "a lost peer did not wake");
  world->ops->disarm(world->rank[0].ep);
  cr_assert_eq(conf_receive_error(world, &a), COLL_ERR_PEER_LOST);
  conf_disconnect(&a);
  conf_finish(world);
}

void conf_wait_fd_quiet(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 2, -1);
  int fd = wait_fd(world, 0);
  conf_end a[2], b[2];
  for (int channel = 0; channel < 2; channel++)
    conf_pair(world, 0, 1, channel, &a[channel], &b[channel]);
  char text[100], in[100];
  data_fill_bytes(text, sizeof(text), 9);
  for (int i = 0; i < 2; i++)
    while (conf_try_send(&b[1], CONF_SEND, 9, text, sizeof(text)) == COLL_T_AGAIN)
      conf_round(world);
  conf_rounds(world);
  for (int i = 0; i < 3; i++) {
    arm(world, 0); /* channel 1 has messages, but only channel 0 is asked */
    cr_assert_eq(conf_try_recv(&a[0], CONF_RECV, 9, in, sizeof(in)), COLL_T_AGAIN);
    cr_assert_eq(poll_fd(fd, 10), 0, "messages that nobody asks for keep a waiter awake");
    world->ops->disarm(world->rank[0].ep);
  }
  arm(world, 0);
  while (conf_try_send(&b[0], CONF_SEND, 9, text, sizeof(text)) == COLL_T_AGAIN)
    world->ops->progress(world->rank[1].ep);
  cr_assert_eq(poll_fd(fd, 5000), 1, "a message did not wake");
  world->ops->disarm(world->rank[0].ep);
  conf_receive(world, &a[0], CONF_RECV, 9, sizeof(text));
  conf_receive(world, &a[1], CONF_RECV, 9, sizeof(text));
  conf_receive(world, &a[1], CONF_PEEK, 9, sizeof(text));
  for (int channel = 0; channel < 2; channel++) {
    conf_disconnect(&a[channel]);
    conf_disconnect(&b[channel]);
  }
  conf_finish(world);
}

/* Wakes rank 0 from a second thread, once the first one sleeps. */
static void *wake_later(void *arg) {
  conf_world *world = arg;
  (void)WAIT_UNTIL(sleeps(getpid()), 2);
  world->ops->wake(world->rank[0].ep);
  return NULL;
}

void conf_wake(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 2, -1);
  int fd = wait_fd(world, 0);
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    arm(world, 0);
    cr_assert_eq(poll_fd(fd, 0), 0);
    cr_assert_eq(pthread_create(&thread, NULL, wake_later, world), 0);
    cr_assert_eq(poll_fd(fd, 5000), 1, "wake() did not wake");
    world->ops->disarm(world->rank[0].ep);
    pthread_join(thread, NULL);
    conf_rounds(world);
    world->ops->wake(world->rank[0].ep); /* while no rank sleeps: the next sleep returns at once */
    cr_assert(world->ops->arm(world->rank[0].ep) == 1 || poll_fd(fd, 0) == 1, "wake() was lost");
    world->ops->disarm(world->rank[0].ep);
    conf_rounds(world);
  }
  conf_finish(world);
}
