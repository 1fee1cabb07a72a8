/* test_verbs_ring.c: the rings of the verbs transport, without a device. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "transports/verbs/verbs_ring.h"

#define MARK 0x5eed5eed5eed0000u

/* A message that was written. */
typedef struct frame {
  verbs_place place;
  coll_tag tag;
  const uint8_t *from; /* in the mirror */
  uint8_t *to;         /* in the receiver's memory */
  size_t bytes;
} frame;

/* A sender, a receiver, and the memory between them, which the test writes as a device would. */
typedef struct pair {
  verbs_tx tx;
  verbs_rx rx;
  size_t slot_bytes;
  uint8_t *memory, *mirror; /* the receiver's, and the sender's */
  uint64_t sent, taken;
  frame sends[VERBS_ARRIVALS]; /* message k is at k modulo their number */
} pair;

static pair *make(size_t slot_bytes, unsigned slot_count) {
  pair *p = calloc(1, sizeof(*p));
  cr_assert_not_null(p);
  uint32_t units = verbs_ring_units(slot_bytes, slot_count);
  cr_assert_gt(units, 0);
  p->slot_bytes = slot_bytes;
  p->memory = calloc(units, VERBS_UNIT);
  p->mirror = calloc(units, VERBS_UNIT);
  cr_assert(p->memory && p->mirror);
  verbs_tx_init(&p->tx, units);
  verbs_rx_init(&p->rx, units, slot_bytes, MARK);
  return p;
}

static void destroy(pair *p) {
  free(p->memory);
  free(p->mirror);
  free(p);
}

/* Messages come in runs with one tag, like slices, or with tags that differ in one word. */
static coll_tag tag_of(uint64_t number) {
  return (coll_tag){{number / 9, number / 3, ~(number / 9)}};
}

/* Makes a message in the mirror, but does not write it; false if there is no room. */
static bool make_frame(pair *p, size_t bytes, frame *f) {
  uint8_t *from;
  f->tag = tag_of(p->sent);
  if (!verbs_tx_room(&p->tx, bytes, true, &f->place))
    return false;
  cr_assert_leq(f->place.end, p->tx.units);
  cr_assert_leq(verbs_ring_mirror(&f->place, true) + bytes + 15, (size_t)p->tx.units * VERBS_UNIT);
  uint8_t *payload = p->mirror + verbs_ring_mirror(&f->place, true);
  memset(payload, (int)(p->sent % 251), bytes);
  f->bytes = verbs_tx_frame(&p->tx, MARK, &f->tag, 0, payload, bytes, &from);
  f->from = from;
  f->to = p->memory + (size_t)f->place.first * VERBS_UNIT;
  cr_assert_leq(f->bytes, (f->place.end - f->place.first) * VERBS_UNIT);
  return true;
}

/* The message has left. */
static void sent_frame(pair *p, const frame *f) {
  verbs_tx_sent(&p->tx, &f->tag, &f->place);
  p->sends[p->sent++ % VERBS_ARRIVALS] = *f;
}

/* The receiver polls for a short message. */
static bool look(pair *p) {
  uint32_t credit;
  return verbs_rx_poll(&p->rx, p->memory, &credit);
}

/* Sends a short message. */
static bool send_short(pair *p, size_t bytes) {
  frame f;
  if (!make_frame(p, bytes, &f))
    return false;
  memcpy(f.to, f.from, f.bytes);
  sent_frame(p, &f);
  return true;
}

/* Sends a long message; false if there is no room. */
static bool send_long(pair *p, size_t bytes) {
  frame f = {.tag = tag_of(p->sent)};
  if (!verbs_tx_room(&p->tx, bytes, false, &f.place))
    return false;
  cr_assert_leq(f.place.end, p->tx.units);
  size_t at = verbs_ring_mirror(&f.place, false);
  bool tagged = verbs_tx_needs_tag(&p->tx, &f.tag);
  size_t before = tagged ? sizeof(f.tag) : 0;
  if (tagged)
    memcpy(p->mirror + at - before, &f.tag, before);
  memset(p->mirror + at, (int)(p->sent % 251), bytes);
  f.from = p->mirror + at - before;
  f.to = p->memory + at - before;
  f.bytes = bytes + before;
  memcpy(f.to, f.from, f.bytes);
  while (look(p)) { /* all that came before */
  }
  sent_frame(p, &f);
  cr_assert(verbs_rx_arrived(&p->rx, f.bytes, tagged, p->slot_bytes));
  return true;
}

