/*
 * test_verbs.c: the conformance suite on InfiniBand verbs: by default, with large slots, and under
 * the fault decorator. It needs a device: see docs/testing.md.
 */
#include <netinet/in.h>
#include <string.h>

#include "tests/conformance/support_world.h"
#include "transports/hook/fault.h"
#include "transports/tcp/tcp_internal.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/verbs_internal.h"

/* Skips a test where there is no device. */
static void *find_device(int nranks) {
  verbs_lib lib;
  verbs_fault fault;
  int count = 0;
  (void)nranks;
  if (verbs_lib_load(&lib, VERBS_LIB_NAME, &fault) == COLL_OK) {
    struct ibv_device **list = lib.get_device_list(&count);
    if (list)
      lib.free_device_list(list);
    verbs_lib_close(&lib);
  }
  if (count == 0)
    cr_skip_test("no verbs device here");
  return NULL;
}

/* All addresses of the link's blob have the listener's port, and loopback reaches it. */
static bool listener(const uint8_t bytes[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                     socklen_t *length) {
  verbs_blob blob;
  tcp_blob link;
  if (!verbs_blob_read(bytes, &blob))
    return false;
  memcpy(&link, blob.link, sizeof(link));
  struct sockaddr_in *in = (struct sockaddr_in *)addr;
  *in = (struct sockaddr_in){.sin_family = AF_INET,
                             .sin_port = htons(link.addrs[0].port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  *length = sizeof(*in);
  return true;
}

static const conf_transport small = {
    .ops = &verbs_transport, .setup = find_device, .listener = listener};
CONFORMANCE(verbs, &small)

static const conf_transport large = {.ops = &verbs_transport,
                                     .slot_bytes = 1 << 18,
                                     .slot_count = 8,
                                     .setup = find_device,
                                     .listener = listener};
CONFORMANCE(verbs_large, &large)

/* Faults that a caller must bear without noticing. */
static const char *param(const char *name) {
  return strcmp(name, "COLL_FAULT") == 0 ? "seed=7,again=15,refuse=20,delay_us=300" : NULL;
}

static const conf_transport *faulty(void) {
  static conf_transport transport = {.slot_bytes = 1 << 16, .setup = find_device, .param = param};
  static fault_table table;
  transport.ops = colli_fault_over(&verbs_transport, &table);
  return &transport;
}
CONFORMANCE(verbs_fault, faulty())
