/* stage.c: conversions of whole vectors, by the kernels that reduce. */
#include "libcoll/exec/stage.h"

#include <string.h>

#define BLOCK_BYTES 4096 /* of copies of the operand; whole elements of each type */

void colli_stage_combine(const colli_kernels *kernels, void *to, const void *from, size_t count,
                         coll_type type, coll_op op, const void *operand) {
  unsigned char block[BLOCK_BYTES];
  size_t elem_bytes = coll_type_bytes(type), most = BLOCK_BYTES / elem_bytes;
  colli_reduce_fn combine = kernels->reduce[type][op];
  size_t filled = elem_bytes, wanted = (count < most ? count : most) * elem_bytes;
  memcpy(block, operand, elem_bytes);
  while (filled < wanted) {
    size_t more = wanted - filled < filled ? wanted - filled : filled;
    memcpy(block + filled, block, more);
    filled += more;
  }
  for (size_t done = 0; done < count; done += most) {
    size_t some = count - done < most ? count - done : most, at = done * elem_bytes;
    combine((char *)to + at, NULL, (const char *)from + at, block, some);
  }
}

void colli_stage_widen(const colli_kernels *kernels, float *to, const void *from, size_t count,
                       coll_type type) {
  kernels->widen[type](to, from, count);
}

void colli_stage_narrow(const colli_kernels *kernels, void *to, const float *from, size_t count,
                        coll_type type) {
  kernels->narrow[type](to, from, count);
}
