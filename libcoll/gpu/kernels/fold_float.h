/* fold_float.h: what the reductions of all floats share. */
#ifndef COLLI_GPU_KERNELS_FOLD_FLOAT_H
#define COLLI_GPU_KERNELS_FOLD_FLOAT_H

#include "libcoll/gpu/kernels/fold.h"

/* Defines name(x, y) on the bits of float32 or float64, of which OP takes and gives the values. */
#define COLL_ELEMENT_F(bits, name, OP)                                                             \
  COLL_DEVICE uint##bits##_t name(uint##bits##_t x, uint##bits##_t y) {                            \
    return colli_bits_of_f##bits(OP(colli_f##bits##_of_bits(x), colli_f##bits##_of_bits(y)));      \
  }

/* The same for short floats, of which OP takes and gives bits. */
#define COLL_ELEMENT_BITS(bits, name, OP)                                                          \
  COLL_DEVICE uint##bits##_t name(uint##bits##_t x, uint##bits##_t y) {                            \
    return (uint##bits##_t)OP(x, y);                                                               \
  }

/* Defines sum_`type` and prod_`type` of short floats. */
#define COLL_ELEMENT_SHORT(bits, type, WIDEN, NARROW)                                              \
  COLL_DEVICE uint##bits##_t sum_##type(uint##bits##_t x, uint##bits##_t y) {                      \
    return (uint##bits##_t)NARROW(WIDEN(x) + WIDEN(y));                                            \
  }                                                                                                \
  COLL_DEVICE uint##bits##_t prod_##type(uint##bits##_t x, uint##bits##_t y) {                     \
    return (uint##bits##_t)NARROW(WIDEN(x) * WIDEN(y));                                            \
  }

