/* hier_cost.c: prices hierarchical algorithms: by a replay of the events of all ranks, or where
 * these are many, as the sum of the parts. */
#include <math.h>
#include <stdlib.h>

#include "libcoll/algo/hier_layout.h"
#include "libcoll/cost/predict.h"

#define REPLAY_RANKS  64 /* more take too long */
#define REPLAY_PASSES 4  /* that many are replayed, and twice as many */

/* The ranks of a part. */
static colli_shape ranks_of(int count, int root, const uint8_t *share) {
  return (colli_shape){.nranks = count, .root = root, .share = share};
}

/*
 * The cost of a part on `chunks` chunks of the partition. If values go one way only, repeated runs
 * overlap, as passes do.
 */
static double part_cost(const colli_algo *algo, colli_shape among, int chunks,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *model) {
  if (!algo || among.nranks <= 1)
    return 0;
  colli_shape shape = among;
  shape.coll = algo->coll;
  colli_partition cut = *partition;
  cut.nchunks = algo->nchunks(&shape);
  int times = chunks / cut.nchunks;
  size_t held = cut.region ? (cut.count + cut.region - 1) / cut.region : 0;
  if (held < (size_t)chunks) /* in every run some chunks are empty, and in the last run all are */
    cut.count = cut.region * ((held + (size_t)times - 1) / (size_t)times);
  else
    cut.count = cut.region * (size_t)cut.nchunks;
  if (held > 0 && held < (size_t)times)
    times = (int)held;
  if (held < (size_t)chunks && cut.nchunks > 1 && cut.count <= cut.region) {
    /* A single chunk in each run: the runs follow each other closely along the ranks. */
    double pace = colli_terms_make(&cut, elem_bytes, model).reduce * cut.passes;
    return algo->cost(&shape, &cut, elem_bytes, model) + (times - 1) * pace;
  }
  if (algo->coll != COLLI_REDUCE && algo->coll != COLLI_BROADCAST)
    return times * algo->cost(&shape, &cut, elem_bytes, model);
  cut.passes *= times;
  cut.region *= (size_t)times;
  cut.count *= (size_t)times;
  return algo->cost(&shape, &cut, elem_bytes, model);
}

/* The model of links inside a group. */
static colli_model near_model(const colli_model *model) {
  colli_model near = *model;
  if (model->near_beta_ns_per_byte > 0) {
    near.alpha_ns = model->near_alpha_ns;
    near.beta_ns_per_byte = model->near_beta_ns_per_byte;
  }
  return near;
}

/* The time of a part's first run and of each further run. */
typedef struct span {
  double first;
  double next;
} span;

/* The time of a part on the whole vector, pass by pass. */
static span part_span(const colli_algo *algo, int count, int root, const colli_partition *partition,
                      size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  double once = part_cost(algo, ranks_of(count, root, NULL), cut.nchunks, &cut, elem_bytes, model);
  cut.passes = 2;
  cut.region = 2 * cut.piece;
  cut.count = 2 * partition->piece * (size_t)partition->nchunks;
  return (span){once,
                part_cost(algo, ranks_of(count, root, NULL), cut.nchunks, &cut, elem_bytes, model) -
                    once};
}

/* The larger of two times. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

/* A reduce or broadcast: the root's group works at the same time as the others, and passes follow
 * each other closely. */
static double one_way_cost(const colli_hier *hier, const colli_layout *l, int root_rank,
                           const colli_partition *partition, size_t elem_bytes,
                           const colli_model *near, const colli_model *far) {
  const colli_algo *inner = hier->enter ? hier->enter : hier->leave;
  int root = l->of[root_rank], others = 0, before = 0; /* ranks of its group before the root */
  for (int rank = 0; rank < root_rank; rank++)
    before += l->of[rank] == root;
  for (int group = 0; group < l->ngroups; group++)
    if (group != root && l->size[group] > others)
      others = l->size[group];
  span across = part_span(hier->across, l->ngroups, root, partition, elem_bytes, far);
  span home = part_span(inner, l->size[root], before, partition, elem_bytes, near);
  span away = part_span(inner, others, 0, partition, elem_bytes, near);
  double first = larger(across.first + away.first, across.next + home.first);
  double next = larger(across.next, larger(home.next, away.next));
  if (hier->enter) { /* leaders work for both sides, but send to only one */
    colli_model free_links = *far;
    free_links.beta_ns_per_byte = 0;
    span works = part_span(hier->across, l->ngroups, root, partition, elem_bytes, &free_links);
    int most = others > l->size[root] ? others : l->size[root];
    span inside = part_span(inner, most, 0, partition, elem_bytes, &free_links);
    next = larger(next, works.next + inside.next);
  } else { /* leaders send to both sides, except the last, which sends only to its group */
    double passing = others > 1 && l->ngroups > 2 ? across.next + away.next : 0;
    next = larger(next, larger(across.next + home.next, passing));
  }
  return first + (partition->passes - 1) * next;
}

/* One pass of one lane of an all-reduce, which has so many chunks. */
static double lane_cost(const colli_hier *hier, const colli_layout *l, int chunks,
                        const colli_partition *cut, size_t elem_bytes, const colli_model *near,
                        const colli_model *far) {
  int share = hier->otherwise ? chunks / l->size[0] : chunks, most = 0;
  for (int group = 0; group < l->ngroups; group++)
    most = l->size[group] > most ? l->size[group] : most;
  colli_shape inside = ranks_of(most, 0, NULL), across = ranks_of(l->ngroups, 0, l->share);
  return part_cost(hier->enter, inside, chunks, cut, elem_bytes, near) +
         part_cost(hier->across, across, share, cut, elem_bytes, far) +
         part_cost(hier->leave, inside, chunks, cut, elem_bytes, near);
}

