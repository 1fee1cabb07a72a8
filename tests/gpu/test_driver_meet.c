/*
 * test_driver_meet.c: ranks on devices of the fake driver meet between copies and kernels of their
 * streams: with all models of memory, several communicators at once, in graphs, and with ranks that
 * never come. On the software GPU the end of a kernel orders everything; test_ptx_meet.c looks at
 * what coll_meet itself orders.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/gpu/support_meet_driver.h"

enum { MOST_COMMS = 3 };

TestSuite(driver_meet, .timeout = 300);

/* Communicators that have a rank on each device. */
typedef struct cluster {
  int ranks, comms;
  use device[PARTIES];
  party party[MOST_COMMS][PARTIES];
} cluster;

/* Devices reach each other's memory, each has its kernels, and ranks know each other. */
static void open_cluster(cluster *c, int ranks, int comms, uint32_t threads) {
  char number[16];
  snprintf(number, sizeof(number), "%d", ranks);
  setenv("GPU_DEVICES", number, 1);
  *c = (cluster){.ranks = ranks, .comms = comms};
  for (int d = 0; d < ranks; d++) {
    party_load(&c->device[d], d);
    for (int i = 0; i < comms; i++)
      party_open(&c->party[i][d], &c->device[d], d, ranks, threads);
  }
  for (int d = 0; d < ranks; d++) {
    OK(c->device[d].cuda.ctx_set_current(c->device[d].context));
    for (int peer = 0; peer < ranks; peer++)
      if (peer != d)
        OK(c->device[d].cuda.ctx_enable_peer_access(c->device[peer].context, 0));
    for (int i = 0; i < comms * ranks; i++)
      party_connect(&c->party[i / ranks][d], i % ranks, c->party[i / ranks][i % ranks].at);
  }
}

/* Makes a party's device the current one. */
static void enter(party *p) {
  OK(p->u.cuda.ctx_set_current(p->u.context));
}

/* What a thread does: one device's ranks of all communicators. */
typedef struct worker {
  cluster *cluster;
  int device;
  pthread_t thread;
} worker;

/* Each device has the communicators in another order. */
static void *work(void *argument) {
  const worker *w = argument;
  cluster *c = w->cluster;
  enter(&c->party[0][w->device]);
  for (int i = 0; i < c->comms; i++)
    for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
      party_round(&c->party[(i + w->device) % c->comms][w->device], round);
  for (int i = 0; i < c->comms; i++)
    OK(c->device[w->device].cuda.stream_synchronize(c->party[i][w->device].stream));
  return NULL;
}

/* Runs all ranks' rounds. 0: everything was right; otherwise what was wrong. */
static int run_cluster(cluster *c) {
  worker workers[PARTIES];
  for (int d = 0; d < c->ranks; d++) {
    workers[d] = (worker){.cluster = c, .device = d};
    CHECK(!pthread_create(&workers[d].thread, NULL, work, &workers[d]));
  }
  for (int d = 0; d < c->ranks; d++)
    pthread_join(workers[d].thread, NULL);
  for (int i = 0; i < c->comms * c->ranks; i++) {
    const party *p = &c->party[i / c->ranks][i % c->ranks];
    for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
      if (!party_right(p, round))
        return 1;
    if (p->host->arrived != PARTY_ROUNDS || p->host->left != PARTY_ROUNDS)
      return 2;
  }
  return c->device[0].take_races() ? 3 : 0;
}

/* Runs a cluster in a child, which has a driver of its own. */
static void expect_rounds(int (*run)(cluster *), const char *model, int ranks, int comms,
                          int seeds) {
  static cluster c;
  for (int seed = 1; seed <= seeds; seed++) {
    int status;
    char number[16];
    snprintf(number, sizeof(number), "%d", seed);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
      alarm(120);
      setenv("GPU_SEED", number, 1);
      setenv("GPU_MODEL", model, 1);
      open_cluster(&c, ranks, comms, 32u << seed % 2);
      _exit(run(&c));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0, "%s, %d ranks, seed %d: exit %d, signal %d", model, ranks, seed,
                 WEXITSTATUS(status), WTERMSIG(status));
  }
}

static void expect_models(int ranks, int comms, int seeds) {
  expect_rounds(run_cluster, "plain", ranks, comms, 1 + seeds / 10);
  expect_rounds(run_cluster, "weak", ranks, comms, seeds);
  expect_rounds(run_cluster, "races", ranks, comms, seeds);
}

Test(driver_meet, two_ranks) {
  expect_models(2, 1, extent_seeds(12, 50, 6, 1000));
}
Test(driver_meet, three_ranks) {
  expect_models(3, 1, extent_seeds(12, 50, 6, 1000));
}
Test(driver_meet, eight_ranks) {
  expect_models(8, 1, extent_seeds(8, 30, 2, 300));
}
Test(driver_meet, nine_ranks) {
  expect_models(9, 1, extent_seeds(8, 30, 2, 300));
}
Test(driver_meet, twelve_ranks) {
  expect_models(PARTIES, 1, extent_seeds(5, 10, 3, 100));
}
Test(driver_meet, communicators_at_once) {
  expect_models(3, MOST_COMMS, extent_seeds(8, 20, 3, 200));
}

/* ---- graphs ---- */

/* Rounds 0 and 1 by a graph that was captured of rounds 4 and 5, after rounds 2 and 3 without it;
 * then all again, with the graph launched twice. */
