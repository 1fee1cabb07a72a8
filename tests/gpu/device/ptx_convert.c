/* ptx_convert.c: cvt, and the comparisons of setp and set. */
#include "ptx_value.h"

#include <fenv.h>
#include <math.h>

/* Integer to integer, clamped to the result's range with .sat. */
static uint64_t integer_to_integer(const ptx_instr *in, uint64_t x) {
  uint64_t value = ptxv_extend(in->type2, x);
  if (in->sat) {
    unsigned bits = 8 * ptx_bytes(in->type);
    __int128 number = ptxv_signed(in->type2) ? (__int128)(int64_t)value : (__int128)value;
    __int128 most = ((__int128)1 << (bits - ptxv_signed(in->type))) - 1;
    __int128 least = ptxv_signed(in->type) ? -most - 1 : 0;
    value = (uint64_t)(number < least ? least : number > most ? most : number);
  }
  return ptxv_extend(in->type, value);
}

/* A number to an integer, clamped to the result's range. */
static uint64_t float_to_integer(const ptx_instr *in, uint64_t x) {
  unsigned bits = 8 * ptx_bytes(in->type);
  double value = ptxv_number(in->type2, x, in->ftz);
  if (isnan(value))
    return in->type2 == PTX_F64 || bits == 64 ? 1ull << (bits - 1) : 0;
  value = ptxv_integral(value, in->round == PTX_R_NONE ? PTX_RZI : in->round);
  if (ptxv_signed(in->type)) {
    double limit = ldexp(1, (int)bits - 1);
    int64_t most = (int64_t)((1ull << (bits - 1)) - 1);
    return (uint64_t)(value >= limit ? most : value < -limit ? -most - 1 : (int64_t)value);
  }
  if (value >= ldexp(1, (int)bits))
    return bits == 64 ? ~0ull : (1ull << bits) - 1;
  return value < 0 ? 0 : (uint64_t)value;
}

/* An integer to a number: rounded once. */
static uint64_t integer_to_float(const ptx_instr *in, uint64_t x) {
  uint64_t value = ptxv_extend(in->type2, x);
  bool negative = ptxv_signed(in->type2) && (int64_t)value < 0;
  volatile uint64_t size = negative ? -value : value;
  ptx_round round = in->round;
  if (negative && (round == PTX_RM || round == PTX_RP))
    round = round == PTX_RM ? PTX_RP : PTX_RM; /* the size is rounded, not the number */
  if (in->type == PTX_F16) {
    double number = (double)size;
    return ptxv_from_f16(negative ? -number : number, in->round);
  }
  int before = ptxv_set_rounding(round);
  volatile float single = (float)size;
  volatile double number = (double)size;
  fesetround(before);
  if (in->type == PTX_F32)
    return ptxv_from_f32(negative ? -single : single);
  return ptxv_from_f64(negative ? -number : number);
}

/* A number to a number of the same or another precision. */
static uint64_t float_to_float(const ptx_instr *in, uint64_t x) {
  double value = ptxv_number(in->type2, x, in->ftz);
  if (in->round >= PTX_RNI)
    value = ptxv_integral(value, in->round);
  if (in->sat)
    value = ptxv_saturate(value);
  uint64_t bits = ptxv_from_number(in->type, value, in->round >= PTX_RNI ? PTX_RN : in->round);
  if (in->type == PTX_F32 && in->ftz)
    bits = ptxv_from_f32((float)ptxv_number(PTX_F32, bits, true));
  return bits;
}

uint64_t ptxv_convert(const ptx_instr *in, uint64_t x) {
  if (ptxv_float(in->type))
    return ptxv_float(in->type2) ? float_to_float(in, x) : integer_to_float(in, x);
  return ptxv_float(in->type2) ? float_to_integer(in, x) : integer_to_integer(in, x);
}

/* Compares numbers; the forms with u are true if one is a NaN. */
static bool compare_floats(const ptx_instr *in, double a, double b) {
  bool unordered = isnan(a) || isnan(b);
  switch (in->sub) {
  case PTX_EQ:
    return a == b;
  case PTX_NE:
    return !unordered && a != b;
  case PTX_LT:
    return a < b;
  case PTX_LE:
    return a <= b;
  case PTX_GT:
    return a > b;
  case PTX_GE:
    return a >= b;
  case PTX_EQU:
    return unordered || a == b;
  case PTX_NEU:
    return a != b;
  case PTX_LTU:
    return unordered || a < b;
  case PTX_LEU:
    return unordered || a <= b;
  case PTX_GTU:
    return unordered || a > b;
  case PTX_GEU:
    return unordered || a >= b;
  case PTX_NUM:
    return !unordered;
  default:
    return unordered;
  }
}

bool ptxv_compare(const ptx_instr *in, ptx_type type, uint64_t a, uint64_t b) {
  if (ptxv_float(type))
    return compare_floats(in, ptxv_number(type, a, in->ftz), ptxv_number(type, b, in->ftz));
  uint64_t x = ptxv_extend(type, a), y = ptxv_extend(type, b);
  bool less = ptxv_signed(type) ? (int64_t)x < (int64_t)y : x < y;
  switch (in->sub) {
  case PTX_EQ:
    return x == y;
  case PTX_NE:
    return x != y;
  case PTX_LT:
  case PTX_LO:
    return less;
  case PTX_LE:
  case PTX_LS:
    return less || x == y;
  case PTX_GT:
  case PTX_HI:
    return !less && x != y;
  default:
    return !less;
  }
}
