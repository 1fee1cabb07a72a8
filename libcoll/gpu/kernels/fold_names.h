/* fold_names.h: which kernel reduces elements of a type with an operation. For the host. */
#ifndef COLLI_GPU_KERNELS_FOLD_NAMES_H
#define COLLI_GPU_KERNELS_FOLD_NAMES_H

#include <stdbool.h>
#include <stdio.h>

#include "coll/coll.h"
#include "libcoll/gpu/kernels/fold_args.h"

#define COLL_GPU_NAME_BYTES 32

/*
 * Writes the name of the kernel for a type and a predefined operation, `wide` if it computes in
 * float32 throughout (SUM and AVG of short floats). Returns whether there is one. Signed integers
 * share what has the same bits with the unsigned ones.
 */
static inline bool coll_gpu_fold_name(char name[COLL_GPU_NAME_BYTES], coll_type type, coll_op op,
                                      bool wide) {
  static const char *const types[COLL_TYPE_COUNT] = {
      "i8",      "u8",      "i16",     "u16",     "i32",       "u32",      "i64",
      "u64",     "f16",     "bf16",    "f32",     "f64",       "e4m3",     "e5m2",
      "i32_loc", "i64_loc", "f32_loc", "f64_loc", "i32_loc64", "f32_loc64"};
  static const char *const ops[COLL_OP_COUNT] = {"sum",  "prod", "min",  "max",  "avg",
                                                 "band", "bor",  "bxor", "land", "lor",
                                                 "lxor", "min",  "max"};
  if ((unsigned)type >= COLL_TYPE_COUNT || op < 0 || op >= COLL_OP_COUNT)
    return false;
  const bool is_int = type <= COLL_UINT64, is_loc = type >= COLL_INT32_LOC;
  const bool is_short = !is_int && !is_loc && type != COLL_FLOAT32 && type != COLL_FLOAT64;
  const bool on_bits = op >= COLL_BAND && op <= COLL_LXOR, finds = op >= COLL_MINLOC;
  if (finds != is_loc || (on_bits && !is_int))
    return false;
  if (wide && (!is_short || (op != COLL_SUM && op != COLL_AVG)))
    return false;
  const bool shared = is_int && (op == COLL_SUM || op == COLL_PROD || on_bits);
  const char *suffix = types[shared ? type | 1 : type];
  snprintf(name, COLL_GPU_NAME_BYTES, "coll_fold_%s_%s%s", ops[op], suffix, wide ? "_wide" : "");
  return true;
}

/* By what AVG of a type divides. */
static inline coll_gpu_divides coll_gpu_divides_of(coll_type type) {
  if (type == COLL_FLOAT64)
    return COLL_GPU_DIVIDES_DOUBLE;
  if (type > COLL_UINT64)
    return COLL_GPU_DIVIDES_FLOAT;
  if (type >= COLL_INT64)
    return COLL_GPU_DIVIDES_LONG_INT;
  return type >= COLL_INT32 ? COLL_GPU_DIVIDES_INT : COLL_GPU_DIVIDES_SHORT_INT;
}

#endif
