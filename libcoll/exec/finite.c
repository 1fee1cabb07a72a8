/*
 * finite.c: looks for NaN and infinity. Both have an exponent of ones only (float8_e4m3, which has
 * no infinity: exponent and fraction). So if 1 is added at the exponent's lowest bit, it carries
 * into the place of the sign, which was masked out: no branch, and all elements of a block at once.
 */
#include "libcoll/exec/finite.h"

#include <stdint.h>
#include <string.h>

#include "coll/coll.h"

#define BLOCK 4096 /* elements */

/* Where the exponent of a type lies; bits 0: the type has none. */
typedef struct layout {
  unsigned bits;   /* of a value */
  uint64_t mask;   /* all ones: not finite */
  unsigned stride; /* values from one element to the next; the others: index, padding */
  bool has_infinity;
} layout;

static const layout layouts[COLL_TYPE_COUNT] = {
    [COLL_FLOAT16] = {16, 0x7c00, 1, true},
    [COLL_BFLOAT16] = {16, 0x7f80, 1, true},
    [COLL_FLOAT32] = {32, 0x7f800000, 1, true},
    [COLL_FLOAT64] = {64, 0x7ff0000000000000, 1, true},
    [COLL_FLOAT8_E4M3] = {8, 0x7f, 1, false},
    [COLL_FLOAT8_E5M2] = {8, 0x7c, 1, true},
    [COLL_FLOAT32_LOC] = {32, 0x7f800000, 2, true},
    [COLL_FLOAT64_LOC] = {64, 0x7ff0000000000000, 2, true},
    [COLL_FLOAT32_LOC64] = {32, 0x7f800000, 4, true},
};

static layout layout_of(int type) {
  return type >= 0 && type < COLL_TYPE_COUNT ? layouts[type] : (layout){0};
}

bool colli_may_be_nan(int type) {
  return layout_of(type).bits > 0;
}

/* Whether one of some values next to each other is not finite. */
#define ANY(bits_)                                                                                 \
  typedef uint##bits_##_t __attribute__((may_alias, aligned(1))) word_##bits_;                     \
  static bool any_##bits_(const void *data, size_t count, uint64_t mask) {                         \
    const word_##bits_ *at = data;                                                                 \
    uint##bits_##_t ones = (uint##bits_##_t)mask, one = (uint##bits_##_t)(mask & -mask);           \
    uint##bits_##_t found = 0;                                                                     \
    for (size_t i = 0; i < count; i++)                                                             \
      found = (uint##bits_##_t)(found | (uint##bits_##_t)((at[i] & ones) + one));                  \
    return found >> (bits_ - 1);                                                                   \
  }
ANY(8)
ANY(16)
ANY(32)
ANY(64)

static bool any(const layout *its, const void *data, size_t count) {
  switch (its->bits) {
  case 8:
    return any_8(data, count, its->mask);
  case 16:
    return any_16(data, count, its->mask);
  case 32:
    return any_32(data, count, its->mask);
  default:
    return any_64(data, count, its->mask);
  }
}

/* The value of an element. */
static uint64_t value_at(const layout *its, const void *data, size_t index) {
  size_t bytes = its->bits / 8;
  uint64_t value = 0;
  memcpy(&value, (const char *)data + index * its->stride * bytes, bytes); /* little-endian */
  return value;
}

bool colli_find_nonfinite(int type, const void *data, size_t count, size_t *index) {
  layout its = layout_of(type);
  const char *from = data;
  size_t bytes = its.stride * (size_t)its.bits / 8;
  for (size_t first = 0; its.bits && first < count; first += BLOCK) {
    size_t some = count - first < BLOCK ? count - first : BLOCK;
    if (its.stride == 1 && !any(&its, from + first * bytes, some))
      continue;
    for (size_t i = first; i < first + some; i++)
      if ((value_at(&its, data, i) & its.mask) == its.mask) {
        *index = i;
        return true;
      }
  }
  return false;
}

const char *colli_nonfinite_text(int type, const void *data, size_t index) {
  layout its = layout_of(type);
  uint64_t value = value_at(&its, data, index);
  uint64_t fraction = value & ((its.mask & -its.mask) - 1);
  if (fraction || !its.has_infinity)
    return "nan";
  return value >> (its.bits - 1) ? "-inf" : "inf";
}
