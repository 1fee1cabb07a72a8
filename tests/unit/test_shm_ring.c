/* test_shm_ring.c: the rings of the shared-memory transport, both sides driven by one thread. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "transports/shm/shm_data.h"

TestSuite(shm_ring, .timeout = 60);

typedef struct pair {
  void *memory;
  shm_link *link[2];
} pair;

/* Makes both views of one pair of rings. */
static pair make_pair(size_t slot_bytes, unsigned slot_count) {
  pair p;
  size_t bytes = shm_ring_bytes(slot_bytes, slot_count);
  cr_assert_gt(bytes, 0u);
  p.memory = aligned_alloc(SHM_PAGE, bytes);
  cr_assert_not_null(p.memory);
  memset(p.memory, 0, bytes);
  for (int i = 0; i < 2; i++) {
    p.link[i] = aligned_alloc(SHM_LINE, sizeof(shm_link));
    cr_assert_not_null(p.link[i]);
    shm_link_init(p.link[i], p.memory, slot_bytes, slot_count, i);
  }
  return p;
}

/* Frees them. */
static void free_pair(pair *p) {
  free(p->link[0]);
  free(p->link[1]);
  free(p->memory);
}

Test(shm_ring, sizes_that_overflow_are_refused) {
  cr_expect_eq(shm_ring_bytes(4096, 0), 0u);
  cr_expect_eq(shm_ring_bytes(SIZE_MAX, 4), 0u);
  cr_expect_eq(shm_ring_bytes((size_t)1 << 33, 4), 0u);
  cr_expect_eq(shm_ring_bytes(UINT32_MAX, UINT32_MAX), 0u);
  cr_expect_eq(shm_ring_bytes(0, 1) % SHM_PAGE, 0u);
  cr_expect_geq(shm_ring_bytes(10000, 8), 2u * 8 * 10000);
}

Test(shm_ring, every_slot_can_be_filled_before_the_first_receive) {
  enum { COUNT = 5, BYTES = 5000 };
  pair p = make_pair(BYTES, COUNT);
  uint8_t buf[BYTES], back[BYTES];
  coll_tag got;
  size_t got_bytes;
  for (int lap = 0; lap < 3; lap++) {
    for (unsigned i = 0; i < COUNT; i++) {
      coll_tag tag = {{i, (uint64_t)lap, 7}};
      memset(buf, (int)(i + 1), BYTES);
      cr_assert_eq(shm_link_send(p.link[0], &tag, buf, BYTES), COLL_T_DONE);
    }
    coll_tag tag = {{99, 99, 99}};
    void *slot;
    cr_expect_eq(shm_link_send(p.link[0], &tag, buf, BYTES), COLL_T_AGAIN);
    cr_expect_eq(shm_link_acquire(p.link[0], BYTES, &slot), COLL_T_AGAIN);
    uint32_t heads = p.link[0]->head_count; /* short messages need no slot */
    cr_assert_gt(heads, (uint32_t)COUNT);
    for (uint32_t i = COUNT; i < heads; i++)
      cr_assert_eq(shm_link_send(p.link[0], &tag, buf, 1), COLL_T_DONE);
    cr_expect_eq(shm_link_send(p.link[0], &tag, buf, 1), COLL_T_AGAIN);
    cr_expect_eq(shm_link_acquire(p.link[0], 1, &slot), COLL_T_AGAIN);
    for (unsigned i = 0; i < COUNT; i++) {
      tag = (coll_tag){{i, (uint64_t)lap, 7}};
      cr_assert_eq(shm_link_recv(p.link[1], &tag, back, BYTES, &got, &got_bytes), COLL_T_DONE);
      memset(buf, (int)(i + 1), BYTES);
      cr_assert_arr_eq(back, buf, BYTES);
    }
    tag = (coll_tag){{99, 99, 99}};
    for (uint32_t i = COUNT; i < heads; i++)
      cr_assert_eq(shm_link_recv(p.link[1], &tag, back, 1, &got, &got_bytes), COLL_T_DONE);
    cr_expect_eq(shm_link_recv(p.link[1], &tag, back, BYTES, &got, &got_bytes), COLL_T_AGAIN);
  }
  free_pair(&p);
}

