/*
 * variants.c: measures one line in several variants: with every algorithm that can do it, or at
 * every level of determinism. Each variant has its own communicator, made on first use.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define ROUNDS       5   /* interleaved, so that a disturbance does not hit only one variant */
#define FINAL_ROUNDS 16  /* rounds of the final, or a multiple, until the result is clear */
#define FINAL_S      5.0 /* after this time no more rounds are added */
#define FINALISTS    (PERF_FINALISTS - 1) /* this many of the fastest, and the chosen one */
#define TARGET_S     0.008 /* length of a turn, unless the user sets the number of iterations */

/* The settings of a variant. */
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
    return NULL; /* libcoll has printed why */
  return comm;
}

/* The communicator of a variant; NULL after a failure. */
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

/* Lists the variants of a cell; false after a failure. */
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

/* One variant's turn: the mean time of an operation. */
static coll_status take_turn(perf_bench *b, perf_variant *variant, bool first, int *iters,
                             double *us) {
  coll_status status = COLL_OK;
  double seconds = 0;
  if (first) {
    variant->wrong = -1;
    if (b->options->check)
      status = perf_verify(b, false, &variant->wrong);
    if (status == COLL_OK)
      status = perf_choose_iters(b, TARGET_S, iters);
  }
  if (status == COLL_OK)
    status = perf_warm_up(b, false);
  if (status == COLL_OK)
    status = perf_time(b, false, *iters, &seconds);
  *us = seconds / *iters * 1e6;
  return status;
}

/* The best of a few turns of every variant; false if a communicator could not be made. */
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

/* Lists the fastest variants and the chosen one; *chosen: its index in the list. */
static int list_finalists(const perf_cell *cell, int *list, int *chosen) {
  int count = 0;
  for (int i = 0; i < cell->count; i++) {
    int faster = 0;
    for (int k = 0; k < cell->count; k++)
      faster += cell->variant[k].us < cell->variant[i].us;
    if (cell->variant[i].chosen)
      *chosen = count;
    if ((faster < FINALISTS && count < FINALISTS) || cell->variant[i].chosen)
      list[count++] = i;
  }
  return count;
}

/* Computes how much longer each variant took than the fastest one in the heats. */
static void rank_all(perf_cell *cell) {
  double least = 0;
  for (int i = 0; i < cell->count; i++)
    least = i == 0 || cell->variant[i].us < least ? cell->variant[i].us : least;
  for (int i = 0; i < cell->count; i++)
    cell->variant[i].of_best = cell->variant[i].us / least;
}

/*
 * The fastest of many variants was also lucky. So those that may be the best run again,
 * interleaved, forwards and backwards, until it is clear whether the chosen one is good, or until
 * time is up.
 */
static void run_final(perf_variants *v, perf_bench *b, perf_cell *cell, int *iters,
                      coll_status *status) {
  perf_rounds rounds = {0};
  int list[PERF_FINALISTS], chosen = 0;
  double us = 0;
  bool done = false;
  rounds.ways = list_finalists(cell, list, &chosen);
  while (!done && *status == COLL_OK) {
    for (int i = 0; i < rounds.ways && *status == COLL_OK; i++) {
      int way = rounds.count % 2 ? rounds.ways - 1 - i : i, index = list[way];
      double *took = &rounds.us[way][rounds.count];
      b->comm = comm_of(v, cell->variant[index].name);
      *status = take_turn(b, &cell->variant[index], false, &iters[index], took);
      us += *took * (iters[index] + b->options->warmup);
    }
    done = ++rounds.count % FINAL_ROUNDS == 0 &&
           (us > 1e6 * FINAL_S || rounds.count + FINAL_ROUNDS > PERF_ROUNDS_MAX ||
            perf_rounds_settled(&rounds, chosen));
  }
  for (int i = 0; i < rounds.ways && *status == COLL_OK; i++) {
    cell->variant[list[i]].us = perf_rounds_us(&rounds, i);
    cell->variant[list[i]].of_best = perf_rounds_of_best(&rounds, i);
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
  rank_all(cell);
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
