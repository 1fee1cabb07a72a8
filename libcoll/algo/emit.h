/* emit.h: shared by the algorithms: helpers to emit steps, and the terms of their cost formulas. */
#ifndef COLLI_ALGO_EMIT_H
#define COLLI_ALGO_EMIT_H

#include "libcoll/algo/algo.h"

/* Where a step's value comes from and goes to. */
typedef struct colli_way {
  int from; /* peer_recv, or COLLI_NOBODY */
  int to;   /* peer_send, or COLLI_NOBODY */
  colli_buf src;
  colli_buf dst;
} colli_way;

#define COLLI_NOBODY (-1)

/* Adds a step that works on one chunk; returns its handle. */
int colli_emit(colli_builder *builder, int lane, unsigned bits, colli_way way, int chunk);

/* Emits the steps for a communicator of one rank: input to output, marked final if it is a
 * reduction. */
void colli_emit_alone(colli_builder *builder, colli_coll coll, int nchunks);

/* For `nchunks`: one chunk for each rank's block, or one for the whole vector. */
int colli_nchunks_blocks(const colli_shape *shape);
int colli_nchunks_one(const colli_shape *shape);

/* All-to-all out of place: emits the copy of a rank's own block; returns its handle. */
int colli_emit_own(colli_builder *builder, const colli_shape *shape);

/*
 * Reduction by owners: there are as many chunks as ranks, and rank r owns chunk r. Every rank sends
 * its contributions to the owners, rank - 1 first (contribute), and combines all contributions to
 * its own chunk in the order of the shape (combine). The final result goes to OUTPUT if `store`,
 * and to rank `to` unless that is COLLI_NOBODY; at least one of the two. Needs more than one rank.
 * Combining needs the given number of scratch chunks, all as long as the rank's own; declare that
 * with colli_builder_scratch_own().
 */
void colli_emit_contribute(colli_builder *builder, const colli_shape *shape, int lane);
void colli_emit_combine(colli_builder *builder, const colli_shape *shape, int lane, bool store,
                        int to);
int colli_combine_scratch(const colli_shape *shape, bool store);

/* The number of doubling rounds for n ranks: the smallest q with 2^q >= n. */
int colli_log2_up(int n);

/* The terms of the cost formulas, derived from a partition and a model; times in ns. */
typedef struct colli_terms {
  double filled; /* share of chunks that are not empty; a short vector may not fill all */
  double passes;
  double slices;      /* of a chunk in one pass */
  double bytes;       /* of a chunk in one pass */
  double copy;        /* a rank's pace: ns per slice while it only moves slices */
  double reduce;      /* the same while it reduces them */
  double work_reduce; /* a rank's own work on a slice that it reduces */
  double copy_hop;    /* one slice through one rank and over one link */
  double reduce_hop;  /* the same with a reduction */
} colli_terms;

colli_terms colli_terms_make(const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model);

/*
 * The time of one pipeline stage whose ranks work on one chunk after the other: its slices at the
 * rank's pace, or one slice's way to the next rank, whichever takes longer.
 */
static inline double colli_stage(const colli_terms *terms, double pace, double hop) {
  return terms->slices * pace > hop ? terms->slices * pace : hop;
}

/* The time in which a communicator of one rank copies its vector. */
double colli_cost_alone(const colli_partition *partition, const colli_terms *terms);

/* What one rank does in one pass, on average over the ranks. */
typedef struct colli_work {
  double steps;    /* chunks that it handles */
  double received; /* chunks that come over a link */
  double waits;    /* how often it must wait for a message */
  double reduced;  /* chunks that it reduces */
} colli_work;

/*
 * The time of a collective whose critical path takes `critical` ns. Where ranks share cores, the
 * cores must also do the work of all ranks, and every wait costs a change of ranks.
 */
double colli_cost_bound(double critical, colli_work work, const colli_terms *terms,
                        const colli_model *model);

