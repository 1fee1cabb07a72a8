/*
 * test_streams.c: stream-ordered calls on (fake) GPUs: every collective, type and operation, one by
 * one and in groups, with buffers on a device and on the host, against a plain reference.
 */
#include <criterion/criterion.h>

#include "extent.h"
#include "support_cases.h"
#include "tests/proc/support_ranks.h"

TestSuite(streams, .timeout = 240);

Test(streams, threads) {
  const unsigned share = (unsigned)extent(61, 7, 61);
  device_use(0); /* before the communicator is made, as a program does */
  for (int nranks = 1; nranks <= 5; nranks++) {
    cases_part part = {share, (unsigned)nranks % share, CASE_STREAMED, 2};
    cr_assert_eq(run_threads(nranks, NULL, cases_run, &part), 0, "%d ranks", nranks);
  }
}
