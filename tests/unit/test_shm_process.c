/* test_shm_process.c: the shared-memory transport between processes, and its cleanup. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/prng.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_segment.h"
#include "waits.h"

enum { SLOT_BYTES = 10000, SLOT_COUNT = 4, DEADLINE_S = 20, NAP_MS = 50 };

TestSuite(shm_process, .timeout = 60);

/* One rank. */
typedef struct node {
  coll_transport_env env;
  uint8_t secret[COLL_SECRET_BYTES];
  coll_endpoint *ep;
  coll_transport_failure last;
  int failures;
  int naps; /* sleeps that ended only by their timeout */
} node;

static uint64_t now_ns(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

static void note_failure(void *ctx, const coll_transport_failure *failure) {
  node *n = ctx;
  n->last = *failure;
  n->failures++;
}

static const char *no_param(void *ctx, const char *name) {
  (void)ctx;
  (void)name;
  return "";
}

/* Opens a rank's endpoint; exits on failure, since children cannot use cr_assert. */
static void open_node(node *n, int rank, int nranks, uint8_t secret) {
  memset(n, 0, sizeof *n);
  n->env = (coll_transport_env){.size = sizeof n->env,
                                .ctx = n,
                                .now_ns = now_ns,
                                .fail = note_failure,
                                .param = no_param,
                                .rank = rank,
                                .nranks = nranks,
                                .host_id = 1,
                                .comm_id = 77,
                                .slot_bytes = SLOT_BYTES,
                                .slot_count = SLOT_COUNT};
  memset(n->secret, secret, sizeof n->secret);
  n->env.secret = n->secret;
  if (shm_transport.open(&n->env, &n->ep) != COLL_OK) {
    fprintf(stderr, "open: %s\n", n->last.detail);
    exit(3);
  }
}

/* A child process that runs `body` as the other rank, joined by a socket to exchange blobs. */
typedef struct child {
  pid_t pid;
  node self;
  coll_conn *conn;
} child;

typedef int child_body(node *n, coll_conn *conn);

/* Opens a node, exchanges blobs with the other process and connects. */
static coll_conn *meet(node *n, int rank, uint8_t secret, int sock) {
  uint8_t mine[COLL_BLOB_BYTES], theirs[COLL_BLOB_BYTES];
  coll_conn *conn;
  open_node(n, rank, 2, secret);
  shm_transport.describe(n->ep, mine);
  if (write(sock, mine, sizeof mine) != sizeof mine ||
      read(sock, theirs, sizeof theirs) != sizeof theirs)
    exit(4);
  close(sock);
  if (shm_transport.connect(n->ep, !rank, theirs, 0, &conn) != COLL_OK)
    exit(5);
  return conn;
}

/* Starts a child with the other rank than `rank`. */
static void start(child *c, int rank, uint8_t child_secret, child_body *body) {
  int socks[2];
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
  fflush(NULL);
  c->pid = fork();
  cr_assert_geq(c->pid, 0);
  if (c->pid == 0) {
    node n;
    close(socks[0]);
    coll_conn *conn = meet(&n, !rank, child_secret, socks[1]);
    int result = body(&n, conn);
    shm_transport.disconnect(conn);
    shm_transport.close(n.ep);
    _exit(result);
  }
  close(socks[1]);
  c->conn = meet(&c->self, rank, 9, socks[0]);
}

/* Ends both sides; returns the child's wait status. */
static int finish(child *c) {
  int status = 0;
  shm_transport.disconnect(c->conn);
  shm_transport.close(c->self.ep);
  cr_assert_eq(waitpid(c->pid, &status, 0), c->pid);
  return status;
}

/* Sleeps as the executor does: with a timeout, after which it polls again. How soon a woken rank
 * runs depends on the machine. */
static void doze(node *n) {
  struct pollfd p = {.fd = shm_transport.wait_fd(n->ep), .events = POLLIN};
  if (!shm_transport.arm(n->ep))
    n->naps += poll(&p, 1, NAP_MS) == 0;
  shm_transport.disarm(n->ep);
}

/* Receives with tag k, spinning or sleeping in between. */
static int receive(node *n, coll_conn *conn, uint64_t k, void *buf, size_t bytes, bool sleeping) {
  coll_tag tag = {{k, 0, 0}}, got;
  size_t got_bytes;
  uint64_t deadline = colli_now_ns() + DEADLINE_S * COLLI_NS_PER_S;
  for (;;) {
    int result = shm_transport.recv(conn, &tag, buf, bytes, &got, &got_bytes);
    if (result != COLL_T_AGAIN || colli_now_ns() > deadline)
      return result;
    if (shm_transport.progress(n->ep) == 0 && sleeping)
      doze(n);
  }
}

/* Sends with tag k. */
static int transmit(node *n, coll_conn *conn, uint64_t k, const void *buf, size_t bytes,
                    bool sleeping) {
  coll_tag tag = {{k, 0, 0}};
  uint64_t deadline = colli_now_ns() + DEADLINE_S * COLLI_NS_PER_S;
  for (;;) {
    int result = shm_transport.send(conn, &tag, buf, bytes);
    if (result != COLL_T_AGAIN || colli_now_ns() > deadline)
      return result;
    if (shm_transport.progress(n->ep) == 0 && sleeping)
      doze(n);
  }
}

enum { ECHOES = 3000 };

/* The size of the k-th echoed message. */
static size_t echo_bytes(uint64_t k) {
  return k * 7919 % (SLOT_BYTES + 1);
}

/* Echoes messages. */
static int echo(node *n, coll_conn *conn) {
  uint8_t buf[SLOT_BYTES];
  for (uint64_t k = 0; k < ECHOES; k++)
    if (receive(n, conn, k, buf, echo_bytes(k), true) != COLL_T_DONE ||
        transmit(n, conn, k, buf, echo_bytes(k), true) != COLL_T_DONE)
      return 1;
  return 0;
}

/* Echoes through a child, with this process as the given rank. */
static void check_echo(int rank) {
  child c;
  uint8_t out[SLOT_BYTES], in[SLOT_BYTES];
  start(&c, rank, 9, echo);
  for (uint64_t k = 0; k < ECHOES; k++) {
    memset(out, (int)(k * 3 + 1), sizeof out);
    bool sleeping = k % 2;
    cr_assert_eq(transmit(&c.self, c.conn, k, out, echo_bytes(k), sleeping), COLL_T_DONE);
    cr_assert_eq(receive(&c.self, c.conn, k, in, echo_bytes(k), sleeping), COLL_T_DONE);
    cr_assert_eq(memcmp(in, out, echo_bytes(k)), 0);
  }
  int status = finish(&c);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  cr_expect_eq(c.self.failures, 0);
  cr_expect_lt(c.self.naps, ECHOES / 50, "bells do not wake");
}

Test(shm_process, echo_as_dialer) {
  check_echo(0);
}

Test(shm_process, echo_as_acceptor) {
  check_echo(1);
}

/* Sends three messages and dies. */
static int send_and_die(node *n, coll_conn *conn) {
  uint8_t buf[100] = {5};
  for (uint64_t k = 0; k < 3; k++)
    (void)transmit(n, conn, k, buf, sizeof buf, false);
  kill(getpid(), SIGKILL);
  return 1;
}

/* A killed peer's messages arrive, and soon after that its loss is noticed; a failure is reported
 * once. */
static void check_killed(bool sleeping) {
  child c;
  uint8_t buf[100];
  start(&c, 0, 9, send_and_die);
  int status;
  while (shm_transport.send(c.conn, &(coll_tag){{0, 0, 0}}, buf, 0) == COLL_T_AGAIN)
    (void)shm_transport.progress(c.self.ep);
  cr_assert_eq(waitpid(c.pid, &status, 0), c.pid);
  for (int i = 0; i < 100; i++)
    (void)shm_transport.progress(c.self.ep);
  for (uint64_t k = 0; k < 3; k++) {
    cr_assert_eq(receive(&c.self, c.conn, k, buf, sizeof buf, sleeping), COLL_T_DONE);
    cr_expect_eq(buf[0], 5);
  }
  uint64_t before = colli_now_ns();
  cr_expect_eq(receive(&c.self, c.conn, 3, buf, sizeof buf, sleeping), COLL_ERR_PEER_LOST);
  cr_expect_lt(colli_now_ns() - before, COLLI_NS_PER_S);
  cr_expect_eq(receive(&c.self, c.conn, 3, buf, sizeof buf, sleeping), COLL_ERR_PEER_LOST);
  cr_expect_eq(transmit(&c.self, c.conn, 3, buf, sizeof buf, sleeping), COLL_ERR_PEER_LOST);
  cr_expect_eq(c.self.failures, 1);
  cr_expect_eq(c.self.last.peer, 1);
  cr_expect_eq(c.self.last.status, COLL_ERR_PEER_LOST);
  shm_transport.disconnect(c.conn);
  shm_transport.close(c.self.ep);
}

Test(shm_process, killed_peer_while_spinning) {
  check_killed(false);
}

Test(shm_process, killed_peer_while_sleeping) {
  check_killed(true);
}

/* Waits for a message that never comes, because the other side is gone or was refused. */
static int wait_for_nothing(node *n, coll_conn *conn) {
  uint8_t buf[1];
  int result = receive(n, conn, 0, buf, 1, true);
  return result > 0 ? 40 + result : 1;
}

Test(shm_process, wrong_secret_is_named) {
  child c;
  uint8_t buf[1];
  start(&c, 0, 8, wait_for_nothing); /* the child, rank 1, has another secret */
  cr_expect_eq(receive(&c.self, c.conn, 0, buf, 1, false), COLL_ERR_AUTH);
  cr_expect_eq(c.self.last.status, COLL_ERR_AUTH);
  cr_expect_eq(c.self.failures, 1);
  kill(c.pid, SIGKILL);
  (void)finish(&c);
}

Test(shm_process, good_close_reaches_a_sleeper) {
  child c;
  void *slot;
  start(&c, 1, 9, wait_for_nothing);
  while (shm_transport.slot_acquire(c.conn, 1, &slot) == COLL_T_AGAIN)
    (void)shm_transport.progress(c.self.ep);
  cr_assert(WAIT_UNTIL(sleeps(c.pid), 10));
  int status = finish(&c);
  cr_expect(WIFEXITED(status));
  cr_expect_eq(WEXITSTATUS(status), 40 + COLL_ERR_PEER_LOST);
}

/* Open descriptors of this process. */
static int count_fds(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  cr_assert_not_null(dir);
  while (readdir(dir))
    count++;
  closedir(dir);
  return count;
}

/* Mapped segments of this process. */
static int count_segments(void) {
  char line[512];
  int count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  cr_assert_not_null(maps);
  while (fgets(line, sizeof line, maps))
    count += strstr(line, "memfd:libcoll") != NULL;
  fclose(maps);
  return count;
}

/* Between processes: nothing stays open or mapped, whichever side leaves first. */
Test(shm_process, nothing_is_left_behind) {
  int fds = count_fds();
  for (int i = 0; i < 4; i++) {
    check_echo(i % 2);
    check_killed(i / 2);
  }
  cr_expect_eq(count_fds(), fds);
  cr_expect_eq(count_segments(), 0);
}

/* All pairs of many ranks in one process: three descriptors a rank, none a connection. */
Test(shm_process, ranks_as_threads_need_few_descriptors) {
  enum { RANKS = 24 };
  static node nodes[RANKS];
  static coll_conn *conns[RANKS][RANKS];
  uint8_t blobs[RANKS][COLL_BLOB_BYTES];
  int fds = count_fds();
  for (int r = 0; r < RANKS; r++) {
    open_node(&nodes[r], r, RANKS, 9);
    shm_transport.describe(nodes[r].ep, blobs[r]);
  }
  for (int r = 0; r < RANKS; r++) {
    for (int p = 0; p < RANKS; p++)
      if (p != r)
        cr_assert_eq(shm_transport.connect(nodes[r].ep, p, blobs[p], 0, &conns[r][p]), COLL_OK);
  }
  for (int r = 0; r < RANKS; r++) {
    for (int p = 0; p < RANKS; p++) {
      uint64_t deadline = colli_now_ns() + DEADLINE_S * COLLI_NS_PER_S;
      coll_tag tag = {{(uint64_t)r, 0, 0}};
      while (p != r && shm_transport.send(conns[r][p], &tag, &p, sizeof p) != COLL_T_DONE) {
        cr_assert_lt(colli_now_ns(), deadline);
        (void)shm_transport.progress(nodes[r].ep);
        (void)shm_transport.progress(nodes[p].ep);
      }
    }
  }
  cr_expect_leq(count_fds() - fds, 3 * RANKS);
  cr_expect_eq(count_segments(), RANKS * (RANKS - 1));
  for (int r = 0; r < RANKS; r++) {
    for (int p = 0; p < RANKS; p++) {
      int in = -1;
      if (p != r) {
        cr_assert_eq(receive(&nodes[r], conns[r][p], (uint64_t)p, &in, sizeof in, true),
                     COLL_T_DONE);
        cr_expect_eq(in, r);
      }
    }
  }
  for (int r = 0; r < RANKS; r++) {
    for (int p = 0; p < RANKS; p++)
      if (p != r)
        shm_transport.disconnect(conns[r][p]);
    cr_expect_eq(nodes[r].failures, 0);
    shm_transport.close(nodes[r].ep);
  }
  cr_expect_eq(count_fds(), fds);
  cr_expect_eq(count_segments(), 0);
}

Test(shm_process, a_segment_cannot_be_resized) {
  shm_segment mine, theirs;
  shm_fault fault;
  int fd;
  cr_assert_eq(shm_segment_create(&mine, 8192, &fd, &fault), COLL_OK);
  cr_expect_eq(ftruncate(fd, 0), -1);
  cr_expect_eq(errno, EPERM);
  cr_expect_eq(ftruncate(fd, 1 << 20), -1);
  cr_expect_eq(shm_segment_adopt(&theirs, 4096, fd, &fault), COLL_ERR_PROTOCOL);
  cr_assert_eq(shm_segment_adopt(&theirs, 8192, fd, &fault), COLL_OK);
  memcpy(mine.memory, "seen", 5);
  cr_expect_str_eq(theirs.memory, "seen");
  shm_segment_unmap(&theirs);
  shm_segment_unmap(&mine);
  close(fd);

  /* What a peer could shrink later is not taken. */
  fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  cr_assert_geq(fd, 0);
  cr_assert_eq(ftruncate(fd, 8192), 0);
  cr_expect_eq(shm_segment_adopt(&theirs, 8192, fd, &fault), COLL_ERR_PROTOCOL);
  close(fd);
  int pipe_fds[2];
  cr_assert_eq(pipe(pipe_fds), 0);
  cr_expect_eq(shm_segment_adopt(&theirs, 8192, pipe_fds[0], &fault), COLL_ERR_PROTOCOL);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

/* Ranks with different slots are told which settings must agree, on both sides. */
Test(shm_process, different_slots_are_refused) {
  node a, b;
  uint8_t blob_a[COLL_BLOB_BYTES], blob_b[COLL_BLOB_BYTES];
  coll_conn *to_b, *to_a;
  char in;
  open_node(&a, 0, 2, 9);
  open_node(&b, 1, 2, 9);
  b.env.slot_count = SLOT_COUNT + 1;
  shm_transport.describe(a.ep, blob_a);
  shm_transport.describe(b.ep, blob_b);
  cr_assert_eq(shm_transport.connect(a.ep, 1, blob_b, 0, &to_b), COLL_OK);
  cr_assert_eq(shm_transport.connect(b.ep, 0, blob_a, 0, &to_a), COLL_OK);
  coll_tag tag = {{0, 0, 0}}, got;
  size_t got_bytes;
  while (a.failures == 0 || b.failures == 0) {
    (void)shm_transport.progress(a.ep);
    (void)shm_transport.progress(b.ep);
  }
  cr_expect_eq(shm_transport.recv(to_b, &tag, &in, 1, &got, &got_bytes), COLL_ERR_PROTOCOL);
  cr_expect_eq(shm_transport.recv(to_a, &tag, &in, 1, &got, &got_bytes), COLL_ERR_PROTOCOL);
  cr_expect_not_null(strstr(a.last.detail, "COLL_SLOT_COUNT"));
  shm_transport.disconnect(to_a);
  shm_transport.disconnect(to_b);
  shm_transport.close(a.ep);
  shm_transport.close(b.ep);
}
