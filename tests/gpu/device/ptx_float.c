/* ptx_float.c: floating-point arithmetic of PTX. */
#include "ptx_value.h"

#include <fenv.h>
#include <math.h>

double ptxv_integral(double value, ptx_round round) {
  switch (round) {
  case PTX_RZ:
  case PTX_RZI:
    return trunc(value);
  case PTX_RM:
  case PTX_RMI:
    return floor(value);
  case PTX_RP:
  case PTX_RPI:
    return ceil(value);
  default:
    return rint(value);
  }
}

double ptxv_f16(uint64_t bits) {
  int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
  double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                : exponent     ? ldexp(1024 + fraction, exponent - 25)
                               : ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

/* Rounds a float to half precision, to nearest even. */
static uint64_t half_nearest(float value) {
  uint32_t bits = (uint32_t)ptxv_from_f32(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000)
    return 0x7fff;
  if (bits >= 0x47800000)
    return sign | 0x7c00;
  if (bits < 0x38800000) /* the sum's last place is 2^-24 */
    return sign | (ptxv_from_f32(ptxv_f32(bits) + 0.5f) - 0x3f000000);
  return sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
}

uint64_t ptxv_from_f16(double value, ptx_round round) {
  if (round <= PTX_RN && (double)(float)value == value)
    return half_nearest((float)value);
  if (isnan(value))
    return 0x7fff;
  uint64_t sign = signbit(value) ? 0x8000 : 0;
  if (value == 0 || isinf(value))
    return sign | (value == 0 ? 0 : 0x7c00);
  int exponent = ilogb(value) < -14 ? -14 : ilogb(value);
  double steps = fabs(ptxv_integral(ldexp(value, 10 - exponent), round)); /* of 2^(exponent-10) */
  if (ldexp(steps, exponent - 10) > 65504) {
    bool away = round <= PTX_RN || (round == PTX_RM && sign) || (round == PTX_RP && !sign);
    return sign | (away ? 0x7c00 : 0x7bff);
  }
  return sign | (((uint64_t)(exponent + 14) << 10) + (uint64_t)steps);
}

double ptxv_number(ptx_type type, uint64_t bits, bool ftz) {
  if (type == PTX_F64)
    return ptxv_f64(bits);
  if (type == PTX_F16)
    return ptxv_f16(bits);
  float value = ptxv_f32(bits);
  return ftz && fpclassify(value) == FP_SUBNORMAL ? copysign(0, value) : value;
}

int ptxv_set_rounding(ptx_round round) {
  int before = fegetround();
  fesetround(round == PTX_RZ   ? FE_TOWARDZERO
             : round == PTX_RM ? FE_DOWNWARD
             : round == PTX_RP ? FE_UPWARD
                               : FE_TONEAREST);
  return before;
}

uint64_t ptxv_from_number(ptx_type type, double value, ptx_round round) {
  if (type == PTX_F16)
    return ptxv_from_f16(value, round);
  if (type == PTX_F64)
    return ptxv_from_f64(value);
  int before = ptxv_set_rounding(round);
  volatile double from = value;
  volatile float rounded = (float)from;
  fesetround(before);
  return isnan(value) ? 0x7fffffff : ptxv_from_f32(rounded);
}

/* The smaller or larger of two numbers; a number wins over a NaN, and -0 is smaller than 0. */
static double extreme(double a, double b, bool larger) {
  if (isnan(a) || isnan(b))
    return isnan(a) ? b : a;
  if (a == b)
    return (signbit(a) != 0) != larger ? a : b;
  return (a < b) != larger ? a : b;
}

/* Operations that need no exact rounding, and those that choose an operand. */
static double other(const ptx_instr *in, double a, double b) {
  switch (in->op) {
  case OP_MIN:
  case OP_MAX:
    return extreme(a, b, in->op == OP_MAX);
  case OP_COPYSIGN:
    return copysign(b, a);
  case OP_RSQRT:
    return 1 / sqrt(a);
  case OP_EX2:
    return exp2(a);
  case OP_LG2:
    return log2(a);
  case OP_SIN:
    return sin(a);
  default:
    return cos(a);
  }
}

/* Single precision. */
static float compute_f32(const ptx_instr *in, float a, float b, float c) {
  switch (in->op) {
  case OP_ADD:
    return a + b;
  case OP_SUB:
    return a - b;
  case OP_MUL:
    return a * b;
  case OP_MAD:
  case OP_FMA:
    return fmaf(a, b, c);
  case OP_DIV:
    return a / b;
  case OP_RCP:
    return 1 / a;
  case OP_SQRT:
    return sqrtf(a);
  default:
    return (float)other(in, a, b);
  }
}

/* Double precision; half precision is rounded from this. */
static double compute_f64(const ptx_instr *in, double a, double b, double c) {
  switch (in->op) {
  case OP_ADD:
    return a + b;
  case OP_SUB:
    return a - b;
  case OP_MUL:
    return a * b;
  case OP_MAD:
  case OP_FMA:
    return fma(a, b, c);
  case OP_DIV:
    return a / b;
  case OP_RCP:
    return 1 / a;
  case OP_SQRT:
    return sqrt(a);
  default:
    return other(in, a, b);
  }
}

/* f32, with the processor's rounding set if the instruction asks for it. */
static uint64_t float_f32(const ptx_instr *in, const uint64_t x[4]) {
  volatile float a = (float)ptxv_number(PTX_F32, x[0], in->ftz);
  volatile float b = (float)ptxv_number(PTX_F32, x[1], in->ftz);
  volatile float c = (float)ptxv_number(PTX_F32, x[2], in->ftz);
  volatile float result;
  if (in->round > PTX_RN) {
    int before = ptxv_set_rounding(in->round);
    result = compute_f32(in, a, b, c);
    fesetround(before);
  } else {
    result = compute_f32(in, a, b, c);
  }
  if (in->sat)
    result = (float)ptxv_saturate(result);
  if (isnan(result))
    return 0x7fffffff;
  return ptxv_from_f32((float)ptxv_number(PTX_F32, ptxv_from_f32(result), in->ftz));
}

/* f64. */
static uint64_t float_f64(const ptx_instr *in, const uint64_t x[4]) {
  volatile double a = ptxv_f64(x[0]), b = ptxv_f64(x[1]), c = ptxv_f64(x[2]), result;
  if (in->round > PTX_RN) {
    int before = ptxv_set_rounding(in->round);
    result = compute_f64(in, a, b, c);
    fesetround(before);
  } else {
    result = compute_f64(in, a, b, c);
  }
  return ptxv_from_f64(in->sat ? ptxv_saturate(result) : result);
}

/* f16: exact in double precision, but for a few sums of fma. */
static uint64_t float_f16(const ptx_instr *in, const uint64_t x[4]) {
  double result = compute_f64(in, ptxv_f16(x[0]), ptxv_f16(x[1]), ptxv_f16(x[2]));
  return ptxv_from_f16(in->sat ? ptxv_saturate(result) : result, PTX_RN);
}

/* neg and abs, which change only the sign. */
static uint64_t change_sign(const ptx_instr *in, uint64_t x) {
  uint64_t sign = in->type == PTX_F16     ? 0x8000
                  : in->type == PTX_F16X2 ? 0x80008000
                  : in->type == PTX_F32   ? 1ull << 31
                                          : 1ull << 63;
  if (in->type == PTX_F32)
    x = ptxv_from_f32((float)ptxv_number(PTX_F32, x, in->ftz));
  return in->op == OP_NEG ? x ^ sign : x & ~sign;
}

uint64_t ptxv_compute_float(const ptx_instr *in, const uint64_t x[4]) {
  if (in->op == OP_NEG || in->op == OP_ABS)
    return change_sign(in, x[0]);
  if (in->type == PTX_F32)
    return float_f32(in, x);
  if (in->type == PTX_F64)
    return float_f64(in, x);
  if (in->type == PTX_F16)
    return float_f16(in, x);
  const uint64_t high[4] = {x[0] >> 16, x[1] >> 16, x[2] >> 16, 0};
  return float_f16(in, x) | float_f16(in, high) << 16;
}
