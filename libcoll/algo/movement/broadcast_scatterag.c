/*
 * broadcast_scatterag.c: the root scatters the vector down a binomial tree, and a ring gathers it
 * everywhere. The ring is cut before the root, which has all chunks already: it sends them to its
 * neighbour in the order in which the ring would have brought them.
 *
 * Cost: (log2(n) + n - 1) alpha + 2 (n-1)/n N beta for N bytes. Wins for long vectors where passes
 * cannot follow each other closely: no chunk is passed on as a whole.
 * Source: Barnett, Shuler, van de Geijn, Gupta, Payne and Watts, "Interprocessor collective
 * communication library (InterCom)", SHPCC 1994.
 *
 * 5 ranks, root 0 (other roots: ranks and chunks counted from the root on):
 *
 *     scatter:     0             gather:   0 --> 1 --> 2 --> 3 --> 4
 *                / | \
 *               4  2  1          from 0: chunks 0 4 3 2;  from 1: 1 0 4 3;  from 2: 2 1 0 4; ...
 *                  |
 *                  3
 *
 * Chunks are scattered from the last to the first: what goes on to the biggest subtree comes first.
 */
#include "libcoll/algo/timeline.h"

#define LEVELS_MAX 18 /* of the tree of COLLI_MODEL_RANKS ranks */

/* Emits a rank's part of the scatter; `at` is its distance from the root. */
static void emit_scatter(colli_builder *builder, const colli_shape *shape, int at) {
  int n = shape->nranks, root = shape->root;
  int span = 1; /* the subtree of `at` holds the distances below at + span */
  while (span < n && !(at & span))
    span *= 2;
  colli_way way = {at ? (root + at - span) % n : COLLI_NOBODY, COLLI_NOBODY,
                   at ? COLLI_OUTPUT : COLLI_INPUT, COLLI_OUTPUT};
  unsigned bits = COLLI_STORE | (at ? COLLI_RECV : 0);
  for (int chunk = at + span < n ? at + span - 1 : n - 1; chunk > at; chunk--) {
    int child = 1;
    while (2 * child <= chunk - at)
      child *= 2;
    way.to = (root + at + child) % n;
    colli_emit(builder, 0, bits | COLLI_SEND, way, chunk);
  }
  way.to = COLLI_NOBODY;
  if (at)
    colli_emit(builder, 0, bits, way, at);
}

/* Emits a rank's part of the gather. */
static void emit_gather(colli_builder *builder, const colli_shape *shape, int at) {
  int n = shape->nranks, rank = shape->rank;
  colli_way way = {COLLI_NOBODY, at < n - 1 ? (rank + 1) % n : COLLI_NOBODY,
                   at ? COLLI_OUTPUT : COLLI_INPUT, COLLI_OUTPUT};
  if (at == 0)
    colli_emit(builder, 0, COLLI_STORE | COLLI_SEND, way, 0);
  else if (way.to != COLLI_NOBODY)
    colli_emit(builder, 0, COLLI_SEND, way, at);
  way.from = at ? (rank + n - 1) % n : COLLI_NOBODY;
  way.src = COLLI_OUTPUT;
  for (int hop = 1; hop < n; hop++) {
    unsigned bits = at ? COLLI_RECV | COLLI_STORE : 0;
    if (hop == n - 1) /* the chunk that the next rank began with */
      way.to = COLLI_NOBODY;
    bits |= way.to == COLLI_NOBODY ? 0 : COLLI_SEND;
    if (bits)
      colli_emit(builder, 0, bits, way, (at + n - hop) % n);
  }
}

static coll_status scatterag_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, at = (shape->rank - shape->root + n) % n;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1) {
    colli_emit_alone(builder, shape->coll, 1);
  } else {
    emit_scatter(builder, shape, at);
    emit_gather(builder, shape, at);
  }
  return colli_builder_finish(builder, sched);
}

/*
 * When the last rank has everything, as far as this depends on the rank at distance u, which begins
 * the gather at `begins`. A chunk takes one stage to each next rank, and one chunk more if that
 * rank must send another one first. From u on there are n - 1 - u more ranks; the last link carries
 * n - 1 chunks, u of which come from ranks before u.
 */
static double line_end(int n, int u, double begins, const colli_terms *t, double step) {
  double stage = colli_stage(t, t->copy, t->copy_hop);
  return begins + t->copy_hop + (n - 2 - u) * stage + ((u + 1) * t->slices - 1) * t->copy + step;
}

/* One pass: the root's part of the gather does not begin before its part of the scatter ends. */
static double one_pass(int n, int full, const colli_terms *t, const colli_timeline *fresh) {
  colli_timeline root = *fresh, on_way[LEVELS_MAX];
  int node[LEVELS_MAX] = {0}; /* the rank of this timeline: the one on the path at that level */
  double end = 0;
  for (int chunk = full - 1; chunk > 0; chunk--) {
    colli_flight in = colli_timeline_send(&root);
    for (int bit = LEVELS_MAX - 1, at = 0; bit >= 0; bit--) {
      if (!(chunk >> bit & 1))
        continue;
      at |= 1 << bit;
      if (node[bit] != at)
        on_way[bit] = *fresh;
      node[bit] = at;
      if (at < chunk) {
        in = colli_timeline_forward(&on_way[bit], in);
        continue;
      }
      colli_timeline_receive(&on_way[bit], in);
      double out = on_way[bit].out - fresh->step, now = on_way[bit].now;
      double ends = at < n - 1 ? line_end(n, at, out > now ? out : now, t, fresh->step) : now;
      end = ends > end ? ends : end;
    }
  }
  double out = root.out - fresh->step;
  double ends = line_end(n, 0, out > root.now ? out : root.now, t, fresh->step);
  return ends > end ? ends : end;
}

static double scatterag_cost(const colli_shape *shape, const colli_partition *partition,
                             size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  colli_timeline fresh = colli_timeline_make(&t, model);
  double n = shape->nranks, full = t.filled * n;
  double pass = one_pass(shape->nranks, (int)(full + 0.5), &t, &fresh);
  /* The root has the most work: it sends nearly everything twice. */
  double later = 2 * (n - 1) * t.slices * t.copy;
  double moves = (n - 1) * (n - 1) / n, levels = colli_log2_up(shape->nranks) / 2.0;
  colli_work work = {.steps = moves + levels + 1, .received = moves + levels, .waits = moves};
  return colli_cost_bound(pass + (t.passes - 1) * later, work, &t, model);
}

const colli_algo colli_broadcast_scatterag = {
    .name = "scatterag",
    .id = 33,
    .coll = COLLI_BROADCAST,
    .when = "long vectors where passes cannot follow each other closely",
    .source = "Barnett et al. 1994",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 3,
    .reach = COLLI_REACH_RING,
    .nchunks = colli_nchunks_blocks,
    .emit = scatterag_emit,
    .cost = scatterag_cost,
};
