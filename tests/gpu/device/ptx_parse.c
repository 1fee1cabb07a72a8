/* ptx_parse.c: parses the text of a PTX module: variables, kernels, their declarations. */
#include "ptx_parser.h"

#include <stdlib.h>
#include <string.h>

enum { PARAM_MAX = 4352, SHARED_MAX = 227 << 10, LOCAL_MAX = 512 << 10, GLOBAL_MAX = 64 << 20 };

/* A variable's or parameter's declaration after its space. */
typedef struct {
  char name[PTX_NAME];
  ptx_type type;
  uint64_t align, elements;
  bool open; /* name[] */
} declaration;

/* Reads [.align n] .type name [ '[' n ']' ] */
static bool declare(parser *p, declaration *d) {
  int64_t number;
  *d = (declaration){.elements = 1};
  while (ptxp_accept(p, ".align")) {
    if (!ptxp_integer(p, 1, 4096, &number))
      return false;
    if (number & (number - 1))
      return ptxp_fail(p, "an alignment must be a power of two");
    d->align = (uint64_t)number;
  }
  d->type = ptxp_type(p->now.at, p->now.length);
  if (d->type == PTX_NONE || d->type == PTX_PRED)
    return ptxp_fail(p, "a type is expected");
  ptxp_next(p);
  while (ptxp_is(p, ".ptr") || ptxp_is(p, ".global") || ptxp_is(p, ".shared") ||
         ptxp_is(p, ".const") || ptxp_is(p, ".local"))
    ptxp_next(p);
  if (ptxp_accept(p, ".align") && !ptxp_integer(p, 1, 4096, &number)) /* of what .ptr points to */
    return false;
  if (!ptxp_name(p, d->name))
    return false;
  while (ptxp_accept(p, "[")) {
    if (ptxp_accept(p, "]")) {
      d->open = true;
      continue;
    }
    if (!ptxp_integer(p, 0, GLOBAL_MAX, &number) || !ptxp_expect(p, "]"))
      return false;
    d->elements *= (uint64_t)number;
    if (d->elements > GLOBAL_MAX)
      return ptxp_fail(p, "%s is too large", d->name);
  }
  if (d->align < ptx_bytes(d->type))
    d->align = ptx_bytes(d->type);
  return true;
}

/* Puts a variable at the end of a space of `*used` bytes. */
static bool place(parser *p, const declaration *d, ptx_space space, uint64_t *used, uint64_t most) {
  uint64_t at = (*used + d->align - 1) / d->align * d->align;
  uint64_t bytes = d->elements * ptx_bytes(d->type);
  if (at + bytes > most || (d->open && space != PTX_SHARED))
    return ptxp_fail(p, "%s: more than %llu bytes in this space", d->name,
                     (unsigned long long)most);
  if (d->open)
    return ptxp_add_symbol(p, d->name, PTX_DYNAMIC);
  *used = at + bytes;
  return ptxp_add_symbol(p, d->name, at);
}

/* Reads { numbers } into a variable. */
static bool initialize(parser *p, const declaration *d, unsigned char *data) {
  unsigned size = ptx_bytes(d->type);
  bool braces = ptxp_accept(p, "{");
  uint64_t count = 0, bits;
  do {
    if (braces && ptxp_is(p, "}"))
      break;
    if (p->now.kind == TOKEN_WORD)
      return ptxp_fail(p, "addresses as initial values are not supported");
    if (!ptxp_number(p, d->type, &bits))
      return false;
    if (count >= d->elements)
      return ptxp_fail(p, "%s has more initial values than elements", d->name);
    memcpy(data + count++ * size, &bits, size);
  } while (braces && ptxp_accept(p, ","));
  return !braces || ptxp_expect(p, "}");
}

