/*
 * test_shm_work.c: work on messages by reference that both ends can do: who takes what, in which
 * order, what a receiver sees of it, and what becomes of it when one of them leaves.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/shared.h"
#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_world.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

enum { REGION = 7, BYTES = 20000, SLOTS = 4, REGION_BYTES = 1 << 20, KIND = 40 };

TestSuite(shm_work, .timeout = 60);

static const conf_transport transport = {
    .ops = &shm_transport, .slot_bytes = 32768, .slot_count = SLOTS};

/* Memory of one rank that the other one maps. */
typedef struct place {
  char *memory;
  int fd;
} place;

/* Two ranks, a connection, and a region of each: rank 1 receives. */
typedef struct scene {
  conf_world *world;
  conf_end end[2];
  place at[2];
} scene;

static void share_region(scene *s, int rank) {
  colli_shared_fault fault;
  place *p = &s->at[rank];
  p->fd = colli_shared_create(REGION_BYTES, &fault);
  cr_assert_geq(p->fd, 0);
  p->memory = colli_shared_map(p->fd, REGION_BYTES, true);
  cr_assert_not_null(p->memory);
  cr_assert_eq(
      shm_transport.region_add(s->world->rank[rank].ep, REGION, p->memory, REGION_BYTES, p->fd),
      COLL_OK);
}

/* Sends from the region of one rank by reference, or as a copy while the other has not mapped it.
 */
static int send_by_ref(scene *s, int rank, uint64_t number, size_t offset, size_t bytes) {
  coll_tag tag = conf_tag(number);
  int status = shm_send_ref(s->end[rank].conn, &tag, REGION, s->at[rank].memory + offset, bytes);
  s->end[rank].posted += status <= 0 && status != COLL_T_AGAIN;
  return status;
}

/* Announces messages of BYTES bytes that rank `to` is going to store, or to fold into place. */
static int offer(scene *s, int to, unsigned kind, unsigned skip, size_t at, size_t bytes,
                 bool folds) {
  char *memory = s->at[to].memory;
  coll_work_offer what = {.kind = kind,
                          .to_region = REGION,
                          .own_region = folds ? REGION : 0,
                          .skip = skip,
                          .to = memory + at,
                          .own = folds ? memory : NULL,
                          .bytes = bytes,
                          .slice = BYTES};
  return shm_offer_work(s->end[to].conn, &what);
}

/* Makes a scene in which rank 0 refers. */
static scene make_scene(void) {
  scene s = {.world = conf_begin(&transport, 2, -1)};
  conf_pair(s.world, 0, 1, 0, &s.end[0], &s.end[1]);
  share_region(&s, 0);
  share_region(&s, 1);
  for (int i = 0; i < 2; i++) {
    data_fill_bytes(s.at[0].memory, BYTES, 50);
    (void)send_by_ref(&s, 0, 50, 0, BYTES);
    conf_receive(s.world, &s.end[1], CONF_RECV, 50, BYTES);
  }
  return s;
}

/* Rank 0 finds the region of rank 1, which sends nothing, while it waits. */
static void introduce(scene *s) {
  coll_work work;
  for (int i = 0; i < 3; i++) {
    if (offer(s, 1, KIND, SLOTS - 1, 0, BYTES, false) == 1)
      return;
    cr_assert_eq(shm_claim_work(s->end[0].conn, &work), COLL_T_AGAIN);
  }
  cr_assert_fail("the peer did not get the region");
}

static void end_scene(scene *s) {
  for (int i = 0; i < 2; i++) {
    if (s->end[i].conn)
      conf_disconnect(&s->end[i]);
    shm_transport.region_remove(s->world->rank[i].ep, REGION);
    munmap(s->at[i].memory, REGION_BYTES);
    close(s->at[i].fd);
  }
  conf_finish(s->world);
}

/* Sends `count` messages from offset 0 on, numbered from 100 on. */
static void send_some(scene *s, int rank, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    data_fill_bytes(s->at[rank].memory + i * BYTES, BYTES, 100 + i);
    cr_assert_eq(send_by_ref(s, rank, 100 + i, i * BYTES, BYTES), COLL_T_PENDING);
  }
}

/* One rank takes work and copies; says which message it was. */
static int work_once(scene *s, int rank, int receiver) {
  coll_work work;
  int status = shm_claim_work(s->end[rank].conn, &work);
  if (status != COLL_T_DONE)
    return status;
  cr_assert_eq(work.kind, KIND);
  cr_assert_null(work.own);
  cr_assert_null(work.to2);
  memcpy(work.to, work.payload, work.bytes);
  cr_assert_eq(shm_finish_work(s->end[rank].conn, &work), COLL_T_DONE);
  for (unsigned i = 0; i < SLOTS; i++)
    if (data_are_bytes(s->at[receiver].memory + i * BYTES, BYTES, 100 + i)) {
      memset(s->at[receiver].memory + i * BYTES, 0, BYTES);
      return 100 + (int)i;
    }
  return -100;
}

