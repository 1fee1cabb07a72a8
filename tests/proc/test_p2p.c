/*
 * test_p2p.c: sends and receives, one case at a time: tags in any order, any source, messages to
 * oneself, lengths, floods, errors.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support_ranks.h"
#include "waits.h"

enum { LONG_COUNT = 60000, FLOOD_COUNT = 200 };

/* Runs on threads over both transports. */
static void over_both(int nranks, rank_fn fn) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_threads(nranks, &config, fn, NULL), 0, "over %s", transports[t]);
  }
}

static void fill_ints(int *buf, int count, int seed) {
  for (int i = 0; i < count; i++)
    buf[i] = seed * 1000003 + i;
}

static int count_wrong(const int *buf, int count, int seed) {
  int bad = 0;
  for (int i = 0; i < count; i++)
    bad += buf[i] != seed * 1000003 + i;
  return bad;
}

/* Both ranks start sends in one order and receive in the other. */
static int send_and_receive_in_opposite_orders(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  enum { TAGS = 8 };
  int *out = malloc(sizeof(int) * TAGS * LONG_COUNT), *in = malloc(sizeof(int) * LONG_COUNT);
  coll_request *requests[TAGS];
  for (int tag = 0; tag < TAGS; tag++) {
    int count = tag % 2 ? LONG_COUNT : 100;
    fill_ints(out + tag * LONG_COUNT, count, rank * 100 + tag);
    RANK_OK(coll_isend(out + tag * LONG_COUNT, (size_t)count, COLL_INT32, 1 - rank, tag, comm,
                       &requests[tag]));
  }
  for (int tag = TAGS - 1; tag >= 0; tag--) {
    int count = tag % 2 ? LONG_COUNT : 100;
    RANK_OK(coll_recv(in, (size_t)count, COLL_INT32, 1 - rank, tag, NULL, comm));
    RANK_CHECK(count_wrong(in, count, (1 - rank) * 100 + tag) == 0);
  }
  for (int tag = 0; tag < TAGS; tag++)
    RANK_OK(coll_wait(&requests[tag], -1));
  free(out);
  free(in);
  return 0;
}

Test(p2p, tags_in_opposite_orders, .timeout = 60) {
  over_both(2, send_and_receive_in_opposite_orders);
}

/* Rank 0 answers every message; the others leave as soon as they have their answers. */
static int serve_any_source(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  enum { QUESTIONS = 20 };
  int *buf = malloc(sizeof(int) * LONG_COUNT);
  if (rank == 0) {
    int heard[8] = {0};
    for (int i = 0; i < QUESTIONS * (nranks - 1); i++) {
      coll_message message = {-7, -7, 7, COLL_INT8};
      RANK_OK(
          coll_recv(buf, LONG_COUNT, COLL_INT32, COLL_ANY_SOURCE, COLL_ANY_TAG, &message, comm));
      RANK_CHECK(message.source > 0 && message.source < nranks);
      RANK_CHECK(message.tag == heard[message.source]++);
      RANK_CHECK(message.count == (message.tag % 2 ? (size_t)LONG_COUNT : (size_t)message.source));
      RANK_CHECK(count_wrong(buf, (int)message.count, message.source + message.tag) == 0);
      RANK_OK(coll_send(buf, 1, COLL_INT32, message.source, 77, comm));
    }
  } else {
    for (int tag = 0; tag < QUESTIONS; tag++) {
      int count = tag % 2 ? LONG_COUNT : rank, answer = 0;
      fill_ints(buf, count, rank + tag);
      RANK_OK(coll_send(buf, (size_t)count, COLL_INT32, 0, tag, comm));
      RANK_OK(coll_recv(&answer, 1, COLL_INT32, 0, 77, NULL, comm));
      RANK_CHECK(answer == buf[0]);
      if (tag == QUESTIONS / 2)
        be_late(rank * 3);
    }
  }
  free(buf);
  return 0;
}

Test(p2p, any_source_server, .timeout = 60) {
  over_both(5, serve_any_source);
}

Test(p2p, any_source_server_of_processes, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_processes(4, &config, serve_any_source, NULL, 30, NULL), 0);
  }
}

