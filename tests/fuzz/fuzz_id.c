/* fuzz_id.c: the bytes of a unique id, as they are and with the right checksum. */
#include "fuzz.h"
#include "libcoll/wireup/id.h"

/* Reads an id; what is read must be written as the same bytes. */
static void read_id(const coll_id *packed) {
  colli_id id;
  coll_error error = COLL_ERROR_INIT;
  if (colli_id_unpack(packed, &id, &error) != COLL_OK)
    return;
  coll_id again;
  colli_id_pack(&id, &again);
  if (memcmp(&again, packed, sizeof(again)) != 0)
    abort();
  colli_id_release(&id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  coll_id packed;
  fuzz_take(&data, &bytes, packed.bytes, sizeof(packed.bytes));
  read_id(&packed);
  const uint32_t check = colli_id_check(&packed);
  memcpy(packed.bytes + 4, &check, sizeof(check));
  read_id(&packed);
  return 0;
}
