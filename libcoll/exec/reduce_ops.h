/*
 * reduce_ops.h: the reduction of one pair of elements. There are no branches, so that compilers
 * turn the loops of reduce_template.h into vector code for each instruction set.
 *
 * Every NaN result is the canonical quiet NaN of its type, because processors differ in which
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
#define COLLI_INF_F32  0x7f800000u
#define COLLI_NAN_F64  0x7ff8000000000000u

/* Elements in the caller's buffers: of any alignment and any declared type. */
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

/* ---- conversions ----------------------------------------------------------------------------- */

/* All bits or none. Compilers generate better vector code for masks than for chains of choices. */
static inline uint32_t colli_mask(int condition) {
  return 0u - (uint32_t)condition;
}

/*
 * Converts a short float of any format to float32. Takes its sign in bit 31, the rest shifted to
 * float32's fraction, the number to add to the exponent, and the least `rest` with the largest
 * exponent, which means infinity or NaN. No intermediate float32 is subnormal, so flush-to-zero
 * modes change nothing.
 */
static inline float colli_widen(uint32_t sign, uint32_t rest, uint32_t add, uint32_t special) {
  uint32_t normal = rest + (add << 23), first = (add + 1) << 23;
  uint32_t tiny = colli_bits_of_f32(colli_f32_of_bits(rest + first) - colli_f32_of_bits(first));
  uint32_t bits = normal ^ ((normal ^ tiny) & colli_mask((int32_t)rest < 0x800000));
  bits |= 0x7f800000u & colli_mask((int32_t)rest >= (int32_t)special);
  return colli_f32_of_bits(sign | bits);
}

/*
 * Converts float32 to a short float of `frac` fraction bits, to nearest even. `least` is its
 * smallest normal number, and larger numbers than `most` become `most`. Adding a power of two whose
 * spacing equals that of the result does the rounding. The sign goes to bit `top`; every NaN
 * becomes `nan`.
 */
static inline uint32_t colli_narrow(float value, int frac, float least, float most, int top,
                                    uint32_t nan) {
  const uint32_t up = (uint32_t)(23 - frac) << 23;
  uint32_t bits = colli_bits_of_f32(value), sign = (bits >> (31 - top)) & (1u << top);
  float size = colli_f32_of_bits(bits & 0x7fffffffu);
  size = size < most ? size : most;
  float binade = colli_f32_of_bits(colli_bits_of_f32(size) & 0x7f800000u);
  binade = binade > least ? binade : least;
  uint32_t step = colli_bits_of_f32(binade) + up;
  uint32_t sum = colli_bits_of_f32(size + colli_f32_of_bits(step));
  uint32_t rest = sum - step + ((step - up - colli_bits_of_f32(least)) >> (23 - frac));
  uint32_t is_nan = colli_mask(value != value);
  return ((sign | rest) & ~is_nan) | (nan & is_nan);
}

/* float16 to float32. */
static inline float colli_widen_f16(uint32_t half) {
  return colli_widen((half & 0x8000u) << 16, (half & 0x7fffu) << 13, 112, 0x7c00u << 13);
}

/* float32 to float16, to nearest even; 65520 and above become infinity. */
static inline uint32_t colli_narrow_f16(float value) {
  return colli_narrow(value, 10, 0x1p-14f, 0x1p16f, 15, COLLI_NAN_F16);
}

/* bfloat16 to float32. */
static inline float colli_widen_bf16(uint32_t bfloat) {
  return colli_f32_of_bits(bfloat << 16);
}