/* All kernels of one type, whose elements op_`type` combines. */
#define COLL_FOLD_FLOAT(type, bits, at_once, AVERAGE)                                              \
  COLL_FOLD_BY(sum_##type, bits, at_once, sum_##type)                                              \
  COLL_FOLD_BY(prod_##type, bits, 1, prod_##type)                                                  \
  COLL_FOLD_BY(min_##type, bits, 1, min_##type)                                                    \
  COLL_FOLD_BY(max_##type, bits, 1, max_##type)                                                    \
  COLL_FOLD_AVG(type, bits, at_once, sum_##type, AVERAGE)

/* Four floats, and the floats that elements of `bits` make of 16 bytes. */
typedef float coll_four __attribute__((vector_size(16)));
typedef struct coll_floats_16 {
  coll_four part[2];
} coll_floats_16;
typedef struct coll_floats_8 {
  coll_four part[4];
} coll_floats_8;

/* Part `i` made of a vector's elements, and all parts. */
#define COLL_PART_16(WIDEN, v, i)                                                                  \
  ((coll_four){WIDEN((v)[2 * (i)] & 0xffff), WIDEN((v)[2 * (i)] >> 16),                            \
               WIDEN((v)[2 * (i) + 1] & 0xffff), WIDEN((v)[2 * (i) + 1] >> 16)})
#define COLL_PART_8(WIDEN, v, i)                                                                   \
  ((coll_four){WIDEN((v)[i] & 0xff), WIDEN((v)[i] >> 8 & 0xff), WIDEN((v)[i] >> 16 & 0xff),        \
               WIDEN((v)[i] >> 24)})
#define COLL_WIDEN_16(WIDEN, v)                                                                    \
  ((coll_floats_16){{COLL_PART_16(WIDEN, v, 0), COLL_PART_16(WIDEN, v, 1)}})
#define COLL_WIDEN_8(WIDEN, v)                                                                     \
  ((coll_floats_8){{COLL_PART_8(WIDEN, v, 0), COLL_PART_8(WIDEN, v, 1), COLL_PART_8(WIDEN, v, 2),  \
                    COLL_PART_8(WIDEN, v, 3)}})

/* f on each part. */
#define COLL_PARTS_16(f) f(0) f(1)
#define COLL_PARTS_8(f)  f(0) f(1) f(2) f(3)

/* Words of a vector made of parts. */
#define COLL_NARROW_16(NARROW, f)                                                                  \
  ((coll_vec){NARROW((f).part[0][0]) | NARROW((f).part[0][1]) << 16,                               \
              NARROW((f).part[0][2]) | NARROW((f).part[0][3]) << 16,                               \
              NARROW((f).part[1][0]) | NARROW((f).part[1][1]) << 16,                               \
              NARROW((f).part[1][2]) | NARROW((f).part[1][3]) << 16})
#define COLL_NARROW_FOUR(NARROW, four)                                                             \
  (NARROW((four)[0]) | NARROW((four)[1]) << 8 | NARROW((four)[2]) << 16 | NARROW((four)[3]) << 24)
#define COLL_NARROW_8(NARROW, f)                                                                   \
  ((coll_vec){COLL_NARROW_FOUR(NARROW, (f).part[0]), COLL_NARROW_FOUR(NARROW, (f).part[1]),        \
              COLL_NARROW_FOUR(NARROW, (f).part[2]), COLL_NARROW_FOUR(NARROW, (f).part[3])})

/* Floats plus those of another input, and floats times the factor of an average. */
#define COLL_ADD_PART(i)   acc.part[i] += term.part[i];
#define COLL_SCALE_PART(i) acc.part[i] *= COLL_FACTOR_32;
#define COLL_FLOATS(bits)                                                                          \
  COLL_DEVICE coll_floats_##bits coll_add_##bits(coll_floats_##bits acc,                           \
                                                 coll_floats_##bits term) {                        \
    COLL_PARTS_##bits(COLL_ADD_PART) return acc;                                                   \
  }                                                                                                \
  COLL_DEVICE coll_floats_##bits coll_scale_##bits(coll_floats_##bits acc,                         \
                                                   const struct coll_gpu_fold *fold) {             \
    COLL_PARTS_##bits(COLL_SCALE_PART) return acc;                                                 \
  }
COLL_FLOATS(16)
COLL_FLOATS(8)

/*
 * Defines kernels coll_fold_sum_`type`_wide and coll_fold_avg_`type`_wide, which compute in float32
 * throughout and round once (COLL_ACCUMULATE_FLOAT32). Narrowing makes all NaNs the same, so they
 * need not be canonical before.
 */
#define COLL_FOLD_WIDE(type, bits, at_once, WIDEN, NARROW)                                         \
  COLL_DEVICE coll_floats_##bits first_##type##_wide(coll_vec v) {                                 \
    return COLL_WIDEN_##bits(WIDEN, v);                                                            \
  }                                                                                                \
  COLL_DEVICE coll_floats_##bits next_##type##_wide(coll_floats_##bits acc, coll_vec v) {          \
    return coll_add_##bits(acc, first_##type##_wide(v));                                           \
  }                                                                                                \
  COLL_DEVICE coll_vec last_sum_##type##_wide(coll_floats_##bits acc,                              \
                                              const struct coll_gpu_fold *fold) {                  \
    (void)fold;                                                                                    \
    return COLL_NARROW_##bits(NARROW, acc);                                                        \
  }                                                                                                \
  COLL_DEVICE coll_vec last_avg_##type##_wide(coll_floats_##bits acc,                              \
                                              const struct coll_gpu_fold *fold) {                  \
    return last_sum_##type##_wide(coll_scale_##bits(acc, fold), fold);                             \
  }                                                                                                \
  COLL_FOLD(sum_##type##_wide, bits, at_once, coll_floats_##bits, first_##type##_wide,             \
            next_##type##_wide, last_sum_##type##_wide)                                            \
  COLL_FOLD(avg_##type##_wide, bits, at_once, coll_floats_##bits, first_##type##_wide,             \
            next_##type##_wide, last_avg_##type##_wide)

#endif