/* Sends a message that is recognised by its bytes; false if there is no room. */
static bool send_one(pair *p, size_t bytes) {
  return bytes <= VERBS_SHORT && p->sent % 5 ? send_short(p, bytes) : send_long(p, bytes);
}

/* Takes the next message, and checks it; false if there is none. */
static bool take_one(pair *p) {
  const void *buf;
  size_t bytes;
  if (!verbs_rx_peek(&p->rx, p->memory, &buf, &bytes) &&
      !(look(p) && verbs_rx_peek(&p->rx, p->memory, &buf, &bytes)))
    return false;
  coll_tag tag = tag_of(p->taken);
  cr_assert_eq(memcmp(&p->rx.tag, &tag, sizeof(tag)), 0, "tag of message %zu", (size_t)p->taken);
  cr_assert_eq((uintptr_t)((const uint8_t *)buf - p->memory) % 8, 0);
  for (size_t i = 0; i < bytes; i++)
    cr_assert_eq(((const uint8_t *)buf)[i], p->taken % 251, "byte %zu of message %zu", i,
                 (size_t)p->taken);
  const frame *f = &p->sends[p->taken % VERBS_ARRIVALS];
  cr_assert_eq(memcmp(f->from, f->to, f->bytes), 0, "the device may still read the mirror");
  verbs_rx_release(&p->rx);
  p->taken++;
  return true;
}

/* Delivers the credit. */
static void tell(pair *p) {
  bool broken;
  verbs_tx_credit(&p->tx, verbs_rx_credit(&p->rx), &broken);
  cr_assert(!broken);
}

/* Nothing is overwritten before it is released, whatever the sizes. */
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

/* slot_count messages of slot_bytes fit while the receiver takes nothing, whatever credit was not
 * sent yet, and wherever the ring begins. */
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

/* The number of messages is bounded, too, until some are released. */
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

/* The credit counter wraps around correctly. */
Test(verbs_ring, credit_wraps) {
  pair *p = make(1 << 16, 4);
  p->tx.passed = p->tx.freed = p->rx.passed = p->rx.credited = VERBS_IMM_UNITS - 500;
  for (int i = 0; i < 20; i++) {
    cr_assert(send_one(p, 1 << 16));
    cr_assert(take_one(p));
    tell(p);
    cr_assert_eq(p->tx.freed, p->tx.passed);
  }
  cr_assert_gt(p->tx.passed, VERBS_IMM_UNITS);
  destroy(p);
}

/* A message without its mark is not seen, whatever its head says, wherever it is and whatever was
 * there before; with the mark it is. */
Test(verbs_ring, partly_placed) {
  const size_t sizes[] = {0, 1, 4, 8, 60, 64, 200};
  pair *p = make(4096, 1);
  uint64_t laps = 0;
  for (unsigned i = 0; laps < 3; i++) {
    size_t bytes = sizes[i % (sizeof(sizes) / sizeof(*sizes))];
    uint32_t before = p->tx.at;
    frame f;
    cr_assert(make_frame(p, bytes, &f));
    cr_assert(!look(p), "before it is sent");
    for (size_t placed = 0; placed < f.bytes; placed++) {
      if (placed <= f.bytes - sizeof(verbs_mark))
        cr_assert(!look(p), "%zu of %zu bytes of message %u", placed, f.bytes, i);
      f.to[placed] = f.from[placed];
    }
    sent_frame(p, &f);
    cr_assert(take_one(p));
    cr_assert(!look(p), "twice");
    tell(p);
    laps += p->tx.at < before;
  }
  destroy(p);
}

/* Assembles message `number` in the mirror, where the payload of a message would be, and copies it
 * to `to`. */
