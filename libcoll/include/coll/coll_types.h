/*
 * coll_types.h: element types, reduction operations, and user-defined operations. Included by
 * coll.h.
 */
#ifndef COLL_COLL_TYPES_H
#define COLL_COLL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "coll/coll_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types --------------------------------------------------------------------------------- */

/*
 * Element types. float16 is IEEE binary16, bfloat16 the upper half of binary32, float8_e4m3 and
 * float8_e5m2 are those of the OCP 8-bit floating point specification. The LOC and LOC64 types are
 * the structs below. COLL_TYPE_USER(bytes) is a user-defined type, an element of 1 byte to 1 GiB:
 * every collective can move it, and operations made by coll_op_create() can reduce it. If it is
 * longer than a slot (COLL_SLOT_BYTES, by default 64 KiB), a reduction allocates room for an
 * element from each rank that it receives from, until it is complete; NO_MEMORY if there is none.
 */
typedef enum coll_type {
  COLL_INT8 = 0,
  COLL_UINT8 = 1,
  COLL_INT16 = 2,
  COLL_UINT16 = 3,
  COLL_INT32 = 4,
  COLL_UINT32 = 5,
  COLL_INT64 = 6,
  COLL_UINT64 = 7,
  COLL_FLOAT16 = 8,
  COLL_BFLOAT16 = 9,
  COLL_FLOAT32 = 10,
  COLL_FLOAT64 = 11,
  COLL_FLOAT8_E4M3 = 12,
  COLL_FLOAT8_E5M2 = 13,
  COLL_INT32_LOC = 14,
  COLL_INT64_LOC = 15,
  COLL_FLOAT32_LOC = 16,
  COLL_FLOAT64_LOC = 17,
  COLL_INT32_LOC64 = 18,
  COLL_FLOAT32_LOC64 = 19,
  COLL_TYPE_USER_BASE = 0x10000,
  COLL_TYPE_USER_LAST = 0x40010000 /* COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX) */
} coll_type;
#define COLL_TYPE_COUNT          20
#define COLL_TYPE_USER_BYTES_MAX 0x40000000 /* 1 GiB */
#define COLL_TYPE_USER(bytes)                                                                      \
  ((coll_type)((size_t)(bytes) <= COLL_TYPE_USER_BYTES_MAX ? COLL_TYPE_USER_BASE + (int)(bytes)    \
                                                           : COLL_TYPE_USER_BASE))

/*
 * A value and an index of any meaning (a position, a rank, ...), for MINLOC and MAXLOC. The index
 * has 64 bits in all but coll_int32_loc and coll_float32_loc. The structs for short values with a
 * 64-bit index have 16 bytes: the value at 0, padding at 4, the index at 8. The padding of an input
 * has no effect, and that of a result is 0.
 */
typedef struct coll_int32_loc {
  int32_t value;
  int32_t index;
} coll_int32_loc;
typedef struct coll_int64_loc {
  int64_t value;
  int64_t index;
} coll_int64_loc;
typedef struct coll_float32_loc {
  float value;
  int32_t index;
} coll_float32_loc;
typedef struct coll_float64_loc {
  double value;
  int64_t index;
} coll_float64_loc;
typedef struct coll_int32_loc64 {
  int32_t value;
  int64_t index;
} coll_int32_loc64;
typedef struct coll_float32_loc64 {
  float value;
  int64_t index;
} coll_float32_loc64;

/* Size of one element in bytes; 0 for an unknown type. Any thread. */
COLL_API size_t coll_type_bytes(coll_type type);

/* ---- operations ---------------------------------------------------------------------------- */

/*
 * Reduction operations: the constants below, or what coll_op_create() gives. And their types:
 *  - SUM, PROD, MIN, MAX, AVG: all integers and floats. Integers wrap around modulo 2^bits in SUM
 *    and PROD. AVG is that SUM divided by nranks: for integers truncated toward zero, and exact as
 *    long as the SUM does not wrap; for floats multiplied by 1/nranks (float64: divided).
 *  - float16, bfloat16 and the float8 types are widened to float32 for each operation and rounded
 *    to nearest even after it (or computed in float32 throughout: see coll_config.accumulate).
 *    float8 saturates: larger results, and infinities, become the largest finite number.
 *  - MIN and MAX of floats: a NaN on any rank gives NaN; -0 is smaller than +0.
 *  - BAND, BOR, BXOR (bitwise), LAND, LOR, LXOR (of element != 0; the result is 0 or 1): all
 *    integers.
 *  - MINLOC, MAXLOC: the LOC and LOC64 types. The element with the smallest or largest value; of
 *    equal values the one with the smaller index. NaN wins over every number.
 *  - User-defined: coll_op_create() and coll_op_create_premul_sum(), see below.
 */
