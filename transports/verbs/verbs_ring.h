/*
 * verbs_ring.h: where messages lie in a receiver's memory, how short ones are noticed there, and
 * who may reuse it. No device needed.
 *
 * Each direction of a connection is a ring of 64-byte units in memory of the receiver, which the
 * sender writes to. Messages take as many units as they need, one behind the other. Both ends work
 * out the same places from kind and length alone. Memory is given back in order too, so that one
 * number says all: the units that the receiver has passed since the beginning. It travels as
 * *credit* with every message of the other direction; if there is none for long, an empty message
 * carries it.
 *
 * A *short* message is one plain write, which the receiver finds by polling its memory: a head
 * (credit and length), the tag or what differs from the tag before (a message of up to 24 bytes is
 * one cache line then), the payload, and behind it a *mark*. The mark is a number that the
 * receiver drew at random when the ring was made, plus the number of the message: neither what is
 * left of older messages nor a payload is taken for it. A message whose mark is there is there as a
 * whole, if its bytes are placed in ascending order. So it must be a single packet, in memory that
 * was registered without relaxed ordering: of packets, and of writes, devices may promise less.
 *
 * A *long* message is announced by a completion, with credit in its 32 immediate bits. All messages
 * before it are in place then. It takes a unit that ends with the tag, and from the next one on the
 * payload, from 16 KiB on a page of its own, as devices cut their packets by pages. If its tag is
 * that of the one before (the slices of one operation), it leaves it out, so that a slice of 128
 * KiB is a whole number of packets.
 *
 * The first bytes of a ring belong to no message. There the sender's counterpart, which also
 * receives, says when it sleeps: then it must be woken by a completion (verbs_rx_asleep).
 */
#ifndef COLLI_TRANSPORTS_VERBS_RING_H
#define COLLI_TRANSPORTS_VERBS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll_transport.h"
#include "libcoll/base/assert.h"

#define VERBS_UNIT       64u
#define VERBS_PAGE_UNITS 64u
#define VERBS_PAGED      16384u /* payloads from this size on begin on a page */
#define VERBS_MESSAGES   128u   /* how many may be unread in a ring at most; a power of two */
#define VERBS_PLACED     128u   /* the same for messages in targets (verbs_target.h) */
#define VERBS_ARRIVALS   (VERBS_MESSAGES + VERBS_PLACED)
#define VERBS_SENDS      32u   /* work requests of a connection that may be under way */
#define VERBS_SHORT      4095u /* payloads up to this size may be short messages */
#define VERBS_OWE_COUNT                                                                            \
  32u /* after so many messages are given back, credit is sent even without a message */
#define VERBS_OWE_SLOTS 2u /* the same for the memory of that many slots */

/* The immediate bits of a message. */
#define VERBS_IMM_TAG    (1u << 31) /* a tag stands in front of the payload */
#define VERBS_IMM_CREDIT (1u << 30) /* no message: only credit */
#define VERBS_IMM_PLACED                                                                           \
  (1u << 29)                 /* the message lies in its target; with CREDIT: an advert; with       \
                                TAG: and has a place in the ring */
#define VERBS_IMM_COPIED 23u /* from this bit on: adverts that were copied, modulo 64 */
#define VERBS_IMM_UNITS  ((1u << VERBS_IMM_COPIED) - 1u)

/* A short message begins with this. */
typedef struct verbs_head {
  uint32_t credit;
  uint32_t bytes; /* of the payload; VERBS_BRIEF: of the tag only word 1 follows */
} verbs_head;
_Static_assert(sizeof(verbs_head) == 8, "travels as it is");

#define VERBS_BRIEF (1u << 31)

typedef uint64_t verbs_mark; /* 8-byte aligned behind the payload; nothing in between counts */

#define VERBS_FRAME_BYTES                                                                          \
  (sizeof(verbs_head) + sizeof(coll_tag) + sizeof(verbs_mark)) /* at most                          \
                                                                */

/* A place in a ring. */
typedef struct verbs_place {
  uint32_t first; /* units from the ring's beginning: of a short message as a whole, of a long one's
                     payload; its tag ends right there */
  uint32_t end;
  uint32_t moved; /* units from the end of the message before, skipped ones included */
} verbs_place;

