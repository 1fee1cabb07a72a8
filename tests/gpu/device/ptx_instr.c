/* ptx_instr.c: reads one PTX instruction: opcode, modifiers, operands. */
#include "ptx_parser.h"
#include "ptx_value.h"

#include <string.h>

/* Reads {a, b} or {a, b, c, d}, or one register; returns how many, or 0. */
static int vector(parser *p, ptx_type type, int operand[4], bool destination) {
  bool braces = ptxp_accept(p, "{");
  int count = 0;
  do {
    if (count == 4) {
      ptxp_fail(p, "more than four elements in a vector");
      return 0;
    }
    if (!(destination ? ptxp_destination(p, &operand[count])
                      : ptxp_operand(p, type, &operand[count])))
      return 0;
    count++;
  } while (braces && ptxp_accept(p, ","));
  return braces && !ptxp_expect(p, "}") ? 0 : count;
}

/* mov: a copy, a vector packed or unpacked, or the clock. */
static bool operands_mov(parser *p, ptx_instr *in) {
  int to = vector(p, in->type, in->dst, true);
  if (!to || !ptxp_expect(p, ","))
    return false;
  if (ptxp_is(p, "%clock") || ptxp_is(p, "%clock64") || ptxp_is(p, "%globaltimer") ||
      ptxp_is(p, "%clock_hi")) {
    in->op = OP_CLOCK;
    ptxp_next(p);
    return to == 1 || ptxp_fail(p, "the clock goes to one register");
  }
  int from = vector(p, in->type, in->src, false);
  if (!from)
    return false;
  if ((to > 1 && from > 1) || (int)ptx_bytes(in->type) < to * from)
    return ptxp_fail(p, "mov can't have vectors on both sides, or so many elements");
  in->op = to > 1 ? OP_UNPACK : from > 1 ? OP_PACK : OP_MOV;
  in->vec = (uint8_t)(to * from);
  return true;
}

/* setp: one or two predicates, two values, maybe a predicate. */
static bool operands_setp(parser *p, ptx_instr *in) {
  in->dst[1] = PTX_SINK;
  if (!ptxp_destination(p, &in->dst[0]) ||
      (ptxp_accept(p, "|") && !ptxp_destination(p, &in->dst[1])))
    return false;
  for (int i = 0; i < 2; i++)
    if (!ptxp_expect(p, ",") || !ptxp_operand(p, in->type, &in->src[i]))
      return false;
  in->src[2] = in->src[0];
  if (!in->sub2)
    return true;
  if (!ptxp_expect(p, ","))
    return false;
  in->negate_src = ptxp_accept(p, "!");
  return ptxp_operand(p, PTX_PRED, &in->src[2]);
}

/* An arithmetic operation. */
static bool operands_alu(parser *p, ptx_instr *in, int sources) {
  if (!ptxp_destination(p, &in->dst[0]))
    return false;
  for (int i = 0; i < sources; i++) {
    if (!ptxp_expect(p, ","))
      return false;
    if (i == 2 && in->op == OP_SELP)
      in->negate_src = ptxp_accept(p, "!");
    ptx_type type = in->op == OP_CVT || in->op == OP_SET || (in->op == OP_SLCT && i == 2)
                        ? in->type2
                        : in->type;
    if (!ptxp_operand(p, type, &in->src[i]))
      return false;
  }
  if (in->op == OP_LOP3 && in->src[3] >= 0)
    return ptxp_fail(p, "the table of lop3 must be a constant");
  return true;
}

/* ld, st: a vector and an address. */
static bool operands_access(parser *p, ptx_instr *in, bool load) {
  int count, expected = in->vec ? in->vec : 1;
  if (load)
    count = vector(p, in->type, in->dst, true);
  else if (!ptxp_address(p, in))
    return false;
  if (!ptxp_expect(p, ","))
    return false;
  if (load && !ptxp_address(p, in))
    return false;
  if (!load)
    count = vector(p, in->type, in->dst, false);
  if (p->failed || count != expected)
    return ptxp_fail(p, "%d values where .v%d or none says %d", count, expected, expected);
  in->vec = (uint8_t)count;
  if (ptx_bytes(in->type) * in->vec > 16)
    return ptxp_fail(p, "more than 16 bytes in one access");
  return true;
}

