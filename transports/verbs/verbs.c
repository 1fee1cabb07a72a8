/* verbs.c: the table of the verbs transport: endpoints, progress, waiting. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/log.h"
#include "libcoll/base/param.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs_poll.h"
#include "transports/verbs/verbs_post.h"

#define POLL_IDLE_NS     COLLI_NS_PER_MS
#define POLL_BUSY_NS     20000u
#define POLL_DEVICES_NS  (200 * COLLI_NS_PER_MS) /* whether they are still there */
#define CALLS_PER_CLOCK  16u /* progress() calls between two readings of the clock */
#define LINK_SLOT_BYTES  64  /* a link carries little */
#define LINK_SLOTS       4
#define USUAL_SLOT_BYTES (128u << 10) /* between hosts */
#define LEAST_SLOT_BYTES (16u << 10)  /* with smaller ones TCP is about as good */
#define PEERS_MOST       32           /* few ranks have more connections */
#define LINGER_MS        1000 /* how long colli_fd_close() waits for what was sent to arrive */

/* A failure of a link, or of the endpoint of all links: kept for whoever asks. */
static void link_failed(void *ctx, const coll_transport_failure *failure) {
  verbs_endpoint *ep = ctx;
  verbs_fault_set(&ep->link_fault, failure->status, failure->syscall, failure->sys_errno, "%s",
                  failure->detail ? failure->detail
                                  : "the TCP connection beside the queue pair failed");
}

static uint64_t link_now_ns(void *ctx) {
  const coll_transport_env *env = ((verbs_endpoint *)ctx)->env;
  return env->now_ns(env->ctx);
}

/* The settings of links, which carry so little that one socket of each pair of interfaces does. */
static const char *link_param(void *ctx, const char *name) {
  const coll_transport_env *env = ((verbs_endpoint *)ctx)->env;
  return strcmp(name, "COLL_TCP_SOCKETS") == 0 ? "1" : env->param(env->ctx, name);
}

/* Opens the endpoint of the links. */
static coll_status open_links(verbs_endpoint *ep, verbs_fault *fault) {
  uint8_t blob[COLL_BLOB_BYTES];
  static const uint8_t nothing[COLL_BLOB_BYTES];
  ep->link_env = *ep->env;
  ep->link_env.ctx = ep;
  ep->link_env.now_ns = link_now_ns;
  ep->link_env.fail = link_failed;
  ep->link_env.param = link_param;
  ep->link_env.gpu = NULL; /* they carry little */
  ep->link_env.slot_bytes = LINK_SLOT_BYTES;
  ep->link_env.slot_count = LINK_SLOTS;
  int status = tcp_transport.open(&ep->link_env, &ep->links);
  if (status == COLL_OK)
    status = tcp_transport.describe(ep->links, blob);
  if (status != COLL_OK) {
    *fault = ep->link_fault;
    return (coll_status)status;
  }
  if (memcmp(blob + VERBS_LINK_BYTES, nothing, COLL_BLOB_BYTES - VERBS_LINK_BYTES) != 0)
    return verbs_fault_set(fault, COLL_ERR_INTERNAL, NULL, 0, "the links' addresses are too long");
  memcpy(ep->self.link, blob, VERBS_LINK_BYTES);
  return COLL_OK;
}

/* Makes epoll watch a descriptor. */
static coll_status watch_fd(verbs_endpoint *ep, int fd, verbs_fault *fault) {
  struct epoll_event event = {.events = EPOLLIN};
  if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
    return COLL_OK;
  return verbs_fault_set(fault, COLL_ERR_SYSTEM, "epoll_ctl", errno, "cannot watch a device");
}

/*
 * The largest slots for whose connections this process may lock memory; 0: none. It is checked now,
 * because a refusal would be an error later.
 */
