/* test_driver_meet_ipc.c: ranks that are processes meet by handles of memory; one of them dies. */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/gpu/support_meet_driver.h"

enum { DIES_AFTER = 3 }; /* rounds */

TestSuite(driver_meet_ipc, .timeout = 300);

/* What the processes tell each other. */
typedef struct board {
  colli_cu_ipc_handle handle[PARTIES];
  uint32_t opened, ended; /* so many ranks have made their memory, or done all */
  uint32_t dead;          /* the last rank is */
} board;

/* Waits for other processes. */
static void await_word(const uint32_t *word, uint32_t least) {
  while (party_word(word) < least)
    sched_yield();
}

/* Makes a rank with memory that it shares with the others. */
static void join(party *p, board *b, int rank, int ranks) {
  use u;
  char number[16];
  colli_cu_deviceptr at;
  snprintf(number, sizeof(number), "%d", ranks);
  setenv("GPU_DEVICES", number, 1);
  party_load(&u, rank);
  party_open(p, &u, rank, ranks, 32);
  OK(u.cuda.ipc_get_mem_handle(&b->handle[rank], p->at));
  __atomic_add_fetch(&b->opened, 1, __ATOMIC_SEQ_CST);
  await_word(&b->opened, (uint32_t)ranks);
  party_connect(p, rank, p->at);
  for (int peer = 0; peer < ranks; peer++) {
    if (peer == rank)
      continue;
    OK(u.cuda.ipc_open_mem_handle(&at, b->handle[peer], COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    party_connect(p, peer, at);
  }
}

/* All rounds. */
static void meet_all(party *p, board *b) {
  for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
    party_round(p, round);
  OK(p->u.cuda.stream_synchronize(p->stream));
  CHECK(p->host->arrived == PARTY_ROUNDS && p->host->left == PARTY_ROUNDS);
  for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
    CHECK(party_right(p, round));
  __atomic_add_fetch(&b->ended, 1, __ATOMIC_SEQ_CST);
  await_word(&b->ended, (uint32_t)p->ranks);
}

/* All rounds, of which the last rank only makes some: the others wait for it until they are
 * released. */
static void meet_without_last(party *p, board *b) {
  const bool dies = p->rank == p->ranks - 1;
  for (uint32_t round = 0; round < (dies ? DIES_AFTER : PARTY_ROUNDS); round++)
    party_round(p, round);
  if (dies) {
    OK(p->u.cuda.stream_synchronize(p->stream));
    kill(getpid(), SIGKILL);
  }
  await_word(&b->dead, 1);
  await_word(&p->host->arrived, DIES_AFTER + 1);
  p->u.rounds(50);
  CHECK(p->u.cuda.stream_query(p->stream) == COLLI_CUDA_ERROR_NOT_READY);
  use_set(&p->host->abort, 1);
  OK(p->u.cuda.stream_synchronize(p->stream));
  CHECK(p->host->arrived == DIES_AFTER + 1 && p->host->left == DIES_AFTER);
  for (uint32_t round = 0; round < DIES_AFTER - 1; round++)
    CHECK(party_right(p, round));
}

/* Runs processes; the last one dies if `killed`. */
static void processes(void (*work)(party *, board *), int ranks, bool killed) {
  pid_t children[PARTIES];
  board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(b, MAP_FAILED);
  for (int rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    cr_assert_geq(children[rank], 0);
    if (children[rank] == 0) {
      static party p;
      alarm(60);
      join(&p, b, rank, ranks);
      work(&p, b);
      _exit(0);
    }
  }
  for (int rank = ranks - 1; rank >= 0; rank--) {
    int status;
    cr_assert_eq(waitpid(children[rank], &status, 0), children[rank]);
    if (killed && rank == ranks - 1) {
      cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      use_set(&b->dead, 1);
    } else {
      cr_assert_eq(status, 0, "rank %d of %d", rank, ranks);
    }
  }
  munmap(b, sizeof(*b));
}

/* With several seeds, also where memory is weak. Processes have no race detector in common. */
static void expect_processes(void (*work)(party *, board *), bool killed) {
  for (int seed = 1; seed <= extent_seeds(10, 10, 3, 100); seed++) {
    char number[16];
    snprintf(number, sizeof(number), "%d", seed);
    setenv("GPU_SEED", number, 1);
    setenv("GPU_MODEL", seed % 2 ? "weak" : "plain", 1);
    processes(work, 2 + seed % 3, killed);
  }
}

Test(driver_meet_ipc, rounds) {
  expect_processes(meet_all, false);
}

Test(driver_meet_ipc, a_process_is_killed) {
  expect_processes(meet_without_last, true);
}

Test(driver_meet_ipc, nine_processes) {
  processes(meet_all, 9, false);
}
