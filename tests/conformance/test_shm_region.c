/*
 * test_shm_region.c: messages by reference of the shared-memory transport: read where they lie,
 * copied where they cannot be, refused where they make no sense, void once their owner has left.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/shared.h"
#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_world.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

enum { REGION = 7, BYTES = 20000, REGION_BYTES = 1 << 20 };

TestSuite(shm_region, .timeout = 60);

static const conf_transport transport = {.ops = &shm_transport, .slot_bytes = 32768};

/* Two ranks, a connection, and a region of the first one. */
typedef struct scene {
  conf_world *world;
  conf_end a, b; /* at rank 0, the owner, and at rank 1 */
  char *memory;
  int fd;
} scene;

/* Makes a region of rank 0. */
static void make_region(scene *s, uint32_t number) {
  colli_shared_fault fault;
  s->fd = colli_shared_create(REGION_BYTES, &fault);
  cr_assert_geq(s->fd, 0);
  s->memory = colli_shared_map(s->fd, REGION_BYTES, true);
  cr_assert_not_null(s->memory);
  cr_assert_eq(
      shm_transport.region_add(s->world->rank[0].ep, number, s->memory, REGION_BYTES, s->fd),
      COLL_OK);
}

/* Gives it back. */
static void drop_region(scene *s, uint32_t number) {
  shm_transport.region_remove(s->world->rank[0].ep, number);
  munmap(s->memory, REGION_BYTES);
  close(s->fd);
}

static scene make_scene(void) {
  scene s = {.world = conf_begin(&transport, 2, -1)};
  conf_pair(s.world, 0, 1, 0, &s.a, &s.b);
  make_region(&s, REGION);
  return s;
}

static void end_scene(scene *s) {
  if (s->a.conn)
    conf_disconnect(&s->a);
  if (s->b.conn)
    conf_disconnect(&s->b);
  drop_region(s, REGION);
  conf_finish(s->world);
}

/* Sends `bytes` bytes at an offset of the region, as the executor does. */
static int send_by_ref(scene *s, uint32_t region, uint64_t number, size_t offset, size_t bytes) {
  coll_tag tag = conf_tag(number);
  int status = shm_send_ref(s->a.conn, &tag, region, s->memory + offset, bytes);
  s->a.posted += status <= 0 && status != COLL_T_AGAIN;
  return status;
}

/* Sends and receives until the peer has the region. */
static void introduce(scene *s, uint32_t region) {
  for (int i = 0; i < 5; i++) {
    data_fill_bytes(s->memory, BYTES, 50);
    int status = send_by_ref(s, region, 50, 0, BYTES);
    conf_receive(s->world, &s->b, CONF_RECV, 50, BYTES);
    if (status == COLL_T_PENDING)
      return;
    cr_assert_eq(status, COLL_T_DONE);
  }
  cr_assert_fail("the peer did not get the region");
}

/* How many messages are reported as complete to rank 0. */
static uint64_t sent(const scene *s) {
  uint64_t count = 0;
  cr_assert_eq(shm_sent(s->a.conn, &count), COLL_T_DONE);
  return count;
}

/* The receiver sees the sender's memory itself, and the sender gets it back once it is read. */
Test(shm_region, read_where_it_lies) {
  scene s = make_scene();
  introduce(&s, REGION);
  for (unsigned i = 0; i < 3; i++)
    cr_assert_eq(send_by_ref(&s, REGION, 100 + i, 8 + i * 30000, BYTES), COLL_T_PENDING);
  for (uint64_t i = 0; i < 3; i++)
    data_fill_bytes(s.memory + 8 + i * 30000, BYTES, 100 + i); /* after it was sent */
  uint64_t before = s.a.posted - 3;
  cr_expect_eq(sent(&s), before);
  for (uint64_t i = 0; i < 3; i++) {
    conf_receive(s.world, &s.b, (conf_recv_form)(i % 3), 100 + i, BYTES);
    cr_expect_eq(sent(&s), before + i + 1);
  }
  /* A copy behind a reference does not complete before it. */
  cr_assert_eq(send_by_ref(&s, REGION, 200, 0, BYTES), COLL_T_PENDING);
  data_fill_bytes(s.memory, BYTES, 200);
  char copy[100];
  data_fill_bytes(copy, sizeof(copy), 201);
  cr_assert_eq(conf_try_send(&s.a, CONF_SEND, 201, copy, sizeof(copy)), COLL_T_DONE);
  cr_expect_eq(sent(&s), s.a.posted - 2);
  conf_receive(s.world, &s.b, CONF_RECV, 200, BYTES);
  cr_expect_eq(sent(&s), s.a.posted);
  conf_receive(s.world, &s.b, CONF_RECV, 201, sizeof(copy));
  cr_expect_eq(s.world->rank[0].failures + s.world->rank[1].failures, 0);
  end_scene(&s);
}

