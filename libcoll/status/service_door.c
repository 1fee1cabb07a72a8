/* service_door.c: between the services of two hosts. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/status/service_internal.h"

#define PIECE_BYTES 65536u /* of a copy, in a sealed message */

bool status_wait(const colli_status_service *service, int fd, short events, uint64_t until_ns) {
  struct pollfd fds[2] = {{.fd = service->stop_fd, .events = POLLIN}, {.fd = fd, .events = events}};
  for (;;) {
    uint64_t now_ns = colli_now_ns();
    if (now_ns >= until_ns)
      return false;
    uint64_t ms = (until_ns - now_ns) / COLLI_NS_PER_MS + 1;
    int ready = poll(fds, 2, ms < 1000000 ? (int)ms : 1000000);
    if (ready < 0 && errno != EINTR)
      return false;
    if (ready > 0)
      return !fds[0].revents;
  }
}

void status_signal(int fd) {
  const uint64_t one = 1;
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
    ;
}

bool status_push(const colli_status_service *service, colli_sealed *conn, const void *msg,
                 size_t bytes, uint64_t until_ns) {
  size_t done = 0;
  int result;
  while ((result = colli_sealed_push(conn, msg, bytes, &done)) == COLL_T_AGAIN)
    if (!status_wait(service, conn->fd, colli_sealed_events(conn, POLLOUT), until_ns))
      return false;
  return result == COLL_T_DONE;
}

bool status_pull(const colli_status_service *service, colli_sealed *conn, void *msg, size_t bytes,
                 uint64_t until_ns) {
  size_t done = 0;
  int result;
  while ((result = colli_sealed_pull(conn, msg, bytes, &done)) == COLL_T_AGAIN)
    if (!status_wait(service, conn->fd, colli_sealed_events(conn, POLLIN), until_ns))
      return false;
  return result == COLL_T_DONE;
}

/* ---- the door: sends ------------------------------------------------------------------------- */

/* One answer. */
typedef struct answer {
  const colli_status_service *service;
  colli_sealed conn;
  uint64_t until_ns;
  bool failed;
} answer;

/* Sends one copy, if it is of this job. */
static void send_copy(void *ctx, colli_status_head *copy) {
  answer *a = ctx;
  uint64_t bytes = colli_status_bytes(copy);
  bool wanted = copy->comm_id == a->service->plan.comm_id && bytes <= COLLI_STATUS_COPY_MOST;
  if (wanted && !a->failed)
    a->failed = !status_push(a->service, &a->conn, &bytes, sizeof(bytes), a->until_ns);
  for (uint64_t done = 0; wanted && !a->failed && done < bytes; done += PIECE_BYTES) {
    size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
    a->failed = !status_push(a->service, &a->conn, (char *)copy + done, piece, a->until_ns);
  }
  free(copy);
}

/* Answers a peer that knows the secret. */
static void serve(const colli_status_service *service, colli_guest *guest) {
  const colli_hello *hello = &guest->auth.hello;
  bool welcome = hello->kind == COLLI_HELLO_STATUS && hello->comm_id == service->plan.comm_id;
  answer a = {.service = service, .until_ns = colli_now_ns() + STATUS_HOST_MS * COLLI_NS_PER_MS};
  if (colli_auth_answer(&guest->auth, welcome) != 0 || !welcome) {
    colli_auth_drop(&guest->auth);
    colli_fd_close(guest->fd);
    return;
  }
  colli_sealed_open(&a.conn, &guest->auth);
  a.failed = colli_status_scan(send_copy, &a) != 0 || a.failed;
  const uint64_t end = 0;
  if (!a.failed)
    (void)status_push(service, &a.conn, &end, sizeof(end), a.until_ns);
  colli_sealed_close(&a.conn);
}

void *status_run_door(void *arg) {
  colli_status_service *service = arg;
  for (;;) {
    uint64_t wake_ns = colli_door_wake_ns(&service->door);
    struct pollfd stop = {.fd = service->stop_fd, .events = POLLIN};
    (void)status_wait(service, service->door.epoll_fd, POLLIN, wake_ns);
    if (poll(&stop, 1, 0) != 0)
      return NULL;
    colli_guest guest;
    while (colli_door_next(&service->door, &guest))
      serve(service, &guest);
  }
}

/* ---- the other end: fetches ------------------------------------------------------------------ */