/* Makes a variable in global or constant memory. */
static bool global_variable(parser *p, const declaration *d) {
  ptx_module *m = p->module;
  uint64_t bytes = d->elements * ptx_bytes(d->type);
  if (d->open || bytes > GLOBAL_MAX)
    return ptxp_fail(p, "%s has no size", d->name);
  if (!ptxp_grow(p, (void **)&m->globals, m->nglobals, sizeof *m->globals))
    return false;
  uint64_t align = d->align < 16 ? 16 : d->align;
  unsigned char *data = aligned_alloc(align, (bytes + align) / align * align);
  if (!data)
    return ptxp_fail(p, "out of memory");
  memset(data, 0, bytes);
  ptx_global *g = &m->globals[m->nglobals++];
  *g = (ptx_global){.address = (uint64_t)(uintptr_t)data, .bytes = bytes};
  if (ptxp_accept(p, "=") && !initialize(p, d, data))
    return false;
  return ptxp_add_symbol(p, d->name, g->address);
}

/* Reads a variable whose space is the current word. */
static bool variable(parser *p) {
  declaration d;
  ptx_space space = ptxp_is(p, ".shared")  ? PTX_SHARED
                    : ptxp_is(p, ".local") ? PTX_LOCAL
                    : ptxp_is(p, ".const") ? PTX_CONST
                                           : PTX_GLOBAL;
  ptxp_next(p);
  if (!declare(p, &d))
    return false;
  bool done = false;
  if (space == PTX_SHARED) {
    uint64_t used = p->kernel ? p->kernel->shared_bytes : p->shared_bytes;
    done = place(p, &d, space, &used, SHARED_MAX);
    if (p->kernel)
      p->kernel->shared_bytes = (uint32_t)used;
    else
      p->shared_bytes = used;
  } else if (space == PTX_LOCAL) {
    if (!p->kernel)
      return ptxp_fail(p, "a .local variable outside a kernel");
    uint64_t used = p->kernel->local_bytes;
    done = place(p, &d, space, &used, LOCAL_MAX);
    p->kernel->local_bytes = (uint32_t)used;
  } else {
    done = global_variable(p, &d);
  }
  return done && ptxp_expect(p, ";");
}

/* Reads the list of a kernel's parameters. */
static bool parameters(parser *p) {
  ptx_kernel *k = p->kernel;
  if (!ptxp_accept(p, "(") || ptxp_accept(p, ")"))
    return !p->failed;
  do {
    declaration d;
    uint64_t used = k->param_bytes;
    if (!ptxp_expect(p, ".param") || !declare(p, &d) || d.open ||
        !place(p, &d, PTX_PARAM, &used, PARAM_MAX))
      return ptxp_fail(p, "a parameter has no size");
    k->param_bytes = (uint32_t)used;
    if (!ptxp_grow(p, (void **)&k->params, k->nparams, sizeof *k->params))
      return false;
    ptx_param *param = &k->params[k->nparams++];
    param->offset = (uint32_t)p->symbols[p->nsymbols - 1].value;
    param->bytes = (uint32_t)(d.elements * ptx_bytes(d.type));
  } while (ptxp_accept(p, ","));
  return ptxp_expect(p, ")");
}

/* Reads .reg .type %a, %b<n>; */
static bool registers(parser *p) {
  ptxp_next(p);
  if (ptxp_type(p->now.at, p->now.length) == PTX_NONE)
    return ptxp_fail(p, "a type is expected");
  ptxp_next(p);
  do {
    char name[PTX_NAME];
    int64_t count = 1;
    if (!ptxp_name(p, name))
      return false;
    bool range = ptxp_accept(p, "<");
    if (range && (!ptxp_integer(p, 0, 1 << 16, &count) || !ptxp_expect(p, ">")))
      return false;
    if (!ptxp_add_registers(p, name, (int)count, range))
      return false;
  } while (ptxp_accept(p, ","));
  return ptxp_expect(p, ";");
}

