/* fuzz_algo.c: COLL_ALGO, COLL_FAULT, and the digits of a secret. */
#include "fuzz.h"
#include "libcoll/base/secret.h"
#include "libcoll/tuning/force.h"
#include "transports/hook/fault.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  char *text = fuzz_text(data, bytes), why[160];
  coll_error error = COLL_ERROR_INIT;
  colli_force force;
  fault_plan plan;
  colli_secret *secret = colli_secret_create();
  if (colli_force_parse(text, &force, &error) == COLL_OK) {
    for (int c = 0; c < 4; c++)
      (void)colli_force_find(&force, (colli_coll)c, bytes);
    colli_force_free(&force);
  }
  (void)fault_plan_parse(text, &plan, why, sizeof(why));
  if (secret)
    (void)colli_secret_parse(secret, text);
  colli_secret_release(secret);
  free(text);
  return 0;
}