/* Short messages, and what does not lie in the region, are copied at once. */
Test(shm_region, copies) {
  scene s = make_scene();
  introduce(&s, REGION);
  const struct {
    uint32_t region;
    size_t offset, bytes;
  } cases[] = {{REGION, 0, 1000}, {REGION, 64, 0}, {REGION, 0, 33}, {REGION + 1, 0, BYTES}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    data_fill_bytes(s.memory + cases[i].offset, cases[i].bytes, 60 + i);
    cr_assert_eq(send_by_ref(&s, cases[i].region, 60 + i, cases[i].offset, cases[i].bytes),
                 COLL_T_DONE);
    memset(s.memory, 0xee, BYTES);
    conf_receive(s.world, &s.b, CONF_RECV, 60 + i, cases[i].bytes);
  }
  char outside[BYTES];
  coll_tag tag = conf_tag(70);
  data_fill_bytes(outside, BYTES, 70);
  cr_assert_eq(shm_send_ref(s.a.conn, &tag, REGION, outside, BYTES), COLL_T_DONE);
  conf_receive(s.world, &s.b, CONF_RECV, 70, BYTES);
  cr_expect_eq(sent(&s), ((shm_conn *)s.a.conn)->link.tx_total);
  end_scene(&s);
}

/* References take the slots of a connection as copies do. */
Test(shm_region, flow_control) {
  scene s = make_scene();
  introduce(&s, REGION);
  for (unsigned i = 0; i < s.world->slot_count; i++) {
    data_fill_bytes(s.memory + i * BYTES, BYTES, 100 + i);
    cr_assert_eq(send_by_ref(&s, REGION, 100 + i, i * BYTES, BYTES), COLL_T_PENDING);
  }
  cr_assert_eq(send_by_ref(&s, REGION, 1, 0, BYTES), COLL_T_AGAIN);
  for (unsigned i = 0; i < s.world->slot_count; i++)
    conf_receive(s.world, &s.b, CONF_RECV, 100 + i, BYTES);
  cr_expect_eq(sent(&s), s.a.posted);
  end_scene(&s);
}

/* A message that no libcoll would send. */
typedef struct hostile {
  const char *name;
  uint32_t kind;
  shm_note note;
  size_t bytes;
} hostile;

