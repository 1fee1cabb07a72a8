/*
 * test_job.c: whole jobs with COLL_TLS=1: results are right, nothing can be read on the way, a
 * killed rank is noticed, survivors go on, and ranks with different settings learn why they do not
 * meet. This program is linked with --wrap for the calls that send, so it sees what the library
 * gives to the kernel.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"

#define COUNT   (1 << 17)
#define DATA    "data that is sent" /* 17 bytes and the end */
#define CONTROL ",tcp\0\0\0\0"      /* of a record of a rank: the list of its transports */

TestSuite(tls_job, .timeout = 120);

/* ---- what is sent ---------------------------------------------------------------------------- */

/* What was seen of it, by all processes. */
typedef struct sights {
  atomic_int data, control;
  atomic_long bytes;
} sights;

static sights *seen;

static void look(const void *bytes, size_t count) {
  if (!seen)
    return;
  atomic_fetch_add(&seen->bytes, (long)count);
  if (memmem(bytes, count, DATA, sizeof(DATA)))
    atomic_store(&seen->data, 1);
  if (memmem(bytes, count, CONTROL, sizeof(CONTROL) - 1))
    atomic_store(&seen->control, 1);
}

ssize_t __real_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags) {
  look(bytes, count);
  return __real_send(fd, bytes, count, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags) {
  for (size_t i = 0; i < msg->msg_iovlen; i++)
    look(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
  return __real_sendmsg(fd, msg, flags);
}

static int send_text(coll_comm *comm, int rank, int nranks, void *arg) {
  static char text[8 * 4096], all[8 * 8 * 4096];
  (void)arg;
  RANK_CHECK(nranks <= 8);
  for (size_t i = 0; i < sizeof(text); i += 32)
    memcpy(text + i, DATA, sizeof(DATA));
  RANK_OK(coll_allgather(text, all, 100, COLL_UINT8, comm));
  RANK_OK(coll_allgather(text, all, sizeof(text), COLL_UINT8, comm));
  for (int r = 0; r < nranks; r++)
    RANK_CHECK(memcmp(all + (size_t)r * sizeof(text), text, sizeof(text)) == 0);
  return 0;
}

Test(tls_job, nobody_can_read_it) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "tcp";
  seen = shared_memory(sizeof(*seen));
  cr_assert_eq(run_processes(3, &config, send_text, NULL, 60, NULL), 0);
  cr_assert(seen->data && seen->control, "this test would see it");
  seen->data = seen->control = 0;
  seen->bytes = 0;
  setenv("COLL_TLS", "1", 1);
  cr_assert_eq(run_processes(3, &config, send_text, NULL, 60, NULL), 0);
  cr_assert_gt(seen->bytes, 3 * 4096);
  cr_assert_not(seen->data);
  cr_assert_not(seen->control);
}

/* ---- results --------------------------------------------------------------------------------- */

/* One of everything. */
static int use_all(coll_comm *comm, int rank, int nranks, float *in) {
  float *out = in + COUNT;
  int to[16], from[16], value = rank == nranks - 1 ? 77 : 0, got = 0;
  static const size_t counts[] = {1, 1000, COUNT};
  for (size_t i = 0; i < COUNT; i++)
    in[i] = (float)((i + (size_t)rank) % 100);
  for (int c = 0; c < 3; c++) {
    RANK_OK(coll_allreduce(in, out, counts[c], COLL_FLOAT32, COLL_SUM, comm));
    for (size_t i = 0; i < counts[c]; i++) {
      float sum = 0;
      for (int r = 0; r < nranks; r++)
        sum += (float)((i + (size_t)r) % 100);
      RANK_CHECK(out[i] == sum);
    }
  }
  RANK_OK(coll_broadcast(&value, &got, 1, COLL_INT32, nranks - 1, comm));
  RANK_CHECK(got == 77);
  for (int r = 0; r < nranks; r++)
    to[r] = 100 * rank + r;
  RANK_OK(coll_alltoall(to, from, 1, COLL_INT32, comm));
  for (int r = 0; r < nranks; r++)
    RANK_CHECK(from[r] == 100 * r + rank);
  RANK_OK(coll_barrier(comm));
  return 0;
}

/* On a communicator and on halves of it. */
static int use_family(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *half = NULL;
  float *buffers = malloc(2 * COUNT * sizeof(*buffers));
  RANK_CHECK(buffers);
  int result = use_all(comm, rank, nranks, buffers), half_rank, half_nranks;
  (void)arg;
  RANK_OK(coll_comm_split(comm, rank % 2, rank, NULL, &half));
  coll_comm_rank(half, &half_rank);
  coll_comm_nranks(half, &half_nranks);
  result = result ? result : use_all(half, half_rank, half_nranks, buffers);
  free(buffers);
  coll_comm_destroy(&half);
  return result;
}

Test(tls_job, results_are_right) {
  coll_config config = COLL_CONFIG_INIT;
  static const int sizes[] = {2, 3, 8, 5, 6};
  setenv("COLL_TLS", "1", 1);
  for (int i = 0; i < extent(3, 5, 2); i++) {
    config.transport = "tcp";
    cr_assert_eq(run_processes(sizes[i], &config, use_family, NULL, 90, NULL), 0, "%d", sizes[i]);
  }
  config.transport = "shm,tcp";
  setenv("TEST_HOSTS", "2", 1);
  cr_assert_eq(run_processes(4, &config, use_family, NULL, 90, NULL), 0, "two hosts");
  setenv("COLL_DATA_CHECK", "mac", 1);
  cr_assert_eq(run_processes(3, &config, use_family, NULL, 90, NULL), 0, "and codes");
}

Test(tls_job, threads) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "tcp";
  setenv("COLL_TLS", "1", 1);
  cr_assert_eq(run_threads(3, &config, use_family, NULL), 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* What the survivors saw. */
typedef struct loss {
  coll_status status[MOST], shrunk[MOST];
  int peer[MOST], mask[MOST];
  size_t count;
} loss;

static int lose_one(coll_comm *comm, int rank, int nranks, void *arg) {
  loss *l = arg;
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  bool right = false;
  (void)nranks;
  RANK_OK(coll_barrier(comm));
  if (rank == 1) {
    RANK_CHECK(reduce_for(comm, l->count, 3) == COLL_OK);
    kill(getpid(), SIGKILL);
  }
  l->status[rank] = reduce_for(comm, l->count, 1 << 30);
  coll_last_error(comm, &error);
  l->peer[rank] = error.peer;
  l->shrunk[rank] = coll_comm_shrink(comm, NULL, &child);
  if (l->shrunk[rank] == COLL_OK)
    RANK_OK(go_on(child, rank, &l->mask[rank], &right));
  coll_comm_destroy(&child);
  RANK_CHECK(right);
  return 0;
}

Test(tls_job, a_killed_rank_is_noticed_and_the_others_go_on) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "tcp";
  config.timeout_ms = 30000;
  setenv("COLL_TLS", "1", 1);
  for (int large = 0; large < 2; large++) {
    loss *l = shared_memory(sizeof(*l));
    int results[4];
    l->count = large ? COUNT : 16;
    run_processes(4, &config, lose_one, l, 60, results);
    for (int r = 0; r < 4; r++) {
      cr_assert_eq(results[r], r == 1 ? 128 + SIGKILL : 0, "rank %d: %d", r, results[r]);
      if (r == 1)
        continue;
      cr_assert_eq(l->status[r], COLL_ERR_PEER_LOST, "%s", coll_status_name(l->status[r]));
      cr_assert_eq(l->peer[r], 1);
      cr_assert_eq(l->mask[r], 1 << 0 | 1 << 2 | 1 << 3);
    }
  }
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Three processes, of which one has another setting than the others; texts: what they learn. */
static void meet(int odd, const char *odd_setting, const char *setting, coll_status *statuses,
                 coll_error *errors) {
  coll_id *id = shared_memory(sizeof(*id));
  atomic_int *ready = shared_memory(sizeof(*ready));
  fflush(NULL);
  for (int rank = 0; rank < 3; rank++) {
    if (fork() != 0)
      continue;
    coll_comm *comm = NULL;
    coll_config config = COLL_CONFIG_INIT;
    config.error = &errors[rank];
    config.create_timeout_ms = 20000;
    setenv("COLL_TLS", rank == odd ? odd_setting : setting, 1);
    if (rank == 0) {
      coll_unique_id(id, &config);
      atomic_store(ready, 1);
    }
    while (!atomic_load(ready)) {
    }
    statuses[rank] = coll_comm_create(&comm, id, 3, rank, &config);
    coll_comm_destroy(&comm);
    _exit(0);
  }
  while (wait(NULL) > 0 || errno == EINTR) {
  }
}

Test(tls_job, different_settings) {
  for (int odd = 0; odd < 3; odd++)
    for (int on = 0; on < 2; on++) {
      coll_status *statuses = shared_memory(3 * sizeof(*statuses));
      coll_error *errors = shared_memory(3 * sizeof(*errors));
      for (int r = 0; r < 3; r++)
        errors[r] = (coll_error)COLL_ERROR_INIT;
      double begin = now_s();
      meet(odd, on ? "1" : "0", on ? "0" : "1", statuses, errors);
      cr_assert_lt(now_s() - begin, slow_s(10.0));
      for (int r = 0; r < 3; r++) {
        cr_assert_eq(statuses[r], COLL_ERR_MISMATCH, "%d, rank %d: %s: %s", odd, r,
                     coll_status_name(statuses[r]), errors[r].message);
        cr_assert_not_null(strstr(errors[r].message, "COLL_TLS"), "%s", errors[r].message);
        cr_assert_not_null(strstr(errors[r].message, "the same on all ranks"));
      }
    }
}

static int never(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)comm;
  (void)rank;
  (void)nranks;
  (void)arg;
  return 0;
}

/* InfiniBand is left out, and if nothing else is left, that is the error. */
Test(tls_job, a_transport_that_does_not_encrypt) {
  coll_comm *comms[2];
  coll_config config = COLL_CONFIG_INIT;
  coll_error error = COLL_ERROR_INIT;
  config.transport = "verbs";
  config.error = &error;
  setenv("COLL_TLS", "1", 1);
  coll_status status = coll_comm_create_local(comms, 2, &config);
  cr_assert_eq(status, COLL_ERR_UNSUPPORTED, "%s: %s", coll_status_name(status), error.message);
  cr_assert_not_null(strstr(error.message, "COLL_TLS"), "%s", error.message);
  config.transport = "verbs,tcp";
  cr_assert_eq(run_threads(2, &config, never, NULL), 0);
}
