/* support_tcp.h: what suites on TCP pass to the conformance checks. */
#ifndef TESTS_CONFORMANCE_SUPPORT_TCP_H
#define TESTS_CONFORMANCE_SUPPORT_TCP_H

#include <netinet/in.h>
#include <string.h>

#include "transports/tcp/tcp_internal.h"

/* Finds the listener of a blob: all its addresses have one port, and loopback reaches it. */
static inline bool conf_tcp_listener(const uint8_t bytes[COLL_BLOB_BYTES],
                                     struct sockaddr_storage *addr, socklen_t *length) {
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

/* Parameters of which COLL_TLS is on. */
static inline const char *conf_tcp_with_tls(const char *name) {
  return strcmp(name, "COLL_TLS") == 0 ? "1" : NULL;
}

#endif
