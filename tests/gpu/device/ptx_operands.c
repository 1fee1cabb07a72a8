/* ptx_operands.c: the operands of PTX instructions: registers, constants, symbols, addresses. */
#include "ptx_parser.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS_MAX = 1 << 16 };

bool ptxp_grow(parser *p, void **array, int count, size_t size) {
  if (count & (count - 1))
    return true;
  size_t room = count ? 2 * (size_t)count : 1;
  void *larger = count >= INT_MAX / 2 ? NULL : realloc(*array, room * size);
  if (!larger)
    return ptxp_fail(p, "out of memory");
  *array = larger;
  return true;
}

ptx_type ptxp_type(const char *text, int length) {
  static const struct {
    char name[8];
    ptx_type type;
  } types[] = {
      {".pred", PTX_PRED},   {".b8", PTX_B8},   {".b16", PTX_B16}, {".b32", PTX_B32},
      {".b64", PTX_B64},     {".u8", PTX_U8},   {".u16", PTX_U16}, {".u32", PTX_U32},
      {".u64", PTX_U64},     {".s8", PTX_S8},   {".s16", PTX_S16}, {".s32", PTX_S32},
      {".s64", PTX_S64},     {".f16", PTX_F16}, {".f32", PTX_F32}, {".f64", PTX_F64},
      {".f16x2", PTX_F16X2},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (ptxp_same(types[i].name, text, (size_t)length))
      return types[i].type;
  return PTX_NONE;
}

unsigned ptx_bytes(ptx_type type) {
  switch (type) {
  case PTX_B16:
  case PTX_U16:
  case PTX_S16:
  case PTX_F16:
    return 2;
  case PTX_B32:
  case PTX_U32:
  case PTX_S32:
  case PTX_F32:
  case PTX_F16X2:
    return 4;
  case PTX_B64:
  case PTX_U64:
  case PTX_S64:
  case PTX_F64:
    return 8;
  default:
    return 1;
  }
}

symbol *ptxp_symbol(parser *p, const char *name) {
  for (int i = p->nsymbols - 1; i >= 0; i--)
    if (!strcmp(p->symbols[i].name, name))
      return &p->symbols[i];
  return NULL;
}

bool ptxp_add_symbol(parser *p, const char *name, uint64_t value) {
  if (!ptxp_grow(p, (void **)&p->symbols, p->nsymbols, sizeof *p->symbols))
    return false;
  symbol *s = &p->symbols[p->nsymbols++];
  *s = (symbol){.value = value};
  snprintf(s->name, sizeof s->name, "%s", name);
  return true;
}

bool ptxp_add_registers(parser *p, const char *name, int count, bool range) {
  if (p->kernel->nregisters + count > REGISTERS_MAX)
    return ptxp_fail(p, "more than %d registers", REGISTERS_MAX);
  if (!ptxp_grow(p, (void **)&p->regs, p->nregs, sizeof *p->regs))
    return false;
  reg_name *r = &p->regs[p->nregs++];
  *r = (reg_name){.first = p->kernel->nregisters, .count = count, .range = range};
  snprintf(r->name, sizeof r->name, "%s", name);
  p->kernel->nregisters += count;
  return true;
}

/* The number of a special register, or -1. */
static int special(const char *name) {
  static const struct {
    char name[16];
    int number;
  } names[] = {
      {"%tid", PTX_TID},
      {"%ntid", PTX_NTID},
      {"%ctaid", PTX_CTAID},
      {"%nctaid", PTX_NCTAID},
      {"%laneid", PTX_LANEID},
      {"%warpid", PTX_WARPID},
      {"%nwarpid", PTX_NWARPID},
      {"%smid", PTX_SMID},
      {"%lanemask_eq", PTX_LANEMASK_EQ},
      {"%lanemask_lt", PTX_LANEMASK_LT},
      {"%lanemask_le", PTX_LANEMASK_LE},
      {"%lanemask_gt", PTX_LANEMASK_GT},
      {"%lanemask_ge", PTX_LANEMASK_GE},
  };
  size_t length = strcspn(name, ".");
  int axis = 0;
  if (name[length]) {
    if (name[length + 1] < 'x' || name[length + 1] > 'z' || name[length + 2])
      return -1;
    axis = name[length + 1] - 'x';
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (ptxp_same(names[i].name, name, length))
      return (names[i].number >= PTX_LANEID) == !name[length] ? names[i].number + axis : -1;
  return -1;
}

/* The number of a register, or -1. */
static int find_register(const parser *p, const char *name) {
  if (name[0] == '%' && special(name) >= 0)
    return special(name);
  size_t length = strlen(name);
  while (length && isdigit((unsigned char)name[length - 1]))
    length--;
  long number = name[length] ? strtol(name + length, NULL, 10) : -1;
  for (int i = p->nregs - 1; i >= 0; i--) {
    const reg_name *r = &p->regs[i];
    if (!r->range && !strcmp(r->name, name))
      return r->first;
    if (r->range && number >= 0 && number < r->count && ptxp_same(r->name, name, length))
      return r->first + (int)number;
  }
  return -1;
}

/* The operand of a constant; equal ones share a place. */
static bool constant(parser *p, uint64_t value, int *operand) {
  ptx_kernel *k = p->kernel;
  for (int i = 0; i < k->nconstants; i++) {
    if (k->constants[i * PTX_LANES] == value) {
      *operand = ~i;
      return true;
    }
  }
  if (k->nconstants >= REGISTERS_MAX)
    return ptxp_fail(p, "too many constants");
  if (!ptxp_grow(p, (void **)&k->constants, k->nconstants, PTX_LANES * sizeof *k->constants))
    return false;
  for (int lane = 0; lane < PTX_LANES; lane++)
    k->constants[k->nconstants * PTX_LANES + lane] = value;
  *operand = ~k->nconstants++;
  return true;
}

bool ptxp_operand(parser *p, ptx_type type, int *operand) {
  char name[PTX_NAME];
  if (p->now.kind == TOKEN_NUMBER || ptxp_is(p, "-")) {
    uint64_t bits;
    return ptxp_number(p, type, &bits) && constant(p, bits, operand);
  }
  if (!ptxp_name(p, name))
    return false;
  *operand = find_register(p, name);
  if (*operand >= 0)
    return true;
  if (!strcmp(name, "WARP_SZ"))
    return constant(p, PTX_LANES, operand);
  symbol *s = ptxp_symbol(p, name);
  if (!s)
    return ptxp_fail(p, "%s is neither a register nor a variable", name);
  int64_t offset = 0;
  if (ptxp_accept(p, "+") && !ptxp_integer(p, INT32_MIN, INT32_MAX, &offset))
    return false;
  return constant(p, s->value + (uint64_t)offset, operand);
}

bool ptxp_destination(parser *p, int *operand) {
  char name[PTX_NAME];
  if (!ptxp_name(p, name))
    return false;
  *operand = strcmp(name, "_") ? find_register(p, name) : PTX_SINK;
  if (*operand < 0)
    return ptxp_fail(p, "%s is no register", name);
  if (*operand < PTX_SINK)
    return ptxp_fail(p, "%s can't be written", name);
  return true;
}

bool ptxp_address(parser *p, ptx_instr *in) {
  in->offset = 0;
  if (!ptxp_expect(p, "[") || !ptxp_operand(p, PTX_U64, &in->src[0]))
    return false;
  bool minus = ptxp_is(p, "-");
  if ((ptxp_accept(p, "+") || minus) && !ptxp_integer(p, INT32_MIN, INT32_MAX, &in->offset))
    return false;
  return ptxp_expect(p, "]");
}

int ptxp_label(parser *p, const char *name) {
  for (int i = 0; i < p->nlabels; i++)
    if (!strcmp(p->labels[i].name, name))
      return i;
  if (!ptxp_grow(p, (void **)&p->labels, p->nlabels, sizeof *p->labels))
    return -1;
  label *l = &p->labels[p->nlabels];
  *l = (label){.at = -1, .line = p->now.line};
  snprintf(l->name, sizeof l->name, "%s", name);
  return p->nlabels++;
}
