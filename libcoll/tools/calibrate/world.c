/* world.c: runs ranks as processes, and measures collectives among them. */
#include <stdlib.h>
#include <sys/mman.h>

#include "calibrate.h"
#include "libcoll/base/clock.h"

#define ROUNDS  3
#define LARGEST (1u << 20) /* bytes of the largest vector */

/* Shared between the processes. */
typedef struct board {
  calibrate_meeting meeting;
  double seconds;
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

/* Algorithms and sizes in bytes (of a block) from which the costs can be told apart. */
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

/* Finds or creates the communicator that is forced to an algorithm; NULL after a failure. */
static coll_comm *comm_of(seat *s, const colli_algo *algo) {
  for (int i = 0; i < s->ncomms; i++)
    if (s->algo[i] == algo)
      return s->comm[i];
  char text[64];
  coll_config config = COLL_CONFIG_INIT;
  snprintf(text, sizeof(text), "%s:%s", colli_coll_name(algo->coll), algo->name);
  config.algo = text;
  coll_comm *comm = calibrate_meet(&s->shared->meeting, s->ncomms, s->world, s->rank, config);
  if (!comm)
    return NULL;
  s->algo[s->ncomms] = algo;
  return s->comm[s->ncomms++] = comm;
}

/*
 * Runs a cell several times; gives ns per run on the slowest rank. Operations with a root are
 * preceded by a barrier, because otherwise ranks would not wait for each other; its time is
 * subtracted.
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
    status = calibrate_call(cell->algo->coll, s->in, s->out, cell->count, comm);
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

/* Runs one rank; returns its exit status. */
static int run_rank(const calibrate_world *world, int rank, void *ctx) {
  static seat s;
  board *shared = ctx;
  s = (seat){.world = world, .shared = shared, .rank = rank};
  size_t bytes = (size_t)LARGEST * (size_t)world->nranks;
  s.in = calibrate_buffer(bytes);
  s.out = calibrate_buffer(bytes);
  bool fine = s.in && s.out;
  for (int i = 0; fine && i < world->ncells; i++) {
    double ns = 0;
    fine = measure_cell(&s, &world->cell[i], shared->seconds / world->ncells, &ns);
    if (rank == 0)
      shared->ns[i] = ns;
  }
  for (int i = 0; i < s.ncomms; i++)
    coll_comm_destroy(&s.comm[i]);
  free(s.in);
  free(s.out);
  return !fine;
}

bool calibrate_measure(calibrate_world *world, double seconds) {
  board *all = calibrate_share(sizeof(*all));
  if (!all)
    return false;
  all->seconds = seconds;
  bool fine = calibrate_run(world, "none", &all->meeting, run_rank, all);
  for (int i = 0; i < world->ncells; i++) {
    world->cell[i].ns = all->ns[i];
    fine = fine && all->ns[i] > 0;
  }
  munmap(all, sizeof(*all));
  return fine;
}
