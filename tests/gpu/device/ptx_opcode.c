/* ptx_opcode.c: the opcodes of PTX, and their modifiers. */
#include "ptx_parser.h"

#include <string.h>

static const opcode opcodes[] = {
    {"mov", OP_MOV, FORM_MOV, 1, 1},
    {"cvta", OP_CVTA, FORM_ALU, 1, 1},
    {"add", OP_ADD, FORM_ALU, 2, 1},
    {"sub", OP_SUB, FORM_ALU, 2, 1},
    {"mul", OP_MUL, FORM_ALU, 2, 1},
    {"mad", OP_MAD, FORM_ALU, 3, 1},
    {"fma", OP_FMA, FORM_ALU, 3, 1},
    {"div", OP_DIV, FORM_ALU, 2, 1},
    {"rem", OP_REM, FORM_ALU, 2, 1},
    {"neg", OP_NEG, FORM_ALU, 1, 1},
    {"abs", OP_ABS, FORM_ALU, 1, 1},
    {"min", OP_MIN, FORM_ALU, 2, 1},
    {"max", OP_MAX, FORM_ALU, 2, 1},
    {"sqrt", OP_SQRT, FORM_ALU, 1, 1},
    {"rsqrt", OP_RSQRT, FORM_ALU, 1, 1},
    {"rcp", OP_RCP, FORM_ALU, 1, 1},
    {"ex2", OP_EX2, FORM_ALU, 1, 1},
    {"lg2", OP_LG2, FORM_ALU, 1, 1},
    {"sin", OP_SIN, FORM_ALU, 1, 1},
    {"cos", OP_COS, FORM_ALU, 1, 1},
    {"copysign", OP_COPYSIGN, FORM_ALU, 2, 1},
    {"and", OP_AND, FORM_ALU, 2, 1},
    {"or", OP_OR, FORM_ALU, 2, 1},
    {"xor", OP_XOR, FORM_ALU, 2, 1},
    {"not", OP_NOT, FORM_ALU, 1, 1},
    {"cnot", OP_CNOT, FORM_ALU, 1, 1},
    {"shl", OP_SHL, FORM_ALU, 2, 1},
    {"shr", OP_SHR, FORM_ALU, 2, 1},
    {"shf", OP_SHF, FORM_ALU, 3, 1},
    {"prmt", OP_PRMT, FORM_ALU, 3, 1},
    {"bfe", OP_BFE, FORM_ALU, 3, 1},
    {"bfi", OP_BFI, FORM_ALU, 4, 1},
    {"brev", OP_BREV, FORM_ALU, 1, 1},
    {"clz", OP_CLZ, FORM_ALU, 1, 1},
    {"popc", OP_POPC, FORM_ALU, 1, 1},
    {"sad", OP_SAD, FORM_ALU, 3, 1},
    {"setp", OP_SETP, FORM_SETP, 2, 1},
    {"set", OP_SET, FORM_ALU, 2, 2},
    {"selp", OP_SELP, FORM_ALU, 3, 1},
    {"slct", OP_SLCT, FORM_ALU, 3, 2},
    {"cvt", OP_CVT, FORM_ALU, 1, 2},
    {"lop3", OP_LOP3, FORM_ALU, 4, 1},
    {"ld", OP_LD, FORM_LD, 0, 1},
    {"ldu", OP_LD, FORM_LD, 0, 1},
    {"st", OP_ST, FORM_ST, 0, 1},
    {"atom", OP_ATOM, FORM_ATOM, 0, 1},
    {"red", OP_RED, FORM_RED, 0, 1},
    {"fence", OP_FENCE, FORM_NONE, 0, 0},
    {"membar", OP_FENCE, FORM_NONE, 0, 0},
    {"bar", OP_BAR, FORM_BAR, 0, 0},
    {"barrier", OP_BAR, FORM_BAR, 0, 0},
    {"shfl", OP_SHFL, FORM_SHFL, 0, 1},
    {"bra", OP_BRA, FORM_BRA, 0, 0},
    {"ret", OP_RET, FORM_NONE, 0, 0},
    {"exit", OP_RET, FORM_NONE, 0, 0},
    {"trap", OP_TRAP, FORM_NONE, 0, 0},
    {"nanosleep", OP_NOP, FORM_ONE, 1, 1},
};

