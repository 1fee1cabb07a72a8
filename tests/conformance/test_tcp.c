/* test_tcp.c: the conformance suite on TCP, with small slots and with more than the kernel holds,
 * plain and over TLS. */
#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_tcp.h"
#include "transports/tcp/tcp.h"

static const conf_transport small = {.ops = &tcp_transport, .listener = conf_tcp_listener};
CONFORMANCE(tcp, &small)

/* 16 MiB each way: more than the socket buffers of a connection take. */
static const conf_transport large = {
    .ops = &tcp_transport, .slot_bytes = 1 << 20, .slot_count = 16, .listener = conf_tcp_listener};
CONFORMANCE(tcp_large, &large)

static const conf_transport small_tls = {
    .ops = &tcp_transport, .param = conf_tcp_with_tls, .listener = conf_tcp_listener};
CONFORMANCE(tcp_tls, &small_tls)

static const conf_transport large_tls = {.ops = &tcp_transport,
                                         .slot_bytes = 1 << 20,
                                         .slot_count = 16,
                                         .param = conf_tcp_with_tls,
                                         .listener = conf_tcp_listener};
CONFORMANCE(tcp_tls_large, &large_tls)