static void rounds_with_graph(party *p, colli_cu_graph_exec exec) {
  const size_t two = 2 * sizeof(*p->rows);
  for (int again = 0; again < 2; again++) {
    OK(p->u.cuda.memset_d32_async(party_address(p->sums), 7, 4 * PARTY_ROW, p->stream));
    party_round(p, 2);
    party_round(p, 3);
    OK(p->u.cuda.memcpy_async(party_address(p->rows[4]), party_address(p->rows[0]), two,
                              p->stream));
    for (int i = 0; i <= again; i++)
      OK(p->u.graph_launch(exec, p->stream));
    OK(p->u.cuda.memcpy_async(party_address(p->sums[0]), party_address(p->sums[4]), two,
                              p->stream));
  }
}

static int run_graphs(cluster *c) {
  colli_cu_graph graph;
  colli_cu_graph_exec exec;
  for (int d = 0; d < c->ranks; d++) {
    party *p = &c->party[0][d];
    enter(p);
    OK(p->u.stream_begin_capture(p->stream, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
    party_round(p, 4);
    party_round(p, 5);
    OK(p->u.stream_end_capture(p->stream, &graph));
    OK(p->u.graph_instantiate(&exec, graph, 0));
    rounds_with_graph(p, exec);
  }
  for (int d = 0; d < c->ranks; d++) {
    const party *p = &c->party[0][d];
    OK(p->u.cuda.stream_synchronize(p->stream));
    for (uint32_t round = 0; round < 4; round++)
      if (!party_right(p, round))
        return 1;
    if (p->host->arrived != 10 || p->host->left != 10)
      return 2;
  }
  return c->device[0].take_races() ? 3 : 0;
}

Test(driver_meet, graphs) {
  for (int ranks = 2; ranks <= 4; ranks++) {
    expect_rounds(run_graphs, "weak", ranks, 1, extent_seeds(10, 10, 2, 100));
    expect_rounds(run_graphs, "races", ranks, 1, extent_seeds(10, 10, 2, 100));
  }
}

/* ---- ranks that never come ---- */

/* Waits until the first ranks have come to their first meet. */
static void await_arrivals(cluster *c, int ranks) {
  for (int d = 0; d < ranks; d++)
    while (party_word(&c->party[0][d].host->arrived) != 1)
      c->device[0].rounds(1);
}

/* Expects that a rank still waits. */
static void expect_waiting(party *p) {
  enter(p);
  cr_assert_eq(p->u.cuda.stream_query(p->stream), COLLI_CUDA_ERROR_NOT_READY);
  cr_assert_eq(party_word(&p->host->left), 0);
}

/* Puts rounds into the streams of the first ranks, and waits until these have come. */
static void begin_without_last(cluster *c, int ranks) {
  open_cluster(c, ranks, 1, 32);
  for (int d = 0; d < ranks - 1; d++) {
    enter(&c->party[0][d]);
    for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
      party_round(&c->party[0][d], round);
  }
  await_arrivals(c, ranks - 1);
  c->device[0].rounds(50);
  for (int d = 0; d < ranks - 1; d++)
    expect_waiting(&c->party[0][d]);
  cr_assert_eq(c->party[0][ranks - 1].host->arrived, 0); /* so the host sees who is missing */
}

static void *release_all(void *argument) {
  cluster *c = argument;
  for (int d = 0; d < c->ranks; d++)
    use_set(&c->party[0][d].host->abort, 1);
  return NULL;
}

/* Ranks wait for one that never comes until a thread of the host, any one, releases them. */
static void without_last(int ranks) {
  static cluster c;
  pthread_t thread;
  begin_without_last(&c, ranks);
  cr_assert_eq(pthread_create(&thread, NULL, release_all, &c), 0);
  for (int d = 0; d < ranks - 1; d++) {
    const party *p = &c.party[0][d];
    OK(p->u.cuda.stream_synchronize(p->stream));
    cr_assert(p->host->arrived == 1 && p->host->left == 0);
    cr_assert(p->block->state.released && p->block->state.epoch == 0);
  }
  pthread_join(thread, NULL);
  for (int d = 0; d < ranks; d++) /* nobody was told of the later meets */
    for (int i = 0; i < ranks; i++)
      cr_assert_eq(c.party[0][d].block->words[i], i != d && i != ranks - 1);
}

Test(driver_meet, a_rank_never_comes) {
  without_last(3);
}
Test(driver_meet, a_rank_never_comes_of_many) {
  without_last(PARTIES);
}

Test(driver_meet, a_rank_is_released_alone) {
  static cluster c;
  begin_without_last(&c, 4);
  use_set(&c.party[0][1].host->abort, 1);
  enter(&c.party[0][1]);
  OK(c.party[0][1].u.cuda.stream_synchronize(c.party[0][1].stream));
  c.device[0].rounds(50);
  expect_waiting(&c.party[0][0]);
  expect_waiting(&c.party[0][2]);
  release_all(&c);
  OK(c.party[0][0].u.cuda.stream_synchronize(c.party[0][0].stream));
  OK(c.party[0][2].u.cuda.stream_synchronize(c.party[0][2].stream));
}

Test(driver_meet, a_rank_comes_late) {
  static cluster c;
  begin_without_last(&c, 4);
  enter(&c.party[0][3]);
  for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
    party_round(&c.party[0][3], round);
  for (int d = 0; d < 4; d++) {
    const party *p = &c.party[0][d];
    OK(p->u.cuda.stream_synchronize(p->stream));
    cr_assert_eq(p->host->left, PARTY_ROUNDS);
    for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
      cr_assert(party_right(p, round));
  }
}