/* Modifiers by what they set. */
typedef enum {
  SET_SPACE,
  SET_ORDER,
  SET_SCOPE,
  SET_SUB,
  SET_ROUND,
  SET_VEC,
  SET_FTZ,
  SET_SAT,
  SET_TO,
  IGNORED
} setting;

static const struct {
  char name[16];
  uint8_t sets, value;
} modifiers[] = {
    {"global", SET_SPACE, PTX_GLOBAL},
    {"shared", SET_SPACE, PTX_SHARED},
    {"local", SET_SPACE, PTX_LOCAL},
    {"param", SET_SPACE, PTX_PARAM},
    {"const", SET_SPACE, PTX_CONST},
    {"weak", SET_ORDER, PTX_WEAK},
    {"volatile", SET_ORDER, PTX_VOLATILE},
    {"relaxed", SET_ORDER, PTX_RELAXED},
    {"acquire", SET_ORDER, PTX_ACQUIRE},
    {"release", SET_ORDER, PTX_RELEASE},
    {"acq_rel", SET_ORDER, PTX_ACQ_REL},
    {"sc", SET_ORDER, PTX_SC},
    {"cta", SET_SCOPE, PTX_CTA},
    {"gpu", SET_SCOPE, PTX_GPU},
    {"gl", SET_SCOPE, PTX_GPU},
    {"sys", SET_SCOPE, PTX_SYS},
    {"eq", SET_SUB, PTX_EQ},
    {"ne", SET_SUB, PTX_NE},
    {"lt", SET_SUB, PTX_LT},
    {"le", SET_SUB, PTX_LE},
    {"gt", SET_SUB, PTX_GT},
    {"ge", SET_SUB, PTX_GE},
    {"lo", SET_SUB, PTX_LO},
    {"ls", SET_SUB, PTX_LS},
    {"hi", SET_SUB, PTX_HI},
    {"hs", SET_SUB, PTX_HS},
    {"equ", SET_SUB, PTX_EQU},
    {"neu", SET_SUB, PTX_NEU},
    {"ltu", SET_SUB, PTX_LTU},
    {"leu", SET_SUB, PTX_LEU},
    {"gtu", SET_SUB, PTX_GTU},
    {"geu", SET_SUB, PTX_GEU},
    {"num", SET_SUB, PTX_NUM},
    {"nan", SET_SUB, PTX_NAN},
    {"wide", SET_SUB, PTX_WIDE},
    {"and", SET_SUB, PTX_AND},
    {"or", SET_SUB, PTX_OR},
    {"xor", SET_SUB, PTX_XOR},
    {"add", SET_SUB, PTX_ADD},
    {"min", SET_SUB, PTX_MIN},
    {"max", SET_SUB, PTX_MAX},
    {"inc", SET_SUB, PTX_INC},
    {"dec", SET_SUB, PTX_DEC},
    {"cas", SET_SUB, PTX_CAS},
    {"exch", SET_SUB, PTX_EXCH},
    {"l", SET_SUB, PTX_LEFT},
    {"r", SET_SUB, PTX_RIGHT},
    {"wrap", SET_SUB, PTX_WRAP},
    {"clamp", SET_SUB, PTX_CLAMP},
    {"up", SET_SUB, PTX_UP},
    {"down", SET_SUB, PTX_DOWN},
    {"bfly", SET_SUB, PTX_BFLY},
    {"idx", SET_SUB, PTX_IDX},
    {"warp", SET_SUB, PTX_WARP},
    {"rn", SET_ROUND, PTX_RN},
    {"rz", SET_ROUND, PTX_RZ},
    {"rm", SET_ROUND, PTX_RM},
    {"rp", SET_ROUND, PTX_RP},
    {"rni", SET_ROUND, PTX_RNI},
    {"rzi", SET_ROUND, PTX_RZI},
    {"rmi", SET_ROUND, PTX_RMI},
    {"rpi", SET_ROUND, PTX_RPI},
    {"v2", SET_VEC, 2},
    {"v4", SET_VEC, 4},
    {"ftz", SET_FTZ, 1},
    {"sat", SET_SAT, 1},
    {"to", SET_TO, 1},
    {"uni", IGNORED, 0},
    {"sync", IGNORED, 0},
    {"aligned", IGNORED, 0},
    {"approx", IGNORED, 0},
    {"full", IGNORED, 0},
    {"ca", IGNORED, 0},
    {"cg", IGNORED, 0},
    {"cs", IGNORED, 0},
    {"lu", IGNORED, 0},
    {"cv", IGNORED, 0},
    {"wb", IGNORED, 0},
    {"wt", IGNORED, 0},
    {"nc", IGNORED, 0},
    {"noftz", IGNORED, 0},
};