static size_t lockable_slots(const coll_transport_env *env, verbs_fault *fault) {
  /* Slots are larger than the default once they are settled, unless they were set. */
  const char *fallback = colli_param_table[COLLI_PARAM_SLOT_BYTES].fallback;
  bool set = strcmp(env->param(env->ctx, "COLL_SLOT_BYTES"), fallback) != 0;
  size_t wanted = set ? env->slot_bytes : USUAL_SLOT_BYTES, least = set ? wanted : LEAST_SLOT_BYTES;
  size_t peers = env->nranks - 1 < PEERS_MOST ? (size_t)env->nranks - 1 : PEERS_MOST;
  for (size_t bytes = wanted; bytes >= least; bytes /= 2) {
    size_t ring = (size_t)verbs_ring_units(bytes, env->slot_count) * VERBS_UNIT;
    if (verbs_lock_allowed(peers * VERBS_PEER_CONNS * 2 * ring, fault))
      return bytes;
  }
  return 0;
}

/* Logs how near the rails are to this rank's GPU. */
static void tell_gpu(const verbs_endpoint *ep) {
  const colli_log log = colli_log_of(ep->env->param(ep->env->ctx, "COLL_LOG"), ep->env->rank);
  for (int i = 0; i < ep->nports; i++)
    if (*ep->rails[i].why)
      colli_log_write(&log, COLLI_LOG_INFO, "verbs uses %s:%u, %s", ep->rails[i].name,
                      (unsigned)ep->rails[i].port, ep->rails[i].why);
}

/* Opens library, rails and their queues. */
static coll_status open_ports(verbs_endpoint *ep, verbs_fault *fault) {
  coll_status status = verbs_settings_read(ep->env, &ep->settings, fault);
  if (status == COLL_OK)
    status = verbs_lib_load(&ep->lib, VERBS_LIB_NAME, fault);
  if (status != COLL_OK)
    return status;
  ep->nports = verbs_rails_open(&ep->lib, &ep->settings, ep->rails, VERBS_BLOB_RAILS, fault);
  if (ep->nports == 0)
    return fault->status;
  tell_gpu(ep);
  size_t slot_bytes = lockable_slots(ep->env, fault);
  if (slot_bytes == 0)
    return fault->status;
  ep->self.slot_kib = (uint16_t)((slot_bytes + 1023) >> 10);
  ep->self.magic = VERBS_BLOB_MAGIC;
  ep->self.rails = (uint16_t)ep->nports;
  for (int i = 0; i < ep->nports; i++) {
    verbs_port *port = &ep->ports[i];
    port->rail = &ep->rails[i];
    verbs_wire_pack(port->rail, &ep->self.rail[i]);
    status = verbs_port_open(ep, port, fault);
    if (status == COLL_OK)
      status = watch_fd(ep, port->channel->fd, fault);
    if (status == COLL_OK)
      status = watch_fd(ep, port->rail->async_fd, fault);
    if (status != COLL_OK)
      return status;
  }
  return COLL_OK;
}

/* Advances the connections that were disconnected, and frees those that are done. */
static void advance_lingering(verbs_endpoint *ep) {
  uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  verbs_conn *conn, *next;
  for (conn = TAILQ_FIRST(&ep->lingering); conn; conn = next) {
    next = TAILQ_NEXT(conn, entry);
    verbs_conn_linger(conn, now_ns);
  }
}

/* Frees the endpoint. */
static void verbs_close(coll_endpoint *handle) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  /* By the clock: where processors are scarce, sleeps of 1 ms last much longer. */
  const uint64_t until_ns = link_now_ns(ep) + LINGER_MS * COLLI_NS_PER_MS;
  while (!TAILQ_EMPTY(&ep->lingering) && link_now_ns(ep) < until_ns) {
    for (int p = 0; p < ep->nports; p++)
      verbs_poll(ep, &ep->ports[p]);
    advance_lingering(ep);
    if (!TAILQ_EMPTY(&ep->lingering))
      usleep(1000);
  }
  verbs_conn *conn;
  while ((conn = TAILQ_FIRST(&ep->lingering))) {
    TAILQ_REMOVE(&ep->lingering, conn, entry);
    verbs_conn_free(conn);
  }
  if (ep->links)
    tcp_transport.close(ep->links);
  for (int i = 0; i < ep->nports; i++)
    verbs_port_close(ep, &ep->ports[i]);
  verbs_rails_close(&ep->lib, ep->rails, ep->nports);
  verbs_lib_close(&ep->lib);
  if (ep->epoll_fd >= 0)
    colli_fd_close(ep->epoll_fd);
  free(ep);
}

