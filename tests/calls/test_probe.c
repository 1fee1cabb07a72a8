/* test_probe.c: looking for messages, and receiving those that a probe took. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "number.h"
#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

/* ---- random messages ------------------------------------------------------------------------- */

enum { MESSAGES = 40, MAX_BYTES = 300000 };

/* Message `i` from one rank to another. */
typedef struct letter {
  int tag;
  coll_type type;
  size_t count;
  uint64_t number;
} letter;

static letter letter_of(unsigned seed, int from, int to, int i) {
  static const size_t counts[] = {0, 1, 3, 17, 1000, 8191, 37000};
  static const coll_type types[] = {COLL_UINT8, COLL_FLOAT64, COLL_TYPE_USER(3)};
  uint64_t hash = number_hash(seed, (uint64_t)from, (uint64_t)to, (uint64_t)i);
  return (letter){.tag = (int)(hash % 4),
                  .type = types[hash / 4 % 3],
                  .count = counts[hash / 12 % 7],
                  .number = hash};
}

/* What a rank knows about the messages from another one that it has not received. */
typedef struct inbox {
  bool received[MESSAGES];
} inbox;

/* The first message of `from` with a tag that is not received: which one, or -1. */
static int next_from(const inbox *in, unsigned seed, int from, int rank, int tag) {
  for (int i = 0; i < MESSAGES; i++)
    if (!in->received[i] && (tag == COLL_ANY_TAG || letter_of(seed, from, rank, i).tag == tag))
      return i;
  return -1;
}

/* Probes, waiting or not, until there is a message. */
static coll_status probe_until(coll_comm *comm, int peer, int tag, coll_message *message,
                               coll_matched **matched, unsigned how) {
  coll_status status = COLL_IN_PROGRESS;
  while (status == COLL_IN_PROGRESS)
    status = coll_probe(comm, peer, tag, message, matched,
                        how % 3 == 0   ? 0
                        : how % 3 == 1 ? 1
                                       : -1);
  return status;
}

/* Receives one message in one of the ways; 0 if it is the right one. */
static int receive_one(coll_comm *comm, inbox *boxes, unsigned seed, int rank, unsigned how) {
  unsigned char *buf = malloc(MAX_BYTES);
  coll_message message = {-5, -5, 0, COLL_INT8}, got = {0};
  coll_matched *matched = NULL;
  coll_request *request = NULL;
  bool takes = how % 2, any_tag = how / 2 % 2;
  int tag = any_tag ? COLL_ANY_TAG : (int)(how / 4 % 4);
  RANK_CHECK(buf != NULL);
  if (!any_tag) { /* is there one? */
    bool there = false;
    int nranks = 0;
    coll_comm_nranks(comm, &nranks);
    for (int from = 0; from < nranks; from++)
      there |= next_from(&boxes[from], seed, from, rank, tag) >= 0;
    tag = there ? tag : COLL_ANY_TAG;
  }
  RANK_OK(probe_until(comm, COLL_ANY_SOURCE, tag, &message, takes ? &matched : NULL, how / 16));
  int which = next_from(&boxes[message.source], seed, message.source, rank, tag);
  RANK_CHECK(which >= 0);
  letter want = letter_of(seed, message.source, rank, which);
  RANK_CHECK(message.tag == want.tag && message.count == want.count && message.type == want.type);
  if (!takes) /* the same again, and then the message itself */
    RANK_OK(coll_recv(buf, message.count, message.type, message.source, message.tag, &got, comm));
  else if (how / 64 % 2)
    RANK_OK(coll_mrecv(buf, message.count + how % 5, message.type, &matched));
  else
    RANK_OK(coll_imrecv(buf, message.count + how % 5, message.type, &matched, &request));
  RANK_CHECK(!matched);
  if (request)
    RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(takes || (got.source == message.source && got.type == message.type));
  RANK_CHECK(data_are_bytes(buf, want.count * coll_type_bytes(want.type), want.number));
  boxes[message.source].received[which] = true;
  free(buf);
  return 0;
}

