/*
 * test_worksharing.c: two ranks share the work on a message: the one that waits claims work of the
 * other. Tests operations in which one rank would do all the work, with either rank late, and ranks
 * that are killed or frozen in the middle of claimed work.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data.h"
#include "support_ranks.h"
#include "waits.h"

#define MAX_BYTES ((size_t)2 << 20)

/* One operation of many. */
typedef struct turn {
  unsigned number;
  coll_type type;
  coll_op op;
  int root;
  size_t count; /* of the vector, or of a block */
  bool in_place;
} turn;

static turn make_turn(unsigned k) {
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_FLOAT64, COLL_BFLOAT16,
                                    COLL_INT64};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_AVG, COLL_MIN};
  static const size_t bytes[] = {1 << 19, 70000, 1 << 20, 300000};
  turn t = {.number = k, .type = types[k % 5], .root = k / 2 % 2, .in_place = k / 7 % 2};
  t.op = k % 5 == 0 || k % 5 == 4 ? ops[k / 5 % 4] : COLL_SUM;
  t.count = bytes[k / 3 % 4] / coll_type_bytes(t.type);
  return t;
}

/* Whether a rank has the right copy of another one's data, from its element `first` on. */
static bool has_copy(const char *buf, const turn *t, size_t first, size_t count, int whose) {
  size_t each = coll_type_bytes(t->type);
  char *all = malloc((first + count) * each);
  data_fill(all, first + count, t->type, t->op, whose, t->number);
  bool same = memcmp(buf, all + first * each, count * each) == 0;
  free(all);
  return same;
}

static int run_turn(coll_comm *comm, int rank, const turn *t, char *in, char *out) {
  bool root = rank == t->root;
  size_t n = t->count, each = coll_type_bytes(t->type), block = (size_t)rank * n * each;
  switch (t->number % 5) {
  case 0:
    RANK_OK(coll_reduce(in, root && t->in_place ? in : out, n, t->type, t->op, t->root, comm));
    RANK_CHECK(!root || data_wrong(t->in_place ? in : out, n, t->type, t->op, 2, t->number) == 0);
    return 0;
  case 1:
    RANK_OK(coll_broadcast(in, root && t->in_place ? in : out, n, t->type, t->root, comm));
    RANK_CHECK(has_copy(root && t->in_place ? in : out, t, 0, n, t->root));
    return 0;
  case 2:
    RANK_OK(coll_gather(in, root ? out : NULL, n, t->type, t->root, comm));
    RANK_CHECK(!root || (has_copy(out, t, 0, n, 0) && has_copy(out + n * each, t, 0, n, 1)));
    return 0;
  case 3:
    RANK_OK(coll_scatter(root ? in : NULL, out, n / 2, t->type, t->root, comm));
    RANK_CHECK(has_copy(out, t, (size_t)rank * (n / 2), n / 2, t->root));
    return 0;
  default:
    if (t->in_place) {
      memcpy(out + block, in, n * each);
      in = out + block;
    }
    RANK_OK(coll_allgather(in, out, n, t->type, comm));
    RANK_CHECK(has_copy(out, t, 0, n, 0) && has_copy(out + n * each, t, 0, n, 1));
    RANK_OK(coll_allreduce(in, out + n * each, n, t->type, t->op, comm));
    RANK_CHECK(data_wrong(out + n * each, n, t->type, t->op, 2, t->number) == 0);
    return 0;
  }
}

static int run_turns(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  const unsigned *turns = arg;
  char *in, *out;
  RANK_OK(coll_mem_alloc(comm, MAX_BYTES, (void **)&in));
  RANK_OK(coll_mem_alloc(comm, MAX_BYTES, (void **)&out));
  for (unsigned k = 0; k < *turns; k++) {
    turn t = make_turn(k);
    data_fill(in, t.count, t.type, t.op, rank, k);
    memset(out, 0x77, MAX_BYTES);
    RANK_OK(coll_barrier(comm));
    if (k % 3 != 0) /* late, and the other one waits, and then sleeps */
      be_late((k % 3 == (unsigned)rank + 1) * (k % 8 ? k % 8 * 0.03 : 5));
    int result = run_turn(comm, rank, &t, in, out);
    if (result != 0)
      return result;
  }
  return 0;
}

Test(worksharing, processes, .timeout = 60) {
  unsigned turns = 240;
  cr_assert_eq(run_processes(2, NULL, run_turns, &turns, 50, NULL), 0);
}

Test(worksharing, threads, .timeout = 60) {
  unsigned turns = 240;
  cr_assert_eq(run_threads(2, NULL, run_turns, &turns), 0);
}

