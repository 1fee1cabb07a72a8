/* pmix_absent.c: a build without PMIx's headers offers none. */
#include "libcoll/create/carrier.h"

/* Never. */
static bool offered(const colli_params *params) {
  (void)params;
  return false;
}

const colli_carrier colli_carrier_pmix = {.offered = offered};