/* atom, red: [d,] [a], b [, c]. */
static bool operands_atomic(parser *p, ptx_instr *in, bool result) {
  in->dst[0] = PTX_SINK;
  if (result && (!ptxp_destination(p, &in->dst[0]) || !ptxp_expect(p, ",")))
    return false;
  if (!ptxp_address(p, in) || !ptxp_expect(p, ",") || !ptxp_operand(p, in->type, &in->src[1]))
    return false;
  in->src[2] = in->src[1];
  if (in->sub < PTX_AND || in->sub > PTX_EXCH || in->sub2)
    return ptxp_fail(
        p, "an atomic operation must be add, min, max, and, or, xor, inc, dec, cas or exch");
  if (in->order == PTX_WEAK)
    in->order = PTX_RELAXED;
  return in->sub != PTX_CAS || (ptxp_expect(p, ",") && ptxp_operand(p, in->type, &in->src[2]));
}

/* bar.sync a [, threads]; bar.warp.sync mask. */
static bool operands_bar(parser *p, ptx_instr *in) {
  if (!ptxp_operand(p, PTX_U32, &in->src[0]))
    return false;
  in->vec = 1;
  if (in->sub != PTX_WARP && ptxp_accept(p, ",")) {
    in->vec = 2;
    return ptxp_operand(p, PTX_U32, &in->src[1]);
  }
  return true;
}

/* shfl.sync d[|p], a, b, c, mask. */
static bool operands_shfl(parser *p, ptx_instr *in) {
  in->dst[1] = PTX_SINK;
  if (in->sub < PTX_UP || in->sub > PTX_IDX)
    return ptxp_fail(p, "shfl must be up, down, bfly or idx");
  if (!ptxp_destination(p, &in->dst[0]) ||
      (ptxp_accept(p, "|") && !ptxp_destination(p, &in->dst[1])))
    return false;
  for (int i = 0; i < 4; i++)
    if (!ptxp_expect(p, ",") || !ptxp_operand(p, PTX_U32, &in->src[i]))
      return false;
  return true;
}

/* Reads the operands of an instruction. */
static bool operands(parser *p, ptx_instr *in, const opcode *o) {
  char name[PTX_NAME];
  switch (o->form) {
  case FORM_ALU:
    return operands_alu(p, in, o->nsrc);
  case FORM_SETP:
    return operands_setp(p, in);
  case FORM_MOV:
    return operands_mov(p, in);
  case FORM_LD:
  case FORM_ST:
    return operands_access(p, in, o->form == FORM_LD);
  case FORM_ATOM:
  case FORM_RED:
    return operands_atomic(p, in, o->form == FORM_ATOM);
  case FORM_BAR:
    return operands_bar(p, in);
  case FORM_SHFL:
    return operands_shfl(p, in);
  case FORM_BRA:
    return ptxp_name(p, name) && (in->target = ptxp_label(p, name)) >= 0;
  case FORM_ONE:
    return ptxp_operand(p, PTX_U32, &in->src[0]);
  default:
    return true;
  }
}

/* Whether an operation has a form for its types. For others the interpreter would compute something
 * else. */
