/*
 * test_memory.c: a TLS session that ends because OpenSSL gets no memory. Its control link stays
 * open, since the neighbour would take its end for that of the process, but is no longer watched:
 * otherwise whoever waits for events would take a whole core.
 */
#include <criterion/criterion.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/wireup/ctrl_links.h"
#include "tests/tls/support_tapped.h"
#include "waits.h"

#define RECORD_BYTES 4096 /* buffers of records are larger, all else is smaller */

static bool out_of_memory; /* for records */

static void *take(size_t bytes, const char *file, int line) {
  (void)file, (void)line;
  return out_of_memory && bytes > RECORD_BYTES ? NULL : malloc(bytes);
}

static void *take_again(void *old, size_t bytes, const char *file, int line) {
  (void)file, (void)line;
  return out_of_memory && bytes > RECORD_BYTES ? NULL : realloc(old, bytes);
}

static void give_back(void *block, const char *file, int line) {
  (void)file, (void)line;
  free(block);
}

/* OpenSSL accepts this only before its first allocation. */
__attribute__((constructor)) static void own_memory(void) {
  CRYPTO_set_mem_functions(take, take_again, give_back);
}

/* Whether the link can be waited for: nothing is ready although nothing is polled. */
static bool is_quiet(colli_ctrl *ctrl) {
  colli_ctrl_msg msg;
  int link, sys_errno;
  (void)colli_ctrl_poll(ctrl, &link, &msg, &sys_errno);
  return poll(&(struct pollfd){.fd = colli_ctrl_fd(ctrl), .events = POLLIN}, 1, 0) == 0;
}

/* A link over the connector's end of a session. */
static colli_ctrl *open_link(tapped *t) {
  colli_ctrl *ctrl;
  const int peer = 1;
  coll_error error = COLL_ERROR_INIT;
  const colli_sealed end = {.fd = t->connector_fd, .wants_tls = true, .tls = t->connector};
  cr_assert_eq(colli_ctrl_create_net(&ctrl, 0, 2, &peer, &end, NULL, 1, 2000, &error), COLL_OK);
  return ctrl;
}

Test(tls_memory, of_a_receiver, .timeout = 60) {
  tapped t = tapped_shaken();
  colli_ctrl *ctrl = open_link(&t);
  colli_ctrl_msg msg;
  uint8_t wire[4096];
  int link, sys_errno;
  const size_t bytes = tapped_record(t.acceptor, t.to_acceptor, "news", 4, wire, sizeof(wire));
  tapped_send(t.to_connector, wire, bytes);
  out_of_memory = true;
  cr_assert_eq(colli_ctrl_poll(ctrl, &link, &msg, &sys_errno), COLLI_CTRL_NOTHING);
  out_of_memory = false;
  cr_assert(is_quiet(ctrl));
  colli_ctrl_close(ctrl, 0); /* closes the connector's end, too */
  colli_tls_close(t.acceptor);
  close(t.acceptor_fd);
  close(t.to_acceptor);
  close(t.to_connector);
}
