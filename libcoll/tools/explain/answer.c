/* answer.c: computes the choice, its price, and the event model's time for coll_explain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/algo/distance.h"
#include "libcoll/base/param.h"
#include "libcoll/cost/predict.h"

#define MAX_EVENTS 8e6   /* with more, the event model would take more than a few seconds */
#define LOOKS      100.0 /* at the groups of that many ranks: take as long as an event */

/* The choice for a size. */
colli_choice explain_choose(answer *a, const question *q, size_t bytes) {
  coll_error error = COLL_ERROR_INIT;
  colli_choice choice;
  if (colli_choose(&a->chooser, &a->shape, bytes / q->type_bytes, q->type_bytes, bytes, &choice,
                   &error) != COLL_OK)
    described_refuse("%s", error.message);
  choice.predicted_ns = colli_choice_formula(&choice, &a->shape, q->type_bytes, &a->model);
  return choice;
}

size_t explain_param(colli_param_id id) {
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK)
    described_refuse("%s", error.message);
  return (size_t)params.number[id];
}

void explain_set_up(const question *q, answer *a) {
  a->shape = (colli_shape){.coll = q->coll,
                           .rank = q->rank < 0 ? 0 : q->rank,
                           .root = q->root,
                           .order = colli_order_of_sums(q->deterministic, q->coll),
                           .in_place = q->in_place,
                           .varying = q->varying};
  described_set_up(&q->net, q->algo, a);
  if (q->at_once > 0) { /* --levels describes what each rank has to itself */
    a->model.host_beta_ns_per_byte *= q->at_once;
    a->model.host_gap_ns *= q->at_once;
  }
}

/* The schedules of all ranks; NULL if out of memory. */
static colli_sched **make_all(const colli_algo *algo, const answer *a) {
  int n = a->shape.nranks;
  colli_sched **scheds = calloc((size_t)n, sizeof(*scheds));
  for (int rank = 0; scheds && rank < n; rank++) {
    colli_shape shape = a->shape;
    shape.rank = rank;
    if (algo->emit(&shape, &scheds[rank]) == COLL_OK)
      continue;
    while (rank-- > 0)
      colli_sched_free(scheds[rank]);
    free(scheds);
    scheds = NULL;
  }
  return scheds;
}

/* Steps of the rank that has most, of the first and the last; negative if out of memory. */
static int most_steps(const colli_algo *algo, const answer *a) {
  int most = 0;
  for (int i = 0; i < 2; i++) {
    colli_shape shape = a->shape;
    colli_sched *sched = NULL;
    shape.rank = i * (shape.nranks - 1);
    if (algo->emit(&shape, &sched) != COLL_OK)
      return -1;
    most = sched->nsteps > most ? sched->nsteps : most;
    colli_sched_free(sched);
  }
  return most;
}

/* The event model's time for a candidate. */
double explain_events(const colli_choice *choice, const question *q, const answer *a) {
  const colli_partition *part = &choice->partition;
  double slices = part->slice ? (double)part->piece / (double)part->slice + 1 : 1;
  const int steps = most_steps(choice->algo, a);
  if (steps < 0)
    return -1;
  double events = (double)steps * q->net.nranks * part->passes * slices;
  if (choice->algo->groups) /* each rank's schedule looks at all groups */
    events += (double)q->net.nranks * q->net.nranks / LOOKS;
  colli_sched **scheds = events < MAX_EVENTS ? make_all(choice->algo, a) : NULL;
  if (!scheds)
    return -1;
  double ns = colli_predict((const colli_sched *const *)scheds, q->net.nranks, part, q->type_bytes,
                            a->limits.slot_count, &a->model);
  for (int rank = 0; rank < q->net.nranks; rank++)
    colli_sched_free(scheds[rank]);
  free(scheds);
  return ns;
}

void explain_time(char text[32], double ns) {
  if (ns < 1e3)
    snprintf(text, 32, "%.0f ns", ns);
  else if (ns < 1e6)
    snprintf(text, 32, "%.2f us", ns / 1e3);
  else
    snprintf(text, 32, "%.2f ms", ns / 1e6);
}