/* An all-reduce: results come back before the next pass begins. Lanes share the links, but wait at
 * the same time. */
static double two_way_cost(const colli_hier *hier, const colli_layout *l,
                           const colli_partition *partition, size_t elem_bytes,
                           const colli_model *near, const colli_model *far) {
  int lanes = colli_hier_lanes(hier), chunks = partition->nchunks / lanes;
  size_t region = partition->region, used = (size_t)lanes;
  if (region) /* a short vector does not fill all lanes */
    used = (partition->count + region * (size_t)chunks - 1) / (region * (size_t)chunks);
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  colli_model near_links = *near, far_links = *far;
  near_links.alpha_ns = far_links.alpha_ns = 0;
  double pass = lane_cost(hier, l, chunks, &cut, elem_bytes, near, far);
  if (used > 1)
    pass +=
        (double)(used - 1) * lane_cost(hier, l, chunks, &cut, elem_bytes, &near_links, &far_links);
  return partition->passes * pass;
}

/* The work of one participating rank for a part: found as the time that they would take if they all
 * shared a tiny part of a core. */
static double part_work(const colli_algo *algo, colli_shape among, int chunks,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *model) {
  const double share = 1e-9;
  colli_model crowded = *model;
  crowded.core_share = share;
  return share * part_cost(algo, among, chunks, partition, elem_bytes, &crowded);
}

/* What all ranks have to do, on average. */
static double work_cost(const colli_hier *hier, const colli_layout *l,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *near, const colli_model *far) {
  int chunks = partition->nchunks, share = hier->otherwise ? chunks / l->size[0] : chunks, n = 0;
  double work = 0;
  for (int group = 0; group < l->ngroups; group++) {
    int size = l->size[group];
    n += size;
    colli_shape inside = ranks_of(size, 0, NULL);
    work += size * (part_work(hier->enter, inside, chunks, partition, elem_bytes, near) +
                    part_work(hier->leave, inside, chunks, partition, elem_bytes, near));
  }
  /* If the vector is too short for all positions, the others send nothing. */
  double speakers =
      hier->otherwise ? n * colli_terms_make(partition, elem_bytes, far).filled : l->ngroups;
  work += speakers * part_work(hier->across, ranks_of(l->ngroups, 0, l->share), share, partition,
                               elem_bytes, far);
  return work / n;
}

/* The predicted time of the first few passes of a partition. */
static double replay_passes(colli_sched *const *scheds, int nranks, const colli_partition *whole,
                            int passes, size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *whole;
  if (passes < whole->passes) {
    cut.passes = passes;
    cut.region = cut.piece * (size_t)passes;
    cut.count = (size_t)((double)whole->count * (double)cut.region / (double)whole->region);
  }
  unsigned slots = 2 * (unsigned)nranks + 8; /* never wait for one, as the formulas assume */
  return colli_predict((const colli_sched *const *)scheds, nranks, &cut, elem_bytes, slots, model);
}

/* The cost, by replaying the events of all ranks for a few passes; further passes take as long as
 * the last of these. Infinite if out of memory. */
static double replay_all(const colli_hier *hier, const colli_shape *shape,
                         const colli_partition *partition, size_t elem_bytes,
                         const colli_model *model) {
  colli_sched *scheds[REPLAY_RANKS];
  int made = 0;
  colli_shape mine = *shape;
  for (mine.rank = 0; mine.rank < shape->nranks; mine.rank++, made++)
    if (colli_hier_emit(hier, &mine, &scheds[made]) != COLL_OK)
      break;
  double ns = INFINITY;
  if (made == shape->nranks && partition->passes <= 2 * REPLAY_PASSES) {
    ns = replay_passes(scheds, made, partition, partition->passes, elem_bytes, model);
  } else if (made == shape->nranks) {
    double few = replay_passes(scheds, made, partition, REPLAY_PASSES, elem_bytes, model);
    double more = replay_passes(scheds, made, partition, 2 * REPLAY_PASSES, elem_bytes, model);
    double rest = (more - few) / REPLAY_PASSES * (partition->passes - 2 * REPLAY_PASSES);
    ns = !isfinite(rest) ? INFINITY : few < 0 || more < 0 ? -1 : more + rest;
  }
  while (made > 0)
    colli_sched_free(scheds[--made]);
  return ns;
}

/* The cost of the whole. */
double colli_hier_cost(const colli_hier *hier, const colli_shape *shape,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model) {
  colli_layout l;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  double replayed =
      shape->nranks <= REPLAY_RANKS ? replay_all(hier, shape, partition, elem_bytes, model) : -1;
  if (replayed >= 0)
    return replayed;
  if (!colli_layout_make(&l, shape))
    return INFINITY;
  colli_model far = *model, near = near_model(model);
  far.core_share = near.core_share = 1;
  hier = colli_hier_fitting(hier, &l);
  double cost = shape->coll == COLLI_ALLREDUCE
                    ? two_way_cost(hier, &l, partition, elem_bytes, &near, &far)
                    : one_way_cost(hier, &l, shape->root, partition, elem_bytes, &near, &far);
  if (model->core_share < 1)
    cost =
        larger(cost, work_cost(hier, &l, partition, elem_bytes, &near, &far) / model->core_share);
  colli_layout_free(&l);
  return cost;
}