/* Stores what a modifier sets. */
static void set_modifier(ptx_instr *in, setting sets, uint8_t value) {
  switch (sets) {
  case SET_SPACE:
    in->space = value;
    break;
  case SET_ORDER:
    in->order = value;
    break;
  case SET_SCOPE:
    in->scope = value;
    break;
  case SET_SUB:
    in->sub2 = in->sub ? value : in->sub2;
    in->sub = in->sub ? in->sub : value;
    break;
  case SET_ROUND:
    in->round = value;
    break;
  case SET_VEC:
    in->vec = value;
    break;
  case SET_FTZ:
    in->ftz = true;
    break;
  case SET_SAT:
    in->sat = true;
    break;
  case SET_TO:
    in->to = true;
    break;
  case IGNORED:
    break;
  }
}

/* Reads a modifier, without its dot; counts types. */
static bool modifier(parser *p, ptx_instr *in, const char *text, int length, int *types) {
  ptx_type type = ptxp_type(text - 1, length + 1);
  if (type != PTX_NONE) {
    if (*types == 0)
      in->type = in->type2 = (uint8_t)type;
    else
      in->type2 = (uint8_t)type;
    return ++*types <= 2 || ptxp_fail(p, "more than two types");
  }
  for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
    if (ptxp_same(modifiers[i].name, text, (size_t)length)) {
      set_modifier(in, modifiers[i].sets, modifiers[i].value);
      return true;
    }
  }
  return ptxp_fail(p, "unknown modifier .%.*s", length > 60 ? 60 : length, text);
}

const opcode *ptxp_opcode(parser *p, ptx_instr *in) {
  const char *at = p->now.at, *end = at + p->now.length;
  const char *dot = memchr(at, '.', (size_t)(end - at));
  int length = (int)((dot ? dot : end) - at), types = 0;
  const opcode *found = NULL;
  for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
    if (ptxp_same(opcodes[i].name, at, (size_t)length))
      found = &opcodes[i];
  if (!found) {
    ptxp_fail(p, "unknown opcode %.*s", (int)(end - at) > 60 ? 60 : (int)(end - at), at);
    return NULL;
  }
  in->op = found->op;
  while (dot) {
    const char *word = dot + 1;
    dot = word < end ? memchr(word, '.', (size_t)(end - word)) : NULL;
    if (!modifier(p, in, word, (int)((dot ? dot : end) - word), &types))
      return NULL;
  }
  if (types != found->ntypes && !(found->form == FORM_ONE)) {
    ptxp_fail(p, "%s needs %d types, not %d", found->name, found->ntypes, types);
    return NULL;
  }
  ptxp_next(p);
  return found;
}