/* One message comes; the other ranks have connected on one side only. */
static int open_one_side(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int value = rank;
  if (rank == 1) {
    coll_message message;
    RANK_OK(coll_recv(&value, 1, COLL_INT32, COLL_ANY_SOURCE, 3, &message, comm));
    RANK_CHECK(message.source == nranks - 1 && value == nranks - 1);
  } else if (rank == nranks - 1) {
    RANK_OK(coll_send(&value, 1, COLL_INT32, 1, 3, comm));
  }
  int sum = 1;
  RANK_OK(coll_allreduce(&sum, &sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(sum == nranks);
  return 0;
}

Test(p2p, connections_that_peers_never_open, .timeout = 60) {
  over_both(6, open_one_side);
  cr_assert_eq(run_processes(6, NULL, open_one_side, NULL, 30, NULL), 0);
}

static int send_to_oneself(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  int *a = malloc(sizeof(int) * LONG_COUNT), *b = malloc(sizeof(int) * LONG_COUNT);
  coll_message message;
  coll_request *request[2];
  fill_ints(a, LONG_COUNT, rank);
  /* eager messages wait for their receive, in order */
  for (int i = 0; i < 5; i++)
    RANK_OK(coll_send(a + i, 1, COLL_INT32, rank, i % 2, comm));
  for (int i = 1; i < 5; i += 2) {
    RANK_OK(coll_recv(b, 4, COLL_INT32, rank, 1, &message, comm));
    RANK_CHECK(message.source == rank && message.tag == 1 && message.count == 1 && b[0] == a[i]);
  }
  for (int i = 0; i < 5; i += 2) {
    RANK_OK(coll_recv(b, 1, COLL_INT32, COLL_ANY_SOURCE, COLL_ANY_TAG, NULL, comm));
    RANK_CHECK(b[0] == a[i]);
  }
  /* rendezvous, receive last and receive first */
  RANK_OK(coll_isend(a, LONG_COUNT, COLL_INT32, rank, 9, comm, &request[0]));
  RANK_CHECK(coll_test(&request[0]) == COLL_IN_PROGRESS);
  RANK_OK(coll_recv(b, LONG_COUNT, COLL_INT32, rank, 9, NULL, comm));
  RANK_OK(coll_wait(&request[0], -1));
  RANK_CHECK(memcmp(a, b, sizeof(int) * LONG_COUNT) == 0);
  memset(b, 0, sizeof(int) * LONG_COUNT);
  RANK_OK(coll_irecv(b, LONG_COUNT, COLL_INT32, rank, 9, NULL, comm, &request[0]));
  RANK_OK(coll_isend(a, LONG_COUNT, COLL_INT32, rank, 9, comm, &request[1]));
  RANK_OK(coll_wait(&request[0], -1));
  RANK_OK(coll_wait(&request[1], -1));
  RANK_CHECK(memcmp(a, b, sizeof(int) * LONG_COUNT) == 0);
  memset(b, 0, sizeof(int) * LONG_COUNT);
  RANK_OK(
      coll_sendrecv(a, LONG_COUNT, rank, 4, b, LONG_COUNT, rank, 4, COLL_INT32, &message, comm));
  RANK_CHECK(memcmp(a, b, sizeof(int) * LONG_COUNT) == 0 && message.count == LONG_COUNT);
  /* nothing */
  RANK_OK(coll_sendrecv(NULL, 0, rank, 0, NULL, 0, rank, 0, COLL_INT32, &message, comm));
  RANK_CHECK(message.count == 0);
  free(a);
  free(b);
  return 0;
}

Test(p2p, to_oneself, .timeout = 60) {
  over_both(1, send_to_oneself);
  over_both(2, send_to_oneself);
}

/* Shorter messages, empty messages, user-defined types. */
static int send_lengths(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  static const size_t counts[] = {0, 1, 7, 5000, 20000};
  const coll_type type = COLL_TYPE_USER(12);
  char *buf = malloc((size_t)12 * 20000);
  for (int i = 0; i < 5; i++) {
    coll_message message;
    memset(buf, rank == 0 ? i + 1 : 0, (size_t)12 * 20000);
    if (rank == 0) {
      RANK_OK(coll_send(buf, counts[i], type, 1, i, comm));
      RANK_OK(coll_send(counts[i] ? buf : NULL, counts[i], type, 1, i, comm));
      continue;
    }
    RANK_OK(coll_recv(buf, 20000, type, 0, COLL_ANY_TAG, &message, comm));
    RANK_CHECK(message.count == counts[i] && message.tag == i && message.source == 0);
    size_t bytes = 12 * counts[i];
    RANK_CHECK(bytes == 0 || (buf[0] == i + 1 && buf[bytes - 1] == i + 1));
    RANK_CHECK(bytes == (size_t)12 * 20000 || buf[bytes] == 0);
    RANK_OK(coll_recv(counts[i] ? buf : NULL, counts[i], type, 0, i, NULL, comm));
  }
  free(buf);
  return 0;
}

Test(p2p, lengths, .timeout = 60) {
  over_both(2, send_lengths);
}

/* More messages than a rank queues; messages of another rank still arrive. */
static int flood_rank_2(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  static int in[3][64], out[3][64], many[FLOOD_COUNT][64];
  coll_request *requests[FLOOD_COUNT];
  if (rank == 0) {
    for (int i = 0; i < FLOOD_COUNT; i++) {
      fill_ints(many[i], 64, i);
      RANK_OK(
          coll_isend(many[i], 64, COLL_INT32, 2, i < FLOOD_COUNT - 1 ? 0 : 1, comm, &requests[i]));
      if (i < 30) {
        RANK_OK(coll_wait(&requests[i], -1));
        memset(many[i], 0, sizeof(many[i]));
      }
    }
    int go = 0;
    RANK_OK(coll_recv(&go, 1, COLL_INT32, 1, 0, NULL, comm));
    for (int i = 30; i < FLOOD_COUNT; i++)
      RANK_OK(coll_wait(&requests[i], -1));
    return 0;
  }
  if (rank == 1) {
    for (int i = 0; i < 50; i++) {
      fill_ints(out[1], 64, 1000 + i);
      RANK_OK(coll_sendrecv(out[1], 64, 2, 5, in[1], 64, 2, 6, COLL_INT32, NULL, comm));
      RANK_CHECK(count_wrong(in[1], 64, 2000 + i) == 0);
    }
    RANK_OK(coll_send(in[1], 1, COLL_INT32, 0, 0, comm));
    return 0;
  }
  for (int i = 0; i < 50; i++) {
    fill_ints(out[2], 64, 2000 + i);
    RANK_OK(coll_sendrecv(out[2], 64, 1, 6, in[2], 64, 1, 5, COLL_INT32, NULL, comm));
    RANK_CHECK(count_wrong(in[2], 64, 1000 + i) == 0);
  }
  for (int i = 0; i < FLOOD_COUNT - 1; i++) {
    RANK_OK(coll_recv(in[2], 64, COLL_INT32, 0, 0, NULL, comm));
    RANK_CHECK(count_wrong(in[2], 64, i) == 0);
  }
  RANK_OK(coll_recv(in[2], 64, COLL_INT32, 0, 1, NULL, comm));
  return 0;
}

Test(p2p, flood, .timeout = 60) {
  over_both(3, flood_rank_2);
}

/* Whether a rank has left, or waits for its last message to go off. */
static bool is_leaving(callers *leaving, int rank) {
  pid_t thread = atomic_load(&leaving->thread[rank]);
  return thread != 0 && (has_ended(thread) || sleeps(thread));
}

/* An eager send completes although its receiver is in a collective; a nonblocking one although its
 * receiver is in no call, and arrives although its sender leaves at once. */
static int send_early(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  callers *leaving = arg;
  int value = 40 + rank, got = 0, sum = 0;
  if (rank == 0)
    RANK_OK(coll_send(&value, 1, COLL_INT32, 1, 0, comm));
  value = 1;
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(sum == 3);
  if (rank == 1)
    RANK_OK(coll_recv(&got, 1, COLL_INT32, 0, 0, NULL, comm));
  RANK_CHECK(rank != 1 || got == 40);
  value = 50;
  if (rank == 1) {
    coll_request *request = NULL;
    RANK_OK(coll_isend(&value, 1, COLL_INT32, 2, 0, comm, &request));
    RANK_OK(coll_wait(&request, slow_ms(10000)));
    enters_call(leaving, rank); /* the end of its communicator */
  }
  if (rank == 2) {
    RANK_CHECK(WAIT_UNTIL(is_leaving(leaving, 1), 15));
    RANK_OK(coll_recv(&got, 1, COLL_INT32, 1, 0, NULL, comm));
    RANK_CHECK(got == 50);
  }
  return 0;
}

Test(p2p, eager_sends_are_complete_at_once, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_threads(3, &config, send_early, shared_memory(sizeof(callers))), 0, "over %s",
                 transports[t]);
  }
  cr_assert_eq(run_processes(3, NULL, send_early, shared_memory(sizeof(callers)), 30, NULL), 0);
}

