/* serve_conns.c: the connections of the ranks that check in at this one. */
#include "libcoll/wireup/bootstrap/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"

bool boot_server_is_full(const boot_server *s) {
  return s->checked_in == s->ranks;
}

bool boot_server_is_ready(const boot_server *s) {
  return s->ready == boot_place_children(&s->b->place);
}

/* Closes one connection. */
void boot_server_drop(boot_server *s, int i) {
  COLLI_ASSERT_RANK(i >= 0 && i < s->count, s->b->rank);
  colli_sealed_close(&s->conns[i]->conn);
  free(s->conns[i]->records);
  free(s->conns[i]);
  s->conns[i] = s->conns[--s->count];
}

/* Keeps an authenticated connection; false if there are too many or there is no memory. */
static bool add_conn(boot_server *s, colli_guest *guest, boot_range below) {
  COLLI_ASSERT_RANK(s->count <= s->capacity && guest->fd >= 0, s->b->rank);
  if (s->count == s->capacity)
    return false;
  serve_conn *conn = calloc(1, sizeof(*conn));
  if (conn)
    conn->records = calloc((size_t)(below.end - below.first), sizeof(*conn->records));
  if (!conn || !conn->records) {
    free(conn);
    boot_note_errno(s->b, ENOMEM, false);
    return false;
  }
  colli_sealed_open(&conn->conn, &guest->auth);
  conn->rank = guest->auth.hello.src_rank;
  conn->below = below;
  conn->poll_index = conn->waits_for = -1;
  s->conns[s->count++] = conn;
  return true;
}

/* Turns a rank away whose COLL_TLS differs. */
static void refuse_tls(boot_server *s, colli_guest *guest) {
  s->tls_differs = guest->auth.hello.src_rank;
  colli_auth_answer(&guest->auth, true); /* says so */
  boot_close(&guest->fd);
}

void boot_server_accept(boot_server *s) {
  const boot *b = s->b;
  colli_guest guest;
  while (colli_door_next(&s->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    const boot_range below = boot_place_child(&b->place, hello->src_rank);
    const bool wanted = hello->kind == COLLI_HELLO_CHECKIN && hello->comm_id == b->id->comm_id &&
                        below.end > below.first;
    if (!wanted)
      boot_guest_refuse(b, &guest);
    else if ((hello->tls != 0) != b->tls)
      refuse_tls(s, &guest);
    else if (!add_conn(s, &guest, below))
      boot_close(&guest.fd); /* the rank will dial again */
    else if (!boot_guest_accept(b, &guest))
      boot_server_drop(s, s->count - 1);
  }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

boot_server *boot_server_open(boot *b, boot_links *links, int listen_fd) {
  boot_server *s = calloc(1, sizeof(*s));
  const size_t ranks = (size_t)(b->place.below.end - b->place.below.first);
  if (s) {
    s->b = b;
    s->links = links;
    s->door = COLLI_DOOR_CLOSED;
    s->tls_differs = -1;
    s->deadline_ns = s->give_up_ns = b->deadline_ns;
    s->ranks = (int)ranks;
    s->capacity = 2 * boot_place_children(&b->place);
    s->conns = calloc((size_t)s->capacity, sizeof(*s->conns));
    s->all = calloc(ranks, sizeof(*s->all));
    s->is_in = calloc(ranks, sizeof(*s->is_in));
    s->ahead = calloc(ranks, sizeof(*s->ahead));
    s->told = calloc(ranks, sizeof(*s->told));
  }
  if (!s || !s->conns || !s->all || !s->is_in || !s->ahead || !s->told) {
    boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for the check-in of %zu ranks",
              ranks);
    boot_server_close(s);
    return NULL;
  }
  s->checked_in = s->is_in[b->rank - b->place.below.first] = true;
  s->all[b->rank - b->place.below.first] = *b->mine;
  const int to = b->place.fan_out > 0 ? b->rank : BOOT_SERVER;
  if (boot_door_open(b, &s->door, listen_fd, COLLI_HELLO_CHECKIN, to) != COLL_OK) {
    boot_server_close(s);
    return NULL;
  }
  /* Any rank may have been given another secret, and dials all addresses. */
  const unsigned long most = (unsigned long)boot_place_children(&b->place) * COLLI_MAX_ADDRS;
  s->door.answers = s->door.answers < most ? most : s->door.answers;
  return s;
}

void boot_server_close(boot_server *s) {
  if (!s)
    return;
  colli_door_close(&s->door);
  while (s->count > 0)
    boot_server_drop(s, s->count - 1);
  free(s->conns);
  free(s->all);
  free(s->is_in);
  free(s->ahead);
  free(s->told);
  explicit_bzero(s, sizeof(*s));
  free(s);
}