/* What the receiver is shown of the next message. */
static int peek(scene *s, int rank, const void **shown) {
  coll_tag got;
  size_t bytes;
  return shm_slot_peek(s->end[rank].conn, &got, shown, &bytes);
}

/* The lower rank begins at the front and the higher one at the back; the receiver waits for both.
 */
Test(shm_work, from_both_ends) {
  scene s = make_scene();
  introduce(&s);
  cr_assert_eq(offer(&s, 1, KIND, 0, 0, 4 * BYTES, false), 1);
  send_some(&s, 0, 4);
  const void *shown = &s;
  cr_expect_eq(peek(&s, 1, &shown), COLL_T_AGAIN);
  cr_expect_eq(work_once(&s, 1, 1), 103);
  cr_expect_eq(peek(&s, 1, &shown), COLL_T_AGAIN);
  cr_expect_eq(work_once(&s, 0, 1), 100);
  cr_assert_eq(peek(&s, 1, &shown), COLL_T_DONE);
  cr_expect_null(shown);
  cr_assert_eq(shm_slot_release(s.end[1].conn), COLL_T_DONE);
  cr_expect_eq(work_once(&s, 0, 1), 101);
  cr_expect_eq(work_once(&s, 1, 1), 102);
  cr_expect_eq(work_once(&s, 1, 1), COLL_T_AGAIN);
  cr_expect_eq(work_once(&s, 0, 1), COLL_T_AGAIN);
  for (uint64_t i = 1; i < 4; i++) {
    coll_tag tag = conf_tag(100 + i), got;
    size_t bytes;
    char untouched = 'u';
    cr_assert_eq(shm_recv(s.end[1].conn, &tag, &untouched, BYTES, &got, &bytes), COLL_T_DONE);
    cr_expect_eq(untouched, 'u');
  }
  uint64_t count;
  cr_assert_eq(shm_sent(s.end[0].conn, &count), COLL_T_DONE);
  cr_expect_eq(count, s.end[0].posted);
  cr_expect_eq(s.world->rank[0].failures + s.world->rank[1].failures, 0);
  end_scene(&s);
}

/* Announced ahead, behind a message that is not; work on it may be done before that is received. */
Test(shm_work, ahead) {
  scene s = make_scene();
  introduce(&s);
  cr_assert_eq(offer(&s, 1, KIND, 1, BYTES, 2 * BYTES, false), 1);
  send_some(&s, 0, 3);
  cr_expect_eq(work_once(&s, 0, 1), 101);
  conf_receive(s.world, &s.end[1], CONF_PEEK, 100, BYTES);
  cr_expect_eq(work_once(&s, 1, 1), 102);
  const void *shown = &s;
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(peek(&s, 1, &shown), COLL_T_DONE);
    cr_expect_null(shown);
    cr_assert_eq(shm_slot_release(s.end[1].conn), COLL_T_DONE);
  }
  end_scene(&s);
}

/* What came as a copy is received as usual. */
Test(shm_work, copies) {
  scene s = make_scene();
  introduce(&s);
  cr_assert_eq(offer(&s, 1, KIND, 0, 0, 2 * BYTES, false), 1);
  char copy[BYTES];
  data_fill_bytes(copy, BYTES, 5);
  cr_assert_eq(conf_try_send(&s.end[0], CONF_SEND, 5, copy, BYTES), COLL_T_DONE);
  cr_expect_eq(work_once(&s, 0, 1), COLL_T_AGAIN);
  cr_expect_eq(work_once(&s, 1, 1), COLL_T_AGAIN);
  conf_receive(s.world, &s.end[1], CONF_RECV, 5, BYTES);
  send_some(&s, 0, 1);
  coll_work work;
  cr_assert_eq(shm_claim_work(s.end[0].conn, &work), COLL_T_DONE);
  cr_expect_eq(work.to,
               (void *)((shm_conn *)s.end[0].conn)->shared->mappings->segment.memory + BYTES);
  cr_assert_eq(shm_finish_work(s.end[0].conn, &work), COLL_T_DONE);
  end_scene(&s);
}

