/*
 * test_failures.c: killed, frozen, disagreeing and aborting ranks. Every survivor must end in time
 * and name who is to blame.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support_ranks.h"
#include "waits.h"

#define COUNT ((size_t)1 << 20)

/* What one survivor saw. */
typedef struct sight {
  coll_status status;
  coll_error error;
  double seconds; /* from the fault to the error */
} sight;

typedef struct scene {
  int victim;
  int size_index;
  volatile double fault_s;
  volatile pid_t pids[16];
  atomic_int reduced[16]; /* all-reduces that went well, by rank */
  callers in_call;
  sight sights[16];
} scene;

static scene *make_scene(int victim) {
  scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(s, 0, sizeof(*s));
  s->victim = victim;
  return s;
}

/* All-reduces until it fails, and notes what it saw. With size_index 2 the ranks read each other's
 * memory. */
static int reduce_until_failure(coll_comm *comm, int rank, scene *s, size_t count) {
  float *buf = calloc(count, sizeof(*buf)), *in = buf, *out = buf;
  coll_status status;
  if (s->size_index == 2) {
    RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&in));
    RANK_OK(coll_mem_alloc(comm, count * sizeof(float), (void **)&out));
  }
  while ((status = coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm)) == COLL_OK)
    atomic_fetch_add(&s->reduced[rank], 1);
  sight *mine = &s->sights[rank];
  mine->seconds = now_s() - s->fault_s;
  mine->status = status;
  mine->error = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &mine->error);
  free(buf);
  /* a revoked communicator gives the same error again, at once */
  double before = now_s();
  RANK_CHECK(coll_barrier(comm) == status && now_s() - before < slow_s(0.5));
  return 0;
}

/* Whether all ranks are in the middle of their all-reduces. */
static bool all_reduce(scene *s, int nranks) {
  for (int r = 0; r < nranks; r++)
    if (atomic_load(&s->reduced[r]) < 3)
      return false;
  return true;
}

/* The victim does something to itself then, from a second thread. */
typedef struct signal_later {
  scene *s;
  int nranks;
  int signal;
} signal_later;

static void *send_signal_later(void *arg) {
  signal_later *d = arg;
  WAIT_UNTIL(all_reduce(d->s, d->nranks), slow_s(20));
  d->s->fault_s = now_s();
  kill(getpid(), d->signal);
  return NULL;
}

static int with_victim(coll_comm *comm, int rank, int nranks, scene *s, int signal, size_t count) {
  s->pids[rank] = getpid();
  signal_later d = {s, nranks, signal};
  pthread_t thread;
  if (rank == s->victim && pthread_create(&thread, NULL, send_signal_later, &d) != 0)
    return 2;
  return reduce_until_failure(comm, rank, s, count);
}

static int killed_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  return with_victim(comm, rank, nranks, s, SIGKILL, s->size_index ? COUNT : 2);
}

/* Kills each of several ranks in the middle of all-reduces of two sizes over one transport. */
static void kill_ranks(const char *transport, int nranks) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 20000;
  for (int victim = 0; victim < nranks; victim += 2)
    for (int size = 0; size < 2 + (strcmp(transport, "shm") == 0); size++) {
      scene *s = make_scene(victim);
      s->size_index = size;
      int results[16];
      run_processes(nranks, &config, killed_rank, s, 30, results);
      for (int r = 0; r < nranks; r++) {
        if (r == victim) {
          cr_expect_eq(results[r], 128 + SIGKILL);
          continue;
        }
        const sight *seen = &s->sights[r];
        cr_expect_eq(results[r], 0, "%s: rank %d ended with %d", transport, r, results[r]);
        cr_expect_eq(seen->status, COLL_ERR_PEER_LOST, "%s: rank %d got %s: %s", transport, r,
                     coll_status_name(seen->status), seen->error.message);
        cr_expect_eq(seen->error.peer, victim, "%s: rank %d blames %d, not %d: %s", transport, r,
                     seen->error.peer, victim, seen->error.message);
        cr_expect(strlen(seen->error.peer_host) > 0);
        cr_expect_eq(seen->error.peer_pid, s->pids[victim]);
        cr_expect_lt(seen->seconds, slow_s(1.0), "%s: rank %d took %.3f s", transport, r,
                     seen->seconds);
      }
      munmap(s, sizeof(*s));
    }
}

Test(failures, killed_shm, .timeout = 100) {
  kill_ranks("shm", 2);
  kill_ranks("shm", 5);
}
Test(failures, killed_tcp, .timeout = 100) {
  kill_ranks("tcp", 2);
  kill_ranks("tcp", 5);
}

static int frozen_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  return with_victim(comm, rank, nranks, arg, SIGSTOP, 1000);
}

Test(failures, frozen, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    config.timeout_ms = slow_ms(1500);
    scene *s = make_scene(2);
    int results[16];
    run_processes(4, &config, frozen_rank, s, 6, results);
    for (int r = 0; r < 4; r++) {
      if (r == s->victim)
        continue;
      const sight *seen = &s->sights[r];
      cr_expect_eq(results[r], 0);
      cr_expect_eq(seen->status, COLL_ERR_TIMEOUT, "rank %d got %s: %s", r,
                   coll_status_name(seen->status), seen->error.message);
      cr_expect_eq(seen->error.peer, s->victim, "rank %d: %s", r, seen->error.message);
      cr_expect_lt(seen->seconds, slow_s(4.0));
    }
    munmap(s, sizeof(*s));
  }
}

