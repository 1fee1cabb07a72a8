/*
 * shm_handshake.c: how two endpoints come to share a segment.
 *
 *   lower rank (dialer)                    higher rank (acceptor)
 *   connect                           ->
 *                 colli_auth, both ways, word = channel
 *   offer + segment [+ doorbell]      ->   checks and maps; waits for its own connect()
 *                                     <-   answer [+ doorbell]
 *
 * Between processes the socket stays open afterwards: its end is the peer's end. In one process it
 * is closed, and each side rings the other's doorbell by its number.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/net/sockets.h"
#include "transports/shm/shm_internal.h"

#define SHM_PATIENCE_NS (COLLI_AUTH_DEADLINE_MS * COLLI_NS_PER_MS)
#define SHM_GRACE_NS    (250 * COLLI_NS_PER_MS) /* what a handshake has before others push it out */
#define SHM_REDIAL_NS   (20 * COLLI_NS_PER_MS)
#define SHM_STRANGERS   64  /* the most that have proved nothing, besides all ranks */
#define SHM_ACCEPTS     256 /* bounds the work of one call */

/* The size of a connection's segment. The size of slots is settled before the first connection. */
static size_t segment_bytes(const shm_endpoint *ep) {
  return shm_ring_bytes(ep->env->slot_bytes, ep->env->slot_count);
}

/*
 * Ends a handshake. shm_handshake_tend() frees it, as a batch of events may still hold its address.
 */
static void end_handshake(shm_handshake *hs) {
  if (hs->stage == SHM_STAGE_DIAL)
    hs->ep->redials--;
  hs->stage = SHM_STAGE_OVER;
  hs->conn = NULL;
  shm_watch_close(hs->ep, &hs->watch);
  if (hs->bell_fd >= 0 && !hs->local)
    colli_fd_close(hs->bell_fd);
  hs->bell_fd = -1;
  shm_segment_unmap(&hs->segment);
  explicit_bzero(&hs->auth, sizeof hs->auth);
}

/* Ends a handshake whose connection cannot be made. */
static void fail_handshake(shm_handshake *hs, const shm_fault *fault) {
  shm_conn *conn = hs->conn;
  hs->ep->happened = true;
  if (conn && hs->watch.fd >= 0 && colli_errno_is_shortage(fault->sys_errno)) {
    /* If it closed now, the peer would believe us lost. */
    (void)epoll_ctl(hs->ep->epoll_fd, EPOLL_CTL_DEL, hs->watch.fd, NULL);
    conn->watch.fd = hs->watch.fd;
    hs->watch.fd = -1;
  }
  end_handshake(hs);
  if (conn)
    shm_conn_fail(conn, fault);
}

/* Makes a handshake and puts it on the endpoint's list. */
static shm_handshake *new_handshake(shm_endpoint *ep) {
  shm_handshake *hs = calloc(1, sizeof *hs);
  if (hs) {
    hs->watch = (shm_watch){SHM_WATCH_HANDSHAKE, -1};
    hs->ep = ep;
    hs->peer = hs->channel = hs->bell_fd = -1;
    hs->deadline_ns = ep->env->now_ns(ep->env->ctx) + SHM_PATIENCE_NS;
    hs->next = ep->handshakes;
    ep->handshakes = hs;
  }
  return hs;
}

/*
 * colli_auth's deadline counts from the start, but a rank that computes does not look for long. So
 * only silence while this side looks counts here.
 */
static void trust_own_clock(shm_handshake *hs) {
  hs->auth.deadline_ns = UINT64_MAX;
}