/* Opens this rank's endpoint. */
static int verbs_open(const coll_transport_env *env, coll_endpoint **handle) {
  verbs_fault fault;
  *handle = NULL;
  verbs_endpoint *ep = calloc(1, sizeof(*ep));
  coll_status status = COLL_OK;
  if (!ep) {
    status = verbs_fault_set(&fault, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                             "out of memory for an endpoint");
  } else {
    ep->env = env;
    ep->ops = &verbs_transport;
    ep->poll_now = true;
    TAILQ_INIT(&ep->conns);
    TAILQ_INIT(&ep->lingering);
    ep->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC));
    if (ep->epoll_fd < 0)
      status = verbs_fault_set(&fault, COLL_ERR_SYSTEM, "epoll_create1", errno,
                               "out of descriptors for the endpoint; raise ulimit -n");
    if (status == COLL_OK)
      status = open_ports(ep, &fault);
    if (status == COLL_OK)
      status = open_links(ep, &fault);
    if (status == COLL_OK)
      status = watch_fd(ep, tcp_transport.wait_fd(ep->links), &fault);
  }
  if (status == COLL_OK) {
    *handle = (coll_endpoint *)ep;
    return COLL_OK;
  }
  coll_transport_failure failure = {status, -1, -1, fault.sys_errno, fault.syscall, fault.detail};
  env->fail(env->ctx, &failure);
  if (ep)
    verbs_close((coll_endpoint *)ep);
  return (int)status;
}

/* Fills in what peers need to reach this endpoint. */
static int verbs_describe(coll_endpoint *handle, uint8_t raw[COLL_BLOB_BYTES]) {
  memset(raw, 0, COLL_BLOB_BYTES);
  memcpy(raw, &((verbs_endpoint *)handle)->self, sizeof(verbs_blob));
  return COLL_OK;
}

/* Whether two endpoints reach each other, both by rails and by links. */
static int verbs_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES],
                       coll_link *link) {
  verbs_blob one, other;
  verbs_path paths[VERBS_MAX_RAILS];
  uint8_t one_link[COLL_BLOB_BYTES] = {0}, other_link[COLL_BLOB_BYTES] = {0};
  *link = (coll_link){.alpha_ns = 0};
  if (!verbs_blob_read(a, &one) || !verbs_blob_read(b, &other)) {
    snprintf(link->reason, sizeof(link->reason), "one of the ranks has no verbs endpoint");
    return 0;
  }
  memcpy(one_link, one.link, VERBS_LINK_BYTES);
  memcpy(other_link, other.link, VERBS_LINK_BYTES);
  if (!tcp_transport.reach(one_link, other_link, link))
    return 0;
  *link = (coll_link){.alpha_ns = 0};
  int count = verbs_paths(one.rail, (int)one.rails, other.rail, (int)other.rails, paths,
                          link->reason, sizeof(link->reason));
  if (count == 0)
    return 0;
  verbs_paths_link(one.rail, other.rail, paths, count, link);
  uint32_t slot_kib = one.slot_kib < other.slot_kib ? one.slot_kib : other.slot_kib;
  link->slot_bytes = (size_t)slot_kib << 10;
  size_t used = strlen(link->reason);
  if (slot_kib < USUAL_SLOT_BYTES >> 10)
    snprintf(link->reason + used, sizeof(link->reason) - used, ", slots of %u KiB", slot_kib);
  return 1;
}