/* Defines the label that is the current word, if a colon follows. */
static bool label_here(parser *p, bool *defined) {
  parser before = *p;
  char name[PTX_NAME];
  *defined = false;
  if (p->now.kind != TOKEN_WORD || p->now.at[0] == '.' || p->now.length >= PTX_NAME)
    return true;
  ptxp_name(p, name);
  if (!ptxp_is(p, ":")) {
    p->next = before.next;
    p->line = before.line;
    p->now = before.now;
    return true;
  }
  int index = ptxp_label(p, name);
  if (index < 0)
    return false;
  if (p->labels[index].at >= 0)
    return ptxp_fail(p, "label %s is defined twice", name);
  p->labels[index].at = p->kernel->ncode;
  *defined = true;
  ptxp_next(p);
  return true;
}

/* Steps over the rest of the current line. */
static void skip_line(parser *p) {
  int line = p->now.line;
  while (p->now.kind != TOKEN_END && p->now.line == line)
    ptxp_next(p);
}

/* Steps over everything up to a semicolon. */
static bool skip_statement(parser *p) {
  while (p->now.kind != TOKEN_END && !ptxp_is(p, ";"))
    ptxp_next(p);
  return ptxp_expect(p, ";");
}

/* Reads one statement of a body; `depth` counts open braces and `names` the registers outside each.
 */
static bool statement(parser *p, int *depth, int names[64]) {
  bool defined;
  if (ptxp_is(p, "{")) {
    if (*depth == 64)
      return ptxp_fail(p, "braces are nested too deeply");
    names[(*depth)++] = p->nregs;
    ptxp_next(p);
    return true;
  }
  if (ptxp_is(p, "}")) {
    p->nregs = names[--*depth];
    if (*depth)
      ptxp_next(p);
    return true;
  }
  if (p->now.kind == TOKEN_END)
    return ptxp_fail(p, "the text ends within kernel %s", p->kernel->name);
  if (ptxp_accept(p, ";"))
    return true;
  if (ptxp_is(p, ".reg"))
    return registers(p);
  if (ptxp_is(p, ".shared") || ptxp_is(p, ".local"))
    return variable(p);
  if (ptxp_is(p, ".pragma"))
    return skip_statement(p);
  if (ptxp_is(p, ".loc") || ptxp_is(p, ".file")) {
    skip_line(p);
    return true;
  }
  if (!label_here(p, &defined))
    return false;
  return defined || ptxp_instruction(p);
}

/* Replaces labels by the instructions behind them. */
static bool resolve(parser *p) {
  ptx_kernel *k = p->kernel;
  for (int i = 0; i < p->nlabels; i++) {
    if (p->labels[i].at < 0) {
      p->now.line = p->labels[i].line;
      return ptxp_fail(p, "label %s is not defined", p->labels[i].name);
    }
  }
  for (int i = 0; i < k->ncode; i++)
    if (k->code[i].op == OP_BRA)
      k->code[i].target = p->labels[k->code[i].target].at;
  return true;
}

/* Reads .maxntid, .minnctapersm and the like. */
static bool directives(parser *p) {
  while (p->now.kind == TOKEN_WORD && p->now.at[0] == '.') {
    bool max = ptxp_is(p, ".maxntid") || ptxp_is(p, ".reqntid");
    int64_t number, product = 1;
    ptxp_next(p);
    while (p->now.kind == TOKEN_NUMBER) {
      if (!ptxp_integer(p, 0, 1 << 30, &number))
        return false;
      product = product * number > 1 << 30 ? 1 << 30 : product * number;
      ptxp_accept(p, ",");
    }
    if (max)
      p->kernel->max_threads = (int)product;
  }
  return !p->failed;
}

