/* test_verbs_ring.c: the rings of the verbs transport, without a device. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "transports/verbs/verbs_ring.h"

/* A sender, a receiver, and the memory between them, as a device would write to it. */
typedef struct pair {
  verbs_tx tx;
  verbs_rx rx;
  size_t slot_bytes;
  uint8_t *memory;
  uint64_t sent, taken;
} pair;

static pair *make(size_t slot_bytes, unsigned slot_count) {
  pair *p = calloc(1, sizeof(*p));
  cr_assert_not_null(p);
  uint32_t units = verbs_ring_units(slot_bytes, slot_count);
  cr_assert_gt(units, 0);
  p->slot_bytes = slot_bytes;
  p->memory = malloc((size_t)units * VERBS_UNIT);
  cr_assert_not_null(p->memory);
  verbs_tx_init(&p->tx, units);
  verbs_rx_init(&p->rx, units, slot_bytes);
  return p;
}

static void destroy(pair *p) {
  free(p->memory);
  free(p);
}

/* Messages come in runs of one tag, as slices do. */
static coll_tag tag_of(uint64_t number) {
  return (coll_tag){{number / 3, 7, ~(number / 3)}};
}

/* Sends a message that is told by its bytes; false if there is no room. */
static bool send_one(pair *p, size_t bytes) {
  verbs_place place;
  coll_tag tag = tag_of(p->sent);
  if (!verbs_tx_room(&p->tx, bytes, &place))
    return false;
  cr_assert_leq(place.end, p->tx.units);
  uint8_t *to = p->memory + (size_t)place.payload * VERBS_UNIT;
  bool tagged = verbs_tx_needs_tag(&p->tx, &tag);
  if (tagged)
    memcpy(to - sizeof(tag), &tag, sizeof(tag));
  memset(to, (int)(p->sent % 251), bytes);
  verbs_tx_sent(&p->tx, &tag, &place);
  cr_assert(verbs_rx_arrived(&p->rx, bytes + (tagged ? sizeof(tag) : 0), tagged, p->slot_bytes));
  p->sent++;
  return true;
}

/* Takes the next message, and checks it; false if there is none. */
static bool take_one(pair *p) {
  const void *buf;
  size_t bytes;
  if (!verbs_rx_peek(&p->rx, p->memory, &buf, &bytes))
    return false;
  coll_tag tag = tag_of(p->taken);
  cr_assert_eq(memcmp(&p->rx.tag, &tag, sizeof(tag)), 0, "tag of message %zu", (size_t)p->taken);
  cr_assert_eq((uintptr_t)((const uint8_t *)buf - p->memory) % VERBS_UNIT, 0);
  for (size_t i = 0; i < bytes; i++)
    cr_assert_eq(((const uint8_t *)buf)[i], p->taken % 251, "byte %zu of message %zu", i,
                 (size_t)p->taken);
  verbs_rx_release(&p->rx);
  p->taken++;
  return true;
}

/* Carries the credit over. */
static void tell(pair *p) {
  bool broken;
  verbs_tx_credit(&p->tx, verbs_rx_tell(&p->rx), &broken);
  cr_assert(!broken);
}

/* Nothing is overwritten before it is given back, whatever the sizes. */
Test(verbs_ring, random_traffic) {
  const size_t slots[] = {64, 1000, 8192, 16384, 40000};
  for (size_t s = 0; s < sizeof(slots) / sizeof(*slots); s++) {
    pair *p = make(slots[s], 4);
    colli_prng prng = {s + 1};
    while (p->taken < 4000) {
      size_t bytes = colli_prng_below(&prng, slots[s] + 1);
      if (colli_prng_below(&prng, 2))
        bytes = bytes % 100;
      if (colli_prng_below(&prng, 3))
        send_one(p, bytes);
      else
        take_one(p);
      if (verbs_rx_owes(&p->rx) || !colli_prng_below(&prng, 9))
        tell(p);
    }
    destroy(p);
  }
}

/* slot_count messages of slot_bytes fit although nothing is taken, whatever was given back and not
 * told, and wherever the ring begins. */
Test(verbs_ring, holds_all_slots) {
  const unsigned counts[] = {1, 4, 8, 64};
  for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
    for (size_t slot = 4096; slot <= 65536; slot *= 4) {
      pair *p = make(slot, counts[c]);
      for (int before = 0; before < 40; before++) {
        cr_assert(send_one(p, slot - (size_t)before * 61));
        cr_assert(take_one(p));
        if (verbs_rx_owes(&p->rx))
          tell(p);
        for (unsigned i = 0; i < counts[c]; i++)
          cr_assert(send_one(p, slot), "message %u of %u, %d before", i, counts[c], before);
        while (take_one(p))
          if (verbs_rx_owes(&p->rx))
            tell(p);
      }
      destroy(p);
    }
}

/* The number of messages is bounded too, and the bound lifts. */
Test(verbs_ring, many_small_ones) {
  pair *p = make(1 << 20, 8);
  unsigned sent = 0;
  while (send_one(p, 1))
    sent++;
  cr_assert_eq(sent, VERBS_MESSAGES);
  while (take_one(p)) {
  }
  cr_assert(!send_one(p, 1));
  cr_assert(verbs_rx_owes(&p->rx));
  tell(p);
  cr_assert(send_one(p, 1));
  destroy(p);
}

/* The credit counts on when its bits are used up. */
Test(verbs_ring, credit_wraps) {
  pair *p = make(1 << 16, 4);
  p->tx.passed = p->tx.freed = p->rx.passed = p->rx.told = VERBS_IMM_UNITS - 500;
  for (int i = 0; i < 20; i++) {
    cr_assert(send_one(p, 1 << 16));
    cr_assert(take_one(p));
    tell(p);
    cr_assert_eq(p->tx.freed, p->tx.passed);
  }
  cr_assert_gt(p->tx.passed, VERBS_IMM_UNITS);
  destroy(p);
}

/* What no sender of ours sends is noticed. */
Test(verbs_ring, nonsense) {
  pair *p = make(8192, 4);
  bool broken;
  cr_assert(!verbs_tx_credit(&p->tx, 1, &broken) && broken, "credit for nothing");
  cr_assert(!verbs_rx_arrived(&p->rx, 8, false, 8192), "the first message has no tag");
  cr_assert(!verbs_rx_arrived(&p->rx, 8, true, 8192), "shorter than its tag");
  cr_assert(!verbs_rx_arrived(&p->rx, 8193 + sizeof(coll_tag), true, 8192), "longer than a slot");
  for (unsigned i = 0; i < VERBS_MESSAGES; i++)
    cr_assert(verbs_rx_arrived(&p->rx, 64, true, 8192));
  cr_assert(!verbs_rx_arrived(&p->rx, 64, true, 8192), "more than was allowed");
  cr_assert_eq(verbs_ring_units(8192, 0), 0);
  cr_assert_eq(verbs_ring_units(8192, 1000), 0);
  cr_assert_eq(verbs_ring_units((size_t)1 << 40, 8), 0);
  destroy(p);
}
