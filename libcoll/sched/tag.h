/*
 * tag.h: the bits of the tag in front of every message (coll_tag, three words of 64 bits):
 *
 *   word  bits      of a collective                      of point-to-point and one-sided messages
 *   0     0 .. 47   count, or a checksum of counts; of   elements, or an offset in bytes
 *                   a part of a call in bits 0 .. 28,
 *                   then a checksum of the whole count
 *                   and 1
 *         48 .. 63  size of a type of the caller's own   the same
 *                   (64 KiB or more: count in 0 .. 31,
 *                   size in 32 .. 63)
 *   1     0 .. 15   root                                 a check of the tag
 *         16 .. 31  0; on a connection that communicators share: the receiver's number of one
 *         32 .. 63  sequence number, its low half        the user's tag
 *   2     0 .. 6    collective                           COLLI_SENDRECV
 *         7         a v-form                             0
 *         8 .. 15   type                                 the same
 *         16 .. 23  operation; of an all-gather: what    kind of message
 *                   it makes (colli_makes)
 *         24 .. 31  algorithm                            24 .. 55: number of a rendezvous or window
 *         32 .. 55  passes; of an operation of the
 *                   caller's own: the rest of its
 *                   number in 32 .. 47
 *         56 .. 63  0; on a shared connection: channel and kind of message, four bits each
 *
 * Ranks compare the tags of their collectives, so all that they must agree on is in them.
 */
#ifndef COLLI_SCHED_TAG_H
#define COLLI_SCHED_TAG_H

#include "coll/coll_transport.h"
#include "libcoll/sched/collective.h"

/* Where a field lies. */
typedef struct colli_tag_field {
  unsigned char word, shift, bits;
} colli_tag_field;

#define COLLI_TAG_COUNT          ((colli_tag_field){0, 0, 48})
#define COLLI_TAG_USER_TYPE      ((colli_tag_field){0, 48, 16})
#define COLLI_TAG_LONG_COUNT     ((colli_tag_field){0, 0, 32})
#define COLLI_TAG_LONG_TYPE      ((colli_tag_field){0, 32, 32})
#define COLLI_TAG_ROOT           ((colli_tag_field){1, 0, 16})
#define COLLI_TAG_COMM_NUMBER    ((colli_tag_field){1, 16, 16})
#define COLLI_TAG_SEQUENCE       ((colli_tag_field){1, 32, 32})
#define COLLI_TAG_COLL           ((colli_tag_field){2, 0, 7})
#define COLLI_TAG_VARYING        ((colli_tag_field){2, 7, 1})
#define COLLI_TAG_TYPE           ((colli_tag_field){2, 8, 8})
#define COLLI_TAG_OP             ((colli_tag_field){2, 16, 8})
#define COLLI_TAG_ALGO           ((colli_tag_field){2, 24, 8})
#define COLLI_TAG_PASSES         ((colli_tag_field){2, 32, 24})
#define COLLI_TAG_USER_OP        ((colli_tag_field){2, 32, 16})
#define COLLI_TAG_USER_PASSES    ((colli_tag_field){2, 48, 8})
#define COLLI_TAG_SHARED         ((colli_tag_field){2, 56, 8}) /* the next two together */
#define COLLI_TAG_SHARED_CHANNEL ((colli_tag_field){2, 56, 4})
#define COLLI_TAG_SHARED_KIND    ((colli_tag_field){2, 60, 4})
#define COLLI_TAG_P2P_WORD       COLLI_TAG_COUNT
#define COLLI_TAG_P2P_CHECK      COLLI_TAG_ROOT
#define COLLI_TAG_P2P_TAG        COLLI_TAG_SEQUENCE
#define COLLI_TAG_P2P_KIND       COLLI_TAG_OP
#define COLLI_TAG_P2P_NUMBER     ((colli_tag_field){2, 24, 32})

/* The algorithm of calls whose messages only say that a rank has come, because data moves by
 * itself; where in the call it has come is in place of the passes. */
#define COLLI_TAG_ALGO_DIRECT 255

/* The type: its size is in COLLI_TAG_USER_TYPE, or if that is too short for it in
 * COLLI_TAG_LONG_TYPE. A vector has at most 2^47 bytes, so that 32 bits are enough for the count of
 * such elements. */
#define COLLI_TAG_USER_TYPE_CODE 0xffu
#define COLLI_TAG_LONG_TYPE_CODE 0xfeu

/* The operation: plus the upper 7 bits of its number, whose lower 16 are in COLLI_TAG_USER_OP. */
#define COLLI_TAG_USER_OP_CODE 0x80u

/* What an internal all-gather is for, so that an error message can name the public call. */
typedef enum colli_makes {
  COLLI_MAKES_NOTHING,
  COLLI_MAKES_SPLIT,
  COLLI_MAKES_DUP,
  COLLI_MAKES_SUBSET,
  COLLI_MAKES_WINDOW,
  COLLI_MAKES_DIRECT,
  COLLI_MAKES_REGISTRATION,
  COLLI_MAKES_NO_REGISTRATION, /* the end of one */
  COLLI_MAKES_COUNT
} colli_makes;

/* The bits of a field, where they lie. */
static inline uint64_t colli_tag_mask(colli_tag_field field) {
  return (~0ull >> (64 - field.bits)) << field.shift;
}

/* What a field holds. */
static inline uint64_t colli_tag_get(const coll_tag *tag, colli_tag_field field) {
  return (tag->word[field.word] & colli_tag_mask(field)) >> field.shift;
}