/* What cannot be announced: short or too many messages, other memory, a peer that never refers. */
Test(shm_work, refused) {
  scene s = make_scene();
  cr_expect_eq(offer(&s, 0, KIND, 0, 0, BYTES, false), 0, "rank 1 never refers");
  introduce(&s);
  coll_work_offer what = {.kind = KIND, .to_region = REGION, .to = s.at[1].memory};
  what.bytes = (SLOTS + 1) * BYTES;
  what.slice = BYTES;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "too many");
  what.bytes = SLOTS * BYTES;
  what.skip = 1;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "too many behind another");
  what.skip = 0;
  what.slice = what.bytes = 1000;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "short");
  what.slice = what.bytes = 32769;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "larger than a slot");
  what.slice = what.bytes = BYTES;
  what.to = s.at[1].memory + REGION_BYTES - BYTES + 1;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "over the end");
  what.to = s.at[1].memory;
  what.own_region = REGION + 1;
  cr_expect_eq(shm_offer_work(s.end[1].conn, &what), 0, "unknown region");
  end_scene(&s);
}

/* A message of another length belongs to another operation: it must not be worked on. */
Test(shm_work, other_lengths) {
  scene s = make_scene();
  introduce(&s);
  cr_assert_eq(offer(&s, 1, KIND, 0, 0, BYTES, false), 1);
  cr_assert_eq(send_by_ref(&s, 0, 100, 0, BYTES + 8), COLL_T_PENDING);
  cr_expect_eq(work_once(&s, 0, 1), COLL_T_AGAIN);
  cr_expect_eq(work_once(&s, 1, 1), COLL_T_AGAIN);
  coll_tag tag = conf_tag(100), got;
  size_t bytes;
  static char buf[2 * BYTES];
  cr_expect_eq(shm_recv(s.end[1].conn, &tag, buf, BYTES, &got, &bytes), COLL_ERR_MISMATCH);
  cr_expect_eq(bytes, (size_t)BYTES + 8);
  end_scene(&s);
}

/* What a damaged peer announces is not written to. */
Test(shm_work, hostile) {
  const shm_work cases[] = {
      {.to_region = 99, .bytes = BYTES},
      {.to_region = REGION, .to = REGION_BYTES, .bytes = BYTES},
      {.to_region = REGION, .to = REGION_BYTES - BYTES + 1, .bytes = BYTES},
      {.to_region = REGION, .to = UINT64_MAX - 100, .bytes = BYTES},
      {.to_region = REGION, .own_region = 99, .bytes = BYTES},
      {.to_region = REGION, .own_region = REGION, .own = REGION_BYTES, .bytes = BYTES},
      {.to_region = REGION, .bytes = BYTES - 1},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    scene s = make_scene();
    introduce(&s);
    cr_assert_eq(offer(&s, 1, KIND, 0, 0, BYTES, false), 1);
    shm_link *link = &((shm_conn *)s.end[1].conn)->link;
    shm_work *entry = &link->rx_work[link->rx_slot];
    uint64_t state = atomic_load(&entry->state);
    *entry = cases[i];
    atomic_store(&entry->state, state);
    send_some(&s, 0, 1);
    cr_expect_eq(work_once(&s, 0, 1), COLL_T_AGAIN, "case %zu", i);
    end_scene(&s);
  }
}

/* Both fold what the other one sends: one of them reads both payloads and writes both results. */
Test(shm_work, paired_reduction) {
  for (unsigned flip = 0; flip < 2; flip++) {
    scene s = make_scene();
    introduce(&s);
    for (int i = 0; i < 3; i++) {
      data_fill_bytes(s.at[1].memory, BYTES, 60);
      (void)send_by_ref(&s, 1, 60, 0, BYTES);
      conf_receive(s.world, &s.end[0], CONF_RECV, 60, BYTES);
    }
    send_some(&s, 0, 1);
    send_some(&s, 1, 1);
    size_t to = 500000;
    cr_assert_eq(offer(&s, 0, KIND, 0, to, BYTES, true), 1);
    cr_assert_eq(offer(&s, 1, KIND ^ flip, 0, to, BYTES, true), 1);
    coll_work work, other;
    cr_assert_eq(shm_claim_work(s.end[1].conn, &work), COLL_T_DONE);
    cr_expect_eq(work.to, s.at[1].memory + to);
    cr_expect_eq(work.own, s.at[1].memory);
    cr_expect(data_are_bytes(work.payload, BYTES, 100));
    cr_expect_eq(work.to2 != NULL, flip);
    cr_expect_eq(shm_claim_work(s.end[0].conn, &other), flip ? COLL_T_AGAIN : COLL_T_DONE);
    if (flip)
      memcpy(work.to2, "pair", 4);
    else
      cr_assert_eq(shm_finish_work(s.end[0].conn, &other), COLL_T_DONE);
    cr_assert_eq(shm_finish_work(s.end[1].conn, &work), COLL_T_DONE);
    cr_expect_eq(memcmp(s.at[0].memory + to, "pair", 4) == 0, flip);
    const void *shown = &s;
    for (int rank = 0; rank < 2; rank++) {
      cr_assert_eq(peek(&s, rank, &shown), COLL_T_DONE);
      cr_expect_null(shown);
    }
    end_scene(&s);
  }
}

