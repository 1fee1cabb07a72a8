/* tcp_blob.h: blobs of the TCP transport, as ranks of other hosts would have them. */
#ifndef TESTS_COMMON_TCP_BLOB_H
#define TESTS_COMMON_TCP_BLOB_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

#include "transports/tcp/tcp_internal.h"

/* Makes a blob from one or two addresses as text, all with prefix length 24 or 64. */
static inline tcp_blob blob_of(uint64_t host_id, const char *first, const char *second) {
  tcp_blob blob = {.magic = TCP_BLOB_MAGIC, .host_id = host_id, .sockets = 1};
  const char *texts[] = {first, second};
  for (int i = 0; i < 2 && texts[i]; i++) {
    colli_addr *addr = &blob.addrs[blob.count++];
    bool v6 = strchr(texts[i], ':') != NULL;
    addr->family = v6 ? 6 : 4;
    addr->prefix = v6 ? 64 : 24;
    addr->port = 9;
    cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, texts[i], addr->ip), 1);
  }
  return blob;
}

#endif