/* Sets a field that is 0; a value that is too large is cut to its low bits. */
static inline void colli_tag_put(coll_tag *tag, colli_tag_field field, uint64_t value) {
  tag->word[field.word] |= value << field.shift & colli_tag_mask(field);
}

/* Makes a field 0. */
static inline void colli_tag_clear(coll_tag *tag, colli_tag_field field) {
  tag->word[field.word] &= ~colli_tag_mask(field);
}

/* Sets the type, which may be a user-defined one, and the count. */
static inline void colli_tag_put_elements(coll_tag *tag, int type, uint64_t count) {
  if (__builtin_expect(type < COLL_TYPE_USER_BASE, 1)) {
    colli_tag_put(tag, COLLI_TAG_TYPE, (uint64_t)type);
    colli_tag_put(tag, COLLI_TAG_COUNT, count);
    return;
  }
  uint64_t bytes = (uint64_t)(type - COLL_TYPE_USER_BASE);
  bool is_long = bytes >> 16 != 0;
  colli_tag_put(tag, COLLI_TAG_TYPE, is_long ? COLLI_TAG_LONG_TYPE_CODE : COLLI_TAG_USER_TYPE_CODE);
  colli_tag_put(tag, is_long ? COLLI_TAG_LONG_TYPE : COLLI_TAG_USER_TYPE, bytes);
  colli_tag_put(tag, is_long ? COLLI_TAG_LONG_COUNT : COLLI_TAG_COUNT, count);
}

/* Sets operation and passes. op: predefined, or COLLI_TAG_USER_OP_CODE << 16 plus the number of a
 * user-defined one. */
static inline void colli_tag_put_op(coll_tag *tag, uint32_t op, uint64_t passes) {
  bool is_user = op >> 16 >= COLLI_TAG_USER_OP_CODE;
  colli_tag_put(tag, COLLI_TAG_OP, is_user ? op >> 16 : op);
  if (is_user)
    colli_tag_put(tag, COLLI_TAG_USER_OP, op);
  colli_tag_put(tag, is_user ? COLLI_TAG_USER_PASSES : COLLI_TAG_PASSES, passes);
}

/* Whether the operation of a collective is a user-defined one. */
static inline bool colli_tag_has_user_op(const coll_tag *tag) {
  return colli_tag_get(tag, COLLI_TAG_OP) >= COLLI_TAG_USER_OP_CODE;
}

/* The operation, as it was set. */
static inline uint32_t colli_tag_op(const coll_tag *tag) {
  uint32_t op = (uint32_t)colli_tag_get(tag, COLLI_TAG_OP);
  return op < COLLI_TAG_USER_OP_CODE ? op
                                     : op << 16 | (uint32_t)colli_tag_get(tag, COLLI_TAG_USER_OP);
}

/* The field that holds a tag's count. */
static inline colli_tag_field colli_tag_count_field(const coll_tag *tag) {
  bool is_long = colli_tag_get(tag, COLLI_TAG_TYPE) == COLLI_TAG_LONG_TYPE_CODE;
  return __builtin_expect(is_long, 0) ? COLLI_TAG_LONG_COUNT : COLLI_TAG_COUNT;
}

/* Parts of longer calls have a checksum of the whole count beside their own, which is short: ranks
 * may not take parts of different calls for the same. */
#define COLLI_TAG_PART_BITS 18

/* The bits of a count's field that a part's own count has. */
static inline unsigned colli_tag_part_bits(const coll_tag *tag) {
  return colli_tag_count_field(tag).bits - COLLI_TAG_PART_BITS - 1u;
}

/* Makes a tag that of a part of a call with `whole` elements. */
static inline void colli_tag_put_part(coll_tag *tag, uint64_t whole) {
  const uint64_t sum = whole * 0x9e3779b97f4a7c15ull >> (64 - COLLI_TAG_PART_BITS);
  colli_tag_put(tag, colli_tag_count_field(tag),
                (1ull << COLLI_TAG_PART_BITS | sum) << colli_tag_part_bits(tag));
}

/* The checksum of the whole count, with a 1 in front; 0: the tag is not that of a part. */
static inline uint64_t colli_tag_part(const coll_tag *tag) {
  const uint64_t part = colli_tag_get(tag, colli_tag_count_field(tag)) >> colli_tag_part_bits(tag);
  const bool varying = colli_tag_get(tag, COLLI_TAG_VARYING);
  return !varying && part >> COLLI_TAG_PART_BITS ? part : 0;
}

/* The count of a tag. */
static inline uint64_t colli_tag_count(const coll_tag *tag) {
  const uint64_t count = colli_tag_get(tag, colli_tag_count_field(tag));
  return __builtin_expect(colli_tag_part(tag) != 0, 0)
             ? count & ((1ull << colli_tag_part_bits(tag)) - 1)
             : count;
}

/* The type of a tag; a damaged one may be none. */
static inline int colli_tag_type(const coll_tag *tag) {
  unsigned code = (unsigned)colli_tag_get(tag, COLLI_TAG_TYPE);
  if (__builtin_expect(code < COLLI_TAG_LONG_TYPE_CODE, 1))
    return (int)code;
  bool is_long = code == COLLI_TAG_LONG_TYPE_CODE;
  uint64_t bytes = colli_tag_get(tag, is_long ? COLLI_TAG_LONG_TYPE : COLLI_TAG_USER_TYPE);
  return bytes <= COLL_TYPE_USER_BYTES_MAX ? COLL_TYPE_USER_BASE + (int)bytes : COLL_TYPE_USER_BASE;
}

#endif
