/* support_bare.c: what plain sockets take. */
#include "support_bare.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll_transport.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 4, PROCESSES = RANKS + 1, PORTS = 3, PAIRS_MOST = 12, BACKLOG = 4096 };
enum { HELLO_BYTES = 88, CHALLENGE_BYTES = 64, PROOF_BYTES = 32, RECORD_BYTES = 1024 };
#define HELLO_WORD 0x62617265u

/* A connection, and connections that are made at the same time. */
typedef struct pair {
  int from, to;
} pair;
typedef struct wave {
  int count;
  pair pairs[PAIRS_MOST];
} wave;

/* Each phase: first all go to rank 0, if they do not know each other yet; then links. */
static const wave waves[BARE_PHASES][2] = {
    {{3, {{1, 0}, {2, 0}, {3, 0}}}, {6, {{0, 1}, {0, 2}, {1, 3}, {1, 2}, {2, 3}, {3, 0}}}},
    {{3, {{0, 1}, {0, 2}, {0, 3}}}, {0}},
    {{3, {{1, 0}, {2, 0}, {3, 1}}}, {6, {{0, 1}, {0, 2}, {1, 3}, {1, 2}, {2, 3}, {3, 0}}}},
    {{4, {{4, 0}, {1, 0}, {2, 0}, {3, 1}}},
     {8, {{0, 1}, {0, 2}, {1, 3}, {1, 4}, {1, 2}, {2, 3}, {3, 4}, {4, 0}}}},
};

/* In shared memory. */
typedef struct bare_stage {
  int count;
  stranger_kind kind;
  atomic_int arrived;
  uint16_t port[PROCESSES];
  double seconds[PROCESSES][BARE_PHASES];
} bare_stage;

/* Waits until all processes are here for the n-th time. */
static void gather(bare_stage *s, int n) {
  atomic_fetch_add(&s->arrived, 1);
  if (!WAIT_UNTIL(atomic_load(&s->arrived) >= n * PROCESSES, 60))
    abort();
}

/* A listening socket that drops what does not begin as a hello of these processes. */
static int listen_filtered(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x06, 6, 0), /* SYN or RST */
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0), /* drops if there is less */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HELLO_WORD, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
  const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
  int fd = socket(AF_INET6, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof(any)) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0 ||
      listen(fd, BACKLOG) != 0)
    abort();
  return fd;
}

static void send_all(int fd, const void *bytes, size_t count) {
  if (send(fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
    abort();
}

static void receive_all(int fd, size_t count) {
  char bytes[RECORD_BYTES];
  if (recv(fd, bytes, count, MSG_WAITALL) != (ssize_t)count)
    abort();
}

/* Connects to a process and says hello. */
static int dial(const bare_stage *s, int to) {
  char hello[HELLO_BYTES] = {0};
  const uint32_t word = htonl(HELLO_WORD);
  const struct sockaddr_in addr = {.sin_family = AF_INET,
                                   .sin_port = htons(s->port[to]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0)
    abort();
  memcpy(hello, &word, sizeof(word));
  send_all(fd, hello, sizeof(hello));
  return fd;
}

/* Accepts a connection, and answers its hello. */
static int admit(int listen_fd) {
  const char challenge[CHALLENGE_BYTES] = {0};
  const int none = 0, on = 1;
  int fd = accept(listen_fd, NULL, NULL);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)) != 0)
    abort();
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  receive_all(fd, HELLO_BYTES);
  send_all(fd, challenge, sizeof(challenge));
  return fd;
}

