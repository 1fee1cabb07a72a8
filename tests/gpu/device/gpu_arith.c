/* gpu_arith.c: arithmetic of a warp: fast loops for frequent operations, ptx_compute for the
 * others. */
#include "gpu_inner.h"
#include "ptx_value.h"

#include <math.h>

/* Sets d in all lanes to an expression of a, b and c. */
#define EACH(expression)                                                                           \
  for (int l = 0; l < PTX_LANES; l++)                                                              \
  d[l] = (uint64_t)(expression)

/* Single precision as it is most often used: to nearest, subnormal numbers kept. */
static bool fast_f32(const ptx_instr *in, uint64_t *d, const uint64_t *a, const uint64_t *b) {
  if (in->ftz || in->sat || in->round > PTX_RN)
    return false;
  float result[PTX_LANES];
  if (in->op == OP_ADD)
    for (int l = 0; l < PTX_LANES; l++)
      result[l] = ptxv_f32(a[l]) + ptxv_f32(b[l]);
  else if (in->op == OP_MUL)
    for (int l = 0; l < PTX_LANES; l++)
      result[l] = ptxv_f32(a[l]) * ptxv_f32(b[l]);
  else
    return false;
  EACH(result[l] != result[l] ? 0x7fffffff : ptxv_from_f32(result[l]));
  return true;
}

/* Comparisons of integers. */
static bool fast_setp(const ptx_instr *in, uint64_t *d, const uint64_t *a, const uint64_t *b) {
  unsigned shift = 64 - 8 * ptx_bytes(in->type);
  if (ptxv_float(in->type) || in->sub2 || ptx_bytes(in->type) < 4)
    return false;
  switch (in->sub) {
  case PTX_EQ:
    EACH(a[l] << shift == b[l] << shift);
    return true;
  case PTX_NE:
    EACH(a[l] << shift != b[l] << shift);
    return true;
  case PTX_LT:
    if (ptxv_signed(in->type))
      EACH((int64_t)(a[l] << shift) < (int64_t)(b[l] << shift));
    else
      EACH(a[l] << shift < b[l] << shift);
    return true;
  case PTX_GE:
    if (ptxv_signed(in->type))
      EACH((int64_t)(a[l] << shift) >= (int64_t)(b[l] << shift));
    else
      EACH(a[l] << shift >= b[l] << shift);
    return true;
  default:
    return false;
  }
}

/* Products of integers. */
static bool fast_multiply(const ptx_instr *in, uint64_t *d, const uint64_t *a, const uint64_t *b) {
  if (in->sub == PTX_LO)
    EACH(a[l] * b[l]);
  else if (in->sub == PTX_WIDE && in->type == PTX_U32)
    EACH((uint64_t)(uint32_t)a[l] * (uint32_t)b[l]);
  else if (in->sub == PTX_WIDE && in->type == PTX_S32)
    EACH((int64_t)(int32_t)a[l] * (int32_t)b[l]);
  else
    return false;
  return true;
}

/* Conversions between integers. */
static bool fast_convert(const ptx_instr *in, uint64_t *d, const uint64_t *a) {
  if (in->sat || ptxv_float(in->type) || ptxv_float(in->type2))
    return false;
  if (in->type2 == PTX_U32 && ptx_bytes(in->type) == 8)
    EACH((uint32_t)a[l]);
  else if (in->type2 == PTX_S32 && ptx_bytes(in->type) == 8)
    EACH((int32_t)a[l]);
  else if (ptx_bytes(in->type) == 4 && ptx_bytes(in->type2) == 8)
    EACH((uint32_t)a[l]);
  else
    return false;
  return true;
}

/* Frequent operations; false leaves the instruction to ptx_compute. */
static bool fast(const ptx_instr *in, uint64_t *d, const uint64_t *a, const uint64_t *b,
                 const uint64_t *c) {
  bool plain = !ptxv_float(in->type) && !in->sat && in->type != PTX_PRED;
  switch (in->op) {
  case OP_MOV:
    EACH(a[l]);
    return true;
  case OP_SETP:
    return fast_setp(in, d, a, b);
  case OP_CVT:
    return fast_convert(in, d, a);
  case OP_SELP:
    EACH(ptxv_third(in, c[l]) ? a[l] : b[l]);
    return true;
  default:
    break;
  }
  if (in->type == PTX_F32)
    return fast_f32(in, d, a, b);
  if (!plain)
    return false;
  switch (in->op) {
  case OP_ADD:
    EACH(a[l] + b[l]);
    return true;
  case OP_SUB:
    EACH(a[l] - b[l]);
    return true;
  case OP_AND:
    EACH(a[l] & b[l]);
    return true;
  case OP_OR:
    EACH(a[l] | b[l]);
    return true;
  case OP_XOR:
    EACH(a[l] ^ b[l]);
    return true;
  case OP_MUL:
    return fast_multiply(in, d, a, b);
  case OP_SHL:
    EACH((uint32_t)b[l] >= 8 * ptx_bytes(in->type) ? 0 : a[l] << (b[l] & 63));
    return true;
  default:
    return false;
  }
}

/* Computes an instruction lane by lane. */
static void slow(const ptx_instr *in, uint64_t *d, uint64_t *const x[4], uint32_t mask) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    const uint64_t values[4] = {x[0][l], x[1][l], x[2][l], x[3][l]};
    d[l] = ptx_compute(in, values);
  }
}

void gpu_arithmetic(gpu_warp *w, const ptx_instr *in, uint32_t mask) {
  uint64_t *x[4], result[PTX_LANES], other[PTX_LANES];
  for (int i = 0; i < 4; i++)
    x[i] = gpu_values(w, in->src[i]);
  uint64_t *d = gpu_values(w, in->dst[0]);
  if (in->op == OP_SETP && in->dst[1] != PTX_SINK) { /* p|q: q is computed from the opposite */
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
      int l = __builtin_ctz(rest);
      const uint64_t values[4] = {x[0][l], x[1][l], x[2][l], 0};
      result[l] = ptx_compute(in, values);
      bool opposite = !ptxv_compare(in, in->type, values[0], values[1]);
      other[l] = ptxv_combine(in, opposite, values[2]);
    }
    uint64_t *q = gpu_values(w, in->dst[1]);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
      int l = __builtin_ctz(rest);
      d[l] = result[l];
      q[l] = other[l];
    }
    return;
  }
  if (mask == UINT32_MAX && fast(in, d, x[0], x[1], x[2]))
    return;
  if (mask == UINT32_MAX || !fast(in, result, x[0], x[1], x[2])) {
    slow(in, d, x, mask);
    return;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    d[__builtin_ctz(rest)] = result[__builtin_ctz(rest)];
}
