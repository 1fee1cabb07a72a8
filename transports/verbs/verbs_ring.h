/*
 * verbs_ring.h: where messages lie in a receiver's memory, and who may reuse it. No device needed.
 *
 * Each direction of a connection is a ring of 64-byte units in memory of the receiver, which the
 * sender writes to. Messages take as many units as they need, one behind the other: first a unit
 * that ends with the tag, then the payload (of long messages on a page of its own, as devices cut
 * their packets by pages). Both ends work out the same places from the lengths alone. Memory is
 * given back in order too, so that one number says all: the units that the receiver has passed
 * since the beginning. It travels as *credit* in the 32 immediate bits of every message of the
 * other direction; if there is none for long, an empty message carries it.
 *
 * A message whose tag is that of the one before (the slices of one operation) leaves it out, so
 * that a slice of 128 KiB is a whole number of packets.
 */
#ifndef COLLI_TRANSPORTS_VERBS_RING_H
#define COLLI_TRANSPORTS_VERBS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll_transport.h"

#define VERBS_UNIT       64u
#define VERBS_PAGE_UNITS 64u
#define VERBS_PAGED      16384u /* payloads from this size on begin on a page */
#define VERBS_MESSAGES   128u   /* at most so many may be unread in a ring; a power of two */
#define VERBS_OWE_COUNT  32u    /* so many messages given back are told even if nothing is sent */
#define VERBS_OWE_SLOTS  2u     /* the same for as much memory as so many slots take */

/* The immediate bits of a message. */
#define VERBS_IMM_TAG    (1u << 31) /* a tag stands in front of the payload */
#define VERBS_IMM_CREDIT (1u << 30) /* no message: only credit */
#define VERBS_IMM_UNITS  (VERBS_IMM_CREDIT - 1u)

/* A place in a ring. */
typedef struct verbs_place {
  uint32_t payload; /* units from the ring's beginning; the tag ends right there */
  uint32_t end;
  uint32_t moved; /* units from the end of the message before, skipped ones included */
} verbs_place;

/* The sender's view of a ring. */
typedef struct verbs_tx {
  uint32_t units;
  uint32_t at;                  /* where the next message may begin */
  uint64_t passed;              /* units, since the beginning */
  uint64_t freed;               /* of which the receiver has given back */
  uint64_t sent;                /* messages */
  uint64_t read;                /* of which the receiver has given back */
  coll_tag tag;                 /* of the last one */
  bool tagged;                  /* there was one */
  uint64_t end[VERBS_MESSAGES]; /* `passed` behind message k is at k modulo their number */
} verbs_tx;

/* A message that has arrived. */
typedef struct verbs_arrival {
  uint32_t bytes;
  bool tagged;
} verbs_arrival;

/* The receiver's. */
typedef struct verbs_rx {
  uint32_t units;
  uint32_t at;
  uint32_t owe_units; /* tell of credit when this much was given back */
  uint64_t passed;
  uint64_t told;    /* of `passed`, the sender knows */
  uint64_t arrived; /* messages */
  uint64_t taken;   /* of which were given back */
  uint64_t told_taken;
  bool shown;   /* `place` and `tag` are those of the first message not given back */
  coll_tag tag; /* of the last message shown */
  verbs_place place;
  verbs_arrival arrival[VERBS_MESSAGES];
} verbs_rx;

/* Units of a ring that holds slot_count messages of slot_bytes besides what need not be told yet;
 * 0: more than the credit can count. */
uint32_t verbs_ring_units(size_t slot_bytes, unsigned slot_count);

/* Begins with empty rings. */
void verbs_tx_init(verbs_tx *tx, uint32_t units);
void verbs_rx_init(verbs_rx *rx, uint32_t units, size_t slot_bytes);

