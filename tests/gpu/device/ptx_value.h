/* ptx_value.h: values of PTX types as bits in a register of 64. */
#ifndef TESTS_GPU_PTX_VALUE_H
#define TESTS_GPU_PTX_VALUE_H

#include "ptx.h"

#include <string.h>

/* Whether a type is signed. */
static inline bool ptxv_signed(ptx_type type) {
  return type >= PTX_S8 && type <= PTX_S64;
}

/* Whether a type is a floating-point number. */
static inline bool ptxv_float(ptx_type type) {
  return type >= PTX_F16;
}

/* The low bits of a register, without sign. */
static inline uint64_t ptxv_zero_extend(ptx_type type, uint64_t bits) {
  unsigned shift = 64 - 8 * ptx_bytes(type);
  return bits << shift >> shift;
}

/* The low bits of a register, with sign. */
static inline int64_t ptxv_sign_extend(ptx_type type, uint64_t bits) {
  unsigned shift = 64 - 8 * ptx_bytes(type);
  return (int64_t)(bits << shift) >> shift;
}

/* An integer of the type, extended to 64 bits as its type says. */
static inline uint64_t ptxv_extend(ptx_type type, uint64_t bits) {
  return ptxv_signed(type) ? (uint64_t)ptxv_sign_extend(type, bits) : ptxv_zero_extend(type, bits);
}

/* The float in a register. */
static inline float ptxv_f32(uint64_t bits) {
  float value;
  uint32_t low = (uint32_t)bits;
  memcpy(&value, &low, sizeof value);
  return value;
}

/* The register that holds a float. */
static inline uint64_t ptxv_from_f32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* The double in a register. */
static inline double ptxv_f64(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The register that holds a double. */
static inline uint64_t ptxv_from_f64(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* The number that 16 bits stand for. */
double ptxv_f16(uint64_t bits);

/* The half-precision number next to a double in the direction of `round`. */
uint64_t ptxv_from_f16(double value, ptx_round round);

/* A number of any floating-point type. */
double ptxv_number(ptx_type type, uint64_t bits, bool ftz);

/* A double as bits of any floating-point type. */
uint64_t ptxv_from_number(ptx_type type, double value, ptx_round round);

/* Clamps to 0..1; a NaN becomes 0. */
static inline double ptxv_saturate(double value) {
  return value > 0 ? (value < 1 ? value : 1) : 0;
}

/* The third operand of setp and selp. */
static inline bool ptxv_third(const ptx_instr *in, uint64_t predicate) {
  return (predicate & 1) != in->negate_src;
}

/* The result of setp, from that of its comparison and its third operand. */
static inline bool ptxv_combine(const ptx_instr *in, bool result, uint64_t predicate) {
  bool third = ptxv_third(in, predicate);
  return in->sub2 == PTX_AND   ? result && third
         : in->sub2 == PTX_OR  ? result || third
         : in->sub2 == PTX_XOR ? result != third
                               : result;
}

/* Sets the processor's rounding; returns the former one. */
int ptxv_set_rounding(ptx_round round);

/* Rounds to an integer in the direction of `round`. */
double ptxv_integral(double value, ptx_round round);

/* Results of floating-point operations, conversions and comparisons. */
uint64_t ptxv_compute_float(const ptx_instr *in, const uint64_t x[4]);
uint64_t ptxv_convert(const ptx_instr *in, uint64_t x);
bool ptxv_compare(const ptx_instr *in, ptx_type type, uint64_t a, uint64_t b);

#endif
