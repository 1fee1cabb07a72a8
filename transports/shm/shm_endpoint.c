/*
 * shm_endpoint.c: the table of the shared-memory transport: endpoints, connections, waiting.
 *
 * progress() is called in a spin loop and must cost next to nothing when nothing is new, so it
 * looks at the descriptors only every SHM_POLL_IDLE_NS (SHM_POLL_BUSY_NS while connections are
 * being made). Messages never come through descriptors.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/net/sockets.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

#define SHM_POLL_IDLE_NS    COLLI_NS_PER_MS
#define SHM_POLL_BUSY_NS    20000u
#define SHM_CALLS_PER_CLOCK 16u /* progress() calls between two looks at the clock */
#define SHM_EVENTS          16
#define SHM_BACKLOG         4096

/* Tells the environment why the endpoint could not be opened, and frees what was made of it. */
static int open_failed(shm_endpoint *ep, const shm_fault *fault) {
  coll_transport_failure failure = {fault->status,  -1,           -1, fault->sys_errno,
                                    fault->syscall, fault->detail};
  ep->env->fail(ep->env->ctx, &failure);
  if (ep->listener.fd >= 0)
    colli_fd_close(ep->listener.fd);
  if (ep->bell.fd >= 0)
    colli_fd_close(ep->bell.fd);
  if (ep->epoll_fd >= 0)
    colli_fd_close(ep->epoll_fd);
  free(ep);
  return fault->status;
}

/*
 * A system call of open() failed: too many files or too little memory are errors; anything else
 * means that the transport does not work here.
 */
static int open_fault(shm_fault *fault, const char *syscall, int error) {
  if (error == EMFILE || error == ENFILE) {
    return shm_fault_set(fault, COLL_ERR_SYSTEM, syscall, error,
                         "too many open files; raise the limit (ulimit -n)");
  }
  if (error == ENOMEM || error == ENOBUFS)
    return shm_fault_set(fault, COLL_ERR_NO_MEMORY, syscall, error,
                         "out of memory for an endpoint");
  return shm_fault_set(fault, COLL_ERR_UNSUPPORTED, syscall, error,
                       "this system does not let the process use Unix sockets or event "
                       "descriptors; COLL_TRANSPORT=tcp works without them");
}

/* Opens the socket at which peers connect. */
static int open_listener(shm_endpoint *ep, shm_fault *fault) {
  struct sockaddr_un address;
  socklen_t bytes;
  const char *syscall;
  ep->listener.fd = colli_unix_listen(SHM_BACKLOG, &address, &bytes, &syscall);
  if (ep->listener.fd < 0)
    return open_fault(fault, syscall, errno);
  const size_t name_bytes = bytes - offsetof(struct sockaddr_un, sun_path);
  ep->self = (shm_blob){.magic = SHM_MAGIC,
                        .pid = getpid(),
                        .host_id = ep->env->host_id,
                        .uid = geteuid(),
                        .name_bytes = (uint32_t)name_bytes};
  memcpy(ep->self.name, address.sun_path, name_bytes);
  return COLL_OK;
}

/* Checks that this process can make segments as connections need them. */
static int probe_segment(shm_endpoint *ep, shm_fault *fault) {
  size_t bytes = shm_ring_bytes(ep->env->slot_bytes, ep->env->slot_count);
  if (bytes == 0) {
    return shm_fault_set(fault, COLL_ERR_INVALID_ARGUMENT, NULL, 0,
                         "COLL_SLOT_BYTES times COLL_SLOT_COUNT is zero or too large");
  }
  return shm_segment_probe(bytes, fault);
}