/* Each is a failure that names its sender, and nothing is read that is not the sender's. */
Test(shm_region, hostile_notes) {
  const hostile cases[] = {
      {"unknown region", SHM_REFERENCE, {.region = 99}, BYTES},
      {"region 0", SHM_REFERENCE, {.region = 0}, BYTES},
      {"behind the end", SHM_REFERENCE, {.region = REGION, .where = REGION_BYTES}, BYTES},
      {"over the end", SHM_REFERENCE, {.region = REGION, .where = REGION_BYTES - 19999}, BYTES},
      {"wraps round", SHM_REFERENCE, {.region = REGION, .where = UINT64_MAX - 100}, BYTES},
      {"both kinds", SHM_NOTES, {.region = REGION}, BYTES},
      {"too long", SHM_REFERENCE, {.region = REGION}, 100000},
      {"short", SHM_REFERENCE, {.region = REGION}, 20},
      {"an offer too many", SHM_OFFER, {.region = 8, .where = 4096, .fd = -1, .number = 5}, BYTES},
      {"an offer of nothing",
       SHM_OFFER,
       {.region = 0, .where = 4096, .fd = -1, .number = 2},
       BYTES},
      {"another size", SHM_OFFER, {.region = REGION, .where = 4096, .fd = 0, .number = 2}, BYTES},
      {"forgotten", SHM_REFERENCE, {.region = 98, .forget = REGION}, BYTES},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    scene s = make_scene();
    introduce(&s, REGION);
    const hostile *h = &cases[i];
    coll_tag tag = conf_tag(100), got;
    size_t got_bytes;
    static char buf[200000];
    shm_link *link = &((shm_conn *)s.a.conn)->link;
    shm_slot_head *head = link->tx_head;
    cr_assert_leq(shm_link_send_note(link, &tag, s.memory, BYTES, h->kind, &h->note), 0);
    atomic_store(&head->bytes, (uint32_t)h->bytes | h->kind);
    int status = i % 2 ? shm_recv(s.b.conn, &tag, buf, h->bytes, &got, &got_bytes)
                       : shm_slot_peek(s.b.conn, &got, &(const void *){NULL}, &got_bytes);
    cr_expect_eq(status, COLL_ERR_PROTOCOL, "%s: %d", h->name, status);
    cr_expect_eq(s.world->rank[1].failures, 1, "%s", h->name);
    cr_expect_eq(s.world->rank[1].last.peer, 0, "%s", h->name);
    cr_expect_eq(shm_recv(s.b.conn, &tag, buf, 1, &got, &got_bytes), COLL_ERR_PROTOCOL);
    end_scene(&s);
  }
}

/* An offer that cannot be mapped is refused, and messages stay copies. */
Test(shm_region, refused) {
  scene s = {.world = conf_begin(&transport, 2, -1)};
  conf_pair(s.world, 0, 1, 0, &s.a, &s.b);
  make_region(&s, REGION);
  int pipe_fds[2];
  cr_assert_eq(pipe(pipe_fds), 0);
  cr_assert_geq(dup2(pipe_fds[0], s.fd), 0); /* no such memory any more */
  for (uint64_t i = 0; i < 6; i++) {
    data_fill_bytes(s.memory, BYTES, i);
    cr_assert_eq(send_by_ref(&s, REGION, i, 0, BYTES), COLL_T_DONE);
    conf_receive(s.world, &s.b, CONF_RECV, i, BYTES);
  }
  cr_expect_eq(s.world->rank[0].failures + s.world->rank[1].failures, 0);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  end_scene(&s);
}

/* What was read while the owner left is not believed: its memory may be something else by now. */
Test(shm_region, owner_leaves) {
  for (int early = 0; early < 3; early++) {
    scene s = make_scene();
    introduce(&s, REGION);
    cr_assert_eq(send_by_ref(&s, REGION, 5, 0, BYTES), COLL_T_PENDING);
    coll_tag tag = conf_tag(5), got;
    const void *seen;
    char buf[BYTES];
    size_t bytes;
    if (early)
      cr_assert_eq(shm_slot_peek(s.b.conn, &got, &seen, &bytes), COLL_T_DONE);
    conf_disconnect(&s.a);
    s.a.conn = NULL;
    int status = early == 1 ? shm_slot_release(s.b.conn)
                            : shm_recv(s.b.conn, &tag, buf, BYTES, &got, &bytes);
    cr_expect_eq(status, COLL_ERR_PEER_LOST, "%d: %d", early, status);
    end_scene(&s);
  }
}

/* A side that waits for a peer to read is told that it has left. */
Test(shm_region, reader_leaves) {
  scene s = make_scene();
  introduce(&s, REGION);
  cr_assert_eq(send_by_ref(&s, REGION, 5, 0, BYTES), COLL_T_PENDING);
  cr_assert_eq(send_by_ref(&s, REGION, 6, 0, BYTES), COLL_T_PENDING);
  coll_tag tag = conf_tag(5), got;
  char buf[BYTES];
  size_t bytes;
  uint64_t count = 0;
  cr_assert_eq(shm_recv(s.b.conn, &tag, buf, BYTES, &got, &bytes), COLL_T_DONE);
  conf_disconnect(&s.b);
  s.b.conn = NULL;
  cr_expect_eq(shm_sent(s.a.conn, &count), COLL_ERR_PEER_LOST);
  cr_expect_eq(count, s.a.posted - 1);
  cr_expect_eq(s.world->rank[0].last.peer, 1);
  end_scene(&s);
}