/* Sums have the same bits whoever computes them. */
static int repeat_allreduce(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks, (void)arg;
  enum { COUNT = 200000 };
  float *in, *out, *first = malloc(COUNT * sizeof(float));
  RANK_OK(coll_mem_alloc(comm, COUNT * sizeof(float), (void **)&in));
  RANK_OK(coll_mem_alloc(comm, COUNT * sizeof(float), (void **)&out));
  for (int i = 0; i < COUNT; i++)
    in[i] = 1.0f / (float)(i * 3 + rank + 1);
  for (unsigned round = 0; round < 60; round++) {
    memset(out, 0, COUNT * sizeof(float));
    if (round % 2 == (unsigned)rank)
      be_late(round * 0.007);
    RANK_OK(coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_AVG, comm));
    if (round == 0)
      memcpy(first, out, COUNT * sizeof(float));
    RANK_CHECK(memcmp(first, out, COUNT * sizeof(float)) == 0);
  }
  free(first);
  return 0;
}

Test(worksharing, same_bits, .timeout = 60) {
  cr_assert_eq(run_processes(2, NULL, repeat_allreduce, NULL, 50, NULL), 0);
}

/* What happens to rank 1 while it does work of rank 0. */
typedef struct scene {
  int signal;
  unsigned after_us;
  volatile pid_t victim;
  coll_status status;
  coll_error error;
  size_t changed; /* bytes of rank 0's memory, after its call had failed */
} scene;

static void *send_signal(void *arg) {
  const scene *s = arg;
  be_late(s->after_us / 1e3);
  kill(getpid(), s->signal);
  return NULL;
}

/* Wakes a frozen rank up; how many bytes does it change of what rank 0 has back, until its end? */
static size_t wake_victim(const scene *s, char *memory) {
  size_t changed = 0;
  memset(memory, 0x55, MAX_BYTES);
  kill(s->victim, SIGCONT);
  if (!WAIT_UNTIL(has_ended(s->victim), slow_s(10)))
    return MAX_BYTES + 1;
  for (size_t i = 0; i < MAX_BYTES; i++)
    changed += memory[i] != 0x55;
  return changed;
}

static int run_until_struck(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  char *in, *out;
  pthread_t thread;
  RANK_OK(coll_mem_alloc(comm, MAX_BYTES, (void **)&in));
  RANK_OK(coll_mem_alloc(comm, MAX_BYTES, (void **)&out));
  if (rank == 1)
    s->victim = getpid();
  for (int round = 0; round < 5; round++) /* until both have mapped all memory */
    RANK_OK(coll_reduce(in, out, MAX_BYTES, COLL_UINT8, COLL_SUM, 0, comm));
  if (rank == 1 && pthread_create(&thread, NULL, send_signal, s) != 0)
    return 2;
  coll_status status = COLL_OK;
  for (int round = 0; status == COLL_OK; round++)
    status = round % 2 ? coll_broadcast(in, out, MAX_BYTES, COLL_UINT8, 1, comm)
                       : coll_reduce(in, out, MAX_BYTES, COLL_UINT8, COLL_SUM, 0, comm);
  if (rank == 1)
    return 0;
  s->status = status;
  s->error = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &s->error);
  if (s->signal == SIGSTOP)
    s->changed = wake_victim(s, out);
  return 0;
}

/* Applies the fault at several moments. The deadline also covers what comes before. */
static void strike_often(int signal, coll_status expected, int timeout_ms, unsigned times) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = timeout_ms;
  for (unsigned i = 0; i < times; i++) {
    scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *s = (scene){.signal = signal, .after_us = 2000 + i * 2700 / times};
    int results[2];
    run_processes(2, &config, run_until_struck, s, 20, results);
    cr_expect_eq(results[0], 0);
    cr_expect_eq(results[1], signal == SIGKILL ? 128 + SIGKILL : 0);
    cr_expect_eq(s->status, expected, "%s: %s", coll_status_name(s->status), s->error.message);
    cr_expect_eq(s->error.peer, 1, "%s", s->error.message);
    cr_expect_eq(s->changed, 0, "%zu bytes", s->changed);
    munmap(s, sizeof(*s));
  }
}

Test(worksharing, killed, .timeout = 60) {
  strike_often(SIGKILL, COLL_ERR_PEER_LOST, 20000, 8);
}

Test(worksharing, frozen, .timeout = 60) {
  strike_often(SIGSTOP, COLL_ERR_TIMEOUT, 2000, 3);
}