/* coll_transport_ops.open */
static int shm_open_endpoint(const coll_transport_env *env, coll_endpoint **result) {
  *result = NULL;
  shm_fault fault;
  shm_endpoint *ep = calloc(1, sizeof *ep);
  if (!ep) {
    coll_transport_failure failure = {
        COLL_ERR_NO_MEMORY, -1, -1, 0, NULL, "out of memory for an endpoint"};
    env->fail(env->ctx, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  ep->env = env;
  ep->patience_ns = colli_shortage_patience_ns(env->param(env->ctx, "COLL_TIMEOUT_MS"));
  ep->listener = (shm_watch){SHM_WATCH_LISTENER, -1};
  ep->bell = (shm_watch){SHM_WATCH_BELL, -1};
  ep->epoll_fd = -1;
  if (probe_segment(ep, &fault) != COLL_OK || open_listener(ep, &fault) != COLL_OK)
    return open_failed(ep, &fault);
  ep->bell.fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (ep->bell.fd < 0) {
    open_fault(&fault, "eventfd", errno);
    return open_failed(ep, &fault);
  }
  ep->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC));
  if (ep->epoll_fd < 0) {
    open_fault(&fault, "epoll_create1", errno);
    return open_failed(ep, &fault);
  }
  if (shm_watch_add(ep, &ep->listener) != 0 || shm_watch_add(ep, &ep->bell) != 0) {
    open_fault(&fault, "epoll_ctl", errno);
    return open_failed(ep, &fault);
  }
  ep->fenced = shm_ring_register();
  *result = (coll_endpoint *)ep;
  return COLL_OK;
}

/* coll_transport_ops.close */
static void shm_close_endpoint(coll_endpoint *endpoint) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  shm_handshake_forget(ep, NULL);
  shm_handshake_tend(ep, 0);
  shm_region_free_all(ep);
  colli_fd_close(ep->listener.fd);
  colli_fd_close(ep->bell.fd);
  colli_fd_close(ep->epoll_fd);
  free(ep);
}

/* coll_transport_ops.describe */
static int shm_describe(coll_endpoint *endpoint, uint8_t raw[COLL_BLOB_BYTES]) {
  memset(raw, 0, COLL_BLOB_BYTES);
  memcpy(raw, &((shm_endpoint *)endpoint)->self, sizeof(shm_blob));
  return COLL_OK;
}

/* coll_transport_ops.reach */
static int shm_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES],
                     coll_link *link) {
  shm_blob left, right;
  const char *reason = NULL;
  if (shm_blob_read(a, &left) != 0 || shm_blob_read(b, &right) != 0)
    reason = "no shared-memory endpoint on one side";
  else if (left.host_id != right.host_id)
    reason = "different hosts";
  else if (left.uid != right.uid)
    reason = "different users";
  /* Latency and bandwidth of a cached copy through another core's cache on current servers. */
  *link = (coll_link){.alpha_ns = 130, .ns_per_byte = 0.05};
  strncpy(link->reason, reason ? reason : "same host, shared memory", sizeof(link->reason) - 1);
  return reason == NULL;
}

/*
 * The socket of an established connection carries only descriptors of regions. If it closes, or if
 * anything else comes, the peer is gone.
 */
static void conn_event(shm_conn *conn) {
  int result = shm_region_receive(conn);
  if (result == 1 || (result < 0 && errno == EAGAIN))
    return;
  conn->gate |= SHM_GATE_GONE;
  shm_watch_close(conn->ep, &conn->watch);
  conn->ep->happened = true;
}

/* Handles what has happened to the descriptors. */
static int poll_descriptors(shm_endpoint *ep, uint64_t now_ns) {
  struct epoll_event events[SHM_EVENTS];
  ep->happened = false;
  ep->polled_ns = now_ns;
  ep->poll_now = false;
  ep->calls = 0;
  int count = epoll_wait(ep->epoll_fd, events, SHM_EVENTS, 0);
  for (int i = 0; i < count; i++) {
    shm_watch *watch = events[i].data.ptr;
    switch (watch->kind) {
    case SHM_WATCH_LISTENER:
      shm_handshake_accept(ep);
      break;
    case SHM_WATCH_HANDSHAKE:
      shm_handshake_event((shm_handshake *)watch);
      break;
    case SHM_WATCH_CONN:
      conn_event((shm_conn *)((char *)watch - offsetof(shm_conn, watch)));
      break;
    case SHM_WATCH_BELL:
      break; /* shm_disarm() empties it, so that no wake() between arm and sleep is lost */
    }
  }
  if (ep->handshakes)
    shm_handshake_tend(ep, now_ns);
  const int status = shm_starve_check(ep);
  return status != COLL_OK ? status : ep->happened;
}