/* Logs, once, that memory could not be registered: what is sent from there is copied. */
static void note_refused(const verbs_endpoint *ep, verbs_cache *cache) {
  cache->noted = true;
  if (ep->env->size > offsetof(coll_transport_env, note) && ep->env->note)
    ep->env->note(ep->env->ctx, cache->fault.detail);
}

/* Polls everything but completions: links, events of devices, connections that begin or end. */
static int poll_rarely(verbs_endpoint *ep, uint64_t now_ns) {
  bool all = ep->poll_now;
  ep->happened = false;
  ep->polled_ns = now_ns;
  ep->poll_now = false;
  int status = tcp_transport.progress(ep->links);
  if (status > 1) {
    const verbs_fault *fault = &ep->link_fault;
    coll_transport_failure failure = {fault->status,  -1,           -1, fault->sys_errno,
                                      fault->syscall, fault->detail};
    ep->env->fail(ep->env->ctx, &failure);
    return status;
  }
  bool devices = now_ns - ep->watched_ns >= POLL_DEVICES_NS;
  if (devices)
    ep->watched_ns = now_ns;
  for (int i = 0; i < ep->nports; i++) {
    verbs_port_events(ep, &ep->ports[i]);
    if (devices)
      verbs_port_check_device(ep, &ep->ports[i]);
    if (ep->ports[i].cache.refused && !ep->ports[i].cache.noted)
      note_refused(ep, &ep->ports[i].cache);
  }
  verbs_conn *conn;
  TAILQ_FOREACH(conn, &ep->conns, entry) {
    if (conn->gate & VERBS_GATE_CONNECTING)
      verbs_conn_handshake(conn);
    else if (all)
      verbs_conn_check_link(conn);
    if (verbs_rx_owes(&conn->rx))
      verbs_post_credit(conn);
  }
  if (!all && ep->watched)
    verbs_conn_check_link(ep->watched);
  ep->watched = ep->watched ? TAILQ_NEXT(ep->watched, entry) : TAILQ_FIRST(&ep->conns);
  advance_lingering(ep);
  return status | ep->happened;
}

/* Polls everything. Data calls poll completions by themselves, so this must cost next to nothing
 * when nothing is new. */
static int verbs_progress(coll_endpoint *handle) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  bool busy = ep->connecting > 0 || !TAILQ_EMPTY(&ep->lingering);
  int moved = 0;
  for (int i = 0; i < ep->nports; i++)
    moved |= ep->ports[i].conns > 0 && verbs_poll(ep, &ep->ports[i]) > 0;
  if (!ep->poll_now && !busy && ++ep->calls % CALLS_PER_CLOCK != 0)
    return moved;
  uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  if (!ep->poll_now && now_ns - ep->polled_ns < (busy ? POLL_BUSY_NS : POLL_IDLE_NS))
    return moved;
  int status = poll_rarely(ep, now_ns);
  return status > 1 ? status : status | moved;
}

/* The descriptor that becomes readable when there is something to do. */
static int verbs_wait_fd(coll_endpoint *handle) {
  return ((verbs_endpoint *)handle)->epoll_fd;
}

/* Makes completions wake the waiter; 1 if there were some. */
static int verbs_arm(coll_endpoint *handle) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  bool ready = false;
  for (int i = 0; i < ep->nports; i++)
    ready |= verbs_poll_arm(ep, &ep->ports[i]);
  return ready | tcp_transport.arm(ep->links);
}

/* After sleeping: everything is polled in the next progress(). */
static void verbs_disarm(coll_endpoint *handle) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  tcp_transport.disarm(ep->links);
  for (int i = 0; i < ep->nports; i++)
    verbs_port_disarm(ep, &ep->ports[i]);
  ep->poll_now = true;
}

/* Makes wait_fd() readable; from any thread. */
static void verbs_wake(coll_endpoint *handle) {
  tcp_transport.wake(((verbs_endpoint *)handle)->links);
}

