/* ptx_alu.c: arithmetic of PTX on integers and bits, and the choice of the operation. */
#include "ptx_value.h"

/* mul and mad: the low or high half of the product, or all of it. */
static uint64_t multiply(const ptx_instr *in, uint64_t a, uint64_t b) {
  uint64_t x = ptxv_extend(in->type, a), y = ptxv_extend(in->type, b);
  if (in->sub != PTX_HI)
    return x * y;
  unsigned bits = 8 * ptx_bytes(in->type);
  if (ptxv_signed(in->type))
    return (uint64_t)((__int128)(int64_t)x * (int64_t)y >> bits);
  return (uint64_t)((unsigned __int128)x * y >> bits);
}

/* div and rem. Division by zero gives all ones, its remainder the dividend, as GPUs do. */
static uint64_t divide(const ptx_instr *in, uint64_t a, uint64_t b) {
  uint64_t x = ptxv_extend(in->type, a), y = ptxv_extend(in->type, b);
  bool remainder = in->op == OP_REM;
  if (!y)
    return remainder ? x : ~0ull;
  if (!ptxv_signed(in->type))
    return remainder ? x % y : x / y;
  if (y == ~0ull)
    return remainder ? 0 : -x;
  return (uint64_t)(remainder ? (int64_t)x % (int64_t)y : (int64_t)x / (int64_t)y);
}

/* shl and shr; a count beyond the width shifts everything out. */
static uint64_t shift(const ptx_instr *in, uint64_t a, uint64_t b) {
  uint32_t count = (uint32_t)b, bits = 8 * ptx_bytes(in->type);
  if (in->op == OP_SHL)
    return count >= bits ? 0 : a << count;
  if (ptxv_signed(in->type))
    return (uint64_t)(ptxv_sign_extend(in->type, a) >> (count >= bits ? bits - 1 : count));
  return count >= bits ? 0 : ptxv_zero_extend(in->type, a) >> count;
}

/* shf: a funnel of b:a. */
static uint64_t funnel(const ptx_instr *in, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t both = (b & 0xffffffff) << 32 | (a & 0xffffffff);
  uint32_t count = (uint32_t)c;
  count = in->sub2 == PTX_CLAMP ? (count > 32 ? 32 : count) : count & 31;
  if (in->sub == PTX_RIGHT)
    return both >> count & 0xffffffff;
  return both << count >> 32;
}

/* prmt: four bytes chosen from eight. */
static uint64_t permute(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t both = (b & 0xffffffff) << 32 | (a & 0xffffffff), result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned choice = (unsigned)(c >> 4 * i & 15);
    uint64_t byte = both >> 8 * (choice & 7) & 255;
    if (choice & 8)
      byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}

/* bfe: a field of bits, extended by its own sign. */
static uint64_t extract(const ptx_instr *in, uint64_t a, uint64_t b, uint64_t c) {
  unsigned bits = 8 * ptx_bytes(in->type), at = b & 255, length = c & 255;
  uint64_t value = ptxv_extend(in->type, a);
  if (!length)
    return 0;
  unsigned top = at + length - 1 < bits - 1 ? at + length - 1 : bits - 1;
  uint64_t sign = ptxv_signed(in->type) && value >> top & 1 ? ~0ull : 0;
  if (at >= bits)
    return sign;
  value = ptxv_zero_extend(in->type, value) >> at;
  return length >= 64 ? value
                      : (value & ((1ull << length) - 1)) |
                            (at + length >= bits ? sign << (bits - at - 1) : sign << length);
}

/* bfi: a field of a put into b. */
static uint64_t insert(const ptx_instr *in, const uint64_t x[4]) {
  unsigned bits = 8 * ptx_bytes(in->type), at = x[2] & 255, length = x[3] & 255;
  if (at >= bits || !length)
    return x[1];
  uint64_t mask = (length >= 64 ? ~0ull : (1ull << length) - 1) << at;
  return (x[1] & ~mask) | (x[0] << at & mask);
}

/* brev, clz, popc. */
static uint64_t count_bits(const ptx_instr *in, uint64_t a) {
  unsigned bits = 8 * ptx_bytes(in->type);
  uint64_t value = ptxv_zero_extend(in->type, a), reversed = 0;
  if (in->op == OP_POPC)
    return (uint64_t)__builtin_popcountll(value);
  if (in->op == OP_CLZ)
    return value ? (uint64_t)__builtin_clzll(value) - (64 - bits) : bits;
  for (unsigned i = 0; i < bits; i++)
    reversed |= (value >> i & 1) << (bits - 1 - i);
  return reversed;
}

