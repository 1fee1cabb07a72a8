/* test_shm.c: the conformance suite on the shared-memory transport. */
#include <string.h>

#include "tests/conformance/support_conformance.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_wire.h"

/* The abstract Unix socket of the endpoint behind a blob. */
static bool listener(const uint8_t raw[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                     socklen_t *length) {
  shm_blob blob;
  struct sockaddr_un address;
  if (shm_blob_read(raw, &blob) != 0) {
    return false;
  }
  *length = shm_blob_address(&blob, &address);
  memset(addr, 0, sizeof *addr);
  memcpy(addr, &address, sizeof address);
  return true;
}

static const conf_transport transport = {.ops = &shm_transport, .listener = listener};

CONFORMANCE(shm, &transport)