static void forge(pair *p, uint64_t number, uint8_t *to) {
  uint8_t *begin, payload[64] = {0};
  coll_tag tag = tag_of(number);
  uint64_t sent = p->tx.sent;
  p->tx.sent = number;
  size_t bytes = verbs_tx_frame(&p->tx, MARK, &tag, 0, payload + 40, 8, &begin);
  p->tx.sent = sent;
  memcpy(to, begin, bytes);
}

/* The length in a head is not trusted before the mark is there, and only one mark is right. */
Test(verbs_ring, stale_and_hostile) {
  pair *p = make(4096, 1);
  const uint32_t lengths[] = {
      0, 4, 4095, 4096, 1u << 20, ~7u, ~0u, VERBS_BRIEF, VERBS_BRIEF | 4095};
  for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
    verbs_head head = {0, lengths[i]};
    memcpy(p->memory + VERBS_UNIT, &head, sizeof(head));
    cr_assert(!look(p), "a length of %u", lengths[i]);
  }
  cr_assert(send_short(p, 100));
  cr_assert(take_one(p));
  tell(p);
  /* The payload contains what would be the next message, but at a place where no message begins. */
  frame f;
  cr_assert(make_frame(p, 1000, &f));
  forge(p, p->tx.sent + 1, p->mirror + verbs_ring_mirror(&f.place, true) + 2 * VERBS_UNIT);
  memcpy(f.to, f.from, f.bytes);
  sent_frame(p, &f);
  cr_assert(look(p));
  cr_assert(!look(p), "a message within a message");
  uint8_t *next = p->memory + (size_t)verbs_ring_frame(p->rx.at, p->rx.units, 8).first * VERBS_UNIT;
  for (uint64_t number = 0; number < p->rx.arrived; number++) {
    forge(p, number, next);
    cr_assert(!look(p), "an older message, whole, where the next one belongs");
  }
  forge(p, p->rx.arrived, next);
  cr_assert(look(p));
  destroy(p);
}

/* A receiver that has announced its sleep is woken until it has sent again. */
Test(verbs_ring, sleeping) {
  pair *p = make(4096, 4);
  uint64_t *word = (uint64_t *)(void *)p->memory;
  cr_assert(!verbs_rx_asleep(&p->rx, p->memory));
  cr_assert(send_short(p, 8));
  *word = verbs_tx_sleeps(&p->tx); /* overtakes the message, which was not polled yet */
  cr_assert(verbs_rx_asleep(&p->rx, p->memory));
  cr_assert(take_one(p));
  cr_assert(verbs_rx_asleep(&p->rx, p->memory), "nothing has come since");
  cr_assert(send_short(p, 8));
  cr_assert(take_one(p));
  cr_assert(!verbs_rx_asleep(&p->rx, p->memory));
  uint64_t laps = p->tx.passed + 3 * (uint64_t)p->tx.units;
  while (p->tx.passed < laps) { /* messages do not touch that word */
    cr_assert(send_one(p, 4095));
    while (take_one(p))
      tell(p);
  }
  cr_assert_eq(*word, 2);
  destroy(p);
}

/* Outdated credit changes nothing, and no more messages are accepted than there can be. */
Test(verbs_ring, bounds) {
  pair *p = make(1 << 20, 8);
  bool broken;
  while (send_short(p, 1)) {
  }
  unsigned seen = 0;
  while (look(p))
    seen++;
  cr_assert_eq(seen, VERBS_MESSAGES);
  p->tx.read = p->tx.sent - 1; /* a sender that ignores credit */
  cr_assert(send_short(p, 1));
  cr_assert(!look(p));
  while (p->rx.taken < 60 && take_one(p)) {
  }
  uint32_t older = (uint32_t)p->rx.passed;
  while (p->rx.taken < 100 && take_one(p)) {
  }
  cr_assert(verbs_tx_credit(&p->tx, (uint32_t)p->rx.passed, &broken) && !broken);
  cr_assert(!verbs_tx_credit(&p->tx, older, &broken) && !broken);
  cr_assert(!verbs_tx_credit(&p->tx, (uint32_t)p->tx.passed + 1, &broken) && broken);
  destroy(p);
}

/* Messages that libcoll never sends are detected. */
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
  cr_assert_gt(verbs_ring_units((size_t)1 << 20, 64), 0, "the most that the settings allow");
  destroy(p);
}