/* What rank 1 is told that others may still write to. */
static int unfinished(const scene *s, size_t *offset, size_t *bytes) {
  return shm_transport.unfinished_work(s->world->rank[1].ep, REGION, offset, bytes);
}

/* A receiver that leaves waits for nobody: it is told what the other end has claimed and not
 * finished. If the other end leaves, the receiver is told, and does the rest by itself. */
Test(shm_work, leaving) {
  for (int claimed = 0; claimed < 2; claimed++) {
    scene s = make_scene();
    introduce(&s);
    send_some(&s, 0, 2);
    cr_assert_eq(offer(&s, 1, KIND, 0, 0, 2 * BYTES, false), 1);
    coll_work work;
    size_t offset, bytes;
    if (claimed)
      cr_assert_eq(shm_claim_work(s.end[0].conn, &work), COLL_T_DONE);
    cr_expect_eq(unfinished(&s, &offset, &bytes), 0, "nobody has left");
    uint64_t before = conf_real_ns();
    conf_disconnect(&s.end[1]);
    s.end[1].conn = NULL;
    cr_expect_lt(conf_real_ns() - before, 40000000u);
    cr_expect_eq(unfinished(&s, &offset, &bytes), claimed);
    cr_expect(!claimed || (offset == 0 && bytes == BYTES), "%zu bytes at %zu", bytes, offset);
    cr_expect_eq(shm_claim_work(s.end[0].conn, &work), COLL_T_AGAIN);
    end_scene(&s);
  }
  scene s = make_scene();
  introduce(&s);
  send_some(&s, 0, 2);
  cr_assert_eq(offer(&s, 1, KIND, 0, 0, 2 * BYTES, false), 1);
  conf_disconnect(&s.end[0]);
  s.end[0].conn = NULL;
  coll_work work;
  const void *shown;
  cr_expect_eq(shm_claim_work(s.end[1].conn, &work), COLL_T_AGAIN);
  cr_expect_eq(peek(&s, 1, &shown), COLL_ERR_PEER_LOST);
  cr_expect_eq(s.world->rank[1].last.peer, 0);
  end_scene(&s);
}

/* Several claims: the part of the region that has them all. What was finished is not in it. */
Test(shm_work, unfinished) {
  scene s = make_scene();
  introduce(&s);
  send_some(&s, 0, 4);
  cr_assert_eq(offer(&s, 1, KIND, 0, 50000, 4 * BYTES, false), 1);
  coll_work work[3];
  for (int i = 0; i < 3; i++)
    cr_assert_eq(shm_claim_work(s.end[0].conn, &work[i]), COLL_T_DONE);
  cr_assert_eq(shm_finish_work(s.end[0].conn, &work[0]), COLL_T_DONE);
  conf_disconnect(&s.end[1]);
  s.end[1].conn = NULL;
  size_t offset, bytes;
  cr_assert_eq(unfinished(&s, &offset, &bytes), 1);
  cr_expect_eq(offset, 50000 + BYTES);
  cr_expect_eq(bytes, 2 * BYTES);
  end_scene(&s);
}

/* Who sleeps until its work is done by the peer is woken. */
Test(shm_work, sleeping_receiver) {
  scene s = make_scene();
  introduce(&s);
  send_some(&s, 0, 1);
  cr_assert_eq(offer(&s, 1, KIND, 0, 0, BYTES, false), 1);
  const void *shown;
  coll_endpoint *ep = s.world->rank[1].ep;
  struct pollfd p = {.fd = shm_transport.wait_fd(ep), .events = POLLIN};
  cr_assert_eq(peek(&s, 1, &shown), COLL_T_AGAIN);
  while (shm_transport.arm(ep) != 0) /* what came before is told once */
    shm_transport.disarm(ep);
  cr_expect_eq(poll(&p, 1, 20), 0);
  cr_expect_eq(work_once(&s, 0, 1), 100);
  cr_expect_eq(poll(&p, 1, 1000), 1);
  shm_transport.disarm(ep);
  cr_expect_eq(peek(&s, 1, &shown), COLL_T_DONE);
  end_scene(&s);
}
