/* ptx_parser.h: what the files of the PTX parser share. */
#ifndef TESTS_GPU_PTX_PARSER_H
#define TESTS_GPU_PTX_PARSER_H

#include "ptx.h"

typedef enum { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_MARK } token_kind;

typedef struct {
  token_kind kind;
  const char *at;
  int length;
  int line;
} token;

/* Names of registers: one, or with `range` a prefix that numbers follow. */
typedef struct {
  char name[PTX_NAME];
  int first, count;
  bool range;
} reg_name;

typedef struct {
  char name[PTX_NAME];
  uint64_t value; /* address, or offset in its space */
} symbol;

typedef struct {
  char name[PTX_NAME];
  int at;   /* index of the instruction, or -1 while unknown */
  int line; /* of the first use */
} label;

typedef struct {
  const char *next, *end;
  int line;
  token now;
  bool failed, split;
  ptx_error *error;
  ptx_module *module;
  ptx_kernel *kernel; /* being parsed, or NULL */
  reg_name *regs;
  int nregs;
  symbol *symbols;
  int nsymbols;
  label *labels;
  int nlabels;
  uint64_t shared_bytes; /* of the module's own variables */
} parser;

/* Kinds of operands: what follows the opcode. */
typedef enum {
  FORM_ALU, /* d, then `nsrc` sources */
  FORM_SETP,
  FORM_MOV,
  FORM_LD,
  FORM_ST,
  FORM_ATOM,
  FORM_RED,
  FORM_BAR,
  FORM_SHFL,
  FORM_BRA,
  FORM_ONE, /* a source that is not used */
  FORM_NONE
} operand_form;

/* An opcode; `form` is an operand_form. */
typedef struct {
  char name[12];
  uint8_t op, form, nsrc, ntypes;
} opcode;

/* Notes the first error; later ones are ignored. Returns false. */
bool ptxp_fail(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes the next token the current one. After an error the text has ended. */
void ptxp_next(parser *p);

/* Whether the current token is that text. */
bool ptxp_is(const parser *p, const char *text);

/* Steps over the current token if it is that text. */
bool ptxp_accept(parser *p, const char *text);

/* Steps over a token that must be there. */
bool ptxp_expect(parser *p, const char *text);

/* Copies the current word to `name` and steps over it. */
bool ptxp_name(parser *p, char name[PTX_NAME]);

/* Reads an integer, with its sign, between the bounds. */
bool ptxp_integer(parser *p, int64_t least, int64_t most, int64_t *value);

/* Reads a number of any kind as the bits of a value of `type`. */
bool ptxp_number(parser *p, ptx_type type, uint64_t *bits);

/* The type that a word such as ".u32" names, or PTX_NONE. */
ptx_type ptxp_type(const char *text, int length);

/* Makes room for one more element in an array of `count`, which grows by powers of two. */
bool ptxp_grow(parser *p, void **array, int count, size_t size);

/* The symbol of that name, or NULL; the latest wins. */
symbol *ptxp_symbol(parser *p, const char *name);

/* Adds a symbol. */
bool ptxp_add_symbol(parser *p, const char *name, uint64_t value);

/* Adds names of registers: one, or `count` numbered ones with `range`. */
bool ptxp_add_registers(parser *p, const char *name, int count, bool range);

/* Whether a text is a name. Each token is compared with many. */
static inline bool ptxp_same(const char *name, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (name[i] != text[i] || !name[i])
      return false;
  return !name[length];
}

/* Reads an operand: a register, a constant, a symbol's address. */
bool ptxp_operand(parser *p, ptx_type type, int *operand);

/* Reads a register that is written; `_` is one as well. */
bool ptxp_destination(parser *p, int *operand);

/* Reads [register+offset]. */
bool ptxp_address(parser *p, ptx_instr *in);

/* The index of a label, which is added if it is new. */
int ptxp_label(parser *p, const char *name);

/* Reads the current word as an opcode with its modifiers. NULL: it is none. */
const opcode *ptxp_opcode(parser *p, ptx_instr *in);

/* Reads an instruction whose opcode is the current token. */
bool ptxp_instruction(parser *p);

#endif
