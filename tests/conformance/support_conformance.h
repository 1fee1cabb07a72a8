/*
 * support_conformance.h: what every transport must do, as one suite that is stamped onto each.
 *
 * A stamp is a file test_<name>.c that describes the transport and says CONFORMANCE(name, &it):
 *
 *   static const conf_transport transport = {.ops = &tcp_transport};
 *   CONFORMANCE(tcp, &transport)
 *
 * All ranks' endpoints live in this process and are driven by one thread that polls them.
 */
#ifndef COLLI_TESTS_SUPPORT_CONFORMANCE_H
#define COLLI_TESTS_SUPPORT_CONFORMANCE_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "coll/coll_transport.h"

/* A transport, as the suite needs it. Everything but `ops` may be left out. */
typedef struct conf_transport {
  const coll_transport_ops *ops;
  size_t slot_bytes;   /* 0: 8192 */
  unsigned slot_count; /* 0: 4 */

  /* Makes and frees what env.device points to for a group of nranks ranks (the simulator's world).
   */
  void *(*setup)(int nranks);
  void (*teardown)(void *device);

  /* Last touch on a rank's environment (its clock, for example), before open(). */
  void (*prepare)(coll_transport_env *env);

  /* Called after each round of polling: lets virtual time pass. Without it time is real. */
  void (*advance)(void *device);

  /* Value of a COLL_ setting, or NULL for "". */
  const char *(*param)(const char *name);

  /* Where a stranger could connect to the endpoint behind a blob: false if nowhere. */
  bool (*listener)(const uint8_t blob[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                   socklen_t *length);
} conf_transport;

/* The checks, one test each: X(check, suite, transport). */
#define CONF_CHECKS(X, suite, transport)                                                           \
  X(open_close, suite, transport)                                                                  \
  X(no_leaks, suite, transport)                                                                    \
  X(describe_reach, suite, transport)                                                              \
  X(connect_lower_first, suite, transport)                                                         \
  X(connect_higher_first, suite, transport)                                                        \
  X(disconnect_before_established, suite, transport)                                               \
  X(pairings, suite, transport)                                                                    \
  X(peek_is_stable, suite, transport)                                                              \
  X(slots_without_receiver, suite, transport)                                                      \
  X(sent_without_receive, suite, transport)                                                        \
  X(flow_control, suite, transport)                                                                \
  X(buffer_in_use, suite, transport)                                                               \
  X(send_copies, suite, transport)                                                                 \
  X(channels_and_peers, suite, transport)                                                          \
  X(mismatch_tag, suite, transport)                                                                \
  X(mismatch_size, suite, transport)                                                               \
  X(disconnect_delivers, suite, transport)                                                         \
  X(peer_close, suite, transport)                                                                  \
  X(peer_close_send, suite, transport)                                                             \
  X(wrong_secret, suite, transport)                                                                \
  X(misplaced_hello, suite, transport)                                                             \
  X(strangers, suite, transport)                                                                   \
  X(wait_fd, suite, transport)                                                                     \
  X(wait_fd_quiet, suite, transport)                                                               \
  X(wake, suite, transport)                                                                        \
  X(random_traffic, suite, transport)                                                              \
  X(memory_traffic, suite, transport)                                                              \
  X(device_traffic, suite, transport)

#define CONF_DECLARE(check, suite, transport) void conf_##check(const conf_transport *t);
CONF_CHECKS(CONF_DECLARE, , )
#undef CONF_DECLARE

#define CONF_TEST(check, suite, transport)                                                         \
  Test(suite, check) {                                                                             \
    conf_##check(transport);                                                                       \
  }
#define CONFORMANCE(suite, transport)                                                              \
  TestSuite(suite, .timeout = 300);                                                                \
  CONF_CHECKS(CONF_TEST, suite, transport)

#endif