/* The sender's view of a ring. */
typedef struct verbs_tx {
  uint32_t units;
  uint32_t at;                  /* where the next message may begin */
  uint64_t passed;              /* units, since the beginning */
  uint64_t freed;               /* of which the receiver has given back */
  uint64_t sent;                /* messages, to any place */
  uint64_t kept;                /* of which lie in the ring */
  uint64_t read;                /* of those the receiver has given back */
  uint64_t placed;              /* messages sent to targets */
  coll_tag tag;                 /* of the last one */
  bool tagged;                  /* there was one */
  uint64_t end[VERBS_MESSAGES]; /* `passed` behind kept message k is at k modulo their number */
} verbs_tx;

/* A message that has arrived. */
typedef struct verbs_arrival {
  uint32_t bytes;
  uint32_t moved;      /* as in its place */
  size_t payload;      /* bytes from the ring's beginning */
  uint32_t tag_words;  /* right in front of it: 3, 1 (word 1), or 0; the others are as before */
  void *target;        /* where it lies, if not in the ring, or NULL */
  const coll_tag *tag; /* that it has there */
} verbs_arrival;

/* The receiver's. */
typedef struct verbs_rx {
  uint32_t units;
  uint32_t at;        /* where the next message to arrive may begin */
  uint32_t owe_units; /* credit is due when this much was given back */
  verbs_mark mark;    /* of the first message */
  uint64_t passed;
  uint64_t credited; /* of `passed`, the sender knows */
  uint64_t arrived;  /* messages */
  uint64_t taken;    /* of which were given back */
  uint64_t credited_messages;
  coll_tag tag;    /* of the last message shown */
  uint64_t placed; /* messages that lie in targets, without a place in the ring, and were not given
                      back */
  uint64_t targets, targets_taken; /* messages in targets that have arrived, and were given back */
  verbs_arrival arrival[VERBS_ARRIVALS];
} verbs_rx;

/* Units of a ring that holds slot_count messages of slot_bytes besides what the sender need not
 * know yet; 0: more than the credit can count. */
uint32_t verbs_ring_units(size_t slot_bytes, unsigned slot_count);

/* Initializes an empty ring. */
void verbs_tx_init(verbs_tx *tx, uint32_t units);
void verbs_rx_init(verbs_rx *rx, uint32_t units, size_t slot_bytes, verbs_mark mark);

/* Where a long message of `bytes` bytes goes if it may begin at `at`. */
static inline verbs_place verbs_ring_place(uint32_t at, uint32_t units, size_t bytes) {
  uint32_t body = (uint32_t)((bytes + VERBS_UNIT - 1) / VERBS_UNIT);
  uint32_t mask = bytes >= VERBS_PAGED ? VERBS_PAGE_UNITS - 1 : 0;
  uint32_t payload = (at + 1 + mask) & ~mask;
  if (__builtin_expect(payload + body <= units, 1))
    return (verbs_place){payload, payload + body, payload + body - at};
  payload = (1 + mask) & ~mask;
  return (verbs_place){payload, payload + body, units - at + payload + body};
}

/* Bytes from a short message's payload to its mark. */
static inline size_t verbs_mark_at(size_t bytes) {
  return (bytes + sizeof(verbs_mark) - 1) & ~(sizeof(verbs_mark) - 1);
}

/*
 * Where a short message goes: never to the first unit, and with a unit behind it. So the sender can
 * put it together around a payload that begins with a unit, at most one unit further on.
 */
static inline verbs_place verbs_ring_frame(uint32_t at, uint32_t units, size_t bytes) {
  size_t all = verbs_mark_at(bytes) + VERBS_FRAME_BYTES;
  uint32_t body = (uint32_t)((all + VERBS_UNIT - 1) / VERBS_UNIT);
  uint32_t first = at + !at;
  if (__builtin_expect(first + body < units, 1))
    return (verbs_place){first, first + body, first + body - at};
  return (verbs_place){1, 1 + body, units - at + 1 + body};
}

/* Where a message's payload is put together, in memory that mirrors the ring. */
static inline size_t verbs_ring_mirror(const verbs_place *place, bool is_short) {
  return (size_t)(place->first + is_short) * VERBS_UNIT;
}

/* Whether a message of `bytes` bytes has room, and where. */
static inline bool verbs_tx_room(const verbs_tx *tx, size_t bytes, bool is_short,
                                 verbs_place *place) {
  *place = is_short ? verbs_ring_frame(tx->at, tx->units, bytes)
                    : verbs_ring_place(tx->at, tx->units, bytes);
  return tx->passed - tx->freed + place->moved <= tx->units && tx->kept - tx->read < VERBS_MESSAGES;
}

