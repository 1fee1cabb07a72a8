/* hier_cost.c: prices hierarchical algorithms: by a replay of the events of all ranks, or where
 * these are many, as the sum of the parts. */
#include <math.h>
#include <stdlib.h>

#include "libcoll/algo/distance.h"
#include "libcoll/algo/hier_shares.h"
#include "libcoll/algo/twotrees.h"
#include "libcoll/cost/host_links.h"

/* Of blocks among groups that differ in size so much that schedules would be large. */
#define UNSUITABLE_NS 1e30

/* The ranks of a part inside a group. */
static colli_shape ranks_of(int count, int root) {
  return (colli_shape){.nranks = count, .root = root};
}

/* What is known of a hierarchical algorithm whose cost is wanted. */
typedef struct priced {
  const colli_hier *hier;
  colli_layout *l;
  colli_shape among;        /* the leaders */
  const colli_algo *across; /* the algorithm between them */
  colli_shape within;       /* the largest group */
  size_t elem_bytes;
  colli_model near, far; /* inside groups, and between them */
} priced;

/*
 * The cost of a part on `chunks` chunks of the partition. If values go one way only, repeated runs
 * overlap, as passes do.
 */
static double part_cost(const colli_algo *algo, colli_shape among, int chunks,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *links) {
  if (!algo || among.nranks <= 1)
    return 0;
  colli_shape shape = among;
  shape.coll = algo->coll;
  colli_partition cut = *partition;
  cut.nchunks = algo->nchunks(&shape);
  int times = (chunks + cut.nchunks - 1) / cut.nchunks;
  size_t held = cut.region ? (cut.count + cut.region - 1) / cut.region : 0;
  if (held < (size_t)chunks) /* in every run some chunks are empty, and in the last run all are */
    cut.count = cut.region * ((held + (size_t)times - 1) / (size_t)times);
  else
    cut.count = cut.region * (size_t)cut.nchunks;
  if (held > 0 && held < (size_t)times)
    times = (int)held;
  const colli_model averaged = colli_algo_model(algo, &shape, &cut, elem_bytes, links);
  const colli_model *model = &averaged;
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

colli_model colli_hier_near_model(const colli_model *model, const colli_shape *shape) {
  colli_model near = *model;
  const colli_pair_cost usual = {model->near_alpha_ns, model->near_beta_ns_per_byte};
  const bool inner = shape->ninner && model->inner[0].beta_ns_per_byte > 0;
  const colli_pair_cost *pair = inner ? &model->inner[0] : &usual;
  if (pair->beta_ns_per_byte > 0) {
    near.alpha_ns = pair->alpha_ns;
    near.beta_ns_per_byte = pair->beta_ns_per_byte;
  }
  if (model->host_step_ns > 0)
    near.step_ns = model->host_step_ns;
  if (!model->near_remote)
    near.turn_share = 0;
  return near;
}

colli_model colli_hier_far_model(const colli_model *model, const colli_shape *shape) {
  colli_model far = *model;
  far.host_step_ns = 0; /* no two of them are on one host */
  for (int level = 1; level < shape->ninner; level++)
    far.inner[level - 1] = model->inner[level];
  return far;
}

/* The time of a part's first run and of each further run. */
typedef struct span {
  double first;
  double next;
} span;

/* The time of a part on the whole vector, pass by pass. */
static span part_span(const colli_algo *algo, colli_shape among, const colli_partition *partition,
                      size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  double once = part_cost(algo, among, cut.nchunks, &cut, elem_bytes, model);
  cut.passes = 2;
  cut.region = 2 * cut.piece;
  cut.count = 2 * partition->piece * (size_t)partition->nchunks;
  return (span){once, part_cost(algo, among, cut.nchunks, &cut, elem_bytes, model) - once};
}

/* The same links, over which messages take so many times as long to arrive, and bytes to pass. */
static colli_model scaled_links(const colli_model *model, double alpha, double beta) {
  colli_model out = *model;
  out.alpha_ns *= alpha;
  out.near_alpha_ns *= alpha;
  out.beta_ns_per_byte *= beta;
  out.near_beta_ns_per_byte *= beta;
  for (int level = 0; level < COLLI_INNER_LEVELS; level++) {
    out.inner[level].alpha_ns *= alpha;
    out.inner[level].beta_ns_per_byte *= beta;
  }
  return out;
}

/* The larger of two times. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

/* A reduce or broadcast: the root's group works at the same time as the others, and passes follow
 * each other closely. In many levels leaders' work is that in one tree: to add it up takes long. */
static double one_way_cost(const priced *it, int root_rank, const colli_partition *partition) {
  const colli_layout *l = it->l;
  const colli_algo *inner = it->hier->enter ? it->hier->enter : it->hier->leave;
  const size_t elem_bytes = it->elem_bytes;
  int root = l->of[root_rank], others = 0, before = 0; /* ranks of its group before the root */
  for (int rank = 0; rank < root_rank; rank++)
    before += l->of[rank] == root;
  for (int group = 0; group < l->ngroups; group++)
    if (group != root && l->size[group] > others)
      others = l->size[group];
  span across = part_span(it->across, it->among, partition, elem_bytes, &it->far);
  span home = part_span(inner, ranks_of(l->size[root], before), partition, elem_bytes, &it->near);
  span away = part_span(inner, ranks_of(others, 0), partition, elem_bytes, &it->near);
  double first = larger(across.first + away.first, across.next + home.first);
  double next = larger(across.next, larger(home.next, away.next));
  if (it->hier->enter) { /* leaders work for both sides, but send to only one */
    const colli_model idle = scaled_links(&it->far, 1, 0);
    const colli_algo *tree = it->among.ninner > 2 ? it->hier->across : it->across;
    span works = part_span(tree, it->among, partition, elem_bytes, &idle);
    int most = others > l->size[root] ? others : l->size[root];
    span inside = part_span(inner, ranks_of(most, 0), partition, elem_bytes, &idle);
    next = larger(next, works.next + inside.next);
  } else { /* leaders send to both sides, except the last, which sends only to its group */
    double passing = others > 1 && l->ngroups > 2 ? across.next + away.next : 0;
    next = larger(next, larger(across.next + home.next, passing));
  }
  return first + (partition->passes - 1) * next;
}

/*
 * The part between groups, of the busiest rank, which is in the smallest group. In doubling,
 * partners have sent their part of its extra shares before it gets to them, so these cost no
 * latency (except where it is one too many for a power of two, which is not counted). In a ring
 * each share must come around first.
 */
static double across_cost(const priced *it, int chunks, const colli_partition *cut,
                          const colli_model *far) {
  if (!it->hier->split)
    return part_cost(it->across, it->among, chunks, cut, it->elem_bytes, far);
  const int each = chunks / colli_shares_count(it->hier, it->l);
  const colli_owned owned = colli_shares_owned(it->hier, it->l);
  const bool doubles = it->across == &colli_allreduce_recdbl;
  const int waits = doubles ? owned.second : owned.most, rest = owned.most - waits;
  double cost = waits * part_cost(it->across, it->among, each, cut, it->elem_bytes, far);
  if (rest == 0)
    return cost;
  const colli_model sent = scaled_links(far, 0, 1);
  return cost + rest * part_cost(it->across, it->among, each, cut, it->elem_bytes, &sent);
}

/* One pass of one lane of an all-reduce, which has so many chunks. */
static double lane_cost(const priced *it, int chunks, const colli_partition *cut,
                        const colli_model *near, const colli_model *far) {
  const colli_hier *hier = it->hier;
  const colli_shape inside = it->within;
  return part_cost(hier->enter, inside, chunks, cut, it->elem_bytes, near) +
         across_cost(it, chunks, cut, far) +
         part_cost(hier->leave, inside, chunks, cut, it->elem_bytes, near);
}

/* An all-reduce: results come back before the next pass begins. Lanes share the links, but wait at
 * the same time. */
static double two_way_cost(const priced *it, const colli_partition *partition) {
  int lanes = colli_hier_lanes(it->hier), chunks = partition->nchunks / lanes;
  size_t region = partition->region, used = (size_t)lanes;
  if (region) /* a short vector does not fill all lanes */
    used = (partition->count + region * (size_t)chunks - 1) / (region * (size_t)chunks);
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  const colli_model near_links = scaled_links(&it->near, 0, 1);
  const colli_model far_links = scaled_links(&it->far, 0, 1);
  double pass = lane_cost(it, chunks, &cut, &it->near, &it->far);
  if (used > 1)
    pass += (double)(used - 1) * lane_cost(it, chunks, &cut, &near_links, &far_links);
  return partition->passes * pass;
}

/* The time of a part inside groups, of two lanes at once: one waits while the other works. */
static double two_lanes_cost(const priced *it, const colli_algo *algo, int chunks,
                             const colli_partition *partition) {
  const colli_shape inside = it->within;
  colli_model busy = scaled_links(&it->near, 0, 2);
  busy.step_ns *= 2;
  busy.gamma_ns_per_byte *= 2;
  return larger(part_cost(algo, inside, chunks, partition, it->elem_bytes, &it->near),
                part_cost(algo, inside, chunks, partition, it->elem_bytes, &busy));
}

/* What a pass in two trees takes, of the group whose ranks take longest. Of groups that differ in
 * size, ranks of the smaller ones own more shares, but may have less to send for each: the last
 * group is the root of one tree, and a leaf of the other. */
typedef struct paces {
  double whole; /* until a rank has sent everything, or done its work */
  double up;    /* the same without the part inside the group that brings results to all */
  double lag;   /* how much later than the first share the last one is through */
} paces;

/* Finds them. `across`: what a share of a pass takes the rank that sends most in trees. */
static paces find_paces(const priced *it, int shares, const colli_partition *cut, double across) {
  const colli_terms t = colli_terms_make(cut, it->elem_bytes, &it->near);
  double most = 0;
  paces found = {0, 0, 0};
  for (int group = 0; group < it->l->ngroups; group++)
    most = larger(most, colli_twotrees_load_of(&it->among, group, &it->far).both);
  for (int group = 0; group < it->l->ngroups; group++) {
    const int size = it->l->size[group], owned = (shares - 1) / size + 1;
    const colli_twotrees_load load = colli_twotrees_load_of(&it->among, group, &it->far);
    const double unit = most > 0 ? across / most : 0, sent = owned * load.both * unit;
    const double moved = 2.0 * (size - 1) * shares / size; /* chunks in, and as many out again */
    const double sends = moved * t.bytes * it->near.beta_ns_per_byte;
    const double works = moved * t.slices * (t.work_reduce + it->near.step_ns) / 2;
    found.whole = larger(found.whole, 2 * larger(sends, works) + sent);
    found.up = larger(found.up, larger(sends, works) + sent);
    found.lag = larger(found.lag, (owned - 1) * load.one * unit);
  }
  return found;
}

/* How long a result is on its way down the trees: half of what one slice takes up and down. */
static double way_down(const priced *it, const colli_partition *pass) {
  colli_partition slice = *pass;
  slice.nchunks = 2;
  if (slice.piece > slice.slice)
    slice.piece = slice.slice;
  slice.region = slice.piece;
  slice.count = 2 * slice.piece;
  return part_cost(it->across, it->among, 2, &slice, it->elem_bytes, &it->far) / 2;
}

/*
 * An all-reduce in two trees: the first pass goes through all parts, one after the other. While
 * that takes longer than the busiest rank sends, results of the others come back in its pauses, so
 * each of them adds what is sent before. Together they take as long as that rank sends, or as a
 * lane takes for its part inside the group, until the last results have come down.
 */
static double trees_cost(const priced *it, const colli_partition *partition) {
  const int shares = partition->nchunks / 2;
  colli_partition cut = *partition, pair = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  pair.nchunks = 2;
  const span across = part_span(it->across, it->among, &pair, it->elem_bytes, &it->far);
  const double enter = two_lanes_cost(it, it->hier->enter, shares, &cut);
  const double leave = two_lanes_cost(it, it->hier->leave, shares, &cut);
  const double lane =
      part_cost(it->hier->enter, it->within, shares, &cut, it->elem_bytes, &it->near);
  const paces found = find_paces(it, shares, &cut, across.next);
  const double first = enter + across.first + found.lag + leave;
  if (partition->passes == 1)
    return first;
  return larger(first + (partition->passes - 1) * larger(found.up, lane),
                partition->passes * larger(found.whole, lane) + way_down(it, &cut));
}

/* The chunks on which the parts of a collective of blocks work. */
typedef struct block_chunks {
  int enter, across, leave;
} block_chunks;

/* What they are. */
static block_chunks count_blocks(const priced *it, colli_coll coll) {
  const int n = it->l->ngroups * colli_layout_largest(it->l), size = colli_layout_largest(it->l);
  const bool gathers = coll == COLLI_ALLGATHER;
  if (it->hier->split)
    return (block_chunks){.enter = n, .across = it->l->ngroups, .leave = n};
  return (block_chunks){
      .enter = gathers ? size : n, .across = n, .leave = gathers ? n - size : size};
}

/* A collective of blocks: part by part. */
static double blocks_cost(const priced *it, colli_coll coll, const colli_partition *partition) {
  const block_chunks chunks = count_blocks(it, coll);
  const colli_shape inside = it->within;
  return part_cost(it->hier->enter, inside, chunks.enter, partition, it->elem_bytes, &it->near) +
         part_cost(it->across, it->among, chunks.across, partition, it->elem_bytes, &it->far) +
         part_cost(it->hier->leave, inside, chunks.leave, partition, it->elem_bytes, &it->near);
}

/* The same with a lane each way: no pass waits for the one before it to arrive. */
static double duplex_cost(const priced *it, colli_coll coll, const colli_partition *partition) {
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  cut.count = cut.piece * (size_t)cut.nchunks;
  priced sent = *it;
  sent.near = scaled_links(&it->near, 0, 1);
  sent.far = scaled_links(&it->far, 0, 1);
  return blocks_cost(it, coll, &cut) + (partition->passes - 1) * blocks_cost(&sent, coll, &cut);
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
static double work_cost(const priced *it, const colli_partition *partition) {
  const colli_hier *hier = it->hier;
  const colli_layout *l = it->l;
  const int shares = hier->split ? colli_shares_count(hier, l) : 1, chunks = partition->nchunks;
  const int share = hier->trees ? 2 : chunks / shares;
  int n = 0;
  double work = 0;
  for (int group = 0; group < l->ngroups; group++) {
    int size = l->size[group];
    n += size;
    colli_shape inside = ranks_of(size, 0);
    work += size * (part_work(hier->enter, inside, chunks, partition, it->elem_bytes, &it->near) +
                    part_work(hier->leave, inside, chunks, partition, it->elem_bytes, &it->near));
  }
  /* If the vector is too short for all shares, the others send nothing. */
  const double filled = colli_terms_make(partition, it->elem_bytes, &it->far).filled;
  double speakers = hier->split ? filled * shares * l->ngroups : l->ngroups;
  work += speakers * part_work(it->across, it->among, share, partition, it->elem_bytes, &it->far);
  return work / n;
}

/* The links of hosts in the order of the layout's groups, which are hosts; *out is NULL if they are
 * alike. False if out of memory. */
static bool sort_links(const colli_layout *l, const colli_shape *shape, const double *link_beta,
                       double **out) {
  const int32_t *host = colli_shape_hosts(shape);
  *out = NULL;
  if (!link_beta || !host || !shape->share || l->widest)
    return true;
  *out = calloc((size_t)l->ngroups, sizeof(**out));
  for (int rank = 0; *out && rank < shape->nranks; rank++)
    (*out)[l->of[rank]] = link_beta[host[rank]];
  return *out != NULL;
}

/* The model of links inside the widest groups, where the widest ones inside these are groups. */
static colli_model inside_widest(const colli_model *model, const colli_shape *shape) {
  colli_model inside = *model;
  if (model->near_beta_ns_per_byte > 0) {
    inside.alpha_ns = model->near_alpha_ns;
    inside.beta_ns_per_byte = model->near_beta_ns_per_byte;
  }
  const colli_pair_cost all = {inside.alpha_ns, inside.beta_ns_per_byte};
  const colli_pair_cost *inner = shape->ninner ? &model->inner[shape->ninner - 1] : &all;
  const colli_pair_cost *nearer = inner->beta_ns_per_byte > 0 ? inner : &all;
  inside.near_alpha_ns = nearer->alpha_ns;
  inside.near_beta_ns_per_byte = nearer->beta_ns_per_byte;
  return inside;
}

/* The cost as the sum of the parts. `links`: of sort_links(). */
static double sum_parts(const colli_hier *hier, const colli_shape *shape, colli_layout *l,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *model, const double *links) {
  const colli_hier *fitting = colli_hier_fitting(hier, l);
  int smallest = l->size[0];
  for (int group = 1; group < l->ngroups; group++)
    smallest = l->size[group] < smallest ? l->size[group] : smallest;
  const colli_terms t = colli_terms_make(partition, elem_bytes, model);
  const colli_model gapless = colli_host_links_for(model, t.bytes / t.slices);
  const colli_model busy = colli_host_links_busy(&gapless, shape, fitting->split ? smallest : 1);
  priced it = {.hier = fitting,
               .l = l,
               .among = colli_layout_across(l, shape, l->leader),
               .elem_bytes = elem_bytes,
               .within = colli_layout_within(l, shape),
               .near =
                   l->widest ? inside_widest(model, shape) : colli_hier_near_model(model, shape),
               .far = colli_hier_far_model(&busy, shape)};
  it.far.core_share = it.near.core_share = 1;
  it.far.link_beta_ns_per_byte = links;
  it.across = colli_hier_across(it.hier, &it.among);
  if (colli_exact(shape->coll) &&
      (long long)l->ngroups * colli_layout_largest(l) > 4ll * shape->nranks)
    return UNSUITABLE_NS;
  if (colli_exact(shape->coll)) /* all ranks work all the time */
    return (it.hier->duplex ? duplex_cost : blocks_cost)(&it, shape->coll, partition) /
           model->core_share;
  double cost = it.hier->trees                   ? trees_cost(&it, partition)
                : shape->coll == COLLI_ALLREDUCE ? two_way_cost(&it, partition)
                                                 : one_way_cost(&it, shape->root, partition);
  cost *= colli_model_path_factor(model);
  if (model->core_share < 1)
    cost = larger(cost, work_cost(&it, partition) / model->core_share);
  return cost;
}

/* The cost of the whole. */
double colli_hier_cost(const colli_hier *hier, colli_emitter *emit, const colli_shape *shape,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model) {
  colli_layout l;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  const double replayed = colli_replay_cost(emit, shape, partition, elem_bytes, model);
  if (replayed >= 0)
    return replayed;
  if (!colli_layout_make(&l, shape, hier->widest))
    return INFINITY;
  double *links, cost = INFINITY;
  if (sort_links(&l, shape, model->link_beta_ns_per_byte, &links))
    cost = sum_parts(hier, shape, &l, partition, elem_bytes, model, links);
  free(links);
  colli_layout_free(&l);
  return cost;
}
