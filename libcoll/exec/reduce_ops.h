/*
 * reduce_ops.h: what one reduction does to one pair of elements. Free of branches, so that the
 * loops of reduce_template.h become vector code for each instruction set.
 *
 * Every NaN that comes out is the one canonical quiet NaN of its type: processors differ in which
 * payload survives, and a op b must have the same bits as b op a on all ranks.
 */
#ifndef COLLI_EXEC_REDUCE_OPS_H
#define COLLI_EXEC_REDUCE_OPS_H

#include <stdint.h>
#include <string.h>

#define COLLI_NAN_E4M3 0x7fu
#define COLLI_NAN_E5M2 0x7eu
#define COLLI_NAN_F16  0x7e00u
#define COLLI_NAN_BF16 0x7fc0u
#define COLLI_NAN_F32  0x7fc00000u
#define COLLI_NAN_F64  0x7ff8000000000000u

/* Elements as they lie in the callers' buffers: of any alignment, and of any declared type. */
typedef uint8_t __attribute__((may_alias)) colli_mem_u8;
typedef int8_t __attribute__((may_alias)) colli_mem_i8;
typedef uint16_t __attribute__((may_alias, aligned(1))) colli_mem_u16;
typedef int16_t __attribute__((may_alias, aligned(1))) colli_mem_i16;
typedef uint32_t __attribute__((may_alias, aligned(1))) colli_mem_u32;
typedef int32_t __attribute__((may_alias, aligned(1))) colli_mem_i32;
typedef uint64_t __attribute__((may_alias, aligned(1))) colli_mem_u64;
typedef int64_t __attribute__((may_alias, aligned(1))) colli_mem_i64;
typedef float __attribute__((may_alias, aligned(1))) colli_mem_f32;
typedef double __attribute__((may_alias, aligned(1))) colli_mem_f64;

/* The bits of a float32 as a number, and back. */
static inline uint32_t colli_bits_of_f32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
static inline float colli_f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* The bits of a float64 as a number, and back. */
static inline uint64_t colli_bits_of_f64(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
static inline double colli_f64_of_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* ---- conversions ------------------------------------------------------------------------------
 */

/* float16 to float32. No step makes a float32 subnormal, so flush-to-zero modes change nothing. */
static inline float colli_widen_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
  uint32_t normal = (rest << 13) + (112u << 23);
  uint32_t special =
      (rest << 13) + (224u << 23) + (rest > 0x7c00u ? 0x400000u & ~(rest << 13) : 0u);
  uint32_t tiny = colli_bits_of_f32((float)(int32_t)rest * 0x1p-24f);
  uint32_t bits = rest < 0x400u ? tiny : normal;
  bits = rest >= 0x7c00u ? special : bits;
  return colli_f32_of_bits(sign | bits);
}

/* float32 to float16, to nearest even. */
static inline uint16_t colli_narrow_f16(float value) {
  uint32_t bits = colli_bits_of_f32(value);
  uint32_t sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  uint32_t normal = ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13) - (112u << 10);
  /* One half has the spacing of float16's subnormals: the addition rounds to it. */
  uint32_t tiny = colli_bits_of_f32(colli_f32_of_bits(rest) + 0.5f) - 0x3f000000u;
  uint32_t nan = 0x7e00u | ((rest >> 13) & 0x3ffu);
  uint32_t half = rest < 0x38800000u ? tiny : normal;
  half = rest >= 0x477ff000u ? 0x7c00u : half; /* from 65520 on it rounds to infinity */
  half = rest > 0x7f800000u ? nan : half;
  return (uint16_t)(sign | half);
}

/* bfloat16 to float32. */
static inline float colli_widen_bf16(uint16_t bfloat) {
  return colli_f32_of_bits((uint32_t)bfloat << 16);
}

