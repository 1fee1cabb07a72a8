/* ptx.h: a PTX module in decoded form, and the parser that makes it. */
#ifndef TESTS_GPU_PTX_H
#define TESTS_GPU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of operands. */
typedef enum {
  PTX_NONE,
  PTX_PRED,
  PTX_B8,
  PTX_B16,
  PTX_B32,
  PTX_B64,
  PTX_U8,
  PTX_U16,
  PTX_U32,
  PTX_U64,
  PTX_S8,
  PTX_S16,
  PTX_S32,
  PTX_S64,
  PTX_F16,
  PTX_F16X2,
  PTX_F32,
  PTX_F64
} ptx_type;

typedef enum { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_CONST } ptx_space;

/* How an access to memory is ordered. */
typedef enum {
  PTX_WEAK,
  PTX_VOLATILE,
  PTX_RELAXED,
  PTX_ACQUIRE,
  PTX_RELEASE,
  PTX_ACQ_REL,
  PTX_SC
} ptx_order;

/* The threads with which an access is ordered; a larger value includes the smaller ones. */
typedef enum { PTX_SCOPE_NONE, PTX_CTA, PTX_GPU, PTX_SYS } ptx_scope;

/* Rounding; the values with I round to an integer. */
typedef enum {
  PTX_R_NONE,
  PTX_RN,
  PTX_RZ,
  PTX_RM,
  PTX_RP,
  PTX_RNI,
  PTX_RZI,
  PTX_RMI,
  PTX_RPI
} ptx_round;

/* Modifiers that select one of several operations: comparisons, atomic operations, halves. */
typedef enum {
  PTX_SUB_NONE,
  PTX_EQ,
  PTX_NE,
  PTX_LT,
  PTX_LE,
  PTX_GT,
  PTX_GE,
  PTX_LO, /* mul.lo; setp.lo is an unsigned lt */
  PTX_LS,
  PTX_HI, /* mul.hi; setp.hi is an unsigned gt */
  PTX_HS,
  PTX_EQU,
  PTX_NEU,
  PTX_LTU,
  PTX_LEU,
  PTX_GTU,
  PTX_GEU,
  PTX_NUM,
  PTX_NAN,
  PTX_WIDE,
  PTX_AND,
  PTX_OR,
  PTX_XOR,
  PTX_ADD,
  PTX_MIN,
  PTX_MAX,
  PTX_INC,
  PTX_DEC,
  PTX_CAS,
  PTX_EXCH,
  PTX_LEFT,
  PTX_RIGHT,
  PTX_WRAP,
  PTX_CLAMP,
  PTX_UP,
  PTX_DOWN,
  PTX_BFLY,
  PTX_IDX,
  PTX_WARP
} ptx_sub;

/* Operations. Those before OP_ALU_END compute a result from registers alone. */
typedef enum {
  OP_MOV,
  OP_CVTA,
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_MAD,
  OP_FMA,
  OP_DIV,
  OP_REM,
  OP_NEG,
  OP_ABS,
  OP_MIN,
  OP_MAX,
  OP_SQRT,
  OP_RSQRT,
  OP_RCP,
  OP_EX2,
  OP_LG2,
  OP_SIN,
  OP_COS,
  OP_COPYSIGN,
  OP_AND,
  OP_OR,
  OP_XOR,
  OP_NOT,
  OP_CNOT,
  OP_SHL,
  OP_SHR,
  OP_SHF,
  OP_PRMT,
  OP_BFE,
  OP_BFI,
  OP_BREV,
  OP_CLZ,
  OP_POPC,
  OP_SAD,
  OP_SETP,
  OP_SET,
  OP_SELP,
  OP_SLCT,
  OP_CVT,
  OP_LOP3,
  OP_ALU_END,
  OP_PACK,
  OP_UNPACK,
  OP_CLOCK,
  OP_LD,
  OP_ST,
  OP_ATOM,
  OP_RED,
  OP_FENCE,
  OP_BAR,
  OP_SHFL,
  OP_BRA,
  OP_RET,
  OP_TRAP,
  OP_NOP
} ptx_op;

/* One instruction. Operands are numbers of registers, or ~index of a constant if negative. */
typedef struct {
  uint8_t op, type, type2, sub, sub2, space, order, scope, round, vec;
  bool ftz, sat, negate, to; /* negate: of the guard; to: cvta.to */
  bool negate_src;           /* setp and selp: the predicate operand is !p */
  int guard;                 /* predicate register, or -1 */
  int dst[4], src[4];
  int64_t offset; /* added to the address in src[0] */
  int target;     /* OP_BRA: index of the next instruction */
  int line;
} ptx_instr;

/* Registers that each thread has at its start. */
enum {
  PTX_TID = 0,    /* x, y, z */
  PTX_NTID = 3,   /* x, y, z */
  PTX_CTAID = 6,  /* x, y, z */
  PTX_NCTAID = 9, /* x, y, z */
  PTX_LANEID = 12,
  PTX_WARPID,
  PTX_NWARPID,
  PTX_SMID,
  PTX_LANEMASK_EQ,
  PTX_LANEMASK_LT,
  PTX_LANEMASK_LE,
  PTX_LANEMASK_GT,
  PTX_LANEMASK_GE,
  PTX_SINK, /* what is written to _ */
  PTX_FIRST_REGISTER
};

/* PTX_DYNAMIC: the offset of dynamic shared memory, behind all static variables. */
enum { PTX_LANES = 32, PTX_NAME = 128, PTX_DYNAMIC = 1 << 18 };

/* A parameter of a kernel. */
typedef struct {
  uint32_t offset, bytes;
} ptx_param;

typedef struct {
  char name[PTX_NAME];
  ptx_instr *code;
  int ncode;
  int nregisters;
  uint64_t *constants; /* PTX_LANES equal values each */
  int nconstants;
  ptx_param *params;
  int nparams;
  uint32_t param_bytes, shared_bytes, local_bytes;
  int max_threads; /* .maxntid, or 0 */
} ptx_kernel;

/* A variable of the module in global or constant memory. */
typedef struct {
  uint64_t address;
  uint64_t bytes;
} ptx_global;

typedef struct {
  ptx_kernel *kernels;
  int nkernels;
  ptx_global *globals;
  int nglobals;
  int version; /* 70 for 7.0 */
} ptx_module;

/* Why a text is no module. */
typedef struct {
  int line;
  char message[200];
} ptx_error;

/* Parses `length` bytes of PTX. Returns NULL and fills `error` if there is something wrong or
 * unknown. With `split` set, each access of 16 bytes becomes two of 8 bytes. */
ptx_module *ptx_parse(const char *text, size_t length, bool split, ptx_error *error);

/* Frees a module; NULL is allowed. */
void ptx_free(ptx_module *module);

/* The kernel of that name, or NULL. */
const ptx_kernel *ptx_find(const ptx_module *module, const char *name);

/* Bytes that a value of a type has in memory. */
unsigned ptx_bytes(ptx_type type);

/* The result of an arithmetic operation (before OP_ALU_END) for one thread. */
uint64_t ptx_compute(const ptx_instr *in, const uint64_t source[4]);

#endif