/* Everybody sends to everybody, itself included, and receives what it finds. */
static int exchange(coll_comm *comm, int rank, int nranks, unsigned seed) {
  inbox *boxes = calloc((size_t)nranks, sizeof(*boxes));
  coll_request **sends = calloc((size_t)(nranks * MESSAGES), sizeof(coll_request *));
  unsigned char *data = malloc((size_t)(nranks * MESSAGES) * MAX_BYTES);
  RANK_CHECK(boxes && sends && data);
  for (int i = 0; i < MESSAGES; i++)
    for (int to = 0; to < nranks; to++) {
      letter l = letter_of(seed, rank, to, i);
      unsigned char *buf = data + (size_t)(i * nranks + to) * MAX_BYTES;
      data_fill_bytes(buf, l.count * coll_type_bytes(l.type), l.number);
      RANK_OK(coll_isend(buf, l.count, l.type, to, l.tag, comm, &sends[i * nranks + to]));
    }
  int result = 0;
  for (int i = 0; i < MESSAGES * nranks && result == 0; i++)
    result = receive_one(comm, boxes, seed, rank,
                         (unsigned)number_hash(seed, (uint64_t)rank, (uint64_t)i, 77));
  for (int i = 0; i < MESSAGES * nranks; i++)
    RANK_OK(coll_wait(&sends[i], -1));
  coll_message message;
  RANK_CHECK(result || coll_probe(comm, COLL_ANY_SOURCE, COLL_ANY_TAG, &message, NULL, 0) ==
                           COLL_IN_PROGRESS);
  free(boxes);
  free(sends);
  free(data);
  return result;
}

static int random_messages(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *dup = NULL;
  RANK_OK(coll_comm_dup(comm, NULL, &dup));
  for (unsigned seed = 1; seed <= *(unsigned *)arg; seed++) {
    if (exchange(seed % 2 ? comm : dup, rank, nranks, seed) != 0)
      return 1;
    RANK_OK(coll_barrier(comm));
  }
  coll_comm_destroy(&dup);
  return 0;
}

Test(probe, random, .timeout = 250) {
  unsigned seeds = 4;
  cr_assert_eq(run_in_all_ways(5, 2, 3, random_messages, &seeds), 0);
}

/* ---- what a probe sees ----------------------------------------------------------------------- */

/* A taken message is received out of order; others do not get it; it is there when more messages
 * wait than a queue holds. */
static int taken(coll_comm *comm, int rank, int nranks, void *arg) {
  enum { MANY = 200 };
  coll_message message;
  coll_matched *first = NULL, *second = NULL, *none = (coll_matched *)&message;
  coll_request *sends[MANY];
  int value = -1, values[MANY];
  (void)nranks;
  (void)arg;
  if (rank == 0) {
    for (int i = 0; i < MANY; i++) {
      values[i] = i;
      RANK_OK(coll_isend(&values[i], 1, COLL_INT32, 1, i, comm, &sends[i]));
    }
    for (int i = 0; i < MANY; i++)
      RANK_OK(coll_wait(&sends[i], -1));
    return 0;
  }
  RANK_OK(coll_probe(comm, 0, COLL_ANY_TAG, &message, &first, -1));
  RANK_CHECK(message.tag == 0);
  RANK_OK(coll_probe(comm, 0, COLL_ANY_TAG, &message, &second, -1));
  RANK_CHECK(message.tag == 1);
  RANK_CHECK(coll_probe(comm, 0, 0, &message, &none, 0) == COLL_IN_PROGRESS && !none);
  RANK_CHECK(coll_probe(comm, 0, 1, &message, NULL, 1) == COLL_IN_PROGRESS);
  for (int i = 2; i < MANY; i++) {
    RANK_OK(coll_probe(comm, i % 2 ? 0 : COLL_ANY_SOURCE, i, &message, NULL, -1));
    RANK_OK(coll_recv(&value, 1, COLL_INT32, COLL_ANY_SOURCE, COLL_ANY_TAG, NULL, comm));
    RANK_CHECK(value == i && message.tag == i);
  }
  RANK_OK(coll_mrecv(&value, 1, COLL_INT32, &second));
  RANK_CHECK(value == 1);
  RANK_OK(coll_mrecv(&value, 1, COLL_INT32, &first));
  RANK_CHECK(value == 0);
  return 0;
}