/* float32 to bfloat16, to nearest even. */
static inline uint16_t colli_narrow_bf16(float value) {
  uint32_t bits = colli_bits_of_f32(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* The same with every NaN made canonical. */
static inline uint16_t colli_narrow_bf16_canon(float value) {
  uint32_t bits = colli_bits_of_f32(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (uint16_t)(value != value ? COLLI_NAN_BF16 : rounded);
}

/* float8_e4m3 to float32: no infinity, and a NaN of either sign, which becomes the canonical one.
 */
static inline float colli_widen_e4m3(uint8_t small) {
  uint32_t sign = (uint32_t)(small & 0x80u) << 24, rest = small & 0x7fu;
  uint32_t normal = (rest << 20) + (120u << 23);
  uint32_t tiny = colli_bits_of_f32((float)(int32_t)rest * 0x1p-9f);
  uint32_t bits = sign | (rest < 8u ? tiny : normal);
  return colli_f32_of_bits(rest == 0x7fu ? COLLI_NAN_F32 : bits);
}

/* float8_e5m2 to float32: it is the upper half of a float16. */
static inline float colli_widen_e5m2(uint8_t small) {
  return colli_widen_f16((uint16_t)(small << 8));
}

/*
 * float32 to float8 with `frac` fraction bits and an exponent that is `shift` less, to nearest
 * even. `least` are the bits of the smallest normal number, and `step` those of the power of two
 * whose neighbours are as far from it as the subnormals are from each other: adding it rounds to
 * them. What is more than `most`, infinities too, becomes `most`; every NaN becomes `nan`.
 */
static inline uint8_t colli_narrow_f8(float value, int frac, uint32_t shift, uint32_t least,
                                      uint32_t step, uint32_t most, uint32_t nan) {
  uint32_t bits = colli_bits_of_f32(value), odd = (bits >> (23 - frac)) & 1u;
  uint32_t sign = (bits >> 24) & 0x80u, rest = bits & 0x7fffffffu;
  uint32_t half = (1u << (22 - frac)) - 1u;
  uint32_t normal = ((rest + half + odd) >> (23 - frac)) - (shift << frac);
  uint32_t tiny = colli_bits_of_f32(colli_f32_of_bits(rest) + colli_f32_of_bits(step)) - step;
  uint32_t small = rest < least ? tiny : normal;
  small = sign | (small > most ? most : small);
  return (uint8_t)(rest > 0x7f800000u ? nan : small);
}
static inline uint8_t colli_narrow_e4m3(float value) {
  return colli_narrow_f8(value, 3, 120, 121u << 23, 141u << 23, 0x7eu, COLLI_NAN_E4M3);
}
static inline uint8_t colli_narrow_e5m2(float value) {
  return colli_narrow_f8(value, 2, 112, 113u << 23, 134u << 23, 0x7bu, COLLI_NAN_E5M2);
}

/* ---- sums and products ------------------------------------------------------------------------
 */

static inline float colli_canon_f32(float value) {
  return value != value ? colli_f32_of_bits(COLLI_NAN_F32) : value;
}
static inline double colli_canon_f64(double value) {
  return value != value ? colli_f64_of_bits(COLLI_NAN_F64) : value;
}

/* Integers wrap around: unsigned arithmetic serves the signed types as well. */
#define COLLI_SUM_INT(a, b)    ((a) + (b))
#define COLLI_PROD_INT(a, b)   ((a) * (b))
#define COLLI_PROD_SMALL(a, b) ((uint32_t)(a) * (uint32_t)(b)) /* int would overflow */

#define COLLI_SUM_F32(a, b)  colli_canon_f32((a) + (b))
#define COLLI_PROD_F32(a, b) colli_canon_f32((a) * (b))
#define COLLI_SUM_F64(a, b)  colli_canon_f64((a) + (b))
#define COLLI_PROD_F64(a, b) colli_canon_f64((a) * (b))
#define COLLI_SUM_F16(a, b)  colli_narrow_f16(COLLI_SUM_F32(colli_widen_f16(a), colli_widen_f16(b)))
#define COLLI_PROD_F16(a, b)                                                                       \
  colli_narrow_f16(COLLI_PROD_F32(colli_widen_f16(a), colli_widen_f16(b)))
#define COLLI_SUM_BF16(a, b)  colli_narrow_bf16_canon(colli_widen_bf16(a) + colli_widen_bf16(b))
#define COLLI_PROD_BF16(a, b) colli_narrow_bf16_canon(colli_widen_bf16(a) * colli_widen_bf16(b))
#define COLLI_SUM_E4M3(a, b)  colli_narrow_e4m3(colli_widen_e4m3(a) + colli_widen_e4m3(b))
#define COLLI_PROD_E4M3(a, b) colli_narrow_e4m3(colli_widen_e4m3(a) * colli_widen_e4m3(b))
#define COLLI_SUM_E5M2(a, b)  colli_narrow_e5m2(colli_widen_e5m2(a) + colli_widen_e5m2(b))
#define COLLI_PROD_E5M2(a, b) colli_narrow_e5m2(colli_widen_e5m2(a) * colli_widen_e5m2(b))

/* ---- bits and truth ---------------------------------------------------------------------------
 */

#define COLLI_BAND(a, b) ((a) & (b))
#define COLLI_BOR(a, b)  ((a) | (b))
#define COLLI_BXOR(a, b) ((a) ^ (b))
#define COLLI_LAND(a, b) (((a) != 0) & ((b) != 0))
#define COLLI_LOR(a, b)  (((a) | (b)) != 0)
#define COLLI_LXOR(a, b) (((a) != 0) ^ ((b) != 0))

/* ---- minimum and maximum ----------------------------------------------------------------------
 */

#define COLLI_MIN_INT(a, b) ((a) < (b) ? (a) : (b))
#define COLLI_MAX_INT(a, b) ((a) > (b) ? (a) : (b))

/*
 * Floats of 16 bits are ordered as the integers that flip() makes of them: -0 below +0. nan_above
 * is the magnitude of infinity.
 */
static inline int16_t colli_flip_16(uint16_t bits) {
  int16_t value = (int16_t)bits;
  return (int16_t)(value ^ ((value >> 15) & 0x7fff));
}
static inline uint16_t colli_pick_16(uint16_t a, uint16_t b, int16_t key, int16_t nan_above,
                                     uint16_t nan) {
  int is_nan = ((int16_t)(a & 0x7fff) > nan_above) | ((int16_t)(b & 0x7fff) > nan_above);
  return is_nan ? nan : (uint16_t)colli_flip_16((uint16_t)key);
}
#define COLLI_PICK_16(pick, a, b, inf, nan)                                                        \
  colli_pick_16(a, b, pick(colli_flip_16(a), colli_flip_16(b)), inf, nan)
#define COLLI_MIN_F16(a, b)  COLLI_PICK_16(COLLI_MIN_INT, a, b, 0x7c00, COLLI_NAN_F16)
#define COLLI_MAX_F16(a, b)  COLLI_PICK_16(COLLI_MAX_INT, a, b, 0x7c00, COLLI_NAN_F16)
#define COLLI_MIN_BF16(a, b) COLLI_PICK_16(COLLI_MIN_INT, a, b, 0x7f80, COLLI_NAN_BF16)
#define COLLI_MAX_BF16(a, b) COLLI_PICK_16(COLLI_MAX_INT, a, b, 0x7f80, COLLI_NAN_BF16)

/* Floats of 8 bits, the same way; what is more than `most` without being a NaN becomes `most`. */
static inline int8_t colli_flip_8(uint8_t bits) {
  int8_t value = (int8_t)bits;
  return (int8_t)(value ^ ((value >> 7) & 0x7f));
}
static inline uint8_t colli_pick_8(uint8_t a, uint8_t b, int8_t key, int8_t nan_above, int8_t most,
                                   uint8_t nan) {
  int is_nan = ((int8_t)(a & 0x7f) > nan_above) | ((int8_t)(b & 0x7f) > nan_above);
  int8_t low = (int8_t)(-1 - most);
  key = key > most ? most : key;
  key = key < low ? low : key;
  return is_nan ? nan : (uint8_t)colli_flip_8((uint8_t)key);
}
#define COLLI_PICK_8(pick, a, b, above, most, nan)                                                 \
  colli_pick_8(a, b, pick(colli_flip_8(a), colli_flip_8(b)), above, most, nan)
#define COLLI_MIN_E4M3(a, b) COLLI_PICK_8(COLLI_MIN_INT, a, b, 0x7e, 0x7e, COLLI_NAN_E4M3)
#define COLLI_MAX_E4M3(a, b) COLLI_PICK_8(COLLI_MAX_INT, a, b, 0x7e, 0x7e, COLLI_NAN_E4M3)
#define COLLI_MIN_E5M2(a, b) COLLI_PICK_8(COLLI_MIN_INT, a, b, 0x7c, 0x7b, COLLI_NAN_E5M2)
#define COLLI_MAX_E5M2(a, b) COLLI_PICK_8(COLLI_MAX_INT, a, b, 0x7c, 0x7b, COLLI_NAN_E5M2)

/* Of equal floats only zeros differ in their bits: `equal` is the bits of the wanted one. */
static inline float colli_pick_f32(float less, float a, float b, uint32_t equal) {
  float ordered = a == b ? colli_f32_of_bits(equal) : less;
  return __builtin_isunordered(a, b) ? colli_f32_of_bits(COLLI_NAN_F32) : ordered;
}
static inline double colli_pick_f64(double less, double a, double b, uint64_t equal) {
  double ordered = a == b ? colli_f64_of_bits(equal) : less;
  return __builtin_isunordered(a, b) ? colli_f64_of_bits(COLLI_NAN_F64) : ordered;
}
#define COLLI_MIN_F32(a, b)                                                                        \
  colli_pick_f32((a) < (b) ? (a) : (b), a, b, colli_bits_of_f32(a) | colli_bits_of_f32(b))
#define COLLI_MAX_F32(a, b)                                                                        \
  colli_pick_f32((a) > (b) ? (a) : (b), a, b, colli_bits_of_f32(a) & colli_bits_of_f32(b))
#define COLLI_MIN_F64(a, b)                                                                        \
  colli_pick_f64((a) < (b) ? (a) : (b), a, b, colli_bits_of_f64(a) | colli_bits_of_f64(b))
#define COLLI_MAX_F64(a, b)                                                                        \
  colli_pick_f64((a) > (b) ? (a) : (b), a, b, colli_bits_of_f64(a) & colli_bits_of_f64(b))

/* ---- averages ---------------------------------------------------------------------------------
 */

#define COLLI_AVG_INT(x, n)    ((x) / (n)) /* C's division truncates toward zero */
#define COLLI_AVG_F32(x, inv)  colli_canon_f32((x) * (inv))
#define COLLI_AVG_F64(x, n)    colli_canon_f64((x) / (n))
#define COLLI_AVG_F16(x, inv)  colli_narrow_f16(COLLI_AVG_F32(colli_widen_f16(x), inv))
#define COLLI_AVG_BF16(x, inv) colli_narrow_bf16_canon(colli_widen_bf16(x) * (inv))
#define COLLI_AVG_E4M3(x, inv) colli_narrow_e4m3(colli_widen_e4m3(x) * (inv))
#define COLLI_AVG_E5M2(x, inv) colli_narrow_e5m2(colli_widen_e5m2(x) * (inv))

#endif