/* coll_transport_ops.progress */
static int shm_progress(coll_endpoint *endpoint) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  bool busy = ep->connecting > 0 || ep->handshakes;
  ep->calls++;
  if (!ep->poll_now && !busy && ep->calls % SHM_CALLS_PER_CLOCK != 0)
    return 0;
  uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  if (!ep->poll_now && now_ns - ep->polled_ns < (busy ? SHM_POLL_BUSY_NS : SHM_POLL_IDLE_NS))
    return 0;
  return poll_descriptors(ep, now_ns);
}

/* coll_transport_ops.wait_fd */
static int shm_wait_fd(coll_endpoint *endpoint) {
  return ((shm_endpoint *)endpoint)->epoll_fd;
}

/* Tells the peers that this side is awake. */
static void wake_up(shm_endpoint *ep) {
  for (shm_conn *conn = ep->conns; conn; conn = conn->next)
    if (!conn->gate)
      shm_link_disarm(&conn->link);
  ep->poll_now = true;
}

/* coll_transport_ops.disarm */
static void shm_disarm(coll_endpoint *endpoint) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  if (!ep->armed)
    return;
  ep->armed = false;
  wake_up(ep);
  uint64_t rings;
  ssize_t got = read(ep->bell.fd, &rings, sizeof rings);
  (void)got; /* EAGAIN: the sleep ended otherwise */
}

/* coll_transport_ops.arm */
static int shm_arm(coll_endpoint *endpoint) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  bool ready = ep->redials > 0; /* no descriptor shows when a dial can be tried again */
  bool all_fenced = true;
  for (shm_conn *conn = ep->conns; conn; conn = conn->next)
    if (!conn->gate) {
      shm_link_arm(&conn->link);
      all_fenced &= atomic_load_explicit(&conn->link.theirs->fenced, memory_order_relaxed) != 0;
    }
  shm_ring_fence(all_fenced);
  for (shm_conn *conn = ep->conns; conn; conn = conn->next)
    if (!conn->gate)
      ready |= shm_link_ready(&conn->link);
  ep->armed = !ready;
  if (ready)
    wake_up(ep);
  return ready;
}

/* coll_transport_ops.wake */
static void shm_wake(coll_endpoint *endpoint) {
  uint64_t one = 1;
  ssize_t wrote = write(((shm_endpoint *)endpoint)->bell.fd, &one, sizeof one);
  (void)wrote; /* fails only if the counter is full, and then it is readable */
}

/* coll_transport_ops.connect */
static int connect_peer(coll_endpoint *endpoint, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                        int channel, coll_conn **result) {
  int status = shm_connect(endpoint, peer, blob, channel, result);
  if (*result)
    (*result)->ops = &shm_transport;
  return status;
}

const coll_transport_ops shm_transport = {
    .size = sizeof(coll_transport_ops),
    .abi = COLL_TRANSPORT_ABI,
    .caps = COLL_CAP_SPIN | COLL_CAP_SHARED_MEMORY | COLL_CAP_SEND_COPIES,
    .name = "shm",
    .open = shm_open_endpoint,
    .close = shm_close_endpoint,
    .describe = shm_describe,
    .reach = shm_reach,
    .connect = connect_peer,
    .disconnect = shm_disconnect,
    .send = shm_send,
    .sent = shm_sent,
    .slot_acquire = shm_slot_acquire,
    .slot_commit = shm_slot_commit,
    .recv = shm_recv,
    .slot_peek = shm_slot_peek,
    .slot_release = shm_slot_release,
    .progress = shm_progress,
    .wait_fd = shm_wait_fd,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .wake = shm_wake,
    .region_add = shm_region_add,
    .region_remove = shm_region_remove,
    .send_ref = shm_send_ref,
    .offer_work = shm_offer_work,
    .claim_work = shm_claim_work,
    .finish_work = shm_finish_work,
    .unfinished_work = shm_unfinished_work,
};
