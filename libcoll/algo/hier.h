/*
 * hier.h: algorithms for communicators of several groups (hosts) whose ranks are near each other.
 * They run algorithms of the table one after the other, some inside each group and some between
 * groups. The schedules for these parts of the ranks and of the vector are translated into one.
 * Groups may themselves be in groups (hosts in racks, racks in sites), at any number of levels: the
 * part between groups then is such an algorithm itself.
 */
#ifndef COLLI_ALGO_HIER_H
#define COLLI_ALGO_HIER_H

#include "libcoll/algo/emit.h"
#include "libcoll/algo/replay.h"

/*
 * The parts of a hierarchical algorithm; each has one lane, and scratch for two vectors at most.
 * `enter` runs inside groups first, `across` between groups, `leave` inside groups last; NULL:
 * nothing.
 *   all-reduce:      reduce, all-reduce between the groups' leaders, broadcast;
 *           or split reduce-scatter, all-reduce between ranks of equal position, all-gather
 *   reduce:          reduce, reduce between leaders
 *   broadcast:       broadcast between leaders, broadcast
 *   all-gather:      all-gather, all-gather between leaders, broadcast of the others' blocks;
 *           or split all-gather between ranks of equal position, all-gather of what they have
 *   reduce-scatter:  reduce, reduce-scatter between leaders, scatter;
 *           or split reduce-scatter of all blocks, reduce-scatter between ranks of equal position
 * The leader of a group is the root, or the lowest rank. In a split all-reduce among groups that
 * differ in size, ranks of smaller groups handle more of the vector (hier_shares.h); blocks cannot
 * be split then. Where groups are in groups, `above` takes the place of `across`; the groups of the
 * whole are then the innermost ones. The part between groups gets what each combines
 * (colli_shape.share). With several lanes, each does all of this on its part of the vector;
 * collectives of blocks have one lane, or one each way. If only the widest groups count, ranks of a
 * host are neighbours inside them.
 */
typedef struct colli_hier {
  const colli_algo *enter;
  const colli_algo *across;
  const colli_algo *leave;
  const colli_algo *above;
  const struct colli_hier *otherwise; /* for blocks of groups that differ in size; NULL: none */
  int lanes;                          /* 0: one */
  bool split;
  bool trees;  /* split all-reduce whose `across`, dbtree, has two lanes up and two down, which
                * `enter` and `leave` share (colli_shares_trees()); only its price is dbtree's */
  bool widest; /* the groups are the widest ones (sites), whatever is inside these */
  bool duplex; /* blocks: a lane each way between two groups; other numbers of groups get
                * `otherwise` */
} colli_hier;

int colli_hier_nchunks(const colli_hier *hier, const colli_shape *shape);
coll_status colli_hier_emit(const colli_hier *hier, const colli_shape *shape, colli_sched **sched);

/* By a replay of its events (replay.h), because parts overlap in ways that no short formula
 * describes. For more ranks than that takes it is the sum of the parts, for near and far ranks;
 * passes of trees follow each other. `emit`: the algorithm's. */
double colli_hier_cost(const colli_hier *hier, colli_emitter *emit, const colli_shape *shape,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model);

/* Defines the functions that the table of algorithms needs for a hierarchical one: NAME_nchunks,
 * NAME_emit and NAME_cost for the parts in `hier`. */
#define COLLI_HIER_FUNCTIONS(name, hier)                                                           \
  static int name##_nchunks(const colli_shape *shape) {                                            \
    return colli_hier_nchunks(hier, shape);                                                        \
  }                                                                                                \
  static coll_status name##_emit(const colli_shape *shape, colli_sched **sched) {                  \
    return colli_hier_emit(hier, shape, sched);                                                    \
  }                                                                                                \
  static double name##_cost(const colli_shape *shape, const colli_partition *partition,            \
                            size_t elem_bytes, const colli_model *model) {                         \
    return colli_hier_cost(hier, name##_emit, shape, partition, elem_bytes, model);                \
  }

#endif
