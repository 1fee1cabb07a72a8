/*
 * test_altered.c: somebody between a rank and rank 0 changes a byte of what they say when ranks
 * find each other with COLL_TLS=1: in the TLS handshake, or in a record behind it.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/net/auth.h"
#include "libcoll/net/sockets.h"
#include "tests/proc/support_bootstrap.h"

/* What precedes TLS: a hello and a proof to rank 0; a challenge and an answer from it. */
#define TO_ROOT   (sizeof(colli_hello) + COLLI_MAC_BYTES)
#define FROM_ROOT (COLLI_NONCE_BYTES + COLLI_MAC_BYTES + 1)

TestSuite(tls_altered, .timeout = 120);

/* Changes a byte of the stream to or from rank 0. */
typedef struct proxy {
  int listener;
  colli_addr root;
  bool to_root;
  size_t place;
} proxy;

/* Passes on what one side has sent; false at its end. */
static bool pass_on(int from, int to, size_t *count, size_t place) {
  char bytes[4096];
  ssize_t got = recv(from, bytes, sizeof(bytes), 0);
  if (got > 0 && place >= *count && place < *count + (size_t)got)
    bytes[place - *count] ^= 1;
  *count += got > 0 ? (size_t)got : 0;
  return got > 0 && send(to, bytes, (size_t)got, MSG_NOSIGNAL) == got;
}

static void *run_proxy(void *arg) {
  const proxy *p = arg;
  size_t counts[2] = {0, 0};
  poll(&(struct pollfd){.fd = p->listener, .events = POLLIN}, 1, 10000);
  int rank = colli_net_accept(p->listener), root = colli_net_connect(&p->root);
  cr_assert(rank >= 0 && root >= 0);
  struct pollfd fds[2] = {{.fd = rank, .events = POLLIN}, {.fd = root, .events = POLLIN}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    poll(fds, 2, 10000);
    for (int i = 0; i < 2; i++) {
      const int to = i == 0 ? root : rank;
      const size_t place = p->to_root == (i == 0) ? p->place : SIZE_MAX;
      if (fds[i].fd >= 0 && fds[i].revents && !pass_on(fds[i].fd, to, &counts[i], place)) {
        shutdown(to, SHUT_WR); /* what it sent last must still arrive */
        fds[i].fd = -1;
      }
    }
  }
  close(rank);
  close(root);
  close(p->listener);
  return NULL;
}

/*
 * Rank 1 of 3 meets rank 0 through a proxy. All learn that something was altered. False: the byte
 * belonged to a length, and somebody waited for bytes that never came.
 */
static bool alter(bool to_root, size_t place) {
  member *members = make_members(3, 7000);
  proxy p = {.to_root = to_root, .place = place, .root = members[0].id.addrs[0]};
  uint16_t port;
  pthread_t thread;
  cr_assert_eq(colli_net_listen("", &p.listener, &port, &members[1].error), COLL_OK);
  memset(members[1].id.addrs, 0, sizeof(members[1].id.addrs));
  members[1].id.addrs[0] = (colli_addr){.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  pthread_create(&thread, NULL, run_proxy, &p);
  run_members(members, 3, -1);
  pthread_join(thread, NULL);
  const bool waited = members[0].status == COLL_ERR_TIMEOUT;
  for (int r = 0; r < 3 && !waited; r++) {
    cr_assert_eq(members[r].status, COLL_ERR_AUTH, "%zu, rank %d: %d %s", place, r,
                 members[r].status, members[r].error.message);
    cr_assert(strstr(members[r].error.message, "altered or injected"), "%s",
              members[r].error.message);
  }
  free(members);
  return !waited;
}

Test(tls_altered, what_was_altered_on_the_way_is_refused) {
  setenv("COLL_TLS", "1", 1);
  int cases = 0, noticed = 0;
  for (size_t i = 20; i < 900; i += 60, cases++) /* handshake, check-in, record */
    noticed += alter(true, TO_ROOT + i);
  for (size_t i = 20; i < 260; i += 60, cases++) /* handshake */
    noticed += alter(false, FROM_ROOT + i);
  cr_assert_geq(noticed, cases - 2, "%d of %d", noticed, cases);
}