typedef intptr_t coll_op;
enum {
  COLL_SUM = 0,
  COLL_PROD = 1,
  COLL_MIN = 2,
  COLL_MAX = 3,
  COLL_AVG = 4,
  COLL_BAND = 5,
  COLL_BOR = 6,
  COLL_BXOR = 7,
  COLL_LAND = 8,
  COLL_LOR = 9,
  COLL_LXOR = 10,
  COLL_MINLOC = 11,
  COLL_MAXLOC = 12
};
#define COLL_OP_COUNT 13

/* ---- user-defined operations --------------------------------------------------------------- */

/*
 * Combines count elements: result[i] = left[i] op right[i]. `result` may be equal to left or right
 * but does not overlap them otherwise. The function should be associative and must give the same
 * bits for the same inputs on all ranks. It may run in any thread that is inside the communicator
 * or a related one (split from the same), in several at the same time if several communicators use
 * it, and must not call libcoll on any of them.
 */
typedef void (*coll_op_fn)(const void *left, const void *right, void *result, size_t count,
                           coll_type type, void *context);

/*
 * Makes an operation from a function, for every type. It belongs to the process, not to a
 * communicator: it may be made before there is any, and every communicator of the process can use
 * it, in any thread, whether created before or after it, by whichever call. Any thread; sends
 * nothing.
 *
 * name: what ranks compare. In one call all ranks must use an operation of the same name and
 * `commutative`, otherwise the call ends with MISMATCH; when and in which order each process makes
 * its operations, and how often, does not matter. 1 character or more, copied. Operations that
 * combine differently, or take another `type`, need different names, also those of different
 * libraries: begin with the library's ("mylib quaternion product"). Of all pairs of different
 * names, one in 8 million is the same to libcoll (docs/decisions/user-operations.md).
 *
 * fn, context: fn is called with this context, which must stay valid until the last call that uses
 * the operation is complete. commutative: 0 keeps the ranks in order: (x0 op x1) op (x2 op x3) is
 * possible, x1 op x0 is not. op: receives the operation, or -1 on failure; release it with
 * coll_op_free(). Errors: INVALID_ARGUMENT (name, fn or op is NULL, or name is empty), NO_MEMORY.
 * They leave no record, since there is no communicator.
 */
COLL_API coll_status coll_op_create(const char *name, coll_op_fn fn, void *context, int commutative,
                                    coll_op *op);

/*
 * Makes an operation that multiplies this rank's elements by *factor before they are summed. It is
 * for `type` only, integers or floats. *factor is one element of `type`, is copied, and may differ
 * between ranks; so all pre-multiplied sums count as the same operation, and need no name.
 * Otherwise as coll_op_create(). Errors: INVALID_ARGUMENT (factor or op is NULL, another type),
 * NO_MEMORY.
 */
COLL_API coll_status coll_op_create_premul_sum(const void *factor, coll_type type, coll_op *op);

/*
 * Releases an operation, which no later call may name; *op becomes -1. Calls that were made before
 * keep what they need: nonblocking operations complete, persistent ones can be started again, and
 * calls of an open group are made at its end. Any thread. Errors: INVALID_ARGUMENT (op is NULL, or
 * *op is -1 or predefined). A copy of *op is a dangling pointer afterwards.
 */
COLL_API coll_status coll_op_free(coll_op *op);

/* ---- on this rank alone -------------------------------------------------------------------- */

/*
 * inout[i] = in[i] op inout[i], for i < count: combines two buffers of this rank as a reduction
 * combines those of two ranks, with the same kernels and the same bits. Sends nothing, also inside
 * a group, and works on a revoked communicator.
 *
 * in, inout: count elements of type; disjoint or the same. op: not COLL_AVG and no pre-multiplied
 * sum, which are about all ranks; of float16, bfloat16 and float8 each result is rounded
 * (coll_config.accumulate has no effect). comm: keeps the record of an error; NULL: none does, and
 * the call may be made from any thread at any time. Errors: INVALID_ARGUMENT (as for
 * coll_reduce()), INVALID_USAGE (another thread inside `comm`).
 */
COLL_API coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type,
                                       coll_op op, coll_comm *comm);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_TYPES_H */
