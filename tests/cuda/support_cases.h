/* support_cases.h: every collective, type, operation and place on (fake) GPUs, in given forms. */
#ifndef TESTS_CUDA_SUPPORT_CASES_H
#define TESTS_CUDA_SUPPORT_CASES_H

#include "support_device.h"

/* Which cases: of all, every `stride`-th from `offset` on, in `nforms` forms from `first` on. */
typedef struct cases_part {
  unsigned stride, offset;
  int first, nforms;
} cases_part;

/* A rank_fn: runs the cases of a cases_part on this rank, on device_of_rank(rank), with the input,
 * the result or both on the device. Each has several sizes, which are under way together. */
int cases_run(coll_comm *comm, int rank, int nranks, void *part);

#endif
