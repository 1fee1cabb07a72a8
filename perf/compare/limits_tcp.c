/*
 * limits_tcp.c: what TCP over the loopback allows: the least time in which two ranks exchange
 * BYTES, each sending as many as it receives.
 *
 *   limits_tcp BYTES ...   prints "tried BYTES US SETTING" for each setting, and then
 *                          "exchange BYTES US SETTING" for the fastest
 *
 * Two processes with a thread each, bound to different cores, send what their sockets take, receive
 * what has come, and never sleep. The bytes pass through one buffer that stays in the cache, so
 * this is what the sockets need; whatever an operation does with the data comes on top.
 *
 * Every setting is tried for a few milliseconds. The fastest few then take turns in longer rounds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"

#define MAX_SOCKETS  4
#define MAX_SETTINGS 128
#define FINALISTS    4
#define ROUNDS       4
#define TRY_S        0.004
#define ROUND_S      0.03
#define TRY_BYTES    (4u << 20)  /* at most, while settings are tried */
#define TURN_BYTES   (64u << 10) /* at most, where taking turns can be the fastest */
#define WARM_UP      2           /* exchanges */
#define DEADLINE_S   20          /* of one measurement */

/* One way of using the sockets. */
typedef struct setting {
  int sockets;    /* that share the bytes */
  size_t piece;   /* bytes that a system call moves, at most */
  int buffer;     /* bytes of a socket's buffers in the kernel; 0: as the kernel chooses */
  int pauses;     /* before looking again; a receive locks the socket against what arrives */
  bool in_turns;  /* rank 1 sends only after it has received */
  double seconds; /* of an exchange: the least so far; 0: not measured */
} setting;

/* What both ranks' processes share. */
typedef struct shared {
  atomic_int last; /* exchange; rank 0 decides */
  double mean_s[2];
} shared;

/* One rank. */
typedef struct talker {
  const setting *how;
  int rank;
  int sockets[MAX_SOCKETS];
  size_t bytes; /* to send, and to receive, in each exchange */
  char *buffer; /* one piece */
} talker;

/* ---- sockets --------------------------------------------------------------------------------- */

/* Sets the size of a socket's buffers. It must come first: connecting negotiates the window. */
static void set_buffers(int fd, int bytes) {
  if (bytes > 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
}

/* Connects two sockets over 127.0.0.1. Closing them leaves nothing behind (TIME_WAIT). */
static void connect_pair(int *first, int *second, int buffer) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(address);
  struct linger reset = {.l_onoff = 1};
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  *first = socket(AF_INET, SOCK_STREAM, 0);
  if (listener < 0 || *first < 0)
    die("socket");
  set_buffers(listener, buffer);
  set_buffers(*first, buffer);
  if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
      connect(*first, (struct sockaddr *)&address, sizeof(address)) != 0 ||
      (*second = accept(listener, NULL, NULL)) < 0)
    die("connecting over 127.0.0.1");
  close(listener);
  for (int i = 0; i < 2; i++) {
    int fd = i == 0 ? *first : *second;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
}

/* The bytes that a system call moved; 0 if the socket was not ready. */
static size_t moved(ssize_t n) {
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
    die("the other rank's socket");
  return n > 0 ? (size_t)n : 0;
}

/* ---- one measurement ------------------------------------------------------------------------- */

/* Spends a moment without touching the sockets. */
static void pause_for(int pauses) {
  for (int i = 0; i < pauses; i++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    atomic_signal_fence(memory_order_seq_cst);
  }
}

/* Sends all bytes to the other rank and receives as many. */
static void exchange(const talker *t) {
  const setting *how = t->how;
  size_t n = (size_t)how->sockets, out[MAX_SOCKETS], in[MAX_SOCKETS];
  size_t to_send = t->bytes, to_receive = t->bytes;
  for (size_t i = 0; i < n; i++)
    out[i] = in[i] = t->bytes / n + (i < t->bytes % n);
  while (to_send + to_receive > 0) {
    size_t before = to_send + to_receive;
    bool may_send = !how->in_turns || t->rank == 0 || to_receive == 0;
    for (size_t i = 0; i < n; i++) {
      size_t piece = out[i] < how->piece ? out[i] : how->piece;
      if (piece > 0 && may_send) {
        size_t sent = moved(send(t->sockets[i], t->buffer, piece, MSG_NOSIGNAL | MSG_DONTWAIT));
        out[i] -= sent;
        to_send -= sent;
      }
      piece = in[i] < how->piece ? in[i] : how->piece;
      if (piece > 0) {
        size_t received = moved(recv(t->sockets[i], t->buffer, piece, MSG_DONTWAIT));
        in[i] -= received;
        to_receive -= received;
      }
    }
    if (to_send + to_receive == before)
      pause_for(how->pauses);
  }
}

/*
 * A rank's process: exchanges for some time, and takes the mean. Rank 1 is never more than one
 * exchange ahead, and so learns in time which one is the last.
 */
static _Noreturn void run_rank(const talker *t, double seconds, shared *shared) {
  alarm(DEADLINE_S);
  pin(t->rank);
  double start = now_s(), now = start;
  int i = 0;
  for (; i <= atomic_load(&shared->last); i++) {
    exchange(t);
    now = now_s();
    if (i < WARM_UP)
      start = now;
    else if (t->rank == 0 && i > WARM_UP && now - start > seconds &&
             atomic_load(&shared->last) == INT_MAX)
      atomic_store(&shared->last, i + 1);
  }
  shared->mean_s[t->rank] = (now - start) / (i - WARM_UP);
  _exit(0);
}

