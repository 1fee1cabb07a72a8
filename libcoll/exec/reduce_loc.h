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

#endif