/* Whether the message's tag must travel: it differs from that of the one before. */
static inline bool verbs_tx_needs_tag(const verbs_tx *tx, const coll_tag *tag) {
  return !tx->tagged || tag->word[1] != tx->tag.word[1] || tag->word[0] != tx->tag.word[0] ||
         tag->word[2] != tx->tag.word[2];
}

/* The message at `place` was sent. */
static inline void verbs_tx_sent(verbs_tx *tx, const coll_tag *tag, const verbs_place *place) {
  COLLI_ASSERT(place->end <= tx->units && tx->kept - tx->read < VERBS_MESSAGES);
  COLLI_ASSERT(tx->passed - tx->freed + place->moved <= tx->units);
  tx->at = place->end;
  tx->passed += place->moved;
  tx->tag = *tag;
  tx->tagged = true;
  tx->end[tx->kept++ % VERBS_MESSAGES] = tx->passed;
  tx->sent++;
}

/* A message was sent to its target. */
static inline void verbs_tx_placed(verbs_tx *tx, const coll_tag *tag) {
  tx->tag = *tag;
  tx->tagged = true;
  tx->sent++;
  tx->placed++;
}

/*
 * Credit has come, as the low bits of what the receiver has passed: true if it is new. The credit
 * of a completion may be older than that of a short message behind it, but not by more than a ring
 * and VERBS_SENDS messages: sends, too, end with completions, which are taken in order. false with
 * *broken: it gives back what was never sent.
 */
static inline bool verbs_tx_credit(verbs_tx *tx, uint32_t low, bool *broken) {
  uint32_t more = (low - (uint32_t)tx->freed) & VERBS_IMM_UNITS;
  bool old = more > VERBS_IMM_UNITS / 2;
  *broken = !old && more > tx->passed - tx->freed;
  if (more == 0 || old || *broken)
    return false;
  tx->freed += more;
  while (tx->read < tx->kept && tx->end[tx->read % VERBS_MESSAGES] <= tx->freed)
    tx->read++;
  COLLI_ASSERT(tx->freed <= tx->passed && tx->read <= tx->kept);
  return true;
}

/* Completes a short message around its payload: that many bytes from *begin on are to be written.
 */
static inline size_t verbs_tx_frame(const verbs_tx *tx, verbs_mark mark, const coll_tag *tag,
                                    uint32_t credit, uint8_t *payload, size_t bytes,
                                    uint8_t **begin) {
  bool brief = tx->tagged && tag->word[0] == tx->tag.word[0] && tag->word[2] == tx->tag.word[2];
  verbs_head head = {credit, (uint32_t)bytes | (brief ? VERBS_BRIEF : 0)};
  verbs_mark its = mark + tx->sent;
  uint8_t *to = payload - sizeof(tag->word[1]);
  __builtin_memcpy(to, &tag->word[1], sizeof(tag->word[1]));
  if (__builtin_expect(!brief, 0)) {
    to = payload - sizeof(*tag);
    __builtin_memcpy(to, tag, sizeof(*tag));
  }
  to -= sizeof(head);
  __builtin_memcpy(to, &head, sizeof(head));
  uint8_t *end = payload + verbs_mark_at(bytes);
  __builtin_memcpy(end, &its, sizeof(its));
  *begin = to;
  return (size_t)(end - to) + sizeof(its);
}

/* Takes a short message at unit `first` as the next one, if it is there as a whole. */
static inline bool verbs_rx_take(verbs_rx *rx, const uint8_t *memory, uint32_t first,
                                 uint32_t *credit) {
  size_t begin = (size_t)first * VERBS_UNIT;
  const verbs_head *head = (const verbs_head *)(const void *)(memory + begin);
  uint32_t word = __atomic_load_n(&head->bytes, __ATOMIC_RELAXED);
  uint32_t bytes = word & ~VERBS_BRIEF;
  if (bytes > VERBS_SHORT)
    return false;
  verbs_place place = verbs_ring_frame(rx->at, rx->units, bytes);
  uint32_t tag_words = word & VERBS_BRIEF ? 1 : 3;
  size_t payload = begin + sizeof(*head) + tag_words * sizeof(uint64_t);
  const verbs_mark *mark =
      (const verbs_mark *)(const void *)(memory + payload + verbs_mark_at(bytes));
  if (place.first != first || __atomic_load_n(mark, __ATOMIC_ACQUIRE) != rx->mark + rx->arrived)
    return false;
  /* What was read before the mark may have been older. */
  if (__atomic_load_n(&head->bytes, __ATOMIC_RELAXED) != word ||
      (rx->arrived == 0 && tag_words < 3) || rx->arrived - rx->taken - rx->placed >= VERBS_MESSAGES)
    return false;
  *credit = head->credit;
  rx->arrival[rx->arrived++ % VERBS_ARRIVALS] = (verbs_arrival){
      .bytes = bytes, .moved = place.moved, .payload = payload, .tag_words = tag_words};
  rx->at = place.end;
  return true;
}