/* Persistent sends and receives, and a group of them in any order. */
static int use_all_forms(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int value = 0, got = 0, next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  coll_request *send, *recv;
  coll_message message;
  RANK_OK(coll_send_init(&value, 1, COLL_INT32, next, 2, comm, &send));
  RANK_OK(coll_recv_init(&got, 1, COLL_INT32, before, 2, &message, comm, &recv));
  for (int i = 0; i < 10; i++) {
    value = rank * 100 + i;
    RANK_OK(coll_start(send));
    RANK_OK(coll_start(recv));
    RANK_OK(coll_wait(&send, -1));
    RANK_OK(coll_wait(&recv, -1));
    RANK_CHECK(got == before * 100 + i && message.source == before);
  }
  RANK_OK(coll_request_free(&send));
  RANK_OK(coll_request_free(&recv));
  int *all = malloc(sizeof(int) * (size_t)nranks), *mine = malloc(sizeof(int) * (size_t)nranks);
  RANK_OK(coll_group_start(comm));
  for (int peer = 0; peer < nranks; peer++) {
    mine[peer] = rank * 100 + peer;
    RANK_OK(coll_send(&mine[peer], 1, COLL_INT32, peer, 0, comm));
    RANK_OK(coll_recv(&all[peer], 1, COLL_INT32, peer, 0, NULL, comm));
  }
  RANK_OK(coll_group_end(comm));
  for (int peer = 0; peer < nranks; peer++)
    RANK_CHECK(all[peer] == peer * 100 + rank);
  free(all);
  free(mine);
  return 0;
}