/* Whether all ranks but one have got an error. */
static bool others_have_failed(scene *s, int nranks, int but) {
  int failed = 0;
  for (int r = 0; r < nranks; r++)
    failed += r != but && __atomic_load_n(&s->sights[r].status, __ATOMIC_RELAXED) != COLL_OK;
  return failed == nranks - 1;
}

/* All ranks name a rank that makes no call, including ranks that do not wait for it directly. */
static int late_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  s->fault_s = now_s();
  if (rank == s->victim) {
    RANK_CHECK(WAIT_UNTIL(others_have_failed(s, nranks, rank), slow_s(20)));
    return 0;
  }
  return reduce_until_failure(comm, rank, s, 1000);
}

Test(failures, rank_that_never_comes, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(900);
  scene *s = make_scene(3);
  cr_assert_eq(run_threads(7, &config, late_rank, s), 0);
  for (int r = 0; r < 7; r++) {
    if (r == s->victim)
      continue;
    cr_expect_eq(s->sights[r].status, COLL_ERR_TIMEOUT);
    cr_expect_eq(s->sights[r].error.peer, s->victim, "rank %d: %s", r, s->sights[r].error.message);
  }
  munmap(s, sizeof(*s));
}

/* One rank makes a different call than the others. */
static int odd_call(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  static float pool[7][1 << 16];
  float *buf = pool[rank];
  bool odd = rank == nranks - 1;
  coll_status status = COLL_OK;
  switch (s->size_index) {
  case 0: /* count */
    status = coll_allreduce(buf, buf, odd ? 99 : 100, COLL_FLOAT32, COLL_SUM, comm);
    break;
  case 1: /* type */
    status = coll_allreduce(buf, buf, 100, odd ? COLL_INT32 : COLL_FLOAT32, COLL_SUM, comm);
    break;
  case 2: /* operation */
    status = coll_allreduce(buf, buf, 100, COLL_FLOAT32, odd ? COLL_MAX : COLL_SUM, comm);
    break;
  case 3: /* collective */
    status = odd ? coll_broadcast(buf, buf, 100, COLL_FLOAT32, 0, comm)
                 : coll_allreduce(buf, buf, 100, COLL_FLOAT32, COLL_SUM, comm);
    break;
  case 4: /* root: both wait to receive */
    status = coll_broadcast(buf, buf, 100, COLL_FLOAT32, odd ? 0 : nranks - 1, comm);
    break;
  case 5: /* sizes so far apart that the algorithms differ */
    status = coll_allreduce(buf, buf, odd ? 1 : 1 << 16, COLL_FLOAT32, COLL_SUM, comm);
    break;
  case 6: /* a barrier against an all-gather */
    status =
        odd ? coll_barrier(comm) : coll_allgather(buf + 100 * rank, buf, 100, COLL_FLOAT32, comm);
    break;
  }
  /* some ranks may have finished already: their next operation fails */
  if (status == COLL_OK)
    status = coll_barrier(comm);
  s->sights[rank].status = status;
  s->sights[rank].error = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &s->sights[rank].error);
  return 0;
}

Test(failures, mismatch, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++)
    for (int nranks = 2; nranks <= 5; nranks += 3)
      for (int kind = 0; kind < 7; kind++) {
        coll_config config = COLL_CONFIG_INIT;
        config.transport = transports[t];
        config.timeout_ms = slow_ms(5000);
        scene *s = make_scene(0);
        s->size_index = kind;
        cr_assert_eq(run_threads(nranks, &config, odd_call, s), 0);
        for (int r = 0; r < nranks; r++) {
          const sight *seen = &s->sights[r];
          cr_expect_eq(seen->status, COLL_ERR_MISMATCH, "%s kind %d, rank %d of %d got %s: %s",
                       transports[t], kind, r, nranks, coll_status_name(seen->status),
                       seen->error.message);
          char odd[16];
          snprintf(odd, sizeof(odd), "rank %d ", nranks - 1);
          cr_expect(strstr(seen->error.message, odd), "%s", seen->error.message);
        }
        munmap(s, sizeof(*s));
      }
}

/* An abort from another thread ends a waiting rank, and its peers. */
typedef struct aborter {
  coll_comm *comm;
  scene *s;
  int nranks;
} aborter;

static void *abort_waiting(void *arg) {
  aborter *a = arg;
  WAIT_UNTIL(all_wait_in_call(&a->s->in_call, a->nranks, a->nranks - 1), slow_s(20));
  a->s->fault_s = now_s();
  coll_comm_abort(a->comm);
  return NULL;
}

