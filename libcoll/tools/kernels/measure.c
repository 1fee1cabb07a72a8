/* measure.c: measures a kernel and its limit loops. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "libcoll/base/clock.h"
#include "libcoll/exec/stage.h"

#define FEWEST_SAMPLES 5
#define SAMPLE_NS      50000      /* shorter calls are repeated to hide the clock's cost */
#define LEAST_STREAM   (1u << 20) /* smaller results fit into a cache */
#define NRANKS         3          /* of an average */

int kernels_exists(const kernels_work *work) {
  const colli_kernels *k = work->kernels;
  if (work->form == FORM_AVERAGE)
    return k->average[work->type] != NULL;
  if (work->form == FORM_SCALE)
    return k->reduce[work->type][COLL_PROD] != NULL;
  if (work->form == FORM_STREAM && work->bytes < LEAST_STREAM)
    return 0;
  return k->reduce[work->type][work->op] != NULL;
}

/* Runs the kernel once. */
static void run_kernel(const kernels_work *work) {
  const kernels_memory *m = work->memory;
  size_t count = work->bytes / coll_type_bytes(work->type);
  colli_reduce_fn reduce = work->kernels->reduce[work->type][work->op];
  switch (work->form) {
  case FORM_AVERAGE:
    work->kernels->average[work->type](m->a, count, NRANKS);
    break;
  case FORM_SCALE:
    colli_stage_combine(work->kernels, m->to, m->a, count, work->type, COLL_PROD, m->b);
    break;
  case FORM_STREAM:
    colli_reduce_stream(reduce, m->to, NULL, m->a, m->b, count, coll_type_bytes(work->type), false);
    break;
  default:
    reduce(work->form == FORM_IN ? m->a : m->to, work->form == FORM_TWO ? m->to2 : NULL, m->a, m->b,
           count);
  }
}

/* Runs a limit once. */
static void run_limit(const kernels_work *work, kernels_limit limit) {
  const kernels_memory *m = work->memory;
  bool in = work->form == FORM_IN || work->form == FORM_AVERAGE;
  limit(in ? m->a : m->to, m->to2, m->a, m->b, work->bytes);
}

/* Nanoseconds of one of `turns` calls; of the kernel if limit is NULL. */
static double take_sample(const kernels_work *work, kernels_limit limit, int turns) {
  uint64_t start = colli_now_ns();
  for (int i = 0; i < turns; i++)
    if (limit)
      run_limit(work, limit);
    else
      run_kernel(work);
  return (double)(colli_now_ns() - start) / turns;
}

/*
 * Ones, and zeros to add or ones to multiply with, so that repeated computation in place keeps
 * ordinary numbers; special ones are slow on some processors.
 */
static void fill_buffer(const kernels_work *work) {
  static const uint64_t ones[COLL_TYPE_COUNT] = {[COLL_INT8] = 1,
                                                 [COLL_UINT8] = 1,
                                                 [COLL_INT16] = 1,
                                                 [COLL_UINT16] = 1,
                                                 [COLL_INT32] = 1,
                                                 [COLL_UINT32] = 1,
                                                 [COLL_INT64] = 1,
                                                 [COLL_UINT64] = 1,
                                                 [COLL_FLOAT16] = 0x3c00,
                                                 [COLL_BFLOAT16] = 0x3f80,
                                                 [COLL_FLOAT32] = 0x3f800000,
                                                 [COLL_FLOAT64] = 0x3ff0000000000000,
                                                 [COLL_FLOAT8_E4M3] = 0x38,
                                                 [COLL_FLOAT8_E5M2] = 0x3c};
  const kernels_memory *m = work->memory;
  size_t each = coll_type_bytes(work->type);
  bool product = work->op == COLL_PROD || work->form == FORM_SCALE;
  memset(m->a, 0, work->bytes);
  memset(m->b, 0, work->bytes);
  for (size_t at = 0; at < work->bytes && each <= sizeof(ones[0]); at += each) {
    memcpy((char *)m->a + at, &ones[work->type], each);
    if (product)
      memcpy((char *)m->b + at, &ones[work->type], each);
  }
}

kernels_rate kernels_measure(const kernels_work *work, double ms) {
  const kernels_limit *limits = kernels_limits(work->kernels->isa, work->form);
  double best[1 + KERNELS_LIMITS] = {0}, bytes = (double)work->bytes;
  fill_buffer(work);
  int turns = 1;
  while (turns < 1 << 20 && take_sample(work, limits[0], turns) * turns < SAMPLE_NS)
    turns *= 2;
  uint64_t end = colli_now_ns() + (uint64_t)(ms * 1e6 * (1 + KERNELS_LIMITS));
  for (int i = 0; i < FEWEST_SAMPLES || colli_now_ns() < end; i++)
    for (int which = 0; which <= KERNELS_LIMITS; which++) {
      kernels_limit limit = which > 0 ? limits[which - 1] : NULL;
      if (which > 0 && !limit)
        continue;
      double rate = bytes / take_sample(work, limit, turns);
      if (rate > best[which])
        best[which] = rate;
    }
  kernels_rate rate = {.kernel = best[0], .limit = best[1]};
  for (int which = 2; which <= KERNELS_LIMITS; which++)
    if (best[which] > rate.limit)
      rate.limit = best[which];
  return rate;
}
