/* entrance.c: where newcomers wait until a communicator grows. */
#include "libcoll/comm/entrance.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

colli_entrance *colli_entrance_open(const colli_params *params, const colli_log *log,
                                    coll_error *error) {
  colli_entrance *entrance = calloc(1, sizeof(*entrance));
  if (!entrance) {
    colli_error_set(error, COLL_ERR_NO_MEMORY, "join_id", "out of memory for a listener");
    return NULL;
  }
  entrance->door = COLLI_DOOR_CLOSED;
  if (colli_id_make(&entrance->id, params, error) != COLL_OK) {
    free(entrance);
    return NULL;
  }
  int sys_errno = colli_door_open(&entrance->door, entrance->id.listen_fd,
                                  entrance->id.secret->bytes, COLLI_HELLO_JOIN, -1, log);
  entrance->door.tls = params->number[COLLI_PARAM_TLS] != 0;
  if (sys_errno == 0)
    return entrance;
  colli_error_sys(error, COLL_ERR_SYSTEM, "join_id", "epoll_create1", sys_errno,
                  "cannot take connections of newcomers");
  colli_entrance_close(entrance);
  return NULL;
}

void colli_entrance_close(colli_entrance *entrance) {
  if (!entrance)
    return;
  colli_entrance_drop(entrance, entrance->count);
  colli_door_close(&entrance->door);
  colli_fd_close(entrance->id.listen_fd);
  colli_id_release(&entrance->id);
  free(entrance);
}

/* Forgets newcomer i. */
static void forget(colli_entrance *entrance, int i) {
  colli_newcomer *at = &entrance->at[i];
  colli_sealed_close(&at->conn);
  entrance->count--;
  memmove(at, at + 1, (size_t)(entrance->count - i) * sizeof(*at));
  explicit_bzero(&entrance->at[entrance->count], sizeof(*at)); /* keys */
}

void colli_entrance_drop(colli_entrance *entrance, int count) {
  while (count-- > 0)
    forget(entrance, 0);
}

/* Admits newcomers that have proved that they know the secret. */
static void let_in(colli_entrance *entrance) {
  colli_guest guest;
  while (colli_door_next(&entrance->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    bool wanted = hello->kind == COLLI_HELLO_JOIN && hello->comm_id == entrance->id.comm_id &&
                  entrance->count < COLLI_NEWCOMERS_MAX;
    if (colli_auth_answer(&guest.auth, wanted) != 0 || !wanted) {
      colli_fd_close(guest.fd);
      continue;
    }
    colli_newcomer *newcomer = &entrance->at[entrance->count++];
    memset(newcomer, 0, sizeof(*newcomer));
    colli_sealed_open(&newcomer->conn, &guest.auth);
    newcomer->shaking = true;
    newcomer->pid = (int32_t)hello->word;
    newcomer->from = guest.from;
  }
}

/* Advances TLS handshakes; true if one is still in progress. */
static bool shake_hands(colli_entrance *entrance) {
  bool any = false;
  for (int i = entrance->count - 1; i >= 0; i--) {
    colli_newcomer *newcomer = &entrance->at[i];
    int result = newcomer->shaking ? colli_sealed_shake(&newcomer->conn) : COLL_T_DONE;
    newcomer->shaking = result != COLL_T_DONE;
    any = any || result == COLL_T_AGAIN;
    if (result > 0)
      forget(entrance, i);
  }
  return any;
}

/* Whether a waiting newcomer has left: it sends nothing while it waits. */
static bool has_left(const colli_newcomer *newcomer) {
  char byte;
  ssize_t got = recv(newcomer->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void colli_entrance_tend(colli_entrance *entrance, uint64_t ns) {
  const uint64_t until_ns = colli_now_ns() + ns;
  for (;;) {
    let_in(entrance);
    const bool shaking = shake_hands(entrance);
    if ((entrance->door.count == 0 && !shaking) || colli_now_ns() >= until_ns)
      break;
    poll(&(struct pollfd){.fd = entrance->door.epoll_fd, .events = POLLIN}, 1, 1);
  }
  for (int i = entrance->count - 1; i >= 0; i--)
    if (!entrance->at[i].shaking && has_left(&entrance->at[i]))
      forget(entrance, i);
}