static int aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  aborter a = {comm, s, nranks};
  pthread_t thread;
  if (rank == 0 && pthread_create(&thread, NULL, abort_waiting, &a) != 0)
    return 2;
  int value = 0;
  coll_status status = COLL_OK;
  if (rank == nranks - 1) /* comes late, when all others wait, and finds the communicator revoked */
    RANK_CHECK(WAIT_UNTIL(others_have_failed(s, nranks, rank), slow_s(20)));
  enters_call(&s->in_call, rank);
  status = coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm);
  s->sights[rank].seconds = now_s() - s->fault_s;
  s->sights[rank].status = status;
  if (rank == 0)
    pthread_join(thread, NULL);
  return 0;
}

Test(failures, abort, .timeout = 60) {
  for (int nranks = 2; nranks <= 6; nranks++) {
    scene *s = make_scene(0);
    cr_assert_eq(run_threads(nranks, NULL, aborted, s), 0);
    for (int r = 0; r < nranks; r++) {
      cr_expect_eq(s->sights[r].status, COLL_ERR_ABORTED, "rank %d of %d got %s", r, nranks,
                   coll_status_name(s->sights[r].status));
      cr_expect_lt(s->sights[r].seconds, slow_s(1));
    }
    munmap(s, sizeof(*s));
  }
}

/* The error of a rank that leaves while it is needed says that it left. */
static int leaver(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  s->fault_s = now_s();
  return rank == 1 ? 0 : reduce_until_failure(comm, rank, s, 1000);
}

Test(failures, leaver, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    scene *s = make_scene(1);
    cr_assert_eq(run_threads(4, &config, leaver, s), 0);
    for (int r = 0; r < 4; r++) {
      if (r == 1)
        continue;
      cr_expect_eq(s->sights[r].status, COLL_ERR_PEER_LOST);
      cr_expect_eq(s->sights[r].error.peer, 1, "rank %d: %s", r, s->sights[r].error.message);
    }
    munmap(s, sizeof(*s));
  }
}

/*
 * Rank 0 leaves before it has any connection. Rank 5 waits for it and has no control link to it;
 * all others wait for rank 5.
 */
static int early_leaver(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  int value = 0;
  if (rank == 0)
    return 0;
  int from = rank == 5 ? 0 : 5;
  s->sights[rank].status = coll_recv(&value, 1, COLL_INT32, from, 1, NULL, comm);
  s->sights[rank].error = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &s->sights[rank].error);
  return 0;
}

Test(failures, early_leaver, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    config.timeout_ms = 20000;
    scene *s = make_scene(0);
    cr_assert_eq(t == 0 ? run_threads(8, &config, early_leaver, s)
                        : run_processes(8, &config, early_leaver, s, 40, NULL),
                 0);
    for (int r = 1; r < 8; r++) {
      cr_expect_eq(s->sights[r].status, COLL_ERR_PEER_LOST, "rank %d got %s", r,
                   coll_status_name(s->sights[r].status));
      cr_expect_eq(s->sights[r].error.peer, 0, "rank %d: %s", r, s->sights[r].error.message);
    }
    munmap(s, sizeof(*s));
  }
}

/* Destroy returns in time with open operations and a frozen peer. */
static int destroy_in_time(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  if (rank == 1) {
    s->fault_s = now_s();
    kill(getpid(), SIGSTOP);
  }
  static float buf[1 << 20];
  coll_request *request;
  RANK_OK(coll_iallreduce(buf, buf, 1 << 20, COLL_FLOAT32, COLL_SUM, comm, &request));
  coll_wait(&request, 200);
  coll_comm *mine = comm;
  double start = now_s();
  coll_comm_destroy(&mine);
  s->sights[rank].seconds = now_s() - start;
  exit(0); /* the support code would destroy it again */
}

Test(failures, destroy_never_hangs, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    scene *s = make_scene(1);
    int results[3];
    run_processes(3, &config, destroy_in_time, s, 5, results);
    cr_expect(results[0] == 0 && results[2] == 0);
    cr_expect(s->sights[0].seconds < slow_s(1.2) && s->sights[2].seconds < slow_s(1.2),
              "%.2f %.2f s", s->sights[0].seconds, s->sights[2].seconds);
    munmap(s, sizeof(*s));
  }
}

/* Creating, failing and destroying leaves no descriptor open. */
static int one_barrier(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(failures, no_descriptor_is_left, .timeout = 60) {
  run_threads(3, NULL, one_barrier, NULL);
  int before = count_fds();
  for (int i = 0; i < 10; i++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = i % 2 ? "tcp" : "shm";
    scene *s = make_scene(1);
    cr_assert_eq(run_threads(4, &config, i % 3 ? leaver : one_barrier, s), 0);
    munmap(s, sizeof(*s));
  }
  cr_assert_eq(count_fds(), before);
}

/*
 * A rank may leave as soon as its last operation is over, while a peer has only just sent the
 * message that completed it: that is not a failure.
 */
Test(failures, leaving_after_the_end_is_no_loss, .timeout = 100) {
  for (int i = 0; i < 150; i++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = i % 5 ? "shm" : "tcp";
    cr_assert_eq(run_threads(3 + i % 7, &config, one_barrier, NULL), 0, "run %d", i);
  }
}
