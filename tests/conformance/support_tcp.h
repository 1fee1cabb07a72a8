/* support_tcp.h: what suites on TCP pass to the conformance checks. */
#ifndef TESTS_CONFORMANCE_SUPPORT_TCP_H
#define TESTS_CONFORMANCE_SUPPORT_TCP_H

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
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

/* Makes a network namespace with two interfaces for this test's process. Needs root. */
static inline void *conf_tcp_two_interfaces(int nranks) {
  static bool done; /* in this test's process */
  (void)nranks;
  if (done)
    return NULL;
  done = true;
  if (unshare(CLONE_NEWNET) != 0 ||
      system("ip link set lo up && ip link add a0 type veth peer name b0 && "
             "ip link add a1 type veth peer name b1 && ip addr add 10.61.0.1/24 dev a0 && "
             "ip addr add 10.62.0.1/24 dev a1 && ip link set a0 up && ip link set b0 up && "
             "ip link set a1 up && ip link set b1 up") != 0)
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
  return NULL;
}

/* Each rank is on a host of its own. */
static inline void conf_tcp_apart(coll_transport_env *env) {
  env->host_id += (uint64_t)env->rank;
}

#endif