extern const colli_algo colli_allreduce_recdbl;
extern const colli_algo colli_allreduce_direct;
extern const colli_algo colli_allreduce_pairs;
extern const colli_algo colli_allreduce_dbtree;
extern const colli_algo colli_allreduce_ring;
extern const colli_algo colli_broadcast_binomial;
extern const colli_algo colli_broadcast_chain;
extern const colli_algo colli_allgather_ring;
extern const colli_algo colli_barrier_dissemination;
extern const colli_algo colli_barrier_direct;
extern const colli_algo colli_reduce_scatter_ring;
extern const colli_algo colli_reduce_scatter_pairwise;
extern const colli_algo colli_alltoall_direct;
extern const colli_algo colli_alltoall_pairwise;
extern const colli_algo colli_alltoall_direct_sites;
extern const colli_algo colli_gather_direct;
extern const colli_algo colli_scatter_direct;
extern const colli_algo colli_scan_chain;
extern const colli_algo colli_exscan_chain;
extern const colli_algo colli_allreduce_rsag;
extern const colli_algo colli_allreduce_circulant;
extern const colli_algo colli_allreduce_bcube;
extern const colli_algo colli_reduce_bintree;
extern const colli_algo colli_broadcast_knomial4;
extern const colli_algo colli_broadcast_knomial8;
extern const colli_algo colli_broadcast_bintree;
extern const colli_algo colli_allreduce_knomial2;
extern const colli_algo colli_allreduce_knomial4;
extern const colli_algo colli_allreduce_knomial8;
extern const colli_algo colli_allreduce_bintree;
extern const colli_algo colli_reduce_chain;
extern const colli_algo colli_reduce_rsg;
extern const colli_algo colli_broadcast_scatterag;
extern const colli_algo colli_allreduce_rabenseifner;
extern const colli_algo colli_allreduce_hier;
extern const colli_algo colli_allreduce_hier_ring;
extern const colli_algo colli_allreduce_hier_split;
extern const colli_algo colli_allreduce_hier_lanes;
extern const colli_algo colli_allreduce_hier_sites;
extern const colli_algo colli_allgather_hier_sites;
extern const colli_algo colli_reduce_scatter_hier_sites;
extern const colli_algo colli_allreduce_hier_trees;
extern const colli_algo colli_allreduce_hier_levels;
extern const colli_algo colli_allreduce_hier_levels_split;
extern const colli_algo colli_allreduce_hier_weighted;
extern const colli_algo colli_allreduce_hier_weighted_fine;
extern const colli_algo colli_allgather_hier;
extern const colli_algo colli_allgather_hier_ring;
extern const colli_algo colli_reduce_scatter_hier;
extern const colli_algo colli_reduce_hier;
extern const colli_algo colli_reduce_hier_chain;
extern const colli_algo colli_broadcast_hier;
extern const colli_algo colli_broadcast_hier_chain;
extern const colli_algo colli_reduce_binomial;
extern const colli_algo colli_reduce_knomial4;
extern const colli_algo colli_reduce_knomial8;
extern const colli_algo colli_allgather_bruck;
extern const colli_algo colli_allgather_bruck4;
extern const colli_algo colli_allgather_pat;
extern const colli_algo colli_allgather_recdbl;
extern const colli_algo colli_allgather_bcube;
extern const colli_algo colli_allgather_direct;
extern const colli_algo colli_reduce_scatter_circulant;
extern const colli_algo colli_reduce_scatter_pat;
extern const colli_algo colli_reduce_scatter_bcube;
extern const colli_algo colli_reduce_scatter_direct;
extern const colli_algo colli_reduce_scatter_halving;
extern const colli_algo colli_scan_doubling;
extern const colli_algo colli_exscan_doubling;
extern const colli_algo colli_alltoall_bruck;
extern const colli_algo colli_gather_binomial;
extern const colli_algo colli_gather_knomial4;
extern const colli_algo colli_scatter_binomial;
extern const colli_algo colli_scatter_knomial4;
extern const colli_algo colli_barrier_dissemination4;

#endif
