/*
 * reduce_loc.h: minimum and maximum with location, of one pair of elements.
 *
 * Elements are ordered by value, then by index, then by sign (only zeros can still differ), so
 * there is one winner whatever the order of combination. NaNs come before all numbers and are
 * ordered by index alone; the winner's payload becomes the canonical one.
 */
#ifndef COLLI_EXEC_REDUCE_LOC_H
#define COLLI_EXEC_REDUCE_LOC_H

#include "libcoll/exec/reduce_ops.h"

/* Elements in the caller's buffers: the structs of coll.h, at any alignment. */
#define COLLI_MEM_LOC(name, value_type, index_type)                                                \
  typedef struct __attribute__((packed, may_alias)) name {                                         \
    value_type value;                                                                              \
    index_type index;                                                                              \
  } name;
COLLI_MEM_LOC(colli_mem_i32_loc, int32_t, int32_t)
COLLI_MEM_LOC(colli_mem_i64_loc, int64_t, int64_t)
COLLI_MEM_LOC(colli_mem_f32_loc, float, int32_t)
COLLI_MEM_LOC(colli_mem_f64_loc, double, int64_t)

/* The same for values of 4 bytes with an index of 8. */
#define COLLI_MEM_LOC64(name, value_type)                                                          \
  typedef struct __attribute__((packed, may_alias)) name {                                         \
    value_type value;                                                                              \
    int32_t padding;                                                                               \
    int64_t index;                                                                                 \
  } name;
COLLI_MEM_LOC64(colli_mem_i32_loc64, int32_t)
COLLI_MEM_LOC64(colli_mem_f32_loc64, float)

/* Defines name(a, b): the element whose value comes `before` the other's. */
#define COLLI_PICK_LOC(name, mem, before)                                                          \
  static inline mem name(mem a, mem b) {                                                           \
    int first = (a.value before b.value) | ((a.value == b.value) & (a.index <= b.index));          \
    return first ? a : b;                                                                          \
  }
COLLI_PICK_LOC(colli_min_i32_loc, colli_mem_i32_loc, <)
COLLI_PICK_LOC(colli_max_i32_loc, colli_mem_i32_loc, >)
COLLI_PICK_LOC(colli_min_i64_loc, colli_mem_i64_loc, <)
COLLI_PICK_LOC(colli_max_i64_loc, colli_mem_i64_loc, >)
COLLI_PICK_LOC(colli_least_i32_loc64, colli_mem_i32_loc64, <)
COLLI_PICK_LOC(colli_most_i32_loc64, colli_mem_i32_loc64, >)

/* The same for floats. `zero` joins the bits of equal values: `|` finds -0 among zeros, `&` +0. */
#define COLLI_PICK_FLOAT_LOC(name, mem, before, zero, f)                                           \
  static inline mem name(mem a, mem b) {                                                           \
    int a_nan = a.value != a.value, b_nan = b.value != b.value;                                    \
    int equal = (a.value == b.value) | (a_nan & b_nan);                                            \
    int first = (a_nan & !b_nan) | (a.value before b.value) | (equal & (a.index < b.index));       \
    mem r = first ? a : b;                                                                         \
    if ((a.value == b.value) & (a.index == b.index))                                               \
      r.value = colli_##f##_of_bits(colli_bits_of_##f(a.value) zero colli_bits_of_##f(b.value));   \
    r.value = colli_canon_##f(r.value);                                                            \
    return r;                                                                                      \
  }
COLLI_PICK_FLOAT_LOC(colli_min_f32_loc, colli_mem_f32_loc, <, |, f32)
COLLI_PICK_FLOAT_LOC(colli_max_f32_loc, colli_mem_f32_loc, >, &, f32)
COLLI_PICK_FLOAT_LOC(colli_min_f64_loc, colli_mem_f64_loc, <, |, f64)
COLLI_PICK_FLOAT_LOC(colli_max_f64_loc, colli_mem_f64_loc, >, &, f64)
COLLI_PICK_FLOAT_LOC(colli_least_f32_loc64, colli_mem_f32_loc64, <, |, f32)
COLLI_PICK_FLOAT_LOC(colli_most_f32_loc64, colli_mem_f32_loc64, >, &, f32)

/* Defines name(a, b): what `pick` gives, with padding of 0: a caller need not set the inputs'. */
#define COLLI_CLEAR_PADDING(name, mem, pick)                                                       \
  static inline mem name(mem a, mem b) {                                                           \
    mem r = pick(a, b);                                                                            \
    r.padding = 0;                                                                                 \
    return r;                                                                                      \
  }
COLLI_CLEAR_PADDING(colli_min_i32_loc64, colli_mem_i32_loc64, colli_least_i32_loc64)
COLLI_CLEAR_PADDING(colli_max_i32_loc64, colli_mem_i32_loc64, colli_most_i32_loc64)
COLLI_CLEAR_PADDING(colli_min_f32_loc64, colli_mem_f32_loc64, colli_least_f32_loc64)
COLLI_CLEAR_PADDING(colli_max_f32_loc64, colli_mem_f32_loc64, colli_most_f32_loc64)

#endif