/* Makes the connections of a wave that this process has, and closes them. */
static void connect_all(const bare_stage *s, int rank, int listen_fd, const wave *w) {
  const char record[RECORD_BYTES] = {0};
  int out[PAIRS_MOST], in[PAIRS_MOST], nout = 0, nin = 0;
  for (int i = 0; i < w->count; i++)
    if (w->pairs[i].from == rank)
      out[nout++] = dial(s, w->pairs[i].to);
  for (int i = 0; i < w->count; i++)
    if (w->pairs[i].to == rank)
      in[nin++] = admit(listen_fd);
  for (int i = 0; i < nout; i++) {
    receive_all(out[i], CHALLENGE_BYTES);
    send_all(out[i], record, PROOF_BYTES);
  }
  for (int i = 0; i < nin; i++) {
    receive_all(in[i], PROOF_BYTES);
    send_all(in[i], record, 1);
  }
  for (int i = 0; i < nout; i++) {
    receive_all(out[i], 1);
    send_all(out[i], record, sizeof(record));
  }
  for (int i = 0; i < nin; i++) {
    receive_all(in[i], sizeof(record));
    send_all(in[i], record, sizeof(record));
    close(in[i]);
  }
  for (int i = 0; i < nout; i++) {
    receive_all(out[i], sizeof(record));
    close(out[i]);
  }
}

/* Strangers come to the ports of this process. */
static int besiege(const bare_stage *s, int max, strangers who[PORTS]) {
  const uint8_t secret[COLL_SECRET_BYTES] = {2};
  uint16_t ports[PORTS];
  speeches words;
  int count = s->count ? listening_ports(ports, max, true) : 0;
  for (int i = 0; i < count; i++) {
    speeches_write(&words, s->kind, &(speech_target){ports[i], secret, 1, RANKS});
    who[i] = strangers_come(ports[i], s->count, &words);
  }
  return count;
}

/* Makes the connections of a phase. */
static void do_phase(bare_stage *s, int rank, int listen_fd, int phase) {
  const double begin = now_s();
  for (int i = 0; i < 2; i++)
    connect_all(s, rank, listen_fd, &waves[phase][i]);
  s->seconds[rank][phase] = now_s() - begin;
}

/* Listens at all ports; the first one's is known to all. */
static int open_ports(bare_stage *s, int rank) {
  struct sockaddr_in6 name;
  socklen_t length = sizeof(name);
  int listen_fd = listen_filtered();
  for (int i = 1; i < PORTS; i++)
    (void)listen_filtered();
  if (getsockname(listen_fd, (struct sockaddr *)&name, &length) != 0)
    abort();
  s->port[rank] = ntohs(name.sin6_port);
  return listen_fd;
}

/* One process; the last one only takes part in the growth. Strangers are where those of
 * test_strangers.c are. */
static int work(bare_stage *s, int rank) {
  strangers who[PORTS];
  const int listen_fd = open_ports(s, rank);
  int groups = rank == 0 ? besiege(s, 1, who) : 0, met = 0;
  gather(s, ++met);
  do_phase(s, rank, listen_fd, 0);
  gather(s, ++met);
  for (int i = 0; i < groups; i++)
    strangers_leave(&who[i]);
  groups = rank == 0 || rank == RANKS - 1 ? besiege(s, PORTS, who) : 0;
  for (int phase = 1; phase < BARE_PHASES; phase++) {
    gather(s, ++met);
    do_phase(s, rank, listen_fd, phase);
  }
  for (int i = 0; i < groups; i++)
    strangers_leave(&who[i]);
  return 0;
}

bool bare_run(int count, stranger_kind kind, double ms[BARE_PHASES]) {
  bare_stage *s = shared_memory(sizeof(*s));
  pid_t pids[PROCESSES];
  bool good = true;
  s->count = count;
  s->kind = kind;
  for (int r = 0; r < PROCESSES; r++)
    if ((pids[r] = fork()) == 0)
      _exit(work(s, r));
  for (int r = 0; r < PROCESSES; r++) {
    int status = 0;
    good = waitpid(pids[r], &status, 0) == pids[r] && status == 0 && good;
  }
  for (int phase = 0; phase < BARE_PHASES; phase++) {
    ms[phase] = 0;
    for (int r = 0; r < PROCESSES; r++)
      ms[phase] = s->seconds[r][phase] * 1e3 > ms[phase] ? s->seconds[r][phase] * 1e3 : ms[phase];
  }
  munmap(s, sizeof(*s));
  return good;
}