Test(shm_ring, sizes_around_the_inline_limit_arrive_whole) {
  pair p = make_pair(200, 3);
  uint8_t out[200], in[201];
  coll_tag tag = {{1, 2, 3}}, got;
  size_t got_bytes;
  const void *shown;
  for (size_t bytes = 0; bytes <= sizeof out; bytes++) {
    for (size_t i = 0; i < bytes; i++)
      out[i] = (uint8_t)(bytes * 31 + i);
    memset(in, 0xee, sizeof in);
    void *slot;
    cr_assert_eq(shm_link_acquire(p.link[1], bytes, &slot), COLL_T_DONE);
    cr_expect_eq((uintptr_t)slot % 64, 0u);
    memcpy(slot, out, bytes);
    shm_link_commit(p.link[1], &tag, bytes);
    cr_assert_eq(shm_link_send(p.link[1], &tag, out, bytes), COLL_T_DONE);
    cr_assert_eq(shm_link_recv(p.link[0], &tag, in, bytes, &got, &got_bytes), COLL_T_DONE);
    cr_assert_eq(memcmp(in, out, bytes), 0);
    cr_assert_eq(in[bytes], 0xee);
    cr_assert_eq(shm_link_peek(p.link[0], &got, &shown, &got_bytes), COLL_T_DONE);
    cr_assert_eq(got_bytes, bytes);
    cr_expect_eq((uintptr_t)shown % 8, 0u);
    cr_assert_eq(memcmp(shown, out, bytes), 0);
    shm_link_release(p.link[0]);
  }
  free_pair(&p);
}

/* A large acquired slot may be committed with few bytes, but not the other way round. */
Test(shm_ring, fewer_bytes_than_acquired_may_be_committed) {
  pair p = make_pair(4096, 2);
  coll_tag tag = {{1, 2, 3}}, got;
  void *slot;
  uint8_t in[8];
  size_t got_bytes;
  cr_assert_eq(shm_link_acquire(p.link[0], 4096, &slot), COLL_T_DONE);
  memset(slot, 'x', 4096);
  shm_link_commit(p.link[0], &tag, 8);
  cr_assert_eq(shm_link_recv(p.link[1], &tag, in, 8, &got, &got_bytes), COLL_T_DONE);
  cr_expect_arr_eq(in, "xxxxxxxx", 8);
  free_pair(&p);
}

Test(shm_ring, mismatch_shows_what_came_and_keeps_it) {
  pair p = make_pair(4096, 2);
  coll_tag tag = {{1, 2, 3}}, other = {{1, 2, 4}}, got = {{0, 0, 0}};
  uint8_t buf[100] = {42};
  size_t got_bytes = 0;
  cr_assert_eq(shm_link_send(p.link[0], &tag, buf, 100), COLL_T_DONE);
  cr_expect_eq(shm_link_recv(p.link[1], &other, buf, 100, &got, &got_bytes), COLL_ERR_MISMATCH);
  cr_expect_arr_eq(got.word, tag.word, sizeof tag.word);
  cr_expect_eq(got_bytes, 100u);
  cr_expect_eq(shm_link_recv(p.link[1], &tag, buf, 99, &got, &got_bytes), COLL_ERR_MISMATCH);
  cr_expect_eq(shm_link_recv(p.link[1], &tag, buf, 100, &got, &got_bytes), COLL_T_DONE);
  free_pair(&p);
}

