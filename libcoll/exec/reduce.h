/*
 * reduce.h: reduction kernels. Chosen once per communicator for the processor that runs (portable,
 * AVX2, AVX-512, NEON); all give the same bits.
 */
#ifndef COLLI_EXEC_REDUCE_H
#define COLLI_EXEC_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"

/*
 * dst[i] = a[i] op b[i], and the same into dst2 unless that is NULL, for i < count. dst may equal a
 * or b; otherwise nothing overlaps. Buffers need only the alignment of bytes. COLL_AVG adds.
 */
typedef void (*colli_reduce_fn)(void *dst, void *dst2, const void *a, const void *b, size_t count);

/* buf[i] = buf[i] / nranks as COLL_AVG defines it. */
typedef void (*colli_average_fn)(void *buf, size_t count, int nranks);

/* Elements to float32, exactly; NaNs become the canonical one. The buffers do not overlap. */
typedef void (*colli_widen_fn)(void *to, const void *from, size_t count);

/*
 * float32 to elements, to nearest even and with the type's overflow; every NaN becomes the
 * canonical one. The buffers do not overlap.
 */
typedef void (*colli_narrow_fn)(void *to, const void *from, size_t count);

typedef enum colli_isa {
  COLLI_ISA_PORTABLE,
  COLLI_ISA_AVX2,
  COLLI_ISA_AVX512,
  COLLI_ISA_NEON,
  COLLI_ISA_COUNT
} colli_isa;

typedef struct colli_kernels {
  colli_isa isa;
  colli_reduce_fn reduce[COLL_TYPE_COUNT][COLL_OP_COUNT]; /* NULL: no such operation */
  colli_average_fn average[COLL_TYPE_COUNT];              /* NULL: no number */
  colli_widen_fn widen[COLL_TYPE_COUNT];                  /* NULL: not narrower than float32 */
  colli_narrow_fn narrow[COLL_TYPE_COUNT];
} colli_kernels;

/* The kernels for an instruction set, or NULL if this processor (or build) lacks it. Constant data.
 */
const colli_kernels *colli_kernels_for(colli_isa isa);

/* The fastest kernels that this processor supports; never NULL. */
const colli_kernels *colli_kernels_best(void);

/*
 * reduce(dst, dst2, a, b, count) that writes dst past the caches if the processor can; and dst2 as
 * well if `both`. For results that do not fit into the caches and that nobody reads soon; for
 * others it is slower.
 */
void colli_reduce_stream(colli_reduce_fn reduce, void *dst, void *dst2, const void *a,
                         const void *b, size_t count, size_t elem_bytes, bool both);

/* memcpy(dst, src, bytes) in the same way. */
void colli_copy_stream(void *dst, const void *src, size_t bytes);

const char *colli_isa_name(colli_isa isa);

/* Single elements of float16 and bfloat16, as the kernels widen and narrow them. */
float colli_half_to_float(uint16_t half);
uint16_t colli_float_to_half(float value);
float colli_bfloat_to_float(uint16_t bfloat);
uint16_t colli_float_to_bfloat(float value);

#endif
