/* world.c: some ranks as processes, and how long collectives take among them. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate.h"
#include "libcoll/base/clock.h"

#define ROUNDS     3
#define TIMEOUT_MS 20000
#define LARGEST    (1u << 20) /* bytes of the largest vector */

/* What the processes share. */
typedef struct board {
  atomic_int ids_made; /* by rank 0; -1: it failed */
  coll_id id[CALIBRATE_CELLS];
  double ns[CALIBRATE_CELLS];
} board;

/* One rank. */
typedef struct seat {
  const calibrate_world *world;
  board *shared;
  int rank;
  int ncomms;
  const colli_algo *algo[CALIBRATE_CELLS]; /* that comm[i] is forced to */
  coll_comm *comm[CALIBRATE_CELLS];
  float *in, *out;
} seat;

/* Algorithms and sizes in bytes (of a block) that tell the costs apart. */
static const struct {
  colli_coll coll;
  const char *name;
  size_t bytes[4]; /* ends with 0 */
} wanted[] = {
    {COLLI_ALLREDUCE, "recdbl", {4, 8192, 262144}},  {COLLI_ALLREDUCE, "ring", {4, 65536, LARGEST}},
    {COLLI_ALLREDUCE, "rsag", {4, 65536, LARGEST}},  {COLLI_ALLREDUCE, "direct", {4, 8192}},
    {COLLI_ALLREDUCE, "dbtree", {65536, LARGEST}},   {COLLI_BROADCAST, "binomial", {65536}},
    {COLLI_BROADCAST, "chain", {65536, LARGEST}},    {COLLI_ALLGATHER, "ring", {4, 65536}},
    {COLLI_ALLGATHER, "direct", {4, 16384, 131072}}, {COLLI_ALLTOALL, "direct", {4, 4096}},
    {COLLI_ALLTOALL, "pairwise", {65536}},           {COLLI_REDUCE, "binomial", {65536, LARGEST}},
};

void calibrate_list(calibrate_world *world) {
  world->ncells = 0;
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
    for (int k = 0; k < 4 && wanted[i].bytes[k]; k++)
      world->cell[world->ncells++] =
          (calibrate_cell){.algo = colli_algo_find(wanted[i].coll, wanted[i].name),
                           .count = wanted[i].bytes[k] / sizeof(float)};
}

/* Makes the communicator that is forced to an algorithm, or finds it; NULL after a failure. */
static coll_comm *comm_of(seat *s, const colli_algo *algo) {
  for (int i = 0; i < s->ncomms; i++)
    if (s->algo[i] == algo)
      return s->comm[i];
  char text[64];
  coll_config config = COLL_CONFIG_INIT;
  coll_id *id = &s->shared->id[s->ncomms];
  snprintf(text, sizeof(text), "%s:%s", colli_coll_name(algo->coll), algo->name);
  config.algo = text;
  config.transport = s->world->link == COLLI_LINK_SHM ? "shm" : "tcp";
  config.timeout_ms = config.create_timeout_ms = TIMEOUT_MS;
  if (s->rank == 0) {
    bool made = coll_unique_id(id, &config) == COLL_OK;
    atomic_store(&s->shared->ids_made, made ? s->ncomms + 1 : -1);
  }
  int made;
  while ((made = atomic_load(&s->shared->ids_made)) >= 0 && made <= s->ncomms)
    usleep(100);
  coll_comm *comm = NULL;
  if (made < 0 || coll_comm_create(&comm, id, s->world->nranks, s->rank, &config) != COLL_OK)
    return NULL; /* the library has said why */
  s->algo[s->ncomms] = algo;
  return s->comm[s->ncomms++] = comm;
}

/* Runs a cell's collective once. */
static coll_status run_once(const seat *s, const calibrate_cell *cell, coll_comm *comm) {
  switch (cell->algo->coll) {
  case COLLI_ALLREDUCE:
    return coll_allreduce(s->in, s->out, cell->count, COLL_FLOAT32, COLL_SUM, comm);
  case COLLI_REDUCE:
    return coll_reduce(s->in, s->out, cell->count, COLL_FLOAT32, COLL_SUM, 0, comm);
  case COLLI_BROADCAST:
    return coll_broadcast(s->in, s->out, cell->count, COLL_FLOAT32, 0, comm);
  case COLLI_ALLGATHER:
    return coll_allgather(s->in, s->out, cell->count, COLL_FLOAT32, comm);
  default:
    return coll_alltoall(s->in, s->out, cell->count, COLL_FLOAT32, comm);
  }
}

/*
 * Runs a cell some times: ns each on the slowest rank. Operations with a root follow a barrier,
 * whose time is taken off, as the others would not wait for each other.
 */
