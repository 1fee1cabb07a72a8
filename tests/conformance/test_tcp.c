/* test_tcp.c: the conformance suite on TCP, with small slots and with more than the kernel holds,
 * plain and over TLS. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "libcoll/base/clock.h"
#include "tests/conformance/support_tcp.h"
#include "tests/conformance/support_world.h"
#include "transports/tcp/tcp.h"
#include "waits.h"

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

/* A clock in which the first 100 looks take a second. */
static atomic_uint looks;

static uint64_t now_running(void *ctx) {
  (void)ctx;
  const unsigned count = atomic_fetch_add(&looks, 1);
  return colli_now_ns() + (count < 100 ? count : 100) * 10 * COLLI_NS_PER_MS;
}

static void *close_endpoint(void *endpoint) {
  tcp_transport.close(endpoint);
  return NULL;
}

/* What was sent arrives although the peer is held up while the sender closes. */
Test(tcp_large, receiver_is_held_up, .timeout = 60) {
  conf_world *world = conf_begin(&large, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  const size_t bytes = world->slot_bytes;
  char *buf = malloc(bytes);
  cr_assert_not_null(buf);
  data_fill_bytes(buf, bytes, 9);
  uint64_t taken = 0;
  for (int full = 0; full < 20;) {
    const int status = conf_try_send(&a, CONF_SLOT, 9, buf, bytes);
    cr_assert_leq(status, 0);
    taken += status != COLL_T_AGAIN;
    full += status == COLL_T_AGAIN;
  }
  free(buf);
  conf_disconnect(&a);
  coll_endpoint *leaving = world->rank[0].ep;
  world->rank[0].ep = NULL;
  world->rank[0].env.now_ns = now_running;
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, close_endpoint, leaving), 0);
  cr_assert(WAIT_UNTIL(atomic_load(&looks) > 100, 30), "it does not wait for the peer");
  for (uint64_t i = 0; i < taken; i++)
    conf_receive(world, &b, CONF_RECV, 9, bytes);
  pthread_join(thread, NULL);
  cr_expect_eq(conf_receive_error(world, &b), COLL_ERR_PEER_LOST);
  conf_disconnect(&b);
  conf_finish(world);
}
