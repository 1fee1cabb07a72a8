/*
 * test_direct.c: stream-ordered calls that stay in the memory of (fake) GPUs: every collective,
 * type and operation against a plain reference, in rounds and segments, on one and several devices.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_cases.h"
#include "tests/proc/support_ranks.h"

TestSuite(direct, .timeout = 240);

/* Shares GPU memory and runs the cases. */
static int run_direct(coll_comm *comm, int rank, int nranks, void *part) {
  device_use(rank % 2);
  RANK_OK(coll_comm_use_gpu(comm));
  RANK_CHECK(comm->direct != NULL);
  return cases_run(comm, rank, nranks, part);
}

Test(direct, cases) {
  const unsigned share = (unsigned)extent(19, 3, 61);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  for (int nranks = 2; nranks <= 5; nranks++) {
    cases_part part = {share, (unsigned)nranks % share, CASE_STREAMED, 2};
    cr_assert_eq(run_threads(nranks, NULL, run_direct, &part), 0, "%d ranks", nranks);
  }
}
