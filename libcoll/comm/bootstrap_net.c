/* bootstrap_net.c: dialing one rank at several addresses, and a door for those who come. */
#include "libcoll/comm/bootstrap_net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define STAGGER_NS (50 * COLLI_NS_PER_MS)  /* between one address and the next */
#define AGAIN_NS   (100 * COLLI_NS_PER_MS) /* before all are tried again */

int colli_patience_ms(uint64_t deadline_ns) {
  uint64_t now = colli_now_ns();
  uint64_t left = deadline_ns > now ? (deadline_ns - now) / COLLI_NS_PER_MS : 0;
  return left < 1 ? 1 : left > 100 ? 100 : (int)left;
}

void colli_dial_begin(colli_dial *dial, const colli_self *self, int peer, const colli_addr *addrs,
                      colli_hello_kind kind, uint64_t word, bool retry) {
  memset(dial, 0, sizeof(*dial));
  dial->self = self;
  dial->peer = peer;
  dial->kind = kind;
  dial->word = word;
  dial->retry = retry;
  for (int i = 0; i < COLLI_MAX_ADDRS; i++) {
    dial->fd[i] = -1;
    if (addrs[i].family)
      dial->addrs[dial->naddrs++] = addrs[i];
  }
  dial->begun_ns = colli_now_ns();
  dial->result = -1;
}

/* Ends the attempt at one address. */
static void give_up(colli_dial *dial, int i, coll_status status, int sys_errno) {
  if (dial->fd[i] >= 0)
    close(dial->fd[i]);
  dial->fd[i] = -1;
  dial->over[i] = true;
  if (dial->last_status != COLL_ERR_AUTH) {
    dial->last_status = status;
    dial->last_errno = sys_errno;
  }
}

/* Moves the attempt at one address on; DONE if it succeeded. */
static int try_address(colli_dial *dial, int i) {
  const colli_self *self = dial->self;
  if (dial->fd[i] < 0) {
    if (colli_now_ns() < dial->begun_ns + (uint64_t)i * STAGGER_NS)
      return COLL_T_AGAIN;
    dial->fd[i] = colli_net_connect(&dial->addrs[i]);
    if (dial->fd[i] < 0) {
      give_up(dial, i, COLL_ERR_UNREACHABLE, errno);
      return COLL_T_AGAIN;
    }
    colli_auth_connect(&dial->auth[i], dial->fd[i], self->secret, dial->kind, self->rank,
                       dial->peer, self->comm_id, dial->word);
  }
  struct pollfd ready = {.fd = dial->fd[i], .events = colli_auth_events(&dial->auth[i])};
  if (poll(&ready, 1, 0) == 0 && colli_now_ns() < dial->auth[i].deadline_ns)
    return COLL_T_AGAIN;
  int failed = colli_net_connect_result(dial->fd[i]);
  if (failed) {
    give_up(dial, i, COLL_ERR_UNREACHABLE, failed);
    return COLL_T_AGAIN;
  }
  int status = colli_auth_poll(&dial->auth[i]);
  if (status > 0)
    give_up(dial, i, (coll_status)status, status == COLL_ERR_SYSTEM ? errno : 0);
  return status == COLL_T_DONE ? COLL_T_DONE : COLL_T_AGAIN;
}

int colli_dial_poll(colli_dial *dial) {
  bool all_over = true;
  for (int i = 0; i < dial->naddrs; i++) {
    if (dial->over[i])
      continue;
    if (try_address(dial, i) == COLL_T_DONE) {
      dial->result = dial->fd[i];
      dial->fd[i] = -1;
      colli_dial_end(dial);
      return COLL_T_DONE;
    }
    all_over &= dial->over[i];
  }
  if (!all_over)
    return COLL_T_AGAIN;
  if (!dial->retry || dial->last_status == COLL_ERR_AUTH || dial->naddrs == 0)
    return dial->last_status ? (int)dial->last_status : COLL_ERR_UNREACHABLE;
  memset(dial->over, 0, sizeof(dial->over));
  dial->begun_ns = colli_now_ns() + AGAIN_NS;
  return COLL_T_AGAIN;
}