/* Where a message of `bytes` bytes goes that may begin at `at`. */
static inline verbs_place verbs_ring_place(uint32_t at, uint32_t units, size_t bytes) {
  uint32_t body = (uint32_t)((bytes + VERBS_UNIT - 1) / VERBS_UNIT);
  uint32_t mask = bytes >= VERBS_PAGED ? VERBS_PAGE_UNITS - 1 : 0;
  uint32_t payload = (at + 1 + mask) & ~mask;
  if (__builtin_expect(payload + body <= units, 1))
    return (verbs_place){payload, payload + body, payload + body - at};
  payload = (1 + mask) & ~mask;
  return (verbs_place){payload, payload + body, units - at + payload + body};
}

/* Whether a message of `bytes` bytes has room, and where. */
static inline bool verbs_tx_room(const verbs_tx *tx, size_t bytes, verbs_place *place) {
  *place = verbs_ring_place(tx->at, tx->units, bytes);
  return tx->passed - tx->freed + place->moved <= tx->units && tx->sent - tx->read < VERBS_MESSAGES;
}

/* Whether the message's tag must travel: it differs from that of the one before. */
static inline bool verbs_tx_needs_tag(const verbs_tx *tx, const coll_tag *tag) {
  return !tx->tagged || tag->word[1] != tx->tag.word[1] || tag->word[0] != tx->tag.word[0] ||
         tag->word[2] != tx->tag.word[2];
}

/* The message at `place` was sent. */
static inline void verbs_tx_sent(verbs_tx *tx, const coll_tag *tag, const verbs_place *place) {
  tx->at = place->end;
  tx->passed += place->moved;
  tx->tag = *tag;
  tx->tagged = true;
  tx->end[tx->sent++ % VERBS_MESSAGES] = tx->passed;
}

/* Credit has come, as the low bits of what the receiver has passed: true if it was any news. false
 * with *broken: it gives back what was never sent. */
static inline bool verbs_tx_credit(verbs_tx *tx, uint32_t low, bool *broken) {
  uint32_t more = (low - (uint32_t)tx->freed) & VERBS_IMM_UNITS;
  *broken = more > tx->passed - tx->freed;
  if (more == 0 || *broken)
    return false;
  tx->freed += more;
  while (tx->read < tx->sent && tx->end[tx->read % VERBS_MESSAGES] <= tx->freed)
    tx->read++;
  return true;
}

/* A message of `bytes` bytes has arrived: false if it cannot be. */
bool verbs_rx_arrived(verbs_rx *rx, size_t bytes, bool tagged, size_t slot_bytes);

/* Looks at the first message that was not given back, whose ring begins at `memory`: false if there
 * is none. Its tag is rx->tag then, its payload *buf. */
static inline bool verbs_rx_peek(verbs_rx *rx, const uint8_t *memory, const void **buf,
                                 size_t *bytes) {
  if (rx->arrived == rx->taken)
    return false;
  const verbs_arrival *arrival = &rx->arrival[rx->taken % VERBS_MESSAGES];
  if (!rx->shown) {
    rx->place = verbs_ring_place(rx->at, rx->units, arrival->bytes);
    if (arrival->tagged)
      __builtin_memcpy(&rx->tag, memory + (size_t)rx->place.payload * VERBS_UNIT - sizeof(rx->tag),
                       sizeof(rx->tag));
    rx->shown = true;
  }
  *buf = memory + (size_t)rx->place.payload * VERBS_UNIT;
  *bytes = arrival->bytes;
  return true;
}

/* Gives back the message that was shown. */
static inline void verbs_rx_release(verbs_rx *rx) {
  rx->at = rx->place.end;
  rx->passed += rx->place.moved;
  rx->taken++;
  rx->shown = false;
}

/* Whether so much was given back that the sender must be told. */
static inline bool verbs_rx_owes(const verbs_rx *rx) {
  return rx->passed - rx->told >= rx->owe_units || rx->taken - rx->told_taken >= VERBS_OWE_COUNT;
}

/* The immediate bits of a message, or credit, that leaves now; what was given back is told by it.
 */
static inline uint32_t verbs_rx_tell(verbs_rx *rx) {
  rx->told = rx->passed;
  rx->told_taken = rx->taken;
  return (uint32_t)rx->passed & VERBS_IMM_UNITS;
}

#endif
