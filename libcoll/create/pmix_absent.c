/* pmix_absent.c: a build without PMIx's headers offers none. */
#include "libcoll/base/error.h"
#include "libcoll/create/pmix.h"

bool colli_pmix_offered(const colli_params *params) {
  (void)params;
  return false;
}

coll_status colli_pmix_join(uint64_t deadline_ns, int *rank, int *nranks, coll_error *error) {
  (void)deadline_ns;
  *rank = 0;
  *nranks = 1;
  return colli_error_set(error, COLL_ERR_UNSUPPORTED, "create", "this build has no PMIx");
}

coll_status colli_pmix_share(uint64_t deadline_ns, int rank, colli_id *id, coll_error *error) {
  (void)deadline_ns, (void)rank, (void)id;
  return colli_error_set(error, COLL_ERR_UNSUPPORTED, "create", "this build has no PMIx");
}
