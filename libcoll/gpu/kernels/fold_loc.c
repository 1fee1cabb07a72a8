/* fold_loc.c: minimum and maximum with location. */
#include "libcoll/gpu/kernels/fold.h"

/* Structs made of the words of a vector from `w` on. */
#define COLL_LOC_64(v, w, of)                                                                      \
  { of((v)[w]), (int32_t)(v)[(w) + 1] }
#define COLL_LOC_128(v, of)                                                                        \
  { of(COLL_LONG(v, 0)), (int64_t)COLL_LONG(v, 2) }
#define COLL_LOC_PADDED(v, of)                                                                     \
  { of((v)[0]), 0, (int64_t)COLL_LONG(v, 2) }

/* Values of structs as bits, and back. */
#define COLL_OF_I32(bits)  ((int32_t)(bits))
#define COLL_OF_I64(bits)  ((int64_t)(bits))
#define COLL_TO_I32(value) ((uint32_t)(value))
#define COLL_TO_I64(value) ((uint64_t)(value))

/* Defines coll_fold_`op`_`type` for structs of 8 bytes. */
#define COLL_FOLD_LOC_64(op, type, of, to)                                                         \
  COLL_DEVICE coll_vec next_##op##_##type(coll_vec x, coll_vec y) {                                \
    const colli_mem_##type a = COLL_LOC_64(x, 0, of), b = COLL_LOC_64(y, 0, of);                   \
    const colli_mem_##type c = COLL_LOC_64(x, 2, of), d = COLL_LOC_64(y, 2, of);                   \
    const colli_mem_##type r = colli_##op##_##type(a, b), s = colli_##op##_##type(c, d);           \
    return (coll_vec){to(r.value), (uint32_t)r.index, to(s.value), (uint32_t)s.index};             \
  }                                                                                                \
  COLL_FOLD(op##_##type, 64, 1, coll_vec, COLL_AS_IT_IS, next_##op##_##type, COLL_RESULT)
COLL_FOLD_LOC_64(min, i32_loc, COLL_OF_I32, COLL_TO_I32)
COLL_FOLD_LOC_64(max, i32_loc, COLL_OF_I32, COLL_TO_I32)
COLL_FOLD_LOC_64(min, f32_loc, colli_f32_of_bits, colli_bits_of_f32)
COLL_FOLD_LOC_64(max, f32_loc, colli_f32_of_bits, colli_bits_of_f32)

/* For structs of 16 bytes. */
#define COLL_FOLD_LOC_128(op, type, of, to)                                                        \
  COLL_DEVICE coll_vec next_##op##_##type(coll_vec x, coll_vec y) {                                \
    const colli_mem_##type a = COLL_LOC_128(x, of), b = COLL_LOC_128(y, of);                       \
    const colli_mem_##type r = colli_##op##_##type(a, b);                                          \
    return coll_of_longs(to(r.value), (uint64_t)r.index);                                          \
  }                                                                                                \
  COLL_FOLD(op##_##type, 128, 1, coll_vec, COLL_AS_IT_IS, next_##op##_##type, COLL_RESULT)
COLL_FOLD_LOC_128(min, i64_loc, COLL_OF_I64, COLL_TO_I64)
COLL_FOLD_LOC_128(max, i64_loc, COLL_OF_I64, COLL_TO_I64)
COLL_FOLD_LOC_128(min, f64_loc, colli_f64_of_bits, colli_bits_of_f64)
COLL_FOLD_LOC_128(max, f64_loc, colli_f64_of_bits, colli_bits_of_f64)

/*
 * And for values of 4 bytes with an index of 8. A single input is combined with itself, which makes
 * its padding 0, as the host does.
 */
#define COLL_FOLD_LOC_PADDED(op, type, of, to)                                                     \
  COLL_DEVICE coll_vec next_##op##_##type(coll_vec x, coll_vec y) {                                \
    const colli_mem_##type a = COLL_LOC_PADDED(x, of), b = COLL_LOC_PADDED(y, of);                 \
    const colli_mem_##type r = colli_##op##_##type(a, b);                                          \
    return coll_of_longs(to(r.value), (uint64_t)r.index);                                          \
  }                                                                                                \
  COLL_DEVICE coll_vec first_##op##_##type(coll_vec x) {                                           \
    return next_##op##_##type(x, x);                                                               \
  }                                                                                                \
  COLL_FOLD(op##_##type, 128, 1, coll_vec, first_##op##_##type, next_##op##_##type, COLL_RESULT)
COLL_FOLD_LOC_PADDED(min, i32_loc64, COLL_OF_I32, COLL_TO_I32)
COLL_FOLD_LOC_PADDED(max, i32_loc64, COLL_OF_I32, COLL_TO_I32)
COLL_FOLD_LOC_PADDED(min, f32_loc64, colli_f32_of_bits, colli_bits_of_f32)
COLL_FOLD_LOC_PADDED(max, f32_loc64, colli_f32_of_bits, colli_bits_of_f32)
