/* test_shm.c: the conformance suite on the shared-memory transport. */
#include <string.h>

#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_world.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_wire.h"

/* The abstract Unix socket of the endpoint behind a blob. */
static bool listener(const uint8_t raw[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                     socklen_t *length) {
  shm_blob blob;
  struct sockaddr_un address;
  if (shm_blob_read(raw, &blob) != 0)
    return false;
  *length = shm_blob_address(&blob, &address);
  memset(addr, 0, sizeof *addr);
  memcpy(addr, &address, sizeof address);
  return true;
}

static const conf_transport transport = {.ops = &shm_transport, .listener = listener};

CONFORMANCE(shm, &transport)

/* Messages that are long enough to be referred to. */
Test(shm, long_messages, .timeout = 60) {
  conf_memory_traffic(&(conf_transport){.ops = &shm_transport, .slot_bytes = 65536});
}

/*
 * A peer may leave because of the very message that is just being published: seeing it gone right
 * after that is no failure of this send. Only the next one is one too many.
 */
Test(shm, last_message_of_a_leaver) {
  conf_world *world = conf_begin(&transport, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  conf_disconnect(&a);
  char buf[64] = {0};
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 3, buf, sizeof(buf)), COLL_T_DONE);
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 4, buf, sizeof(buf)), COLL_ERR_PEER_LOST);
  conf_disconnect(&b);
  conf_finish(world);
}