/* A message that a posted receive gets is not seen, nor one of another rank or tag. */
static int not_seen(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_message message;
  coll_request *request;
  int value = -1;
  (void)arg;
  if (rank > 0) {
    RANK_OK(coll_barrier(comm));
    RANK_OK(coll_send(&rank, 1, COLL_INT32, 0, rank, comm));
    return coll_barrier(comm) != COLL_OK;
  }
  RANK_OK(coll_irecv(&value, 1, COLL_INT32, 1, COLL_ANY_TAG, NULL, comm, &request));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_probe(comm, COLL_ANY_SOURCE, COLL_ANY_TAG, &message, NULL, -1));
  RANK_CHECK(message.source == 2 && nranks == 3);
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(value == 1);
  RANK_CHECK(coll_probe(comm, 1, COLL_ANY_TAG, &message, NULL, 0) == COLL_IN_PROGRESS);
  RANK_CHECK(coll_probe(comm, 2, 1, &message, NULL, 5) == COLL_IN_PROGRESS);
  RANK_OK(coll_recv(&value, 1, COLL_INT32, 2, 2, NULL, comm));
  return coll_barrier(comm) != COLL_OK;
}

/* Messages taken and never received end with the communicator; a bad receive ends its message. */
static int left_behind(coll_comm *comm, int rank, int nranks, void *arg) {
  static unsigned char big[1000000];
  coll_message message;
  coll_matched *matched = NULL;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  unsigned char own[10];
  (void)nranks;
  (void)arg;
  RANK_OK(coll_isend(big, sizeof(big), COLL_UINT8, rank, 5, comm, &request)); /* to itself */
  RANK_OK(coll_probe(comm, rank, 5, &message, &matched, -1));
  RANK_CHECK(message.count == sizeof(big));
  RANK_CHECK(coll_mrecv(NULL, 3, COLL_UINT8, &matched) == COLL_ERR_INVALID_ARGUMENT && matched);
  RANK_CHECK(coll_imrecv(own, 3, COLL_UINT8, &matched, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(matched && coll_mrecv(own, 10, COLL_UINT8, &matched) == COLL_ERR_MISMATCH && !matched);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.status == COLL_ERR_MISMATCH);
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_isend(big, sizeof(big), COLL_UINT8, rank, 6, comm, &request));
  RANK_OK(coll_isend(big, 10, COLL_UINT8, rank, 7, comm, &request));
  RANK_OK(coll_probe(comm, rank, 7, &message, &matched, -1));
  RANK_CHECK(coll_mrecv(own, 10, COLL_INT8, &matched) == COLL_ERR_MISMATCH && !matched);
  RANK_OK(coll_probe(comm, rank, 6, &message, &matched, -1));
  return family_exercise(comm, 100, 1);
}

Test(probe, what_it_sees, .timeout = 100) {
  cr_assert_eq(run_threads(2, NULL, taken, NULL), 0);
  cr_assert_eq(run_processes(2, NULL, taken, NULL, 60, NULL), 0);
  cr_assert_eq(run_threads(3, NULL, not_seen, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, not_seen, NULL, 60, NULL), 0);
  cr_assert_eq(run_threads(3, NULL, left_behind, NULL), 0);
}

/* ---- behind messages that are not received yet ----------------------------------------------- */

enum { IN_FRONT = 64, BEHIND = 3 }; /* as many as a rank keeps, and one that is looked for */

