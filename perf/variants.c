/*
 * variants.c: one line measured in several ways: with every algorithm that can do it, or at every
 * level of determinism. Each way has a communicator of its own, made when it is first needed.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define ROUNDS       5     /* the ways take turns, so that a disturbance does not hit one alone */
#define FINAL_ROUNDS 15    /* turns of those that may be the best */
#define FINALISTS    4     /* so many, and the chosen one */
#define TARGET_S     0.008 /* how long a way's turn takes when the number of iterations is free */

/* The settings of a way. */
static coll_config config_of(const perf_options *options, const char *name, char *text,
                             size_t bytes) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = options->timeout_ms;
  config.algo = options->algo;
  if (options->all_algos) {
    snprintf(text, bytes, "%s:%s", options->traits->algo, name);
    config.algo = text;
    config.deterministic = (coll_determinism)options->deterministic;
  } else {
    config.deterministic = strcmp(name, "off") == 0  ? COLL_DETERMINISTIC_OFF
                           : strcmp(name, "on") == 0 ? COLL_DETERMINISTIC_ON
                                                     : COLL_DETERMINISTIC_ORDERED;
  }
  return config;
}

/* Makes a communicator of the base's ranks, with connections of its own; NULL after a failure. */
static coll_comm *make_comm(const perf_options *options, coll_comm *base, const char *name) {
  char text[64];
  coll_config config = config_of(options, name, text, sizeof(text));
  coll_id id = {{0}};
  coll_comm *comm = NULL;
  int rank = 0, nranks = 1;
  coll_comm_rank(base, &rank);
  coll_comm_nranks(base, &nranks);
  if (rank == 0 && coll_unique_id(&id, &config) != COLL_OK)
    coll_comm_abort(base);
  coll_status status = coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, base);
  if (status != COLL_OK) {
    perf_complain(base, status);
    return NULL;
  }
  if (coll_comm_create(&comm, &id, nranks, rank, &config) != COLL_OK)
    return NULL; /* the library has said why */
  return comm;
}

/* The communicator of a way; NULL after a failure. */
static coll_comm *comm_of(perf_variants *v, const char *name) {
  for (int i = 0; i < v->count; i++)
    if (strcmp(v->name[i], name) == 0)
      return v->comm[i];
  coll_comm *comm = v->count < PERF_VARIANTS ? make_comm(v->options, v->base, name) : NULL;
  if (comm) {
    snprintf(v->name[v->count], sizeof(v->name[0]), "%s", name);
    v->comm[v->count++] = comm;
  }
  return comm;
}

/* Lists the ways of a cell; false after a failure. */
static bool list_variants(const perf_variants *v, perf_cell *cell) {
  static const char *const levels[] = {"off", "on", "ordered"};
  const perf_line *line = &cell->line;
  if (!v->options->all_algos) {
    for (cell->count = 0; cell->count < 3; cell->count++)
      strcpy(cell->variant[cell->count].name, levels[cell->count]);
    return true;
  }
  coll_candidate list[PERF_VARIANTS];
  coll_status status = coll_candidates(
      v->base, v->options->traits->name, line->count, (coll_type)line->type, (coll_op)line->op,
      line->root < 0 ? 0 : line->root, list, PERF_VARIANTS, &cell->count);
  if (status != COLL_OK) {
    perf_complain(v->base, status);
    return false;
  }
  cell->count = cell->count < PERF_VARIANTS ? cell->count : PERF_VARIANTS;
  for (int i = 0; i < cell->count; i++) {
    perf_variant *variant = &cell->variant[i];
    memcpy(variant->name, list[i].name, sizeof(variant->name));
    variant->predicted_us = list[i].predicted_us;
    variant->chosen = list[i].chosen;
  }
  return true;
}

