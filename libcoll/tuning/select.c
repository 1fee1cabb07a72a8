/* select.c: selects an algorithm and the size of its chunks. */
#include "libcoll/tuning/select.h"

#include <math.h>
#include <string.h>

#include "libcoll/algo/distance.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/cost/rehearse.h"
#include "libcoll/sched/check.h"

#define CHUNK_BYTES_MIN  8192  /* the smallest chunk that the choice tries */
#define REFERRED_BYTES   16384 /* shorter messages are never sent by reference */
#define CHUNK_GAIN       0.97  /* smaller chunks must gain this: formulas miss some costs */
#define CHUNK_GAIN_TURNS 0.8   /* the same between containers, where each wait for a turn is long */
#define LANES_BYTES      (1 << 20) /* four chunks, as most are; see hier_lanes */
#define REHEARSE_RANKS   16        /* more ranks take long, and the choices differ little */
#define REHEARSE_WITHIN  3         /* times the best predicted time: worth a rehearsal */

/* Whether two ranks send each other equal messages at the same time. Then both have sent before
 * either reads, so slices, which would let one begin earlier, only cost time. */
static bool is_exchange(const colli_shape *shape) {
  return shape->nranks == 2 && !colli_rooted(shape->coll) && shape->coll != COLLI_SCAN &&
         shape->coll != COLLI_EXSCAN;
}

/* An algorithm's partition for a wanted chunk size. */
void colli_choice_partition(const colli_algo *algo, const colli_shape *shape, size_t count,
                            size_t elem_bytes, const colli_limits *limits, colli_partition *out) {
  int nchunks = algo->nchunks(shape);
  bool exact = colli_exact(shape->coll);
  colli_limits cut = *limits;
  if (is_exchange(shape))
    cut.slice_bytes = limits->slot_bytes;
  if (shape->coll == COLLI_BARRIER)
    count = 0;
  colli_partition_make(out, exact ? count * (size_t)shape->nranks : count, elem_bytes, nchunks,
                       exact, &cut);
}

/* Whether two partitions of one vector are the same. */
static bool same_cut(const colli_partition *a, const colli_partition *b) {
  return a->region == b->region && a->piece == b->piece && a->slice == b->slice &&
         a->passes == b->passes;
}

/* The time of a choice's formula. */
double colli_choice_formula(const colli_choice *choice, const colli_shape *shape, size_t elem_bytes,
                            const colli_model *model) {
  const bool far = !choice->algo->groups && model->sites; /* as if all links were the farthest */
  colli_shape seen = *shape;
  seen.ngroups = far ? 0 : shape->ngroups;
  const colli_model alone = far ? colli_host_links_busy(model, shape, 1) : *model;
  const colli_model links =
      colli_algo_model(choice->algo, &seen, &choice->partition, elem_bytes, &alone);
  return choice->algo->cost(&seen, &choice->partition, elem_bytes, &links);
}

size_t colli_choice_chunk_most(const colli_limits *limits, const colli_model *model) {
  size_t most = limits->slot_bytes * (limits->slot_count > 1 ? limits->slot_count / 2 : 1);
  if (limits->chunk_bytes && limits->chunk_bytes < most)
    most = limits->chunk_bytes;
  most = (size_t)((double)most * model->chunk_share);
  return most > limits->slot_bytes ? most : limits->slot_bytes;
}

/* The best chunk size of one algorithm. */
static void best_chunk(const colli_algo *algo, const colli_shape *shape, size_t count,
                       size_t elem_bytes, const colli_limits *limits, const colli_model *model,
                       colli_choice *best) {
  colli_limits wanted = *limits;
  wanted.chunk_bytes = colli_choice_chunk_most(limits, model);
  /* With two ranks, no chunk is forwarded. Smaller chunks gain less than is lost when messages
   * become too short to be sent by reference. */
  bool short_slices = shape->nranks == 2 && limits->slice_bytes < REFERRED_BYTES;
  size_t least = short_slices ? 4 * REFERRED_BYTES : CHUNK_BYTES_MIN;
  const double gain = colli_model_path_factor(model) > 1 ? CHUNK_GAIN_TURNS : CHUNK_GAIN;
  *best = (colli_choice){.algo = algo};
  colli_partition last = {0};
  for (bool first = true;; first = false) {
    colli_choice tried = {.algo = algo, .chunk_bytes = wanted.chunk_bytes};
    colli_choice_partition(algo, shape, count, elem_bytes, &wanted, &tried.partition);
    /* A short vector is one chunk whatever the wanted size; skipping equal partitions saves time,
     * because with many ranks a cost is slow to compute. */
    bool known = !first && same_cut(&tried.partition, &last);
    last = tried.partition;
    if (!known)
      tried.predicted_ns = colli_choice_formula(&tried, shape, elem_bytes, model);
    if (first || (!known && tried.predicted_ns < gain * best->predicted_ns))
      *best = tried;
    if (!known && !isfinite(tried.predicted_ns)) { /* memory ran out */
      best->predicted_ns = INFINITY;
      return;
    }
    size_t power = (size_t)1 << (63 - __builtin_clzll(wanted.chunk_bytes));
    size_t smaller = power < wanted.chunk_bytes ? power : power / 2;
    if (!algo->pipelined || smaller < least)
      return;
    wanted.chunk_bytes = smaller;
  }
}