int colli_dial_fds(const colli_dial *dial, struct pollfd *fds) {
  int count = 0;
  for (int i = 0; i < dial->naddrs; i++)
    if (dial->fd[i] >= 0)
      fds[count++] =
          (struct pollfd){.fd = dial->fd[i], .events = colli_auth_events(&dial->auth[i])};
  return count;
}

void colli_dial_end(colli_dial *dial) {
  for (int i = 0; i < COLLI_MAX_ADDRS; i++) {
    if (dial->fd[i] >= 0)
      close(dial->fd[i]);
    dial->fd[i] = -1;
  }
}

coll_status colli_dial_failed(const colli_dial *dial, coll_status status, const char *whom,
                              coll_error *error) {
  char tried[COLLI_MAX_ADDRS * COLLI_ADDR_TEXT] = "", text[COLLI_ADDR_TEXT];
  for (int i = 0; i < dial->naddrs; i++) {
    size_t used = strlen(tried);
    snprintf(tried + used, sizeof(tried) - used, "%s%s", i ? ", " : "",
             colli_addr_text(&dial->addrs[i], text));
  }
  const char *what = status == COLL_ERR_AUTH ? "it does not know the same secret; use the id (or "
                                               "COLL_SECRET) of this very run"
                     : status == COLL_ERR_PROTOCOL
                         ? "what answers there is no libcoll of this version"
                     : dial->last_errno ? strerror(dial->last_errno)
                                        : "no answer";
  coll_status result = colli_error_set(
      error, status, "create",
      "rank %d cannot reach %s at %s: %s; check that it runs, its address, firewalls "
      "and COLL_TCP_IFNAME",
      dial->self->rank, whom, tried, what);
  if (error) {
    error->peer = dial->peer;
    error->rank = dial->self->rank;
    error->sys_errno = dial->last_errno;
  }
  return result;
}

/* Removes a stranger from the list. */
static void forget(colli_door *door, int i, bool close_it) {
  if (close_it)
    close(door->strangers[i].fd);
  door->strangers[i] = door->strangers[--door->count];
}

/* Lets everybody in who waits outside; the oldest stranger makes room. */
static void let_in(colli_door *door) {
  for (;;) {
    int fd = colli_net_accept(door->listen_fd);
    if (fd < 0)
      return;
    if (door->count == COLLI_DOOR_STRANGERS) {
      int oldest = 0;
      for (int i = 1; i < door->count; i++)
        if (door->strangers[i].deadline_ns < door->strangers[oldest].deadline_ns)
          oldest = i;
      forget(door, oldest, true);
    }
    colli_auth_accept(&door->strangers[door->count++], fd, door->self->secret);
  }
}

int colli_door_next(colli_door *door, colli_auth *auth) {
  let_in(door);
  for (int i = 0; i < door->count;) {
    int status = colli_auth_poll(&door->strangers[i]);
    if (status == COLL_T_AGAIN) {
      i++;
      continue;
    }
    if (status == COLL_T_DONE) {
      *auth = door->strangers[i];
      forget(door, i, false);
      return 1;
    }
    colli_log_write(door->self->log, COLLI_LOG_INFO, "turned a stranger away: %s",
                    coll_status_name((coll_status)status));
    forget(door, i, true);
  }
  return 0;
}

int colli_door_fds(const colli_door *door, struct pollfd *fds) {
  fds[0] = (struct pollfd){.fd = door->listen_fd, .events = POLLIN};
  for (int i = 0; i < door->count; i++)
    fds[i + 1] = (struct pollfd){.fd = door->strangers[i].fd,
                                 .events = colli_auth_events(&door->strangers[i])};
  return door->count + 1;
}

void colli_door_close(colli_door *door) {
  while (door->count > 0)
    forget(door, 0, true);
  close(door->listen_fd);
}

int colli_push(int fd, const void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t n = send(fd, (const char *)msg + *done, bytes - *done, MSG_NOSIGNAL);
    if (n > 0)
      *done += (size_t)n;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return COLL_ERR_PEER_LOST;
  }
  return COLL_T_DONE;
}

int colli_pull(int fd, void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t n = recv(fd, (char *)msg + *done, bytes - *done, 0);
    if (n > 0)
      *done += (size_t)n;
    else if (n == 0)
      return COLL_ERR_PEER_LOST;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return COLL_ERR_PEER_LOST;
  }
  return COLL_T_DONE;
}
