/* fuzz_calibration.c: a file of measured costs. */
#include "fuzz.h"
#include "libcoll/tuning/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  colli_calibration calibration;
  colli_corrections *corrections = NULL;
  colli_calibration_origin origin;
  char why[160];
  if (colli_calibration_read(fuzz_file("calibration", data, bytes), &calibration, &corrections,
                             &origin, why, sizeof(why)))
    free(corrections);
  return 0;
}