/* Looks in memory for the short message that comes next: true if it has arrived; *credit came with
 * it. */
static inline bool verbs_rx_poll(verbs_rx *rx, const uint8_t *memory, uint32_t *credit) {
  uint32_t first = rx->at + !rx->at;
  if (__builtin_expect(first < rx->units, 1) && verbs_rx_take(rx, memory, first, credit))
    return true;
  bool near_end = first + (VERBS_SHORT + VERBS_FRAME_BYTES) / VERBS_UNIT + 1 >= rx->units;
  return __builtin_expect(near_end, 0) && rx->units > 0 && verbs_rx_take(rx, memory, 1, credit);
}

/* A long message of `bytes` bytes has arrived, its tag included; false: it makes no sense. */
bool verbs_rx_arrived(verbs_rx *rx, size_t bytes, bool tagged, size_t slot_bytes);

/*
 * A message of `bytes` bytes has arrived in its target, with that tag, which stays there; false: it
 * makes no sense. in_ring: it has a place in the ring as well.
 */
bool verbs_rx_placed(verbs_rx *rx, size_t bytes, void *target, const coll_tag *tag, bool in_ring);

/* Shows the first message that was not given back, whose ring begins at `memory`: false if there is
 * none. Its tag is rx->tag then, its payload *buf. */
static inline bool verbs_rx_peek(verbs_rx *rx, const uint8_t *memory, const void **buf,
                                 size_t *bytes) {
  if (rx->arrived == rx->taken)
    return false;
  const verbs_arrival *arrival = &rx->arrival[rx->taken % VERBS_ARRIVALS];
  *bytes = arrival->bytes;
  *buf = arrival->target;
  if (__builtin_expect(arrival->target != NULL, 0)) {
    rx->tag = *arrival->tag;
    return true;
  }
  const uint8_t *payload = memory + arrival->payload;
  if (__builtin_expect(arrival->tag_words == 1, 1))
    __builtin_memcpy(&rx->tag.word[1], payload - sizeof(uint64_t), sizeof(uint64_t));
  else if (arrival->tag_words == 3)
    __builtin_memcpy(&rx->tag, payload - sizeof(rx->tag), sizeof(rx->tag));
  *buf = payload;
  return true;
}

/* Gives back the message that was shown. */
static inline void verbs_rx_release(verbs_rx *rx) {
  COLLI_ASSERT(rx->taken < rx->arrived);
  const verbs_arrival *arrival = &rx->arrival[rx->taken++ % VERBS_ARRIVALS];
  rx->passed += arrival->moved;
  if (__builtin_expect(arrival->target != NULL, 0)) {
    rx->targets_taken++;
    rx->placed -= arrival->moved == 0;
    rx->credited_messages += arrival->moved == 0; /* no credit is due */
  }
}

/*
 * What a rank writes to the first bytes of the ring at its peer before it sleeps: how much it has
 * sent, plus one.
 */
static inline uint64_t verbs_tx_sleeps(const verbs_tx *tx) {
  return tx->sent + 1;
}

/* Whether the peer may be asleep: it has said so, and nothing has come from it since. */
static inline bool verbs_rx_asleep(const verbs_rx *rx, const uint8_t *memory) {
  return __atomic_load_n((const uint64_t *)(const void *)memory, __ATOMIC_RELAXED) > rx->arrived;
}

/* Whether enough was given back that credit must be sent. */
static inline bool verbs_rx_owes(const verbs_rx *rx) {
  return rx->passed - rx->credited >= rx->owe_units ||
         rx->taken - rx->credited_messages >= VERBS_OWE_COUNT;
}

/* The credit for a message that is sent now: all that was given back. */
static inline uint32_t verbs_rx_credit(verbs_rx *rx) {
  COLLI_ASSERT(rx->credited <= rx->passed && rx->credited_messages <= rx->taken);
  rx->credited = rx->passed;
  rx->credited_messages = rx->taken;
  return (uint32_t)rx->passed & VERBS_IMM_UNITS;
}

#endif
