/*
 * fuzz_shm_handshake.c: what arrives on the Unix socket of a shared-memory endpoint: connections of
 * strangers, and those of a member that proves that it knows the secret and then sends any lengths,
 * contents and descriptors. The endpoint dials, or is dialled; if the connection is made, it is
 * used. No descriptor may stay open afterwards.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/shared.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

enum { SLOT_BYTES = 1024, SLOTS = 2, NRANKS = 3, COMM = 7, FDS = 4, STEPS = 40, POLLS = 12 };
enum { MESSAGE_BYTES = 64, LOOK_AT = 64 /* descriptors that may leak */ };

static const uint8_t secret[COLL_SECRET_BYTES] = "all members know it";

/* What the other side has of a descriptor that it passes. */
typedef enum kind {
  SEGMENT,
  UNSEALED,
  SMALL,
  LARGE,
  READ_ONLY,
  BELL,
  BLOCKING_BELL,
  FULL_PIPE,
  BROKEN_PIPE,
  SOCKET,
  FOLDER,
  DEVICE,
  KINDS
} kind;

typedef struct play {
  coll_transport_env env;
  coll_endpoint *ep;
  coll_conn *conn;  /* of the endpoint, once it has called connect() */
  int peer;         /* of that */
  int listener, fd; /* the other side's */
  const uint8_t *data;
  size_t bytes;
} play;

static uint64_t now_of(void *ctx) {
  (void)ctx;
  static uint64_t now;
  return now += 1000000;
}

static void note_failure(void *ctx, const coll_transport_failure *failure) {
  (void)ctx;
  if (failure->status == COLL_OK || !failure->detail)
    abort();
}

static const char *no_setting(void *ctx, const char *name) {
  (void)ctx, (void)name;
  return "";
}

static unsigned take(play *p) {
  uint8_t byte;
  fuzz_take(&p->data, &p->bytes, &byte, 1);
  return byte;
}

/* Which of the next descriptors are open. */
static uint64_t look_at_descriptors(void) {
  uint64_t open = 0;
  for (int fd = 0; fd < LOOK_AT; fd++)
    open |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
  return open;
}

static void open_endpoint(play *p, int rank) {
  p->env = (coll_transport_env){.size = sizeof(p->env),
                                .now_ns = now_of,
                                .fail = note_failure,
                                .param = no_setting,
                                .rank = rank,
                                .nranks = NRANKS,
                                .host_id = 1,
                                .comm_id = COMM,
                                .secret = secret,
                                .slot_bytes = SLOT_BYTES,
                                .slot_count = SLOTS};
  if (shm_transport.open(&p->env, &p->ep) != COLL_OK)
    abort();
  ((shm_endpoint *)p->ep)->self.pid = -1; /* or it takes the other side for a thread's */
}

static void progress(play *p) {
  for (int i = 0; i < POLLS; i++)
    (void)shm_transport.progress(p->ep);
}

/* The other side's socket, by its kernel-given name. */
static int listen_there(shm_blob *blob) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof address;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 ||
      listen(fd, 8) != 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
    abort();
  *blob = (shm_blob){.magic = SHM_MAGIC, .host_id = 1};
  blob->name_bytes = (uint32_t)(bytes - offsetof(struct sockaddr_un, sun_path));
  memcpy(blob->name, address.sun_path, blob->name_bytes);
  return fd;
}

/* The endpoint's call of connect(). */
static void connect_endpoint(play *p, const shm_blob *blob) {
  uint8_t raw[COLL_BLOB_BYTES] = {0};
  memcpy(raw, blob, sizeof(*blob));
  if (!p->conn && shm_transport.connect(p->ep, p->peer, raw, 0, &p->conn) != COLL_OK)
    abort();
}

/* Dials the endpoint. */
static int dial_endpoint(play *p) {
  struct sockaddr_un address;
  socklen_t bytes = shm_blob_address(&((shm_endpoint *)p->ep)->self, &address);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, bytes) != 0)
    abort();
  return fd;
}