/* Starts a rank's process. */
static pid_t start_rank(talker *t, double seconds, shared *shared) {
  pid_t pid = fork();
  if (pid < 0)
    die("fork");
  if (pid > 0)
    return pid;
  void *buffer = NULL;
  if (posix_memalign(&buffer, 4096, t->how->piece) != 0)
    die("posix_memalign");
  t->buffer = memset(buffer, 0x3f, t->how->piece);
  run_rank(t, seconds, shared);
}

/* Runs both ranks for about `seconds`; keeps the slower one's mean if it is the least so far. */
static void measure(setting *how, size_t bytes, double seconds, shared *shared) {
  talker ranks[2];
  pid_t pids[2];
  for (int r = 0; r < 2; r++)
    ranks[r] = (talker){.how = how, .rank = r, .bytes = bytes};
  for (int i = 0; i < how->sockets; i++)
    connect_pair(&ranks[0].sockets[i], &ranks[1].sockets[i], how->buffer);
  atomic_store(&shared->last, INT_MAX);
  for (int r = 0; r < 2; r++)
    pids[r] = start_rank(&ranks[r], seconds, shared);
  for (int r = 0; r < 2; r++) {
    int status;
    if (waitpid(pids[r], &status, 0) != pids[r] || status != 0) {
      fprintf(stderr, "limits: a rank failed, or took more than %d s\n", DEADLINE_S);
      exit(1);
    }
  }
  for (int i = 0; i < how->sockets; i++) {
    close(ranks[0].sockets[i]);
    close(ranks[1].sockets[i]);
  }
  double mean = shared->mean_s[0];
  if (mean < shared->mean_s[1])
    mean = shared->mean_s[1];
  how->seconds = how->seconds > 0 && how->seconds < mean ? how->seconds : mean;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Lists the settings for a number of sockets and bytes a call; how many there are. */
static int list_buffers(size_t bytes, int sockets, size_t piece, setting *list) {
  static const int buffers[] = {0, 256 << 10, 1 << 20, 4 << 20};
  int count = 0;
  for (int b = 0; b < 4; b++)
    for (int pauses = 0; pauses <= 32; pauses += 32) {
      setting one = {sockets, piece, buffers[b], pauses, false, 0};
      list[count++] = one;
      one.in_turns = true;
      if (sockets == 1 && bytes <= TURN_BYTES)
        list[count++] = one;
    }
  return count;
}

/* Lists the settings to try; how many there are. */
static int list_settings(size_t bytes, setting *list) {
  static const size_t pieces[] = {64 << 10, 256 << 10, 1 << 20};
  int count = 0;
  for (int sockets = 1; sockets <= MAX_SOCKETS; sockets *= 2)
    for (int p = 0; p < 3 && (p == 0 || pieces[p - 1] < bytes); p++)
      count += list_buffers(bytes, sockets, pieces[p], list + count);
  return count;
}

/* Prints a line about a setting. */
static void print_setting(const char *word, size_t bytes, const setting *s) {
  char buffer[32] = "the kernel's buffers";
  if (s->buffer > 0)
    snprintf(buffer, sizeof(buffer), "buffers of %d KiB", s->buffer >> 10);
  printf("%s %zu %.4f %d %s, %zu KiB a call, %s, %s%s\n", word, bytes, s->seconds * 1e6, s->sockets,
         s->sockets == 1 ? "socket" : "sockets", s->piece >> 10, buffer,
         s->pauses ? "pauses" : "no pauses", s->in_turns ? ", in turns" : "");
}

/* Orders settings by time. */
static int by_seconds(const void *a, const void *b) {
  double x = ((const setting *)a)->seconds, y = ((const setting *)b)->seconds;
  return (x > y) - (x < y);
}

/* Finds the fastest setting for a size. */
static void measure_size(size_t bytes, shared *shared) {
  setting list[MAX_SETTINGS];
  int count = list_settings(bytes, list);
  size_t tried = bytes < TRY_BYTES ? bytes : TRY_BYTES;
  for (int i = 0; i < count; i++) {
    measure(&list[i], tried, TRY_S, shared);
    list[i].seconds *= (double)bytes / (double)tried;
  }
  qsort(list, (size_t)count, sizeof(*list), by_seconds);
  for (int i = 0; i < FINALISTS && tried < bytes; i++)
    list[i].seconds = 0; /* an estimate, and perhaps too low */
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < FINALISTS; i++)
      measure(&list[i], bytes, ROUND_S, shared);
  qsort(list, FINALISTS, sizeof(*list), by_seconds);
  for (int i = 0; i < count; i++)
    print_setting("tried", bytes, &list[i]);
  print_setting("exchange", bytes, &list[0]);
}

int main(int argc, char **argv) {
  shared *shared =
      mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    die("mmap");
  for (int i = 1; i < argc; i++) {
    size_t bytes = strtoull(argv[i], NULL, 10);
    if (bytes == 0) {
      fprintf(stderr, "usage: limits_tcp BYTES ...\n");
      return 2;
    }
    measure_size(bytes, shared);
    fflush(stdout);
  }
  return 0;
}