/* Dials. If a queue or table is full, shm_handshake_tend() tries again. */
static void dial_peer(shm_handshake *hs) {
  shm_fault fault;
  struct sockaddr_un address;
  socklen_t bytes = shm_blob_address(&hs->blob, &address);
  shm_endpoint *ep = hs->ep;
  int fd = COLLI_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0 && (errno == EMFILE || errno == ENFILE))
    return;
  if (fd < 0) {
    shm_fault_set(&fault, COLL_ERR_SYSTEM, "socket", errno, "cannot make a Unix socket");
    fail_handshake(hs, &fault);
    return;
  }
  if (connect(fd, (struct sockaddr *)&address, bytes) != 0) {
    int error = errno;
    colli_fd_close(fd);
    if (error == EAGAIN) /* the queue is full; how long to wait is for the operation to say */
      hs->deadline_ns = ep->env->now_ns(ep->env->ctx) + ep->patience_ns;
    if (error == EAGAIN || error == EINTR)
      return;
    shm_connect_fault(&fault, error);
    fail_handshake(hs, &fault);
    return;
  }
  hs->watch.fd = fd;
  if (!shm_is_same_user(fd, &ep->self, &hs->local)) {
    if (errno == EACCES)
      shm_fault_set(&fault, COLL_ERR_AUTH, NULL, 0,
                    "the process at the peer's Unix socket belongs to another user");
    else
      shm_fault_set(&fault, COLL_ERR_SYSTEM, "getsockopt", errno,
                    "cannot find out whose the peer's Unix socket is");
    fail_handshake(hs, &fault);
    return;
  }
  if (shm_watch_add(ep, &hs->watch) != 0) {
    shm_fault_set(&fault, COLL_ERR_SYSTEM, "epoll_ctl", errno, "cannot watch a Unix socket");
    fail_handshake(hs, &fault);
    return;
  }
  ep->redials--;
  hs->stage = SHM_STAGE_AUTH;
  colli_auth_connect(&hs->auth, fd, ep->env->secret, COLLI_HELLO_DATA, ep->env->rank, hs->peer,
                     ep->env->comm_id, (uint64_t)hs->channel);
  trust_own_clock(hs);
  shm_handshake_event(hs);
}

void shm_handshake_dial(shm_endpoint *ep, shm_conn *conn, const shm_blob *blob) {
  shm_handshake *hs = new_handshake(ep);
  if (!hs) {
    shm_fault fault;
    shm_fault_set(&fault, COLL_ERR_NO_MEMORY, "malloc", ENOMEM, "out of memory for a handshake");
    shm_conn_fail(conn, &fault);
    return;
  }
  hs->dialer = true;
  hs->deadline_ns = ep->env->now_ns(ep->env->ctx) + ep->patience_ns;
  hs->conn = conn;
  hs->peer = conn->base.peer;
  hs->channel = conn->base.channel;
  hs->blob = *blob;
  hs->stage = SHM_STAGE_DIAL;
  ep->redials++;
  dial_peer(hs);
}

/* The peer closed the socket before it answered: it had no room, or this rank came too late. */
static void dial_again(shm_handshake *hs) {
  shm_endpoint *ep = hs->ep;
  shm_watch_close(ep, &hs->watch);
  hs->stage = SHM_STAGE_DIAL;
  hs->redial_ns = ep->env->now_ns(ep->env->ctx) + SHM_REDIAL_NS;
  hs->deadline_ns = hs->redial_ns + ep->patience_ns;
  ep->redials++;
}

/* Whether one more may be accepted, perhaps in place of the oldest one that has proved nothing. */
static bool make_room(shm_endpoint *ep) {
  shm_handshake *oldest = NULL;
  int count = 0;
  for (shm_handshake *hs = ep->handshakes; hs; hs = hs->next) {
    if (hs->dialer || hs->stage != SHM_STAGE_AUTH)
      continue;
    count++;
    oldest = hs; /* the newest come first */
  }
  if (count < SHM_STRANGERS + ep->env->nranks)
    return true;
  if (ep->env->now_ns(ep->env->ctx) + SHM_PATIENCE_NS < oldest->deadline_ns + SHM_GRACE_NS)
    return false;
  end_handshake(oldest);
  return true;
}

