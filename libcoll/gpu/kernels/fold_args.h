/*
 * fold_args.h: what the host passes to the kernels of this folder. Included by the host's C and by
 * the kernels, so all fields have fixed widths and addresses are numbers.
 */
#ifndef COLLI_GPU_KERNELS_FOLD_ARGS_H
#define COLLI_GPU_KERNELS_FOLD_ARGS_H

#include <stddef.h>
#include <stdint.h>

#define COLL_GPU_PLACES  8   /* addresses within the arguments; more are in a table in memory */
#define COLL_GPU_THREADS 512 /* the most threads a block of these kernels may have */

/* A guard: so many equal words of the host, so far apart. Blocks take turns with them, because a
 * GPU reads one word of the host for one block after the other, each a microsecond. */
#define COLL_GPU_GUARD_WORDS 512
#define COLL_GPU_GUARD_BYTES 64

/*
 * Arguments of coll_fold_OP_TYPE: outputs[*][i] = inputs[0][i] op inputs[1][i] op ..., combined
 * from left to right, for i < count. An output may be one of the inputs; otherwise nothing
 * overlaps. Addresses are multiples of an element's size, or of 4 if the element is larger than 4
 * bytes. coll_gpu_fold_split() fills in head, vectors and singles, coll_gpu_fold_average() the
 * rest.
 */
struct coll_gpu_fold {
  uint64_t in[COLL_GPU_PLACES];  /* addresses of the inputs; at least one */
  uint64_t out[COLL_GPU_PLACES]; /* and of the outputs */
  uint64_t more_in, more_out;    /* tables of the others' addresses, readable by the device */
  uint64_t head;                 /* elements before the first vector of 16 bytes */
  uint64_t vectors;              /* vectors of 16 bytes */
  uint64_t singles;              /* elements before and after the vectors */
  uint64_t factor_64;            /* AVG: bits of the factor: a double or a colli_divisor's factor */
  uint32_t factor_32;            /* AVG: bits of the factor as a float */
  uint32_t shift;                /* AVG: colli_divisor's bits; 0: nothing to divide by */
  uint32_t inputs, outputs;      /* how many */
  uint64_t guard; /* address of a guard: if its words are not 0, nothing is done; or 0 */
};

/* One piece of coll_copy. The places do not overlap. */
struct coll_gpu_piece {
  uint64_t to, from, bytes;
};

/* Arguments of coll_copy: pieces of any length at any address. */
struct coll_gpu_copy {
  struct coll_gpu_piece piece[COLL_GPU_PLACES];
  uint64_t more;  /* a table of the other pieces, readable by the device */
  uint64_t guard; /* as above */
  uint32_t pieces;
  uint32_t unused; /* 0 */
};

#ifdef __cplusplus
#define COLL_GPU_ASSERT(condition, text) static_assert(condition, text)
#else
#define COLL_GPU_ASSERT(condition, text) _Static_assert(condition, text)
#endif
COLL_GPU_ASSERT(sizeof(struct coll_gpu_fold) == 200, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_fold, more_in) == 128, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_fold, factor_32) == 176, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_fold, outputs) == 188, "host and device agree");
COLL_GPU_ASSERT(sizeof(struct coll_gpu_piece) == 24, "host and device agree");
COLL_GPU_ASSERT(sizeof(struct coll_gpu_copy) == 216, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_copy, more) == 192, "host and device agree");

#ifndef __CUDA__
#include "libcoll/exec/reduce_ops.h"

/*
 * Divides `count` elements into vectors of 16 bytes and single elements. `or_of` and `and_of` are
 * the bitwise OR and AND of all addresses: vectors need addresses that agree in the last 4 bits.
 */
static inline void coll_gpu_fold_split(struct coll_gpu_fold *fold, uint64_t count,
                                       uint32_t elem_bytes, uint64_t or_of, uint64_t and_of) {
  uint32_t before = (uint32_t)(0 - or_of) & 15;
  int together = ((or_of ^ and_of) & 15) == 0 && before % elem_bytes == 0;
  fold->head = together ? before / elem_bytes : count;
  fold->head = fold->head < count ? fold->head : count;
  fold->vectors = (count - fold->head) / (16 / elem_bytes);
  fold->singles = count - fold->vectors * (16 / elem_bytes);
}

/*
 * The factors by which AVG divides by nranks: those of reduce_template.h. 64-bit integers take a
 * divisor, 32-bit ones a double reciprocal, float64 the number itself; which kind `factor_64` is
 * depends on the type, and `factor_32` is a reciprocal, for integers slightly too large.
 */
typedef enum coll_gpu_divides {
  COLL_GPU_DIVIDES_SHORT_INT, /* 8 and 16 bits */
  COLL_GPU_DIVIDES_INT,       /* 32 bits */
  COLL_GPU_DIVIDES_LONG_INT,  /* 64 bits */
  COLL_GPU_DIVIDES_FLOAT,     /* float32 and shorter */
  COLL_GPU_DIVIDES_DOUBLE
} coll_gpu_divides;

/* Fills in what an AVG kernel needs to divide by `nranks`. */
static inline void coll_gpu_fold_average(struct coll_gpu_fold *fold, coll_gpu_divides kind,
                                         int nranks) {
  const float up = kind == COLL_GPU_DIVIDES_SHORT_INT && nranks > 1 ? 1 + 0x1p-22f : 1.0f;
  const double up_64 = nranks > 1 ? 1 + 0x1p-51 : 1.0;
  fold->factor_32 = colli_bits_of_f32(1.0f / (float)nranks * up);
  fold->factor_64 =
      colli_bits_of_f64(kind == COLL_GPU_DIVIDES_DOUBLE ? (double)nranks : 1.0 / nranks * up_64);
  fold->shift = nranks > 1;
  if (kind != COLL_GPU_DIVIDES_LONG_INT || nranks == 1)
    return;
  const colli_divisor by = colli_divisor_for((uint64_t)nranks);
  fold->factor_64 = by.factor;
  fold->shift = (uint32_t)by.bits;
}
#endif

#endif