/* Inserts a candidate in order of cost; equal ones keep their order. */
static int insert_by_cost(colli_choice *list, int length, int capacity,
                          const colli_choice *candidate) {
  int at = length;
  while (at > 0 && list[at - 1].predicted_ns > candidate->predicted_ns)
    at--;
  if (at >= capacity)
    return length;
  int kept = length < capacity ? length : capacity - 1;
  memmove(&list[at + 1], &list[at], (size_t)(kept - at) * sizeof(*list));
  list[at] = *candidate;
  return kept + 1;
}

/* Whether there are neither too few nor too many groups for an algorithm. */
static bool suits_groups(const colli_algo *algo, const colli_shape *shape) {
  if (!algo->groups_min && !algo->groups_max)
    return true;
  const int ngroups = colli_host_links_count(shape);
  return ngroups >= algo->groups_min && (!algo->groups_max || ngroups <= algo->groups_max);
}

/* Whether an algorithm for groups gains nothing: each has one rank, and algorithms without groups
 * do what it does between them. */
static bool gains_nothing(const colli_algo *algo, const colli_shape *shape) {
  return algo->groups && !algo->weighted && !algo->sites && shape->ninner == 0 &&
         shape->ngroups == shape->nranks;
}

/* Whether a line between sites holds more than what the pairs of ranks that share it have on their
 * way in hier_lanes: as many as a site has ranks. Prices do not know that pairs share it. */
static bool is_long(const colli_shape *shape, const colli_model *model) {
  const double pairs = (double)shape->nranks / shape->ngroups;
  return 2 * model->alpha_ns > pairs * LANES_BYTES * model->beta_ns_per_byte;
}

/* Whether a network has what an algorithm is for: levels, sites, or one of these. */
static bool suits_network(const colli_algo *algo, const colli_shape *shape,
                          const colli_model *model) {
  const bool has_levels = shape->ninner > 0;
  if (algo->levels && algo->sites)
    return has_levels || model->sites;
  return (has_levels || !algo->levels) && (model->sites || !algo->sites);
}

/* Whether an algorithm suits this number and kind of ranks. */
static bool is_for(const colli_algo *algo, const colli_shape *shape, const colli_model *model) {
  int least = model->remote && algo->ranks_remote ? algo->ranks_remote : algo->ranks_min;
  return shape->nranks >= least && (!algo->ranks_max || shape->nranks <= algo->ranks_max) &&
         (model->paired || !algo->turns) && (shape->share || !algo->weighted) &&
         suits_network(algo, shape, model) && (!algo->long_lines || is_long(shape, model)) &&
         suits_groups(algo, shape) && !gains_nothing(algo, shape) &&
         !(model->sites && shape->ninner > 0 && algo->flat);
}

/* Lists all algorithms that suit a shape, with the times of their formulas; returns their
 * number. */
static int list_all(const colli_shape *shape, size_t count, size_t elem_bytes,
                    const colli_limits *limits, const colli_model *model, const char *force,
                    colli_choice *list) {
  int listed = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if (!colli_algo_can(*algo, shape) || (force[0] && strcmp(force, (*algo)->name) != 0))
      continue;
    if ((force[0] || is_for(*algo, shape, model)) && listed < COLLI_MAX_CANDIDATES)
      best_chunk(*algo, shape, count, elem_bytes, limits, model, &list[listed++]);
  }
  return listed;
}