void shm_handshake_accept(shm_endpoint *ep) {
  for (int i = 0; i < SHM_ACCEPTS && make_room(ep); i++) {
    int fd = COLLI_FD(accept4(ep->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0) {
      shm_starve_note(ep, errno, false);
      break;
    }
    bool local;
    shm_handshake *hs = shm_is_same_user(fd, &ep->self, &local) ? new_handshake(ep) : NULL;
    if (!hs) {
      shm_starve_note(ep, errno, true);
      colli_fd_close(fd);
      continue;
    }
    hs->local = local;
    hs->watch.fd = fd;
    hs->stage = SHM_STAGE_AUTH;
    colli_auth_accept(&hs->auth, fd, ep->env->secret);
    trust_own_clock(hs);
    if (shm_watch_add(ep, &hs->watch) != 0) {
      shm_starve_note(ep, errno, true);
      end_handshake(hs);
      continue;
    }
    shm_handshake_event(hs);
  }
}

/* The connection that a handshake would complete, or NULL; *known: this pair has one already. */
static shm_conn *find_conn(const shm_handshake *hs, bool *known) {
  *known = false;
  for (shm_conn *conn = hs->ep->conns; conn; conn = conn->next) {
    if (conn->base.peer == hs->peer && conn->base.channel == hs->channel) {
      *known = true;
      return conn->gate & SHM_GATE_CONNECTING ? conn : NULL;
    }
  }
  for (shm_handshake *other = hs->ep->handshakes; other; other = other->next)
    if (other != hs && !other->dialer && other->stage != SHM_STAGE_OVER &&
        other->peer == hs->peer && other->channel == hs->channel)
      *known = true;
  return NULL;
}

/* Acceptor, after authentication: checks that the connection is for this rank, and new. */
static bool hello_fits(shm_handshake *hs) {
  const colli_hello *hello = &hs->auth.hello;
  const coll_transport_env *env = hs->ep->env;
  if (hello->kind != COLLI_HELLO_DATA || hello->comm_id != env->comm_id ||
      hello->dst_rank != env->rank || hello->src_rank < 0 || hello->src_rank >= env->rank ||
      hello->word > INT_MAX)
    return false;
  bool known;
  hs->peer = hello->src_rank;
  hs->channel = (int)hello->word;
  return find_conn(hs, &known) || !known;
}

/* Dialer, after authentication: makes the segment and passes it on. */
static void send_offer(shm_handshake *hs) {
  const coll_transport_env *env = hs->ep->env;
  shm_fault fault;
  int fds[COLLI_UNIX_FDS] = {-1, hs->ep->bell.fd};
  if (shm_segment_create(&hs->segment, segment_bytes(hs->ep), &fds[0], &fault) != COLL_OK) {
    fail_handshake(hs, &fault);
    return;
  }
  shm_offer offer = {SHM_MAGIC, env->slot_count, env->slot_bytes, hs->local ? fds[1] : -1, 0};
  int failed = colli_unix_send(hs->watch.fd, &offer, sizeof offer, fds, hs->local ? 1 : 2);
  int error = errno;
  colli_fd_close(fds[0]);
  if (failed) {
    shm_fault_set(&fault, error == EPIPE ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM, "sendmsg", error,
                  "cannot pass the shared segment to the peer");
    fail_handshake(hs, &fault);
    return;
  }
  hs->stage = SHM_STAGE_ANSWER;
}

/* Fails a handshake because a message of the peer did not come, or was wrong. */
static void receive_failed(shm_handshake *hs, int result, int error) {
  shm_fault fault;
  if (result == 0 || error == ECONNRESET) {
    shm_fault_set(&fault, COLL_ERR_PEER_LOST, "recvmsg", result == 0 ? 0 : error,
                  "the peer closed its socket before the connection was made");
  } else if (error == EPROTO) {
    shm_fault_set(&fault, COLL_ERR_PROTOCOL, NULL, 0,
                  "the peer sent something other than a handshake; all ranks must run the same "
                  "libcoll");
  } else {
    shm_fault_set(&fault, COLL_ERR_SYSTEM, "recvmsg", error,
                  error == EMFILE ? "too many open files; raise the limit (ulimit -n)"
                                  : "cannot receive the peer's handshake");
  }
  fail_handshake(hs, &fault);
}

/* Dialer: the last message. */
static void receive_answer(shm_handshake *hs) {
  shm_answer answer;
  int bell = -1;
  int want = hs->local ? 0 : 1;
  int result = colli_unix_recv(hs->watch.fd, &answer, sizeof answer, &bell, want);
  if (result < 0 && errno == EAGAIN)
    return;
  if (result <= 0) {
    receive_failed(hs, result, errno);
    return;
  }
  hs->bell_fd = hs->local ? answer.bell_fd : bell;
  shm_fault fault;
  if (answer.magic != SHM_MAGIC || answer.status != COLL_OK) {
    const bool is_short = answer.status == COLL_ERR_NO_MEMORY || answer.status == COLL_ERR_SYSTEM;
    const bool differs = answer.magic != SHM_MAGIC || !is_short;
    shm_fault_set(&fault, differs ? COLL_ERR_PROTOCOL : (coll_status)answer.status, NULL, 0,
                  differs ? "the peer refused the shared segment; COLL_SLOT_BYTES and "
                            "COLL_SLOT_COUNT must be the same on all ranks"
                          : "the peer is out of memory for the segment; raise ulimit -v there");
  } else if (shm_bell_check(hs, &fault) == COLL_OK) {
    shm_conn_up(hs->conn, hs);
    end_handshake(hs);
    return;
  }
  fail_handshake(hs, &fault);
}

/* Acceptor: sends the answer; the connection is made if it says OK. */
static void send_answer(shm_handshake *hs, const shm_fault *fault) {
  shm_endpoint *ep = hs->ep;
  shm_answer answer = {SHM_MAGIC, fault->status, hs->local ? ep->bell.fd : -1, 0};
  shm_fault broken = *fault;
  if (colli_unix_send(hs->watch.fd, &answer, sizeof answer, &ep->bell.fd, hs->local ? 0 : 1) != 0) {
    shm_fault_set(&broken, errno == EPIPE ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM, "sendmsg", errno,
                  "cannot answer the peer's handshake");
  }
  if (broken.status != COLL_OK) {
    fail_handshake(hs, &broken);
    return;
  }
  shm_conn_up(hs->conn, hs);
  end_handshake(hs);
}

/* Acceptor: takes the segment, and waits until this rank calls connect(), if it has not yet. */
static void receive_offer(shm_handshake *hs) {
  shm_offer offer;
  const coll_transport_env *env = hs->ep->env;
  int fds[COLLI_UNIX_FDS] = {-1, -1};
  int result = colli_unix_recv(hs->watch.fd, &offer, sizeof offer, fds, hs->local ? 1 : 2);
  if (result < 0 && errno == EAGAIN)
    return;
  int error = errno;
  bool known;
  hs->conn = find_conn(hs, &known);
  if (result <= 0) {
    receive_failed(hs, result, error);
    return;
  }
  shm_fault fault;
  shm_fault_set(&fault, COLL_OK, NULL, 0, NULL);
  hs->bell_fd = hs->local ? offer.bell_fd : fds[1];
  if (offer.magic != SHM_MAGIC || offer.slot_bytes != env->slot_bytes ||
      offer.slot_count != env->slot_count || (offer.bell_fd >= 0) != hs->local) {
    shm_fault_set(
        &fault, COLL_ERR_PROTOCOL, NULL, 0,
        "the peer's slots differ; COLL_SLOT_BYTES and COLL_SLOT_COUNT must be the same on "
        "all ranks");
  } else if (shm_bell_check(hs, &fault) == COLL_OK) {
    (void)shm_segment_adopt(&hs->segment, segment_bytes(hs->ep), fds[0], &fault);
  }
  colli_fd_close(fds[0]);
  if (fault.status != COLL_OK || hs->conn)
    send_answer(hs, &fault);
  else
    hs->stage = SHM_STAGE_PARKED;
}

/* Advances the authentication. */
static void step_auth(shm_handshake *hs) {
  shm_fault fault;
  int result = colli_auth_poll(&hs->auth);
  switch (result) {
  case COLL_T_AGAIN:
    return;
  case COLL_T_DONE:
    hs->ep->happened = true;
    if (hs->dialer) {
      send_offer(hs);
      return;
    }
    shm_starve_note(hs->ep, 0, true);
    bool taken = hello_fits(hs);
    if (colli_auth_answer(&hs->auth, taken) != 0 || !taken) {
      end_handshake(hs);
      return;
    }
    hs->stage = SHM_STAGE_OFFER;
    receive_offer(hs);
    return;
  case COLL_ERR_AUTH:
    shm_fault_set(&fault, COLL_ERR_AUTH, NULL, 0,
                  "the peer does not know this communicator's secret");
    break;
  case COLL_ERR_PROTOCOL:
    shm_fault_set(&fault, COLL_ERR_PROTOCOL, NULL, 0,
                  "the peer does not speak this version's handshake; all ranks must run the same "
                  "libcoll");
    break;
  case COLL_ERR_PEER_LOST:
    if (hs->dialer && errno != EPERM) {
      dial_again(hs);
      return;
    }
    shm_fault_set(&fault, COLL_ERR_PEER_LOST, NULL, 0,
                  "the peer refused the connection: it is another rank or communicator");
    break;
  default:
    shm_fault_set(&fault, COLL_ERR_SYSTEM, "handshake", errno, "the handshake's socket failed");
    if (!hs->dialer)
      shm_starve_note(hs->ep, fault.sys_errno, true);
  }
  fail_handshake(hs, &fault);
}

/* A parked peer has nothing to send: if something comes, it gave up or is not libcoll. */
static void step_parked(shm_handshake *hs) {
  char byte;
  ssize_t got = recv(hs->watch.fd, &byte, 1, MSG_DONTWAIT);
  if (got >= 0 || (errno != EAGAIN && errno != EINTR))
    end_handshake(hs);
}

void shm_handshake_event(shm_handshake *hs) {
  switch (hs->stage) {
  case SHM_STAGE_AUTH:
    step_auth(hs);
    break;
  case SHM_STAGE_OFFER:
    receive_offer(hs);
    break;
  case SHM_STAGE_PARKED:
    step_parked(hs);
    break;
  case SHM_STAGE_ANSWER:
    receive_answer(hs);
    break;
  case SHM_STAGE_DIAL:
  case SHM_STAGE_OVER:
    break;
  }
}

void shm_handshake_match(shm_endpoint *ep, shm_conn *conn) {
  for (shm_handshake *hs = ep->handshakes; hs; hs = hs->next) {
    if (hs->stage == SHM_STAGE_PARKED && hs->peer == conn->base.peer &&
        hs->channel == conn->base.channel) {
      shm_fault fine;
      shm_fault_set(&fine, COLL_OK, NULL, 0, NULL);
      hs->conn = conn;
      send_answer(hs, &fine);
      return;
    }
  }
}

/* Whether a handshake waits for something that does not depend on when ranks call connect(). */
static bool can_expire(const shm_handshake *hs) {
  return hs->stage == SHM_STAGE_DIAL || (hs->stage == SHM_STAGE_AUTH && !hs->dialer);
}

void shm_handshake_tend(shm_endpoint *ep, uint64_t now_ns) {
  for (shm_handshake *hs = ep->handshakes; hs; hs = hs->next) {
    if (hs->stage == SHM_STAGE_DIAL && now_ns >= hs->redial_ns)
      dial_peer(hs);
    else if (hs->stage == SHM_STAGE_AUTH && colli_auth_events(&hs->auth) == POLLOUT)
      step_auth(hs);
    if (can_expire(hs) && now_ns > hs->deadline_ns) {
      shm_fault fault;
      shm_fault_set(&fault, COLL_ERR_SYSTEM, "connect", EMFILE,
                    "out of descriptors for too long; raise the limit of open files (ulimit -n)");
      fail_handshake(hs, &fault);
    }
  }
  for (shm_handshake **link = &ep->handshakes; *link;) {
    shm_handshake *hs = *link;
    if (hs->stage == SHM_STAGE_OVER) {
      *link = hs->next;
      free(hs);
    } else {
      link = &hs->next;
    }
  }
}

void shm_handshake_forget(shm_endpoint *ep, shm_conn *conn) {
  for (shm_handshake *hs = ep->handshakes; hs; hs = hs->next)
    if ((!conn || hs->conn == conn) && hs->stage != SHM_STAGE_OVER)
      end_handshake(hs);
}