static coll_status time_cell(const seat *s, const calibrate_cell *cell, coll_comm *comm, int iters,
                             double *ns) {
  bool rooted = colli_rooted(cell->algo->coll);
  uint64_t barriers = 0;
  coll_status status = coll_barrier(comm);
  uint64_t start = colli_now_ns();
  for (int i = 0; i < iters && rooted && status == COLL_OK; i++)
    status = coll_barrier(comm);
  barriers = colli_now_ns() - start;
  start = colli_now_ns();
  for (int i = 0; i < iters && status == COLL_OK; i++) {
    status = run_once(s, cell, comm);
    if (rooted && status == COLL_OK)
      status = coll_barrier(comm);
  }
  double took = (double)(colli_now_ns() - start);
  *ns = took > 1.05 * (double)barriers ? took - (double)barriers : 0.05 * took;
  *ns /= iters;
  if (status == COLL_OK)
    status = coll_allreduce(ns, ns, 1, COLL_FLOAT64, COLL_MAX, comm);
  return status;
}

/* Measures one cell in about `seconds`; false after a failure. */
static bool measure_cell(seat *s, const calibrate_cell *cell, double seconds, double *ns) {
  coll_comm *comm = comm_of(s, cell->algo);
  double took = 0;
  int iters = 4;
  coll_status status = comm ? time_cell(s, cell, comm, iters, &took) : COLL_ERR_SYSTEM;
  if (status == COLL_OK) {
    double fit = seconds / (ROUNDS + 1) * 1e9 / took;
    iters = fit < 2 ? 2 : fit > 1e6 ? 1000000 : (int)fit;
  }
  for (int round = 0; round < ROUNDS && status == COLL_OK; round++) {
    status = time_cell(s, cell, comm, iters, &took);
    if (round == 0 || took < *ns)
      *ns = took;
  }
  return status == COLL_OK;
}

/* Restricts a crowded world to its cores. */
static void take_cores(const calibrate_world *world) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (world->nranks <= world->cores || sched_getaffinity(0, sizeof(all), &all) != 0)
    return;
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < world->cores; cpu++)
    if (CPU_ISSET(cpu, &all))
      CPU_SET(cpu, &some);
  sched_setaffinity(0, sizeof(some), &some);
}

/* The life of one rank; its exit status. */
static int run_rank(const calibrate_world *world, board *shared, int rank, double seconds) {
  static seat s;
  s = (seat){.world = world, .shared = shared, .rank = rank};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  take_cores(world);
  size_t bytes = (size_t)LARGEST * (size_t)world->nranks;
  s.in = calloc(1, bytes);
  s.out = calloc(1, bytes);
  bool fine = s.in && s.out;
  for (int i = 0; fine && i < world->ncells; i++) {
    double ns = 0;
    fine = measure_cell(&s, &world->cell[i], seconds / world->ncells, &ns);
    if (rank == 0)
      shared->ns[i] = ns;
  }
  for (int i = 0; i < s.ncomms; i++)
    coll_comm_destroy(&s.comm[i]);
  free(s.in);
  free(s.out);
  return !fine;
}

/* Settings that would change what is measured. */
static void forget_settings(void) {
  static const char *const names[] = {"COLL_ALGO",       "COLL_TUNER",      "COLL_DETERMINISTIC",
                                      "COLL_ACCUMULATE", "COLL_SLOT_BYTES", "COLL_SLOT_COUNT",
                                      "COLL_FAULT",      "COLL_HOST_ID",    "COLL_PROGRESS"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    unsetenv(names[i]);
  setenv("COLL_CALIBRATION", "none", 1);
}

/* Starts the ranks and waits for them; false if any failed. */
static bool run_ranks(const calibrate_world *world, board *shared, double seconds) {
  pid_t *pids = calloc((size_t)world->nranks, sizeof(*pids));
  bool fine = pids != NULL;
  fflush(NULL);
  for (int rank = 0; fine && rank < world->nranks; rank++) {
    pids[rank] = fork();
    if (pids[rank] == 0) {
      free(pids);
      exit(run_rank(world, shared, rank, seconds));
    }
    fine = pids[rank] > 0;
  }
  if (!fine)
    perror("coll_calibrate: cannot start ranks");
  for (int rank = 0; pids && rank < world->nranks && pids[rank] > 0; rank++) {
    int status = 0;
    while (waitpid(pids[rank], &status, 0) < 0 && errno == EINTR)
      continue;
    if (status != 0)
      atomic_store(&shared->ids_made, -1); /* whoever waits for a next one does so in vain */
    fine = fine && status == 0;
  }
  free(pids);
  return fine;
}

bool calibrate_measure(calibrate_world *world, double seconds) {
  board *all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    perror("coll_calibrate: no memory");
    return false;
  }
  forget_settings();
  bool fine = run_ranks(world, all, seconds);
  for (int i = 0; i < world->ncells; i++) {
    world->cell[i].ns = all->ns[i];
    fine = fine && all->ns[i] > 0;
  }
  munmap(all, sizeof(*all));
  return fine;
}