Test(p2p, forms, .timeout = 60) {
  over_both(4, use_all_forms);
}

/* Address space of `bytes` bytes in which the same `period` bytes repeat. */
static char *repeated(size_t bytes, size_t period) {
  int fd = memfd_create("repeated", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)period) != 0)
    return NULL;
  char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t at = 0; at < bytes; at += period)
    if (mmap(base + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
      return NULL;
  close(fd);
  return base;
}

/* More elements than 32 bits count. */
static int send_huge(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  const size_t period = (size_t)16 << 20, bytes = 129 * period; /* 2064 MiB */
  const size_t count = bytes - 5;
  char *buf = repeated(bytes, period);
  RANK_CHECK(buf);
  for (size_t i = 0; i < period; i += 4096)
    buf[i] = rank == 0 ? (char)(i >> 12) : 0;
  buf[period - 6] = rank == 0 ? 111 : 0;
  coll_message message;
  if (rank == 0)
    RANK_OK(coll_send(buf, count, COLL_INT8, 1, 0, comm));
  else
    RANK_OK(coll_recv(buf, bytes, COLL_INT8, 0, 0, &message, comm));
  RANK_CHECK(rank == 0 || message.count == count);
  for (size_t i = 0; i < period; i += 4096)
    RANK_CHECK(buf[i] == (char)(i >> 12));
  RANK_CHECK(buf[period - 6] == 111);
  munmap(buf, bytes);
  return 0;
}

Test(p2p, more_than_2_to_the_31, .timeout = 120) {
  cr_assert_eq(run_threads(2, NULL, send_huge, NULL), 0);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* The receiver of a rendezvous dies in the middle of it. */
static int die_in_a_message(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  const size_t count = (size_t)64 << 20;
  char *buf = calloc(count, 1);
  coll_error error = COLL_ERROR_INIT;
  if (rank == 1) {
    coll_request *request;
    RANK_OK(coll_irecv(buf, count, COLL_INT8, 0, 0, NULL, comm, &request));
    while (coll_wait(&request, 1) == COLL_IN_PROGRESS)
      if (buf[count / 4])
        raise(SIGKILL);
    return 1;
  }
  memset(buf, 1, count);
  coll_status status = rank == 0 ? coll_send(buf, count, COLL_INT8, 1, 0, comm)
                                 : coll_recv(buf, 1, COLL_INT8, COLL_ANY_SOURCE, 0, NULL, comm);
  coll_last_error(comm, &error);
  free(buf);
  RANK_CHECK(status == COLL_ERR_PEER_LOST && error.peer == 1);
  return 0;
}

Test(p2p, killed_in_a_rendezvous, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    int results[3];
    run_processes(3, &config, die_in_a_message, NULL, 40, results);
    cr_assert(results[0] == 0 && results[1] == 128 + SIGKILL && results[2] == 0,
              "over %s: %d %d %d", transports[t], results[0], results[1], results[2]);
  }
}
