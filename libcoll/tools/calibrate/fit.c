/*
 * fit.c: fits the four costs of a kind of link to times of collectives. It fits the times on which
 * the choice depends: it minimises the sum of the squared logarithms of predicted / measured, in
 * which far outliers count less.
 */
#include <math.h>

#include "calibrate.h"
#include "libcoll/cost/links.h"

#define NCOSTS 4
#define PRIOR  0.02 /* weight of typical costs against one cell */
#define FAR    0.5  /* the logarithm above which a deviation counts as an outlier */

colli_limits calibrate_limits(colli_link_kind link) {
  colli_limits limits = {.slot_count = 8};
  colli_limits_default(link, &limits);
  limits.chunk_bytes = limits.slot_bytes * limits.slot_count / 2;
  return limits;
}

/* The model of a world with these costs. */
static colli_model model_of(const calibrate_world *world, const colli_link_costs *costs) {
  colli_calibration all;
  colli_model model;
  for (int kind = 0; kind < COLLI_LINK_KINDS; kind++)
    all.apart[kind] = all.crowded[kind] = *costs;
  colli_model_make(&all, world->link, world->link, world->nranks, world->cores, &model);
  return model;
}

/* The time that the model predicts for a cell. */
static double predict(const calibrate_world *world, const calibrate_cell *cell,
                      const colli_partition *partition, const colli_model *model) {
  colli_shape shape = {.coll = cell->algo->coll, .nranks = world->nranks};
  colli_choice choice = {.algo = cell->algo, .partition = *partition};
  return colli_choice_time(&choice, &shape, sizeof(float), calibrate_limits(world->link).slot_count,
                           model);
}

/* The partitions that the ranks used, chosen by typical costs. */
static void find_partitions(const calibrate_world *world, colli_partition *partitions) {
  colli_model typical;
  colli_limits limits = calibrate_limits(world->link);
  colli_model_default(world->link, world->nranks, world->cores, &typical);
  for (int i = 0; i < world->ncells; i++) {
    const calibrate_cell *cell = &world->cell[i];
    colli_shape shape = {.coll = cell->algo->coll, .nranks = world->nranks};
    colli_choice choice;
    colli_select(&shape, cell->count, sizeof(float), &limits, &typical, cell->algo->name, &choice,
                 NULL, 0);
    partitions[i] = choice.partition;
  }
}

/* The sum to minimise; *mean: the mean deviation, as a logarithm. */
static double misfit(const calibrate_world *worlds, int nworlds,
                     colli_partition (*partitions)[CALIBRATE_CELLS], const colli_link_costs *costs,
                     double *mean) {
  double sum = 0;
  int cells = 0;
  *mean = 0;
  for (int w = 0; w < nworlds; w++) {
    colli_model model = model_of(&worlds[w], costs);
    for (int i = 0; i < worlds[w].ncells; i++, cells++) {
      const calibrate_cell *cell = &worlds[w].cell[i];
      double off = fabs(log(predict(&worlds[w], cell, &partitions[w][i], &model) / cell->ns));
      sum += off < FAR ? off * off : FAR * (2 * off - FAR);
      *mean += off;
    }
  }
  *mean = cells ? *mean / cells : 0;
  return sum;
}

double calibrate_fit(const calibrate_world *worlds, int nworlds, colli_link_costs *costs) {
  static colli_partition partitions[8][CALIBRATE_CELLS];
  const colli_link_costs typical = *costs;
  const double typicals[NCOSTS] = {typical.alpha_ns, typical.beta_ns_per_byte,
                                   typical.gamma_ns_per_byte, typical.step_ns};
  double *const numbers[NCOSTS] = {&costs->alpha_ns, &costs->beta_ns_per_byte,
                                   &costs->gamma_ns_per_byte, &costs->step_ns};
  double mean;
  for (int w = 0; w < nworlds; w++)
    find_partitions(&worlds[w], partitions[w]);
  double best = misfit(worlds, nworlds, partitions, costs, &mean);
  for (double factor = 2;
       factor > 1.002;) { /* coordinate descent, with smaller and smaller steps */
    bool better = false;
    for (int k = 0; k < 2 * NCOSTS; k++) {
      double *number = numbers[k / 2], old = *number;
      *number *= k % 2 ? factor : 1 / factor;
      double sum = misfit(worlds, nworlds, partitions, costs, &mean);
      for (int i = 0; i < NCOSTS; i++)
        sum += PRIOR * pow(log(*numbers[i] / typicals[i]), 2);
      if (sum < best)
        better = true, best = sum;
      else
        *number = old;
    }
    if (!better)
      factor = sqrt(factor);
  }
  misfit(worlds, nworlds, partitions, costs, &mean);
  return exp(mean);
}