Test(shm_ring, random_traffic_keeps_order_and_bytes) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    colli_prng prng = {seed};
    size_t slot_bytes = 1 + colli_prng_below(&prng, 9000);
    unsigned slot_count = 1 + (unsigned)colli_prng_below(&prng, 7);
    pair p = make_pair(slot_bytes, slot_count);
    uint8_t *buf = malloc(slot_bytes);
    uint64_t sent[2] = {0, 0}, received[2] = {0, 0};
    for (int step = 0; step < 3000; step++) {
      int from = (int)colli_prng_below(&prng, 2);
      coll_tag tag, got;
      size_t got_bytes;
      if (colli_prng_below(&prng, 2)) {
        uint64_t k = sent[from];
        size_t bytes = (k * 2654435761u + (unsigned)from) % (slot_bytes + 1);
        tag = (coll_tag){{k, bytes, (uint64_t)from}};
        memset(buf, (int)(k * 7 + 1), bytes);
        int result = shm_link_send(p.link[from], &tag, buf, bytes);
        bool inside = bytes <= SHM_INLINE_BYTES;
        bool full = k - received[!from] >= (inside ? p.link[from]->head_count : slot_count);
        cr_assert_eq(result, full ? COLL_T_AGAIN : COLL_T_DONE, "seed %llu",
                     (unsigned long long)seed);
        sent[from] += result == COLL_T_DONE;
      } else {
        uint64_t k = received[from];
        size_t bytes = (k * 2654435761u + (unsigned)!from) % (slot_bytes + 1);
        tag = (coll_tag){{k, bytes, (uint64_t)!from}};
        int result = shm_link_recv(p.link[from], &tag, buf, bytes, &got, &got_bytes);
        cr_assert_eq(result, k == sent[!from] ? COLL_T_AGAIN : COLL_T_DONE, "seed %llu",
                     (unsigned long long)seed);
        for (size_t i = 0; result == COLL_T_DONE && i < bytes; i++)
          cr_assert_eq(buf[i], (uint8_t)(k * 7 + 1), "seed %llu", (unsigned long long)seed);
        received[from] += result == COLL_T_DONE;
      }
    }
    free(buf);
    free_pair(&p);
  }
}

/* Random bytes in all memory that the peer can write: errors are fine, wild accesses are not
 * (AddressSanitizer checks). */
Test(shm_ring, damaged_memory_is_an_error_not_a_crash) {
  enum { SLOT = 512, COUNT = 4 };
  size_t bytes = shm_ring_bytes(SLOT, COUNT);
  int protocol_errors = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    colli_prng prng = {seed};
    pair p = make_pair(SLOT, COUNT);
    uint8_t buf[SLOT] = {0};
    coll_tag tag = {{0, 0, 0}}, got;
    const void *shown;
    size_t got_bytes;
    for (int round = 0; round < 20; round++) {
      uint32_t *words = p.memory;
      for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = (uint32_t)colli_prng_next(&prng);
      p.link[0]->rx_head->seq = p.link[0]->rx_seq;
      int result = shm_link_peek(p.link[0], &got, &shown, &got_bytes);
      if (result == COLL_T_DONE) {
        cr_assert_leq(got_bytes, (size_t)SLOT);
        shm_link_release(p.link[0]);
      } else {
        protocol_errors += result == COLL_ERR_PROTOCOL;
      }
      (void)shm_link_recv(p.link[0], &tag, buf, SLOT, &got, &got_bytes);
      (void)shm_link_send(p.link[0], &tag, buf, SLOT);
      shm_link_arm(p.link[0]);
      (void)shm_link_ready(p.link[0]);
      shm_link_disarm(p.link[0]);
    }
    free_pair(&p);
  }
  cr_expect_gt(protocol_errors, 1000);
}