/* How long the link of the busiest host is occupied, which a rehearsal does not know. */
static double links_occupied(colli_sched *const *scheds, const colli_shape *shape,
                             const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model) {
  colli_host_load load = colli_host_load_begin(model, shape);
  for (int rank = 0; load.each && rank < shape->nranks; rank++)
    for (int i = 0; i < scheds[rank]->nsteps; i++) {
      const colli_step *step = &scheds[rank]->steps[i];
      size_t count = 0;
      if (!(step->bits & COLLI_SEND))
        continue;
      for (int pass = 0; pass < partition->passes; pass++)
        count +=
            colli_partition_range(partition, colli_step_buf(step), colli_step_chunk(step), pass)
                .count;
      colli_host_load_add(&load, rank, step->peer_send, (double)(count * elem_bytes));
    }
  return colli_host_load_end(&load);
}

/* The time of a rehearsal with all ranks, or of the links between hosts if these take longer;
 * infinite if out of memory. */
static double rehearse_choice(const colli_choice *choice, const colli_shape *shape,
                              size_t elem_bytes, unsigned slot_count, const colli_model *model) {
  colli_sched *scheds[REHEARSE_RANKS];
  int made = 0;
  colli_shape mine = *shape;
  for (mine.rank = 0; mine.rank < shape->nranks; mine.rank++, made++)
    if (choice->algo->emit(&mine, &scheds[made]) != COLL_OK)
      break;
  double ns = INFINITY;
  if (made == shape->nranks)
    ns = fmax(colli_rehearse((const colli_sched *const *)scheds, made, &choice->partition,
                             elem_bytes, slot_count, model),
              links_occupied(scheds, shape, &choice->partition, elem_bytes, model));
  while (made > 0)
    colli_sched_free(scheds[--made]);
  return ns;
}

/* The time of a choice where ranks may share cores. A rehearsal does not model ranks that take
 * turns, and gives each host cores of its own. */
double colli_choice_time(const colli_choice *choice, const colli_shape *shape, size_t elem_bytes,
                         unsigned slot_count, const colli_model *model) {
  double formula = colli_choice_formula(choice, shape, elem_bytes, model);
  if (model->core_share >= 1 || model->containers || shape->nranks < 2 ||
      shape->nranks > REHEARSE_RANKS || (model->paired && choice->algo->turns))
    return formula;
  double rehearsed = rehearse_choice(choice, shape, elem_bytes, slot_count, model);
  return rehearsed > 0 ? sqrt(formula * rehearsed) : formula;
}

/* Rehearses the candidates with the best predicted times. */
static void rehearse_best(colli_choice *list, int listed, const colli_shape *shape,
                          size_t elem_bytes, const colli_limits *limits, const colli_model *model) {
  double least = list[0].predicted_ns;
  for (int i = 1; i < listed; i++)
    least = fmin(least, list[i].predicted_ns);
  for (int i = 0; i < listed; i++)
    if (list[i].predicted_ns <= REHEARSE_WITHIN * least)
      list[i].predicted_ns =
          colli_choice_time(&list[i], shape, elem_bytes, limits->slot_count, model);
}

/*
 * The algorithm and chunk size with the lowest cost. All roots use the choice for root 0. Otherwise
 * calls with changing roots would mix algorithms whose ranks wait for each other in different
 * orders, which took twice the time where ranks share cores.
 */
int colli_select(const colli_shape *shape, size_t count, size_t elem_bytes,
                 const colli_limits *limits, const colli_model *model, const char *force,
                 colli_choice *choice, colli_choice *candidates, int max_candidates) {
  colli_choice list[COLLI_MAX_CANDIDATES];
  colli_shape usual = *shape;
  usual.root = 0;
  int considered = list_all(&usual, count, elem_bytes, limits, model, force, list), listed = 0;
  if (considered > 1 && model->core_share < 1 && !model->containers)
    rehearse_best(list, considered, &usual, elem_bytes, limits, model);
  for (int i = 0; i < considered; i++)
    if (!isfinite(list[i].predicted_ns))
      return -1;
  for (int i = 0; i < considered; i++) {
    list[i].predicted_ns *=
        colli_correction_factor(model->corrections, list[i].algo->id, count * elem_bytes);
    if (i == 0 || list[i].predicted_ns < choice->predicted_ns)
      *choice = list[i];
    if (candidates)
      listed = insert_by_cost(candidates, listed, max_candidates, &list[i]);
  }
  return candidates ? listed : considered;
}
