/* stage.c: conversions of whole vectors, by the kernels that reduce. */
#include "libcoll/exec/stage.h"

#include <string.h>

#include "libcoll/exec/reduce.h"

#define FEW         64   /* elements for which it does not pay to ask what the processor can do */
#define BLOCK_BYTES 1024 /* of copies of the factor; whole elements of each type */

/* The kernels for so many elements; all give the same bits. */
static const colli_kernels *kernels_for(size_t count) {
  return count <= FEW ? colli_kernels_for(COLLI_ISA_PORTABLE) : colli_kernels_best();
}

void colli_stage_scale(void *to, const void *from, size_t count, coll_type type,
                       const void *factor) {
  unsigned char block[BLOCK_BYTES];
  size_t elem_bytes = coll_type_bytes(type), most = BLOCK_BYTES / elem_bytes;
  colli_reduce_fn multiply = kernels_for(count)->reduce[type][COLL_PROD];
  for (size_t i = 0; i < most && i < count; i++)
    memcpy(block + i * elem_bytes, factor, elem_bytes);
  for (size_t done = 0; done < count; done += most) {
    size_t some = count - done < most ? count - done : most, at = done * elem_bytes;
    multiply((char *)to + at, NULL, (const char *)from + at, block, some);
  }
}

void colli_stage_widen(float *to, const void *from, size_t count, coll_type type) {
  kernels_for(count)->widen[type](to, from, count);
}

void colli_stage_narrow(void *to, const float *from, size_t count, coll_type type) {
  kernels_for(count)->narrow[type](to, from, count);
}