/* float32 to bfloat16, to nearest even. */
static inline uint32_t colli_narrow_bf16(float value) {
  uint32_t bits = colli_bits_of_f32(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return value != value ? COLLI_NAN_BF16 : rounded;
}

/* float8_e4m3 to float32: no infinity, and a NaN of either sign. */
static inline float colli_widen_e4m3(uint32_t small) {
  return colli_widen((small & 0x80u) << 24, (small & 0x7fu) << 20, 120, 0x7fu << 20);
}

/* float8_e5m2 to float32: it is the upper half of a float16. */
static inline float colli_widen_e5m2(uint32_t small) {
  return colli_widen((small & 0x80u) << 24, (small & 0x7fu) << 21, 112, 0x7cu << 21);
}

/* float32 to float8, to nearest even; larger numbers become the largest finite one. */
static inline uint32_t colli_narrow_e4m3(float value) {
  return colli_narrow(value, 3, 0x1p-6f, 448, 7, COLLI_NAN_E4M3);
}
static inline uint32_t colli_narrow_e5m2(float value) {
  return colli_narrow(value, 2, 0x1p-14f, 57344, 7, COLLI_NAN_E5M2);
}

/* ---- float8 as float16 ----------------------------------------------------------------------- */

/*
 * Where the processor has float16 instructions, sums and products of float8 use them. Rounding to
 * float16 first changes nothing: it has 11 digits and float8 at most 4, for which 2 * 4 + 2
 * suffice. float8_e5m2 is the upper half of a float16; float8_e4m3, shifted up, is 2^-8 of its
 * value, subnormals included.
 */
static inline uint16_t colli_e5m2_to_f16(uint8_t small) {
  return (uint16_t)(small << 8);
}
static inline uint16_t colli_e4m3_to_f16(uint8_t small) {
  uint16_t rest = small & 0x7f, nan = (uint16_t) - (rest == 0x7f);
  return (uint16_t)((small & 0x80) << 8 | rest << 7 | (nan & 0x7c00));
}

/* Back, by rounding off `off` bits, to nearest even. */
static inline uint8_t colli_f16_to_f8(uint16_t half, int off, uint16_t most, uint8_t nan) {
  uint16_t size = half & 0x7fff, sign = half >> 8 & 0x80;
  uint16_t rest = (uint16_t)(size + (1 << (off - 1)) - 1 + (size >> off & 1)) >> off;
  rest = rest < most ? rest : most;
  uint16_t is_nan = (uint16_t) - (size > 0x7c00);
  return (uint8_t)(((sign | rest) & ~is_nan) | (nan & is_nan));
}
static inline uint8_t colli_f16_to_e5m2(uint16_t half) {
  return colli_f16_to_f8(half, 8, 0x7b, COLLI_NAN_E5M2);
}
static inline uint8_t colli_f16_to_e4m3(uint16_t half) {
  return colli_f16_to_f8(half, 7, 0x7e, COLLI_NAN_E4M3);
}

/* ---- sums and products ----------------------------------------------------------------------- */

static inline float colli_canon_f32(float value) {
  return value != value ? colli_f32_of_bits(COLLI_NAN_F32) : value;
}
static inline double colli_canon_f64(double value) {
  return value != value ? colli_f64_of_bits(COLLI_NAN_F64) : value;
}

/* Integers wrap around, so unsigned arithmetic also works for the signed types. */
#define COLLI_SUM_INT(a, b)    ((a) + (b))
#define COLLI_PROD_INT(a, b)   ((a) * (b))
#define COLLI_PROD_SMALL(a, b) ((uint32_t)(a) * (uint32_t)(b)) /* int would overflow */

#define COLLI_SUM_F32(a, b)   colli_canon_f32((a) + (b))
#define COLLI_PROD_F32(a, b)  colli_canon_f32((a) * (b))
#define COLLI_SUM_F64(a, b)   colli_canon_f64((a) + (b))
#define COLLI_PROD_F64(a, b)  colli_canon_f64((a) * (b))
#define COLLI_SUM_F16(a, b)   colli_narrow_f16(colli_widen_f16(a) + colli_widen_f16(b))
#define COLLI_PROD_F16(a, b)  colli_narrow_f16(colli_widen_f16(a) * colli_widen_f16(b))
#define COLLI_SUM_BF16(a, b)  colli_narrow_bf16(colli_widen_bf16(a) + colli_widen_bf16(b))
#define COLLI_PROD_BF16(a, b) colli_narrow_bf16(colli_widen_bf16(a) * colli_widen_bf16(b))
#define COLLI_SUM_E4M3(a, b)  colli_narrow_e4m3(colli_widen_e4m3(a) + colli_widen_e4m3(b))
#define COLLI_PROD_E4M3(a, b) colli_narrow_e4m3(colli_widen_e4m3(a) * colli_widen_e4m3(b))
#define COLLI_SUM_E5M2(a, b)  colli_narrow_e5m2(colli_widen_e5m2(a) + colli_widen_e5m2(b))
#define COLLI_PROD_E5M2(a, b) colli_narrow_e5m2(colli_widen_e5m2(a) * colli_widen_e5m2(b))

/* ---- bits and truth -------------------------------------------------------------------------- */

#define COLLI_BAND(a, b) ((a) & (b))
#define COLLI_BOR(a, b)  ((a) | (b))
#define COLLI_BXOR(a, b) ((a) ^ (b))
#define COLLI_LAND(a, b) (((a) != 0) & ((b) != 0))
#define COLLI_LOR(a, b)  (((a) | (b)) != 0)
#define COLLI_LXOR(a, b) (((a) != 0) ^ ((b) != 0))

/* ---- minimum and maximum --------------------------------------------------------------------- */

#define COLLI_MIN_INT(a, b) ((a) < (b) ? (a) : (b))
#define COLLI_MAX_INT(a, b) ((a) > (b) ? (a) : (b))

/*
 * Floats of 16 bits are ordered like the integers that flip() makes of them: -0 below +0. `inf` is
 * the magnitude of infinity; larger magnitudes are NaNs.
 */
static inline int16_t colli_flip_16(int16_t bits) {
  return (int16_t)(bits ^ ((bits >> 15) & 0x7fff));
}
static inline uint16_t colli_pick_16(uint16_t a, uint16_t b, int16_t key, int16_t inf,
                                     uint16_t nan) {
  int16_t size_a = (int16_t)(a & 0x7fff), size_b = (int16_t)(b & 0x7fff);
  int16_t most = COLLI_MAX_INT(size_a, size_b);
  return most > inf ? nan : (uint16_t)colli_flip_16(key);
}
#define COLLI_PICK_16(pick, a, b, inf, nan)                                                        \
  colli_pick_16(a, b, pick(colli_flip_16((int16_t)(a)), colli_flip_16((int16_t)(b))), inf, nan)
#define COLLI_MIN_F16(a, b)  COLLI_PICK_16(COLLI_MIN_INT, a, b, 0x7c00, COLLI_NAN_F16)
#define COLLI_MAX_F16(a, b)  COLLI_PICK_16(COLLI_MAX_INT, a, b, 0x7c00, COLLI_NAN_F16)
#define COLLI_MIN_BF16(a, b) COLLI_PICK_16(COLLI_MIN_INT, a, b, 0x7f80, COLLI_NAN_BF16)
#define COLLI_MAX_BF16(a, b) COLLI_PICK_16(COLLI_MAX_INT, a, b, 0x7f80, COLLI_NAN_BF16)

/* Floats of 8 bits, the same way; magnitudes above `most` that are not NaNs become `most`. */
static inline int8_t colli_flip_8(int8_t bits) {
  int8_t negative = (int8_t) - (bits < 0);
  return (int8_t)(bits ^ (negative & 0x7f));
}
static inline uint8_t colli_pick_8(uint8_t a, uint8_t b, int8_t key, int8_t nan_above, int8_t most,
                                   uint8_t nan) {
  int8_t size_a = (int8_t)(a & 0x7f), size_b = (int8_t)(b & 0x7f), low = (int8_t)(-1 - most);
  int8_t larger = COLLI_MAX_INT(size_a, size_b);
  key = key > most ? most : key;
  key = key < low ? low : key;
  return larger > nan_above ? nan : (uint8_t)colli_flip_8(key);
}
#define COLLI_PICK_8(pick, a, b, above, most, nan)                                                 \
  colli_pick_8(a, b, pick(colli_flip_8((int8_t)(a)), colli_flip_8((int8_t)(b))), above, most, nan)
#define COLLI_MIN_E4M3(a, b) COLLI_PICK_8(COLLI_MIN_INT, a, b, 0x7e, 0x7e, COLLI_NAN_E4M3)
#define COLLI_MAX_E4M3(a, b) COLLI_PICK_8(COLLI_MAX_INT, a, b, 0x7e, 0x7e, COLLI_NAN_E4M3)
#define COLLI_MIN_E5M2(a, b) COLLI_PICK_8(COLLI_MIN_INT, a, b, 0x7c, 0x7b, COLLI_NAN_E5M2)
#define COLLI_MAX_E5M2(a, b) COLLI_PICK_8(COLLI_MAX_INT, a, b, 0x7c, 0x7b, COLLI_NAN_E5M2)

/*
 * Among equal floats, only zeros differ in their bits. The processor's minimum then returns the
 * second operand; combining the bits of both orders gives -0 for the minimum and +0 for the
 * maximum.
 */
#define COLLI_PICK_FLOAT(name, type, f, before, zero, NAN_BITS)                                    \
  static inline type name(type a, type b) {                                                        \
    type x = a before b ? a : b, y = b before a ? b : a;                                           \
    type r = colli_##f##_of_bits(colli_bits_of_##f(x) zero colli_bits_of_##f(y));                  \
    return __builtin_isunordered(a, b) ? colli_##f##_of_bits(NAN_BITS) : r;                        \
  }
COLLI_PICK_FLOAT(colli_min_f32, float, f32, <, |, COLLI_NAN_F32)
COLLI_PICK_FLOAT(colli_max_f32, float, f32, >, &, COLLI_NAN_F32)
COLLI_PICK_FLOAT(colli_min_f64, double, f64, <, |, COLLI_NAN_F64)
COLLI_PICK_FLOAT(colli_max_f64, double, f64, >, &, COLLI_NAN_F64)

/* ---- averages -------------------------------------------------------------------------------- */

/*
 * Integers up to 32 bits: converted to a float with digits to spare, multiplied by a slightly too
 * large reciprocal, and truncated. A multiple of n gives the quotient or a little more; a number 1
 * below the next multiple is farther from it than the error.
 */
#define COLLI_AVG_U16(x, inv) ((uint32_t)(int32_t)((float)(int32_t)(x) * (inv)))
#define COLLI_AVG_U8(x, inv)  COLLI_AVG_U16(x, inv)
#define COLLI_AVG_I16(x, inv) ((uint32_t)(int32_t)((float)(int16_t)(x) * (inv)) & 0xffffu)
#define COLLI_AVG_I8(x, inv)  ((uint32_t)(int32_t)((float)(int8_t)(x) * (inv)) & 0xffu)
#define COLLI_AVG_I32(x, inv) ((int32_t)((double)(x) * (inv)))
/* Avoids conversions of unsigned numbers, which not every processor has; the quotient is below
 * 2^31. */
#define COLLI_AVG_U32(x, inv)                                                                      \
  ((uint32_t)(int32_t)(((double)(int32_t)((x) ^ 0x80000000u) + 0x1p31) * (inv)))

/*
 * Integers of 64 bits: division by n >= 2 as the upper half of a multiplication by 2^(64 + bits) /
 * n, rounded up, without its leading one; 2^bits is the least power of two that is at least n
 * (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
 */
typedef struct colli_divisor {
  uint64_t factor;
  int bits;
} colli_divisor;

static inline colli_divisor colli_divisor_for(uint64_t n) {
  int bits = 64 - __builtin_clzll(n - 1);
  unsigned __int128 over = (unsigned __int128)((1ull << bits) - n) << 64;
  return (colli_divisor){(uint64_t)(over / n) + 1, bits};
}
static inline uint64_t colli_avg_u64(uint64_t x, colli_divisor by) {
  uint64_t upper = (uint64_t)((unsigned __int128)x * by.factor >> 64);
  return (upper + ((x - upper) >> 1)) >> (by.bits - 1);
}
static inline int64_t colli_avg_i64(int64_t x, colli_divisor by) {
  uint64_t sign = (uint64_t)(x >> 63);
  return (int64_t)((colli_avg_u64(((uint64_t)x ^ sign) - sign, by) ^ sign) - sign);
}

#define COLLI_AVG_F32(x, inv)  colli_canon_f32((x) * (inv))
#define COLLI_AVG_F64(x, n)    colli_canon_f64((x) / (n))
#define COLLI_AVG_F16(x, inv)  colli_narrow_f16(colli_widen_f16(x) * (inv))
#define COLLI_AVG_BF16(x, inv) colli_narrow_bf16(colli_widen_bf16(x) * (inv))
#define COLLI_AVG_E4M3(x, inv) colli_narrow_e4m3(colli_widen_e4m3(x) * (inv))
#define COLLI_AVG_E5M2(x, inv) colli_narrow_e5m2(colli_widen_e5m2(x) * (inv))

/* ---- words ----------------------------------------------------------------------------------- */

/*
 * Applies OP to each of the two or four short floats in a word of 32 bits. In loops over words,
 * vectors have as many lanes for the words as for the float32 values made from them, so nothing
 * moves between lanes.
 */
#define COLLI_WORD_2(OP, a, b) (OP((a)&0xffffu, (b)&0xffffu) | OP((a) >> 16, (b) >> 16) << 16)
#define COLLI_WORD_4(OP, a, b)                                                                     \
  (OP((a)&0xffu, (b)&0xffu) | OP((a) >> 8 & 0xffu, (b) >> 8 & 0xffu) << 8 |                        \
   OP((a) >> 16 & 0xffu, (b) >> 16 & 0xffu) << 16 | OP((a) >> 24, (b) >> 24) << 24)

/* The same with one operand for all. */
#define COLLI_WORD_2_BY(OP, a, f) (OP((a)&0xffffu, f) | OP((a) >> 16, f) << 16)
#define COLLI_WORD_4_BY(OP, a, f)                                                                  \
  (OP((a)&0xffu, f) | OP((a) >> 8 & 0xffu, f) << 8 | OP((a) >> 16 & 0xffu, f) << 16 |              \
   OP((a) >> 24, f) << 24)

#endif