/* lop3: any function of three bits. */
static uint64_t lookup(const uint64_t x[4]) {
  uint64_t result = 0;
  for (int row = 0; row < 8; row++)
    if (x[3] >> row & 1)
      result |= (row & 4 ? x[0] : ~x[0]) & (row & 2 ? x[1] : ~x[1]) & (row & 1 ? x[2] : ~x[2]);
  return result;
}

/* min, max, abs, sad: operations that depend on the order of integers. */
static uint64_t ordered(const ptx_instr *in, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = ptxv_extend(in->type, a), y = ptxv_extend(in->type, b);
  bool less = ptxv_signed(in->type) ? (int64_t)x < (int64_t)y : x < y;
  switch (in->op) {
  case OP_MIN:
    return less ? x : y;
  case OP_MAX:
    return less ? y : x;
  case OP_ABS:
    return (int64_t)x < 0 ? -x : x;
  default:
    return c + (less ? y - x : x - y);
  }
}

/* cvta: generic addresses carry their space in the upper byte. */
static uint64_t address(const ptx_instr *in, uint64_t a) {
  uint64_t window = in->space == PTX_SHARED || in->space == PTX_LOCAL || in->space == PTX_PARAM
                        ? (uint64_t)in->space << 56
                        : 0;
  return in->to ? a & ~window : a | window;
}

/* setp with a second predicate; set; selp; slct. */
static uint64_t choose(const ptx_instr *in, const uint64_t x[4]) {
  bool result;
  switch (in->op) {
  case OP_SELP:
    return ptxv_third(in, x[2]) ? x[0] : x[1];
  case OP_SLCT:
    return ptxv_float(in->type2) ? (ptxv_f32(x[2]) >= 0 ? x[0] : x[1])
                                 : ((int32_t)x[2] >= 0 ? x[0] : x[1]);
  case OP_SET:
    result = ptxv_compare(in, in->type2, x[0], x[1]);
    if (ptxv_float(in->type))
      return result ? ptxv_from_number(in->type, 1, PTX_RN) : 0;
    return result ? ~0ull : 0;
  default:
    return ptxv_combine(in, ptxv_compare(in, in->type, x[0], x[1]), x[2]);
  }
}

/* Operations on integers and bits. */
static uint64_t compute(const ptx_instr *in, const uint64_t x[4]) {
  switch (in->op) {
  case OP_CVTA:
    return address(in, x[0]);
  case OP_ADD:
    return x[0] + x[1];
  case OP_SUB:
    return x[0] - x[1];
  case OP_MUL:
    return multiply(in, x[0], x[1]);
  case OP_MAD:
    return multiply(in, x[0], x[1]) + x[2];
  case OP_DIV:
  case OP_REM:
    return divide(in, x[0], x[1]);
  case OP_NEG:
    return -x[0];
  case OP_AND:
    return x[0] & x[1];
  case OP_OR:
    return x[0] | x[1];
  case OP_XOR:
    return x[0] ^ x[1];
  case OP_NOT:
    return in->type == PTX_PRED ? !(x[0] & 1) : ~x[0];
  case OP_CNOT:
    return !ptxv_zero_extend(in->type, x[0]);
  case OP_SHL:
  case OP_SHR:
    return shift(in, x[0], x[1]);
  case OP_SHF:
    return funnel(in, x[0], x[1], x[2]);
  case OP_PRMT:
    return permute(x[0], x[1], x[2]);
  case OP_BFE:
    return extract(in, x[0], x[1], x[2]);
  case OP_BFI:
    return insert(in, x);
  case OP_BREV:
  case OP_CLZ:
  case OP_POPC:
    return count_bits(in, x[0]);
  case OP_LOP3:
    return lookup(x);
  default:
    return ordered(in, x[0], x[1], x[2]);
  }
}

/* add and sub clamp with .sat, for s32 only. */
static uint64_t saturate(uint64_t sum) {
  int64_t value = (int64_t)sum;
  return (uint64_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

uint64_t ptx_compute(const ptx_instr *in, const uint64_t source[4]) {
  switch (in->op) {
  case OP_CVT:
    return ptxv_convert(in, source[0]);
  case OP_SETP:
  case OP_SET:
  case OP_SELP:
  case OP_SLCT:
    return choose(in, source);
  case OP_MOV:
    return source[0];
  default:
    break;
  }
  if (ptxv_float(in->type))
    return ptxv_compute_float(in, source);
  if (in->sat && (in->op == OP_ADD || in->op == OP_SUB)) {
    const uint64_t wide[4] = {(uint64_t)ptxv_sign_extend(in->type, source[0]),
                              (uint64_t)ptxv_sign_extend(in->type, source[1])};
    return saturate(compute(in, wide));
  }
  return compute(in, source);
}