/* Freed regions are unmapped by the peer when the next reference tells of them. */
Test(shm_region, forgotten) {
  scene s = make_scene();
  introduce(&s, REGION);
  shm_peer *peer = ((shm_conn *)s.b.conn)->shared;
  scene next = s;
  make_region(&next, REGION + 1);
  introduce(&next, REGION + 1);
  cr_assert_eq(peer->mappings->region, REGION + 1);
  cr_assert_eq(peer->mappings->next->region, REGION);
  shm_transport.region_remove(s.world->rank[0].ep, REGION);
  cr_assert_eq(send_by_ref(&next, REGION + 1, 3, 0, BYTES), COLL_T_PENDING);
  data_fill_bytes(next.memory, BYTES, 3);
  conf_receive(s.world, &s.b, CONF_RECV, 3, BYTES);
  cr_assert_eq(peer->mappings->region, REGION + 1);
  cr_assert_null(peer->mappings->next);
  /* Removed before the peer has answered: it is told later, and what it maps is known to nobody. */
  scene hasty = s;
  make_region(&hasty, REGION + 2);
  cr_assert_eq(send_by_ref(&hasty, REGION + 2, 4, 0, BYTES), COLL_T_DONE);
  data_fill_bytes(hasty.memory, BYTES, 4);
  drop_region(&hasty, REGION + 2);
  char buf[BYTES];
  coll_tag tag = conf_tag(4), got;
  size_t bytes;
  cr_assert_eq(shm_recv(s.b.conn, &tag, buf, BYTES, &got, &bytes), COLL_T_DONE);
  introduce(&next, REGION + 1);
  introduce(&next, REGION + 1);
  cr_expect_null(peer->mappings->next);
  cr_expect_eq(s.world->rank[0].failures + s.world->rank[1].failures, 0);
  drop_region(&next, REGION + 1);
  end_scene(&s);
}

/* A second connection of the pair has the regions of the first. */
Test(shm_region, connections_share) {
  scene s = make_scene(), other = s;
  introduce(&s, REGION);
  conf_pair(s.world, 0, 1, 1, &other.a, &other.b);
  cr_assert_eq(send_by_ref(&other, REGION, 9, 0, BYTES), COLL_T_PENDING);
  data_fill_bytes(s.memory, BYTES, 9);
  conf_receive(s.world, &other.b, CONF_RECV, 9, BYTES);
  conf_disconnect(&s.a); /* the first may go before the second */
  conf_disconnect(&s.b);
  s.a.conn = s.b.conn = NULL;
  cr_assert_eq(send_by_ref(&other, REGION, 10, 0, BYTES), COLL_T_PENDING);
  data_fill_bytes(s.memory, BYTES, 10);
  conf_receive(s.world, &other.b, CONF_RECV, 10, BYTES);
  conf_disconnect(&other.a);
  conf_disconnect(&other.b);
  end_scene(&s);
}

/* Who sleeps until a reference is read is woken by that, and does not spin before. */
Test(shm_region, sleeping_sender) {
  scene s = make_scene();
  introduce(&s, REGION);
  coll_endpoint *ep = s.world->rank[0].ep;
  struct pollfd p = {.fd = shm_transport.wait_fd(ep), .events = POLLIN};
  cr_assert_eq(send_by_ref(&s, REGION, 5, 0, BYTES), COLL_T_PENDING);
  data_fill_bytes(s.memory, BYTES, 5);
  for (int i = 0; i < 3; i++) {
    (void)shm_transport.progress(ep);
    cr_expect_lt(sent(&s), s.a.posted);
  }
  cr_assert_eq(shm_transport.arm(ep), 0);
  cr_expect_eq(poll(&p, 1, 20), 0);
  char buf[BYTES];
  coll_tag tag = conf_tag(5), got;
  size_t bytes;
  cr_assert_eq(shm_recv(s.b.conn, &tag, buf, BYTES, &got, &bytes), COLL_T_DONE);
  cr_expect_eq(poll(&p, 1, 1000), 1);
  shm_transport.disarm(ep);
  cr_expect_eq(sent(&s), s.a.posted);
  end_scene(&s);
}