static bool has_form(const ptx_instr *in) {
  bool floating = ptxv_float(in->type), pairs = in->type == PTX_F16X2 || in->type2 == PTX_F16X2;
  if (in->type == PTX_PRED && in->op < OP_ALU_END)
    return in->op == OP_MOV || (in->op >= OP_AND && in->op <= OP_NOT);
  if (in->op == OP_FMA || (in->op >= OP_SQRT && in->op <= OP_COPYSIGN))
    return floating;
  if (in->op == OP_CVTA || in->op == OP_REM || (in->op >= OP_AND && in->op <= OP_SAD) ||
      in->op == OP_LOP3)
    return !floating;
  if (in->op == OP_SETP || in->op == OP_SET || in->op == OP_CVT)
    return !pairs;
  if (in->op == OP_SLCT)
    return in->type2 == PTX_S32 || in->type2 == PTX_F32;
  if (in->op != OP_ATOM && in->op != OP_RED)
    return true;
  if (in->sub == PTX_INC || in->sub == PTX_DEC)
    return in->type == PTX_U32;
  return !floating || in->sub == PTX_ADD || in->sub == PTX_CAS || in->sub == PTX_EXCH;
}

/* Whether the modifiers suit the operation. */
static bool check(parser *p, ptx_instr *in) {
  bool floating = ptxv_float(in->type);
  if ((in->op == OP_SETP || in->op == OP_SET) && (in->sub < PTX_EQ || in->sub > PTX_NAN))
    return ptxp_fail(p, "a comparison is missing");
  if ((in->op == OP_MUL || in->op == OP_MAD) && !floating && in->sub != PTX_LO &&
      in->sub != PTX_HI && in->sub != PTX_WIDE)
    return ptxp_fail(p, ".lo, .hi or .wide is missing");
  if ((in->op == OP_ATOM || in->op == OP_RED) && ptx_bytes(in->type) == 1)
    return ptxp_fail(p, "atomic operations have 16, 32 or 64 bits");
  if (in->op == OP_SHF && in->sub != PTX_LEFT && in->sub != PTX_RIGHT)
    return ptxp_fail(p, ".l or .r is missing");
  if (!has_form(in))
    return ptxp_fail(p, "the operation has no form for this type");
  bool sum = in->op == OP_ADD || in->op == OP_SUB;
  if (in->sat && !floating && in->op != OP_CVT && !(sum && in->type == PTX_S32))
    return ptxp_fail(p, "only sums of .s32, conversions and floating-point numbers can have .sat");
  if (in->order > PTX_VOLATILE && in->scope == PTX_SCOPE_NONE)
    in->scope = in->op == OP_FENCE ? PTX_SYS : PTX_GPU;
  if (in->order == PTX_VOLATILE)
    in->scope = PTX_SYS;
  if (in->op == OP_FENCE && in->order == PTX_WEAK)
    in->order = PTX_SC;
  return true;
}

bool ptxp_instruction(parser *p) {
  ptx_kernel *k = p->kernel;
  ptx_instr in = {.guard = -1, .line = p->now.line};
  if (ptxp_accept(p, "@")) {
    in.negate = ptxp_accept(p, "!");
    if (!ptxp_operand(p, PTX_PRED, &in.guard))
      return false;
    if (in.guard < 0)
      return ptxp_fail(p, "the guard of an instruction must be a register");
  }
  const opcode *o = ptxp_opcode(p, &in);
  if (!o || !operands(p, &in, o) || !check(p, &in) || !ptxp_expect(p, ";"))
    return false;
  if (!ptxp_grow(p, (void **)&k->code, k->ncode, sizeof *k->code))
    return false;
  k->code[k->ncode++] = in;
  if (!p->split || (in.op != OP_LD && in.op != OP_ST) || ptx_bytes(in.type) * in.vec != 16)
    return true;
  if (!ptxp_grow(p, (void **)&k->code, k->ncode, sizeof *k->code))
    return false;
  ptx_instr *low = &k->code[k->ncode - 1], *high = &k->code[k->ncode++];
  low->vec = (uint8_t)(in.vec / 2);
  *high = *low;
  memcpy(high->dst, in.dst + low->vec, low->vec * sizeof *in.dst);
  high->offset += 8;
  for (int i = 0; in.op == OP_LD && i < low->vec; i++) {
    if (low->dst[i] == in.src[0]) { /* the address is read before it is overwritten */
      ptx_instr swapped = *low;
      *low = *high;
      *high = swapped;
      break;
    }
  }
  return true;
}