/* The other side's part of a proof; what it claims may be wrong. */
static void prove(play *p, bool dials, unsigned claims) {
  colli_auth auth;
  if (dials)
    colli_auth_connect(&auth, p->fd, secret, claims & 1 ? COLLI_HELLO_SHRINK : COLLI_HELLO_DATA,
                       claims & 2 ? (int)take(p) - 2 : p->peer,
                       claims & 4 ? (int)take(p) - 2 : p->env.rank, claims & 8 ? take(p) : COMM,
                       claims & 16 ? UINT64_C(1) << take(p) % 64 : 0);
  else
    colli_auth_accept(&auth, p->fd, secret);
  for (int i = 0; i < 8; i++) {
    int result = colli_auth_poll(&auth);
    if (result == COLL_T_DONE && !dials)
      colli_auth_answer(&auth, !(claims & 1));
    if (result != COLL_T_AGAIN)
      break;
    progress(p);
  }
  progress(p);
  colli_auth_drop(&auth);
}

/* Shared memory as another rank would make it, or not. */
static int make_memory(kind what) {
  colli_shared_fault fault;
  const size_t bytes = shm_ring_bytes(SLOT_BYTES, SLOTS);
  char path[40];
  int fd;
  if (what == UNSEALED) {
    fd = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    return fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 ? fd : -1;
  }
  fd = colli_shared_create(what == SMALL ? bytes / 2 : what == LARGE ? 2 * bytes : bytes, &fault);
  colli_fork_hold();
  colli_fd_delist(fd);
  colli_fork_release();
  if (what != READ_ONLY)
    return fd;
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  int again = open(path, O_RDONLY | O_CLOEXEC);
  close(fd);
  return again;
}

/* A doorbell that blocks at the next write. */
static int make_blocking_bell(void) {
  const uint64_t most = UINT64_MAX - 1;
  int fd = eventfd(0, EFD_CLOEXEC);
  return fd >= 0 && write(fd, &most, sizeof most) == sizeof most ? fd : -1;
}

/* A pipe whose writer would block, or be killed by SIGPIPE. */
static int make_pipe(bool full) {
  static int kept = -1; /* the last one's reader: it must exist while somebody may write */
  int ends[2];
  char zeros[4096] = {0};
  if (kept >= 0)
    close(kept);
  kept = -1;
  if (pipe2(ends, O_NONBLOCK) != 0)
    return -1;
  while (full && write(ends[1], zeros, sizeof zeros) > 0)
    ;
  (void)fcntl(ends[1], F_SETFL, 0);
  if (full)
    kept = ends[0];
  else
    close(ends[0]);
  return ends[1];
}

static int make_descriptor(kind what) {
  switch (what) {
  case BELL:
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  case BLOCKING_BELL:
    return make_blocking_bell();
  case FULL_PIPE:
  case BROKEN_PIPE:
    return make_pipe(what == FULL_PIPE);
  case SOCKET:
    return socket(AF_UNIX, SOCK_STREAM, 0);
  case FOLDER:
    return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  case DEVICE:
    return open("/dev/full", O_WRONLY | O_CLOEXEC);
  default:
    return make_memory(what);
  }
}

