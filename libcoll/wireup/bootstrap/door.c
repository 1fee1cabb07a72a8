/* door.c: what parts of a bootstrap do at their doors. */
#include "libcoll/wireup/bootstrap/door.h"

#include <errno.h>
#include <stdio.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define LONG_NS (5 * COLLI_NS_PER_S) /* or half of the timeout, so that others are still there */

coll_status boot_door_open(const boot *b, colli_door *door, int listen_fd, colli_hello_kind kind,
                           int rank) {
  int sys_errno = colli_door_open(door, listen_fd, b->id->secret->bytes, kind, rank, b->log);
  door->tls = b->tls;
  if (sys_errno == 0)
    return COLL_OK;
  colli_error_sys(b->error, COLL_ERR_SYSTEM, "create", "epoll_create1", sys_errno,
                  "rank %d cannot take connections; if descriptors ran out, raise the limit "
                  "(ulimit -n)",
                  b->rank);
  b->error->rank = b->rank;
  snprintf(b->error->host, sizeof(b->error->host), "%s", b->mine->host);
  return COLL_ERR_SYSTEM;
}

int boot_door_failure(const boot *b, const colli_door *door, bool late) {
  const uint64_t half_ns = boot_all_ns(b) / 2;
  return colli_door_failure(door, late ? 0 : half_ns < LONG_NS ? half_ns : LONG_NS);
}

void boot_door_watch(boot *b, const colli_door *door) {
  if (door->listen_fd < 0)
    return;
  boot_polls_add(&b->polls, door->epoll_fd, POLLIN);
  boot_polls_wake(&b->polls, colli_door_wake_ns(door));
}

bool boot_guest_accept(const boot *b, colli_guest *guest) {
  const bool told = colli_auth_answer(&guest->auth, true) == 0;
  boot_note_errno(b, told ? 0 : errno, false);
  return told;
}

void boot_guest_refuse(const boot *b, colli_guest *guest) {
  char text[COLLI_ADDR_TEXT];
  const colli_hello *hello = &guest->auth.hello;
  colli_log_write(b->log, COLLI_LOG_INFO,
                  "a connection from %s was refused: it knows the secret, but it is rank %d's to "
                  "rank %d of %s communicator",
                  colli_addr_text(&guest->from, text), hello->src_rank, hello->dst_rank,
                  hello->comm_id == b->id->comm_id ? "this" : "another");
  colli_auth_answer(&guest->auth, false);
  boot_close(&guest->fd);
}
