/* fuzz_id.c: the bytes of a unique id. */
#include "fuzz.h"
#include "libcoll/wireup/id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  coll_id packed;
  colli_id id;
  coll_error error = COLL_ERROR_INIT;
  fuzz_take(&data, &bytes, packed.bytes, sizeof(packed.bytes));
  if (colli_id_unpack(&packed, &id, &error) == COLL_OK) {
    coll_id again;
    colli_id_pack(&id, &again);
    if (memcmp(&again, &packed, sizeof(again)) != 0)
      abort();
    colli_id_release(&id);
  }
  return 0;
}