/* Passes `bytes` bytes and descriptors. */
static void send_with(int sock, const void *message, size_t bytes, const int *fds, int count) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(FDS * sizeof(int))];
  } control;
  struct iovec part = {(void *)(uintptr_t)message, bytes};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  memset(&control, 0, sizeof control);
  if (count > 0) {
    header.msg_control = control.space;
    header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, (size_t)count * sizeof(int));
  }
  (void)sendmsg(sock, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The other side sends a message: a right one, a right one that is changed, or bytes. */
static void send_message(play *p) {
  union {
    shm_offer offer;
    shm_answer answer;
    uint8_t bytes[MESSAGE_BYTES];
  } message = {.bytes = {0}};
  const unsigned shape = take(p);
  const bool dials = p->peer < p->env.rank;
  size_t length = dials ? sizeof(shm_offer) : sizeof(shm_answer);
  int fds[FDS], count = 0;
  if (dials)
    message.offer = (shm_offer){SHM_MAGIC, SLOTS, SLOT_BYTES, -1, 0};
  else
    message.answer = (shm_answer){SHM_MAGIC, COLL_OK, -1, 0};
  if (shape & 1)
    length = take(p) % (MESSAGE_BYTES + 1);
  if (shape & 2)
    message.bytes[take(p) % MESSAGE_BYTES] = (uint8_t)take(p);
  if (shape & 4)
    fuzz_take(&p->data, &p->bytes, message.bytes, length);
  for (unsigned i = 0; i < (shape >> 4) % (FDS + 1); i++) {
    fds[count] = make_descriptor((kind)(take(p) % KINDS));
    count += fds[count] >= 0;
  }
  send_with(p->fd, &message, length, fds, count);
  for (int i = 0; i < count; i++)
    close(fds[i]);
}

/* The endpoint uses its connection. */
static void use(play *p, unsigned choice) {
  static const coll_tag tag = {{1, 2, 3}};
  char buf[SLOT_BYTES] = {0};
  coll_tag got;
  size_t got_bytes;
  if (!p->conn)
    return;
  if (choice & 1)
    (void)shm_transport.send(p->conn, &tag, buf, choice);
  else
    (void)shm_transport.recv(p->conn, &tag, buf, choice, &got, &got_bytes);
  (void)shm_transport.arm(p->ep);
  shm_transport.disarm(p->ep);
}

/* The other side sleeps, and wants to be woken. */
static void fall_asleep(play *p) {
  shm_conn *conn = (shm_conn *)p->conn;
  if (conn && conn->link.theirs)
    atomic_store(&conn->link.theirs->state, SHM_STATE_ASLEEP | SHM_STATE_WANTS_CREDIT);
}

static void step(play *p, const shm_blob *blob) {
  const unsigned what = take(p);
  switch (what % 8) {
  case 0:
  case 1:
  case 2:
    send_message(p);
    break;
  case 3:
    connect_endpoint(p, blob);
    break;
  case 4:
    use(p, what >> 3);
    break;
  case 5:
    fall_asleep(p);
    break;
  case 6:
    shutdown(p->fd, what & 8 ? SHUT_WR : SHUT_RDWR);
    break;
  default: /* somebody else, who proves nothing */
    if (p->bytes > 0) {
      int fd = dial_endpoint(p);
      (void)send(fd, p->data, p->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      progress(p);
      close(fd);
    }
  }
  progress(p);
}

/* The other side comes: it dials, or is dialled. */
static void come(play *p, unsigned how, const shm_blob *blob) {
  const bool dials = p->peer < p->env.rank;
  if (!dials || how & 2)
    connect_endpoint(p, blob);
  progress(p);
  p->fd = dials ? dial_endpoint(p) : accept4(p->listener, NULL, NULL, SOCK_NONBLOCK);
  if (p->fd < 0)
    abort();
  if (how & 4)
    prove(p, dials, how & 8 ? take(p) : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  play p = {.data = data, .bytes = bytes};
  shm_blob blob;
  (void)close(make_pipe(false)); /* no pipe's reader is kept */
  const uint64_t open_before = look_at_descriptors();
  const unsigned how = take(&p);
  open_endpoint(&p, 1);
  p.peer = how & 1 ? 2 : 0;
  p.listener = listen_there(&blob);
  come(&p, how, &blob);
  for (int i = 0; i < STEPS && p.bytes > 0; i++)
    step(&p, &blob);
  if (p.conn)
    shm_transport.disconnect(p.conn);
  shm_transport.close(p.ep);
  close(p.fd);
  close(p.listener);
  (void)close(make_pipe(false));
  if (look_at_descriptors() != open_before)
    abort();
  return 0;
}
