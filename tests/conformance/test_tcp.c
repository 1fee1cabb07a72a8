/* test_tcp.c: the conformance suite on TCP, with small slots and with more than the kernel holds,
 * plain and over TLS. */
#include <netinet/in.h>
#include <string.h>

#include "tests/conformance/support_conformance.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/tcp_internal.h"

/* All addresses of a blob have the listener's port, and loopback reaches it. */
static bool listener(const uint8_t bytes[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                     socklen_t *length) {
  tcp_blob blob;
  if (!tcp_blob_read(bytes, &blob))
    return false;
  struct sockaddr_in *in = (struct sockaddr_in *)addr;
  *in = (struct sockaddr_in){.sin_family = AF_INET,
                             .sin_port = htons(blob.addrs[0].port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  *length = sizeof(*in);
  return true;
}

static const conf_transport small = {.ops = &tcp_transport, .listener = listener};
CONFORMANCE(tcp, &small)

/* 16 MiB each way: more than the socket buffers of a connection take. */
static const conf_transport large = {
    .ops = &tcp_transport, .slot_bytes = 1 << 20, .slot_count = 16, .listener = listener};
CONFORMANCE(tcp_large, &large)

static const char *with_tls(const char *name) {
  return strcmp(name, "COLL_TLS") == 0 ? "1" : NULL;
}

static const conf_transport small_tls = {
    .ops = &tcp_transport, .param = with_tls, .listener = listener};
CONFORMANCE(tcp_tls, &small_tls)

static const conf_transport large_tls = {.ops = &tcp_transport,
                                         .slot_bytes = 1 << 20,
                                         .slot_count = 16,
                                         .param = with_tls,
                                         .listener = listener};
CONFORMANCE(tcp_tls_large, &large_tls)