/* coll_transport_ops.region_add */
static int verbs_region_add(coll_endpoint *handle, uint32_t region, const void *memory,
                            size_t bytes, int fd) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  (void)fd;
  for (int i = 0; i < ep->nports; i++) {
    coll_status status = verbs_cache_add(&ep->ports[i].cache, region, memory, bytes);
    if (status != COLL_OK)
      return (int)status;
  }
  return COLL_OK;
}

/* coll_transport_ops.region_remove */
static void verbs_region_remove(coll_endpoint *handle, uint32_t region) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  for (int i = 0; i < ep->nports; i++)
    verbs_cache_remove(&ep->ports[i].cache, region);
}

/* coll_transport_ops.register_buffer */
static void verbs_register_buffer(coll_endpoint *handle, const void *owner, const void *memory,
                                  size_t bytes, int written) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  for (int i = 0; i < ep->nports && bytes >= VERBS_REGISTER_BYTES; i++)
    verbs_cache_register(&ep->ports[i].cache, owner, memory, bytes,
                         written ? VERBS_USE_WRITE : VERBS_USE_READ);
}

/* coll_transport_ops.release_buffers */
static void verbs_release_buffers(coll_endpoint *handle, const void *owner) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  for (int i = 0; i < ep->nports; i++)
    verbs_cache_release(&ep->ports[i].cache, owner);
}

/* coll_transport_ops.release_device */
static void verbs_release_device(coll_endpoint *handle, coll_device_memory *memory) {
  const verbs_endpoint *ep = (verbs_endpoint *)handle;
  for (int i = 0; i < ep->nports; i++)
    verbs_mr_release(&ep->ports[i].domain, memory->mr[i]);
  free(memory);
}

/* coll_transport_ops.register_device */
static int verbs_register_device(coll_endpoint *handle, int fd, uint64_t offset,
                                 const void *address, size_t bytes, int written,
                                 coll_device_memory **memory, const char **why) {
  verbs_endpoint *ep = (verbs_endpoint *)handle;
  verbs_fault *fault = &ep->device_fault;
  coll_device_memory *made = calloc(1, sizeof(*made));
  *why = made ? fault->detail : "out of memory for a registration";
  if (!made)
    return COLL_ERR_NO_MEMORY;
  made->address = (uintptr_t)address;
  for (int i = 0; i < ep->nports; i++) {
    made->mr[i] = verbs_mr_register_dmabuf(&ep->ports[i].domain, fd, offset, bytes, made->address,
                                           written ? VERBS_USE_WRITE : VERBS_USE_READ, fault);
    if (made->mr[i])
      continue;
    verbs_release_device(handle, made);
    return (int)fault->status;
  }
  *memory = made;
  return COLL_OK;
}

const coll_transport_ops verbs_transport = {
    .size = sizeof(coll_transport_ops),
    .abi = COLL_TRANSPORT_ABI,
    .caps = COLL_CAP_SPIN | COLL_CAP_DEVICE,
    .name = "verbs",
    .open = verbs_open,
    .close = verbs_close,
    .describe = verbs_describe,
    .reach = verbs_reach,
    .connect = verbs_connect,
    .disconnect = verbs_disconnect,
    .send = verbs_send,
    .sent = verbs_sent,
    .slot_acquire = verbs_slot_acquire,
    .slot_commit = verbs_slot_commit,
    .recv = verbs_recv,
    .slot_peek = verbs_slot_peek,
    .slot_release = verbs_slot_release,
    .progress = verbs_progress,
    .wait_fd = verbs_wait_fd,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .wake = verbs_wake,
    .region_add = verbs_region_add,
    .region_remove = verbs_region_remove,
    .send_ref = verbs_send_ref,
    .register_buffer = verbs_register_buffer,
    .release_buffers = verbs_release_buffers,
    .expect = verbs_expect,
    .register_device = verbs_register_device,
    .release_device = verbs_release_device,
    .send_device = verbs_send_device,
    .send_to_target = verbs_send_to_target,
    .offer_device = verbs_offer_device,
    .paths = verbs_tell_paths,
};