/* Reads a kernel after .entry. */
static bool entry(parser *p) {
  ptx_module *m = p->module;
  int symbols = p->nsymbols, depth = 0, names[64];
  if (!ptxp_grow(p, (void **)&m->kernels, m->nkernels, sizeof *m->kernels))
    return false;
  ptx_kernel *k = p->kernel = &m->kernels[m->nkernels++];
  *k = (ptx_kernel){.nregisters = PTX_FIRST_REGISTER, .shared_bytes = (uint32_t)p->shared_bytes};
  p->nregs = p->nlabels = 0;
  if (!ptxp_name(p, k->name) || !parameters(p) || !directives(p))
    return false;
  if (!ptxp_is(p, "{"))
    return ptxp_fail(p, "{ expected");
  do {
    if (!statement(p, &depth, names))
      return false;
  } while (depth);
  if (!resolve(p) || !ptxp_expect(p, "}"))
    return false;
  if (!ptxp_grow(p, (void **)&k->code, k->ncode, sizeof *k->code))
    return false;
  k->code[k->ncode++] = (ptx_instr){.op = OP_RET, .guard = -1, .line = p->line}; /* falls off */
  p->nsymbols = symbols;
  p->kernel = NULL;
  return true;
}

/* Reads .version a.b */
static bool version(parser *p) {
  ptxp_next(p);
  uint64_t bits;
  double number;
  if (!ptxp_number(p, PTX_F64, &bits))
    return false;
  memcpy(&number, &bits, sizeof number);
  if (!(number >= 1 && number < 100))
    return ptxp_fail(p, "a version such as 7.0 is expected");
  p->module->version = (int)(number * 10 + 0.5);
  return true;
}

/* Reads .target sm_70, ... */
static bool target(parser *p) {
  char name[PTX_NAME];
  ptxp_next(p);
  do {
    if (!ptxp_name(p, name))
      return false;
  } while (ptxp_accept(p, ","));
  return true;
}

/* Reads what may stand outside kernels. */
static bool module_statement(parser *p) {
  int64_t number;
  if (ptxp_is(p, ".version"))
    return version(p);
  if (!p->module->version)
    return ptxp_fail(p, "the text does not begin with .version");
  if (ptxp_is(p, ".target"))
    return target(p);
  if (ptxp_accept(p, ".address_size"))
    return ptxp_integer(p, 64, 64, &number);
  if (ptxp_accept(p, ".visible") || ptxp_accept(p, ".extern") || ptxp_accept(p, ".weak") ||
      ptxp_accept(p, ";"))
    return true;
  if (ptxp_accept(p, ".entry"))
    return entry(p);
  if (ptxp_is(p, ".global") || ptxp_is(p, ".const") || ptxp_is(p, ".shared"))
    return variable(p);
  if (ptxp_is(p, ".file") || ptxp_is(p, ".loc")) {
    skip_line(p);
    return true;
  }
  if (ptxp_is(p, ".func"))
    return ptxp_fail(p, "functions are not supported, only kernels");
  return ptxp_fail(p, "unknown statement %.*s", p->now.length > 60 ? 60 : p->now.length, p->now.at);
}

ptx_module *ptx_parse(const char *text, size_t length, bool split, ptx_error *error) {
  *error = (ptx_error){0};
  parser p = {.next = text, .end = text + length, .line = 1, .split = split, .error = error};
  p.module = calloc(1, sizeof *p.module);
  if (!p.module)
    ptxp_fail(&p, "out of memory");
  ptxp_next(&p);
  while (p.now.kind != TOKEN_END && module_statement(&p))
    continue;
  if (!p.failed && !p.module->version)
    ptxp_fail(&p, "the text is empty");
  free(p.regs);
  free(p.symbols);
  free(p.labels);
  if (!p.failed)
    return p.module;
  ptx_free(p.module);
  return NULL;
}

void ptx_free(ptx_module *module) {
  if (!module)
    return;
  for (int i = 0; i < module->nkernels; i++) {
    free(module->kernels[i].code);
    free(module->kernels[i].constants);
    free(module->kernels[i].params);
  }
  for (int i = 0; i < module->nglobals; i++)
    free((void *)(uintptr_t)module->globals[i].address);
  free(module->kernels);
  free(module->globals);
  free(module);
}

const ptx_kernel *ptx_find(const ptx_module *module, const char *name) {
  for (int i = 0; i < module->nkernels; i++)
    if (!strcmp(module->kernels[i].name, name))
      return &module->kernels[i];
  return NULL;
}