/* One way's turn: the mean time of an operation. */
static coll_status take_turn(perf_bench *b, perf_variant *variant, bool first, int *iters,
                             double *us) {
  coll_status status = COLL_OK;
  double seconds = 0;
  if (first) {
    variant->wrong = -1;
    if (b->options->check)
      status = perf_verify(b, false, &variant->wrong);
    *iters = b->options->iters;
    if (status == COLL_OK && !*iters)
      status = perf_choose_iters(b, TARGET_S, iters);
  }
  if (status == COLL_OK)
    status = perf_warm_up(b, false);
  if (status == COLL_OK)
    status = perf_time(b, false, *iters, &seconds);
  *us = seconds / *iters * 1e6;
  return status;
}

/* Every way's best of a few turns; false if a communicator could not be made. */
static bool run_heats(perf_variants *v, perf_bench *b, perf_cell *cell, int *iters,
                      coll_status *status) {
  for (int round = 0; round < ROUNDS && *status == COLL_OK; round++)
    for (int i = 0; i < cell->count && *status == COLL_OK; i++) {
      perf_variant *variant = &cell->variant[i];
      double us = 0;
      b->comm = comm_of(v, variant->name);
      if (!b->comm)
        return false;
      *status = take_turn(b, variant, round == 0, &iters[i], &us);
      if (round == 0 || us < variant->us)
        variant->us = us;
    }
  return true;
}

/* Lists the fastest ways and the chosen one. */
static int list_finalists(const perf_cell *cell, int *list) {
  int count = 0;
  for (int i = 0; i < cell->count; i++) {
    int faster = 0;
    for (int k = 0; k < cell->count; k++)
      faster += cell->variant[k].us < cell->variant[i].us;
    if ((faster < FINALISTS && count < FINALISTS) || cell->variant[i].chosen)
      list[count++] = i;
  }
  return count;
}

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/*
 * The fastest of many ways is the one that was lucky as well: those that may be the best run again,
 * by turns, and their medians count.
 */
static void run_final(perf_variants *v, perf_bench *b, perf_cell *cell, int *iters,
                      coll_status *status) {
  double us[FINALISTS + 1][FINAL_ROUNDS];
  int list[FINALISTS + 1];
  int count = list_finalists(cell, list);
  for (int round = 0; round < FINAL_ROUNDS && *status == COLL_OK; round++)
    for (int i = 0; i < count && *status == COLL_OK; i++) {
      b->comm = comm_of(v, cell->variant[list[i]].name);
      *status = take_turn(b, &cell->variant[list[i]], false, &iters[list[i]], &us[i][round]);
    }
  for (int i = 0; i < count && *status == COLL_OK; i++) {
    qsort(us[i], FINAL_ROUNDS, sizeof(us[i][0]), compare_doubles);
    cell->variant[list[i]].us = us[i][FINAL_ROUNDS / 2];
  }
}

bool perf_measure_cell(perf_variants *v, perf_cell *cell) {
  perf_bench b;
  int iters[PERF_VARIANTS];
  if (!list_variants(v, cell))
    return false;
  coll_status status = perf_bench_open(&b, v->options, v->base, &cell->line);
  if (!run_heats(v, &b, cell, iters, &status)) {
    perf_bench_close(&b);
    return false;
  }
  if (cell->count > 1)
    run_final(v, &b, cell, iters, &status);
  if (b.traits->varying)
    cell->line.bytes = b.total * b.bytes;
  cell->line.iters = cell->count ? iters[0] : 0;
  perf_bench_close(&b);
  if (status == COLL_OK)
    return true;
  perf_complain(b.comm, status);
  coll_comm_abort(b.comm);
  return false;
}

void perf_variants_close(perf_variants *v) {
  for (int i = 0; i < v->count; i++)
    coll_comm_destroy(&v->comm[i]);
  v->count = 0;
}

int perf_chosen(const perf_cell *cell) {
  for (int i = 0; i < cell->count; i++)
    if (cell->variant[i].chosen)
      return i;
  return -1;
}

int perf_fastest(const perf_cell *cell) {
  int best = cell->count ? 0 : -1;
  for (int i = 1; i < cell->count; i++)
    if (cell->variant[i].us < cell->variant[best].us)
      best = i;
  return best;
}