Test(shm_ring, a_sleeper_is_woken_once_and_only_for_what_it_waits) {
  pair p = make_pair(64, 2);
  shm_link *a = p.link[0], *b = p.link[1];
  coll_tag tag = {{0, 0, 0}}, got;
  uint8_t buf[64] = {0};
  size_t got_bytes;
  shm_link_arm(b);
  cr_expect_not(shm_link_ready(b));
  cr_assert_eq(shm_link_send(a, &tag, buf, 40), COLL_T_DONE);
  cr_expect_eq(a->attention, SHM_ATTENTION_BELL);
  a->attention = 0;
  cr_assert_eq(shm_link_send(a, &tag, buf, 40), COLL_T_DONE);
  cr_expect_eq(a->attention, 0u, "woken twice for one sleep");
  shm_link_disarm(b);
  shm_link_arm(b);
  cr_expect(shm_link_ready(b), "a message lies there");
  cr_expect_not(shm_link_ready(b), "an old message that nobody asks for must not prevent sleep");
  shm_link_disarm(b);

  /* A sender without credit sleeps until a slot comes back. */
  cr_assert_eq(shm_link_send(a, &tag, buf, 40), COLL_T_AGAIN);
  shm_link_arm(a);
  cr_expect_not(shm_link_ready(a));
  cr_assert_eq(shm_link_recv(b, &tag, buf, 40, &got, &got_bytes), COLL_T_DONE);
  cr_expect_eq(b->attention, SHM_ATTENTION_BELL);
  b->attention = 0;
  cr_expect(shm_link_ready(a));
  shm_link_disarm(a);

  /* A receiver that sleeps is not woken by credit. */
  cr_assert_eq(shm_link_send(a, &tag, buf, 40), COLL_T_DONE);
  shm_link_arm(a);
  cr_assert_eq(shm_link_recv(b, &tag, buf, 40, &got, &got_bytes), COLL_T_DONE);
  cr_expect_eq(b->attention, 0u);
  free_pair(&p);
}

Test(shm_ring, what_was_sent_before_leaving_arrives) {
  pair p = make_pair(64, 4);
  coll_tag tag = {{0, 0, 0}}, got;
  uint8_t buf[64] = {0};
  size_t got_bytes;
  for (int i = 0; i < 3; i++)
    cr_assert_eq(shm_link_send(p.link[0], &tag, buf, 40), COLL_T_DONE);
  shm_link_arm(p.link[1]);
  shm_link_leave(p.link[0]);
  cr_expect_eq(p.link[0]->attention, SHM_ATTENTION_BELL, "a sleeper must hear of it");
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(shm_link_recv(p.link[1], &tag, buf, 40, &got, &got_bytes), COLL_T_DONE);
    cr_expect_eq(p.link[1]->attention, 0u);
  }
  cr_assert_eq(shm_link_recv(p.link[1], &tag, buf, 40, &got, &got_bytes), COLL_T_AGAIN);
  cr_expect_eq(p.link[1]->attention, SHM_ATTENTION_LEFT);
  p.link[1]->attention = 0;
  cr_assert_eq(shm_link_send(p.link[1], &tag, buf, 40), COLL_T_DONE);
  cr_expect_eq(p.link[1]->attention, SHM_ATTENTION_LEFT);
  free_pair(&p);
}

Test(shm_ring, numbers_wrap_around) {
  pair p = make_pair(64, 3);
  uint8_t buf[64] = {0};
  coll_tag tag = {{0, 0, 0}}, got;
  size_t got_bytes;
  /* As after 2^32 - 5 messages, all received. */
  uint32_t before = UINT32_MAX - 4;
  p.link[0]->tx_total = before;
  p.link[0]->tx_credit = before;
  p.link[1]->rx_seq = before + 1;
  atomic_store(&p.link[1]->mine->credit, before);
  for (uint32_t i = 0; i < p.link[0]->head_count; i++)
    atomic_store(&p.link[0]->tx_heads[i].seq, before); /* used; else number 0 would look fresh */
  for (uint64_t k = 0; k < 20; k++) {
    tag.word[0] = k;
    cr_assert_eq(shm_link_send(p.link[0], &tag, buf, 40), COLL_T_DONE, "message %d", (int)k);
    cr_assert_eq(shm_link_recv(p.link[1], &tag, buf, 40, &got, &got_bytes), COLL_T_DONE);
    cr_assert_eq(shm_link_recv(p.link[1], &tag, buf, 40, &got, &got_bytes), COLL_T_AGAIN);
  }
  free_pair(&p);
}
