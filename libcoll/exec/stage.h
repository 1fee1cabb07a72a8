/*
 * stage.h: conversions of whole vectors before the start and after the end of an operation, by the
 * communicator's kernels. They round as the kernels of reduce.h do. Buffers need only the alignment
 * of bytes.
 */
#ifndef COLLI_EXEC_STAGE_H
#define COLLI_EXEC_STAGE_H

#include "libcoll/exec/reduce.h"

/*
 * to[i] = from[i] op *operand for i < count; `type` is one of integers or floats that `op` has.
 * `to` may be equal to `from` and does not overlap it otherwise.
 */
void colli_stage_combine(const colli_kernels *kernels, void *to, const void *from, size_t count,
                         coll_type type, coll_op op, const void *operand);

/* Elements of float16, bfloat16 or float8 to float32, exactly. The buffers do not overlap. */
void colli_stage_widen(const colli_kernels *kernels, float *to, const void *from, size_t count,
                       coll_type type);

/*
 * The reverse, to nearest even. Overflow is treated as in the type's operations, and every NaN
 * becomes the canonical one. The buffers do not overlap.
 */
void colli_stage_narrow(const colli_kernels *kernels, void *to, const float *from, size_t count,
                        coll_type type);

#endif
