/*
 * test_staged.c: calls on memory of (fake) GPUs, on copies in host memory: every collective, form,
 * type, operation and place against a plain reference; the input, the result or both on a device.
 */
#include <criterion/criterion.h>

#include "extent.h"
#include "support_cases.h"
#include "tests/proc/support_ranks.h"

TestSuite(staged, .timeout = 120);

Test(staged, threads) {
  const unsigned share = (unsigned)extent(61, 3, 61);
  device_use(0); /* before the communicator is made, as a program does */
  for (int nranks = 1; nranks <= 5; nranks++) {
    cases_part part = {share, (unsigned)nranks % share, CASE_BLOCKING, CASE_FORMS};
    cr_assert_eq(run_threads(nranks, NULL, cases_run, &part), 0, "%d ranks", nranks);
  }
}
