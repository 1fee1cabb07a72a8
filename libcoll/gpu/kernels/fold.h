/*
 * fold.h: the kernel that all reductions share. It reads each input once, combines them in the
 * given order, and writes the result to each output. It never waits for anything.
 *
 * Each thread takes every n-th vector of 16 bytes; the single elements before and after the vectors
 * count as further ones.
 */
#ifndef COLLI_GPU_KERNELS_FOLD_H
#define COLLI_GPU_KERNELS_FOLD_H

#include "libcoll/gpu/kernels/lanes.h"

/* Address of input or output `i`. */
COLL_DEVICE uint64_t coll_input(const struct coll_gpu_fold *fold, uint32_t i) {
  return i < COLL_GPU_PLACES ? fold->in[i]
                             : coll_load_64(fold->more_in + 8ull * (i - COLL_GPU_PLACES));
}
COLL_DEVICE uint64_t coll_output(const struct coll_gpu_fold *fold, uint32_t i) {
  return i < COLL_GPU_PLACES ? fold->out[i]
                             : coll_load_64(fold->more_out + 8ull * (i - COLL_GPU_PLACES));
}

#ifdef __CUDA__
#define COLL_ONE_BY_ONE _Pragma("unroll 1") /* a reduction is long enough to be there once */
#else
#define COLL_ONE_BY_ONE
#endif

/*
 * Defines kernel coll_fold_`name` for elements of `bits`: acc = FIRST(input 0), acc = NEXT(acc,
 * input) for the others, result = LAST(acc, &fold). They take and give vectors; acc_type may be
 * another type.
 *
 * `at_once` inputs, 1 or 4, are loaded before they are combined. Peers' memory answers slowly, but
 * long reductions would make the kernel large.
 */
#define COLL_FOLD(name, bits, at_once, acc_type, FIRST, NEXT, LAST)                                \
  COLL_KERNEL coll_fold_##name(struct coll_gpu_fold fold) {                                        \
    const uint64_t step = coll_threads(), all = fold.vectors + fold.singles;                       \
    if (coll_is_stopped(fold.guard))                                                               \
      return;                                                                                      \
    COLL_ONE_BY_ONE for (uint64_t i = coll_thread(); i < all; i += step) {                         \
      const int whole = i < fold.vectors;                                                          \
      const uint64_t offset = coll_offset(&fold, i, bits);                                         \
      const coll_vec zero = {0, 0, 0, 0};                                                          \
      acc_type acc = FIRST(zero);                                                                  \
      COLL_ONE_BY_ONE for (uint32_t p = 0; p < fold.inputs; p += at_once) {                        \
        const uint32_t left = fold.inputs - p;                                                     \
        coll_vec x = COLL_LOAD(bits, p), y = zero, z = zero, w = zero;                             \
        if (at_once > 1 && left > 1)                                                               \
          y = COLL_LOAD(bits, p + 1);                                                              \
        if (at_once > 1 && left > 2)                                                               \
          z = COLL_LOAD(bits, p + 2);                                                              \
        if (at_once > 1 && left > 3)                                                               \
          w = COLL_LOAD(bits, p + 3);                                                              \
        acc = p ? NEXT(acc, x) : FIRST(x);                                                         \
        if (at_once > 1 && left > 1)                                                               \
          acc = NEXT(acc, y);                                                                      \
        if (at_once > 1 && left > 2)                                                               \
          acc = NEXT(acc, z);                                                                      \
        if (at_once > 1 && left > 3)                                                               \
          acc = NEXT(acc, w);                                                                      \
      }                                                                                            \
      const coll_vec result = LAST(acc, &fold);                                                    \
      COLL_ONE_BY_ONE for (uint32_t p = 0; p < fold.outputs; p++) {                                \
        const uint64_t at = coll_output(&fold, p) + offset;                                        \
        if (whole)                                                                                 \
          coll_store_vec(at, result);                                                              \
        else                                                                                       \
          coll_store_elem_##bits(at, result);                                                      \
      }                                                                                            \
    }                                                                                              \
  }

/* What a thread loads of input `p`: a vector or an element. */
#define COLL_LOAD(bits, p)                                                                         \
  (whole ? coll_load_vec(coll_input(&fold, p) + offset)                                            \
         : coll_load_elem_##bits(coll_input(&fold, p) + offset))

/* Where the i-th vector begins, or after the vectors the i-th single element. */
COLL_DEVICE uint64_t coll_offset(const struct coll_gpu_fold *fold, uint64_t i, uint32_t bits) {
  const uint64_t single = i - fold->vectors, elem = bits / 8;
  if (i < fold->vectors)
    return fold->head * elem + i * 16;
  return single < fold->head ? single * elem : single * elem + fold->vectors * 16;
}

/* What FIRST and LAST usually are. */
#define COLL_AS_IT_IS(x)     (x)
#define COLL_RESULT(x, fold) (x)

/* Defines next_`name`, for all elements of vectors; f combines two elements of `bits`. */
#define COLL_NEXT(name, bits, f)                                                                   \
  COLL_DEVICE coll_vec next_##name(coll_vec x, coll_vec y) {                                       \
    return COLL_LANES_##bits(f, x, y);                                                             \
  }

/* Defines kernel coll_fold_`name`, which combines elements with f. */
#define COLL_FOLD_BY(name, bits, at_once, f)                                                       \
  COLL_NEXT(name, bits, f)                                                                         \
  COLL_FOLD(name, bits, at_once, coll_vec, COLL_AS_IT_IS, next_##name, COLL_RESULT)

/*
 * Defines kernel coll_fold_avg_`type`: adds with f, then AVERAGE(x, x) divides, a macro that knows
 * `fold`. It has two operands because lanes have.
 */
#define COLL_FOLD_AVG(type, bits, at_once, f, AVERAGE)                                             \
  COLL_NEXT(avg_##type, bits, f)                                                                   \
  COLL_DEVICE coll_vec last_avg_##type(coll_vec x, const struct coll_gpu_fold *fold) {             \
    return COLL_LANES_##bits(AVERAGE, x, x);                                                       \
  }                                                                                                \
  COLL_FOLD(avg_##type, bits, at_once, coll_vec, COLL_AS_IT_IS, next_avg_##type, last_avg_##type)

/* The factor of an average, see fold_args.h. */
#define COLL_FACTOR_32 colli_f32_of_bits(fold->factor_32)
#define COLL_FACTOR_64 colli_f64_of_bits(fold->factor_64)

#endif