/* A message is found behind so many others that no more are kept, as a receive would get it. */
static int probe_behind(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *sends[IN_FRONT + BEHIND] = {NULL};
  coll_message message;
  coll_status status = COLL_IN_PROGRESS;
  int got = -1;
  (void)nranks;
  (void)arg;
  for (int i = 0; i < IN_FRONT + BEHIND && rank == 1; i++)
    RANK_OK(coll_isend(&rank, 1, COLL_INT32, 0, i >= IN_FRONT, comm, &sends[i]));
  double until = now_s() + slow_s(10);
  while (rank == 0 && status == COLL_IN_PROGRESS && now_s() < until)
    status = coll_probe(comm, 1, 1, &message, NULL, 0);
  RANK_CHECK(rank == 1 || (status == COLL_OK && message.tag == 1));
  for (int i = 0; i < IN_FRONT + BEHIND && rank == 0; i++)
    RANK_OK(coll_recv(&got, 1, COLL_INT32, 1, i < BEHIND, NULL, comm));
  for (int i = 0; i < IN_FRONT + BEHIND && rank == 1; i++)
    RANK_OK(coll_wait(&sends[i], -1));
  return 0;
}

Test(probe, behind_many, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_processes(2, &config, probe_behind, NULL, 60, NULL), 0, "%s", transports[t]);
  }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int bad_arguments(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_message message;
  coll_matched *matched = NULL;
  int value;
  (void)arg;
#define REFUSED(call) RANK_CHECK((call) == COLL_ERR_INVALID_ARGUMENT)
  REFUSED(coll_probe(comm, nranks, 0, &message, NULL, 0));
  REFUSED(coll_probe(comm, -2, 0, &message, NULL, 0));
  REFUSED(coll_probe(comm, rank, -2, &message, NULL, 0));
  REFUSED(coll_probe(comm, rank, 0, NULL, NULL, 0));
  REFUSED(coll_probe(NULL, rank, 0, &message, NULL, 0));
  REFUSED(coll_mrecv(&value, 1, COLL_INT32, NULL));
  REFUSED(coll_mrecv(&value, 1, COLL_INT32, &matched));
  REFUSED(coll_imrecv(&value, 1, COLL_INT32, &matched, &(coll_request *){NULL}));
  return family_exercise(comm, 10, 1);
}

Test(probe, bad_arguments, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, bad_arguments, NULL), 0);
}

/* Probes for messages of a rank that is killed, or sends nothing. */
typedef struct silence {
  bool killed;
  int peer;
  int timeout_ms; /* of the probe */
  callers in_call;
  atomic_int ended;
} silence;

static int probe_in_vain(coll_comm *comm, int rank, int nranks, void *arg) {
  silence *s = arg;
  coll_message message;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = COLL_IN_PROGRESS;
  RANK_OK(coll_barrier(comm));
  if (rank == 1) {
    WAIT_UNTIL(s->timeout_ms == 0 || waits_in_call(&s->in_call, 0), 20);
    if (s->killed)
      raise(SIGKILL);
    WAIT_UNTIL(atomic_load(&s->ended), 40);
    return 0;
  }
  enters_call(&s->in_call, rank);
  double until = now_s() + slow_s(30);
  while (status == COLL_IN_PROGRESS && now_s() < until)
    status = coll_probe(comm, s->peer, 3, &message, NULL, s->timeout_ms);
  RANK_CHECK(status == (s->killed ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT));
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  RANK_CHECK(error.peer == 1 && nranks == 2);
  RANK_CHECK(s->killed || strstr(error.message, "probe"));
  atomic_store(&s->ended, 1);
  return 0;
}

Test(probe, in_vain, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++)
    for (int i = 0; i < 5; i++) {
      coll_config config = COLL_CONFIG_INIT;
      silence *s = shared_memory(sizeof(*s));
      int results[2];
      s->killed = i < 4;
      s->peer = i % 2 ? COLL_ANY_SOURCE : 1;
      s->timeout_ms = i < 2 ? 0 : -1;
      config.transport = transports[t];
      config.timeout_ms = slow_ms(s->killed ? 60000 : 1500);
      run_processes(2, &config, probe_in_vain, s, 60, results);
      cr_assert(results[0] == 0 && results[1] == (s->killed ? 128 + SIGKILL : 0),
                "%s, case %d: %d and %d", transports[t], i, results[0], results[1]);
    }
}
