/* support_sum.h: a sum by one of the library's kernels on the fake driver. */
#ifndef TESTS_GPU_SUPPORT_SUM_H
#define TESTS_GPU_SUPPORT_SUM_H

#include "libcoll/gpu/programs.h"
#include "tests/gpu/driver/use.h"

/* Sums an element in memory of the device whose context is current: 3 + 3. Ends the program if that
 * is wrong; returns what the launch gave. */
static inline coll_status sum_element(const use *u, const colli_gpu_programs *programs,
                                      uint32_t *place, coll_error *error) {
  const uint64_t at = use_address(place), inputs[] = {at, at};
  const colli_gpu_fold_call call = {.type = COLL_INT32,
                                    .op = COLL_SUM,
                                    .nranks = 2,
                                    .ninputs = 2,
                                    .noutputs = 1,
                                    .inputs = inputs,
                                    .outputs = &at,
                                    .count = 1};
  *place = 3;
  const coll_status status = colli_gpu_launch_fold(&u->cuda, programs, NULL, &call, error);
  OK(u->cuda.stream_synchronize(NULL));
  CHECK(status != COLL_OK || *place == 6);
  return status;
}

#endif
