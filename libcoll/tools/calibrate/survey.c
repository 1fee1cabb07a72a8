/*
 * survey.c: measured and predicted times of all algorithms of every collective for a range of
 * sizes. Operations follow each other without pause, with root 0 if there is a root, as in
 * coll_perf.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calibrate.h"
#include "libcoll/base/clock.h"
#include "libcoll/cost/links.h"

#define MOST_BYTES (8u << 20) /* of a vector, or of all blocks of one together */
#define FINAL      3          /* rounds of the candidates for the best, whose medians count */
#define HOPELESS   1.5        /* times the best: left out of the final */
#define WARM       2          /* warm-up operations before each turn */
#define MOST_ITERS 20000
#define MOST_ALGOS COLLI_MAX_CANDIDATES

static const colli_coll collectives[] = {COLLI_ALLREDUCE, COLLI_BROADCAST, COLLI_ALLGATHER,
                                         COLLI_BARRIER,   COLLI_REDUCE,    COLLI_REDUCE_SCATTER,
                                         COLLI_ALLTOALL,  COLLI_GATHER,    COLLI_SCATTER,
                                         COLLI_SCAN,      COLLI_EXSCAN};

/* Shared between the processes. */
typedef struct board {
  calibrate_meeting meeting;
  double turn_us;
  calibrate_record record;
} board;

/* One algorithm. */
typedef struct entrant {
  coll_comm *comm;
  const colli_algo *algo;
  double predicted_us;
  double us;
  int iters;
} entrant;

/* One rank. */
typedef struct seat {
  int rank;
  const char *transport;
  coll_comm *base;
  double turn_us; /* the length of an algorithm's turn, about */
  char *in, *out;
  colli_coll coll;
  int nentrants;
  entrant entrants[MOST_ALGOS]; /* of the collective; those of a size have iters > 0 */
} seat;

coll_status calibrate_call(colli_coll coll, const void *in, void *out, size_t count,
                           coll_comm *comm) {
  switch (coll) {
  case COLLI_ALLREDUCE:
    return coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm);
  case COLLI_REDUCE:
    return coll_reduce(in, out, count, COLL_FLOAT32, COLL_SUM, 0, comm);
  case COLLI_BROADCAST:
    return coll_broadcast(in, out, count, COLL_FLOAT32, 0, comm);
  case COLLI_ALLGATHER:
    return coll_allgather(in, out, count, COLL_FLOAT32, comm);
  case COLLI_REDUCE_SCATTER:
    return coll_reduce_scatter(in, out, count, COLL_FLOAT32, COLL_SUM, comm);
  case COLLI_ALLTOALL:
    return coll_alltoall(in, out, count, COLL_FLOAT32, comm);
  case COLLI_GATHER:
    return coll_gather(in, out, count, COLL_FLOAT32, 0, comm);
  case COLLI_SCATTER:
    return coll_scatter(in, out, count, COLL_FLOAT32, 0, comm);
  case COLLI_SCAN:
    return coll_scan(in, out, count, COLL_FLOAT32, COLL_SUM, comm);
  case COLLI_EXSCAN:
    return coll_exscan(in, out, count, COLL_FLOAT32, COLL_SUM, comm);
  default:
    return coll_barrier(comm);
  }
}

/* The entry of an algorithm, with its communicator; NULL after a failure. */
static entrant *find_entrant(seat *s, const colli_algo *algo) {
  for (int i = 0; i < s->nentrants; i++)
    if (s->entrants[i].algo == algo)
      return &s->entrants[i];
  entrant *e = &s->entrants[s->nentrants];
  char text[64];
  int nranks = 0;
  coll_config config = COLL_CONFIG_INIT;
  coll_id id = {{0}};
  *e = (entrant){.algo = algo};
  snprintf(text, sizeof(text), "%s:%s", colli_coll_name(s->coll), algo->name);
  config.algo = text;
  config.transport = s->transport;
  if ((s->rank == 0 && coll_unique_id(&id, &config) != COLL_OK) ||
      coll_comm_nranks(s->base, &nranks) != COLL_OK ||
      coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, s->base) != COLL_OK ||
      coll_comm_create(&e->comm, &id, nranks, s->rank, &config) != COLL_OK)
    return NULL; /* libcoll has printed why */
  s->nentrants++;
  return e;
}

/* One turn: microseconds per operation, on the slowest rank. */
static coll_status take_turn(const seat *s, const entrant *e, size_t count, int iters, double *us) {
  coll_status status = COLL_OK;
  for (int i = 0; i < WARM && status == COLL_OK; i++)
    status = calibrate_call(s->coll, s->in, s->out, count, e->comm);
  if (status == COLL_OK)
    status = coll_barrier(e->comm);
  uint64_t start = colli_now_ns();
  for (int i = 0; i < iters && status == COLL_OK; i++)
    status = calibrate_call(s->coll, s->in, s->out, count, e->comm);
  *us = (double)(colli_now_ns() - start) / 1e3 / iters;
  return status == COLL_OK ? coll_allreduce(us, us, 1, COLL_FLOAT64, COLL_MAX, s->base) : status;
}

/* The first turns, longer and longer until the ranks run at full speed. Sets the number of
 * operations of later turns. */
static coll_status try_out(const seat *s, entrant *e, size_t count) {
  coll_status status = COLL_OK;
  int iters = 2;
  for (bool warm = false; status == COLL_OK && !warm; iters *= 4) {
    status = take_turn(s, e, count, iters, &e->us);
    double took = e->us * iters;
    warm = took >= s->turn_us || (iters > 2 && took >= s->turn_us / 3) || iters > MOST_ITERS / 4;
  }
  double fit = s->turn_us / (e->us > 0.01 ? e->us : 0.01);
  e->iters = fit < 2 ? 2 : fit > MOST_ITERS ? MOST_ITERS : (int)fit;
  return status;
}