/* Dials one address of a door. */
static bool dial(const colli_status_service *service, const colli_status_post *post,
                 const colli_addr *addr, uint64_t until_ns, colli_sealed *conn) {
  const colli_status_plan *plan = &service->plan;
  int fd = colli_net_connect(addr);
  if (fd < 0)
    return false;
  colli_auth auth = {.fd = -1};
  int result = COLL_ERR_SYSTEM;
  if (status_wait(service, fd, POLLOUT, until_ns) && colli_net_connect_result(fd) == 0) {
    colli_auth_connect(&auth, fd, plan->secret->bytes, COLLI_HELLO_STATUS, plan->rank, post->rank,
                       plan->comm_id, 0);
    if (plan->tls)
      colli_auth_want_tls(&auth);
    while ((result = colli_auth_poll(&auth)) == COLL_T_AGAIN)
      if (!status_wait(service, fd, colli_auth_events(&auth), until_ns))
        break;
  }
  if (result == COLL_T_DONE) {
    colli_sealed_open(conn, &auth);
  } else {
    colli_auth_drop(&auth);
    colli_fd_close(fd);
  }
  return result == COLL_T_DONE;
}

/* Receives one copy into *copy: 1; 0 at the end of the stream; -1 on failure. */
static int receive_copy(const colli_status_service *service, colli_sealed *conn, uint64_t until_ns,
                        void **copy, size_t *copy_bytes) {
  uint64_t bytes;
  *copy = NULL;
  if (!status_pull(service, conn, &bytes, sizeof(bytes), until_ns) ||
      bytes > COLLI_STATUS_COPY_MOST)
    return -1;
  if (bytes == 0)
    return 0;
  *copy = malloc(bytes);
  for (uint64_t done = 0; *copy && done < bytes; done += PIECE_BYTES) {
    size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
    if (!status_pull(service, conn, (char *)*copy + done, piece, until_ns)) {
      free(*copy);
      *copy = NULL;
    }
  }
  *copy_bytes = bytes;
  return *copy ? 1 : -1;
}

/* When to try elsewhere: after half of the time that is left, or after most_ns. */
static uint64_t half_of(uint64_t until_ns, uint64_t most_ns) {
  const uint64_t now_ns = colli_now_ns();
  const uint64_t half_ns = until_ns > now_ns ? (until_ns - now_ns) / 2 : 0;
  return now_ns + (half_ns < most_ns ? half_ns : most_ns);
}

/* What came of a door. */
typedef enum fetched {
  FETCHED_ALL,
  FETCHED_PART,      /* or nothing: the host's other door may have more */
  FETCHED_FOR_NOBODY /* the asker is gone */
} fetched;

/* Fetches what one door has. */
static fetched fetch_from(const colli_status_service *service, const colli_status_post *post,
                          uint64_t until_ns, status_pass pass, void *ctx) {
  colli_sealed conn = COLLI_SEALED_NONE;
  bool in = false;
  for (int i = 0; i < COLLI_MAX_ADDRS && !in; i++) {
    const colli_addr *addr = &post->addrs[i];
    uint64_t share_ns = half_of(until_ns, STATUS_HOST_MS * COLLI_NS_PER_MS / 3);
    if (addr->family != 0 && !colli_addr_loopback(addr))
      in = dial(service, post, addr, share_ns, &conn);
  }
  int more = in ? 1 : -1;
  bool gone = false;
  while (more > 0 && !gone) {
    void *copy;
    size_t bytes;
    more = receive_copy(service, &conn, until_ns, &copy, &bytes);
    gone = more > 0 && !pass(ctx, copy, bytes);
    free(copy);
  }
  colli_sealed_close(&conn);
  if (gone)
    return FETCHED_FOR_NOBODY;
  return more == 0 ? FETCHED_ALL : FETCHED_PART;
}

void status_fetch_host(const colli_status_service *service, uint64_t host_id, int last,
                       uint64_t until_ns, status_pass pass, void *ctx) {
  fetched result = FETCHED_PART;
  for (int at_last = 0; at_last <= 1; at_last++)
    for (int i = 0; i < service->plan.nposts && result != FETCHED_FOR_NOBODY; i++) {
      const colli_status_post *post = &service->plan.posts[i];
      if (post->host_id == host_id && (post->rank == last) == at_last && colli_now_ns() < until_ns)
        result = fetch_from(service, post, at_last ? until_ns : half_of(until_ns, UINT64_MAX), pass,
                            ctx);
    }
}

void status_fetch(const colli_status_service *service, uint64_t until_ns, status_pass pass,
                  void *ctx) {
  uint64_t known = 0; /* the host whose door has answered */
  fetched result = FETCHED_PART;
  for (int i = 0; i < service->plan.nposts && result != FETCHED_FOR_NOBODY; i++) {
    const colli_status_post *post = &service->plan.posts[i];
    uint64_t now_ns = colli_now_ns(), host_ns = now_ns + STATUS_HOST_MS * COLLI_NS_PER_MS;
    if (now_ns >= until_ns)
      return;
    if (result == FETCHED_ALL && post->host_id == known)
      continue;
    result = fetch_from(service, post, host_ns < until_ns ? host_ns : until_ns, pass, ctx);
    known = post->host_id;
  }
}