/* The shortest time so far. */
static double least_us(const seat *s) {
  double least = 0;
  for (int i = 0; i < s->nentrants; i++)
    if (s->entrants[i].iters && (least == 0 || s->entrants[i].us < least))
      least = s->entrants[i].us;
  return least;
}

/* A round of all entries that are not hopeless from the start. */
static coll_status run_heat(seat *s, size_t count) {
  coll_status status = COLL_OK;
  double bound = 2 * HOPELESS * least_us(s);
  for (int i = 0; i < s->nentrants && status == COLL_OK; i++) {
    entrant *e = &s->entrants[i];
    double us = e->us;
    if (e->iters && e->us <= bound)
      status = take_turn(s, e, count, e->iters, &us);
    e->us = us < e->us ? us : e->us;
  }
  return status;
}

/* Orders numbers for qsort(). */
static int compare_times(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Measures the entries that took no longer than `bound` in several rounds, and takes the medians.
 */
static coll_status run_final(seat *s, size_t count, double bound) {
  double us[MOST_ALGOS][FINAL];
  coll_status status = COLL_OK;
  for (int round = 0; round < FINAL; round++)
    for (int i = 0; i < s->nentrants && status == COLL_OK; i++) {
      const entrant *e = &s->entrants[i];
      if (e->iters && e->us <= bound)
        status = take_turn(s, e, count, e->iters, &us[i][round]);
    }
  for (int i = 0; i < s->nentrants && status == COLL_OK; i++) {
    entrant *e = &s->entrants[i];
    if (!e->iters || e->us > bound)
      continue;
    qsort(us[i], FINAL, sizeof(us[i][0]), compare_times);
    e->us = us[i][FINAL / 2];
  }
  return status;
}

/* Measures the candidates for the best at one size. */
static bool survey_size(seat *s, size_t count, int size, calibrate_record *record) {
  coll_candidate list[MOST_ALGOS];
  int found = 0;
  coll_status status = coll_candidates(s->base, colli_coll_name(s->coll), count, COLL_FLOAT32,
                                       COLL_SUM, 0, list, MOST_ALGOS, &found);
  for (int i = 0; i < s->nentrants; i++)
    s->entrants[i].iters = 0;
  for (int i = 0; i < found && status == COLL_OK; i++) {
    const colli_algo *algo = colli_algo_find(s->coll, list[i].name);
    if (!algo || !calibrate_contends(record, algo, size))
      continue;
    entrant *e = find_entrant(s, algo);
    if (!e)
      return false;
    e->predicted_us = list[i].predicted_us;
    status = try_out(s, e, count);
  }
  bool all = record->passes == 0;
  if (status == COLL_OK && all)
    status = run_heat(s, count);
  if (status == COLL_OK)
    status = run_final(s, count, all ? HOPELESS * least_us(s) : INFINITY);
  for (int i = 0; i < s->nentrants && s->rank == 0; i++) {
    const entrant *e = &s->entrants[i];
    if (!e->iters)
      continue;
    record->us[record->passes][e->algo->id][size] = (float)e->us;
    record->predicted_us[e->algo->id][size] = (float)e->predicted_us;
  }
  return status == COLL_OK;
}

/* Measures one collective. */
static bool survey_collective(seat *s, int nranks, calibrate_record *record) {
  bool fine = true;
  size_t blocks = colli_exact(s->coll) ? (size_t)nranks : 1;
  for (int size = 0; fine && size < COLLI_CORRECTED_SIZES; size++) {
    size_t bytes = COLLI_CORRECTED_BYTES(size);
    if (bytes * blocks > MOST_BYTES || (size > 0 && s->coll == COLLI_BARRIER))
      break;
    fine = survey_size(s, bytes / sizeof(float), size, record);
  }
  for (int i = 0; i < s->nentrants; i++)
    coll_comm_destroy(&s->entrants[i].comm);
  s->nentrants = 0;
  return fine;
}

/* Runs one rank; returns its exit status. */
static int run_rank(const calibrate_world *world, int rank, void *ctx) {
  static seat s;
  board *shared = ctx;
  coll_config config = COLL_CONFIG_INIT;
  s.rank = rank;
  s.turn_us = shared->turn_us;
  s.in = calibrate_buffer(MOST_BYTES);
  s.out = calibrate_buffer(MOST_BYTES);
  s.transport = colli_link_name(world->link);
  bool fine = s.in && s.out;
  if (fine)
    s.base = calibrate_meet(&shared->meeting, 0, world, rank, config);
  fine = fine && s.base;
  for (size_t i = 0; fine && i < sizeof(collectives) / sizeof(collectives[0]); i++) {
    s.coll = collectives[i];
    fine = survey_collective(&s, world->nranks, &shared->record);
  }
  if (s.base)
    coll_comm_destroy(&s.base);
  free(s.in);
  free(s.out);
  return !fine;
}

bool calibrate_survey(const calibrate_world *world, const char *calibration, double turn_us,
                      calibrate_record *record) {
  board *all = calibrate_share(sizeof(*all));
  if (!all)
    return false;
  all->turn_us = turn_us;
  all->record = *record;
  bool fine = calibrate_run(world, calibration, &all->meeting, run_rank, all);
  if (fine) {
    *record = all->record;
    record->passes++;
  }
  munmap(all, sizeof(*all));
  return fine;
}
