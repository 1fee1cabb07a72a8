/* locality.h: where the ranks sit, and what this means for the cost model. */
#ifndef COLLI_TUNING_LOCALITY_H
#define COLLI_TUNING_LOCALITY_H

#include "coll/coll_transport.h"
#include "libcoll/cost/model.h"
#include "libcoll/cost/weights.h"
#include "libcoll/sched/partition.h"
#include "libcoll/wireup/bootstrap/bootstrap.h"

/* Fills in the processors that this process may use, and the one to which it is bound. */
void colli_locality_describe(colli_rank_info *info);

/* What the table of ranks says about a communicator; the same on every rank except for `crowded`,
 * `neighbours` and `mate`. */
typedef struct colli_locality {
  colli_model model;   /* of the slowest kind of link that some pair uses, on the fullest machine */
  colli_limits limits; /* sizes of slots and slices that suit it and for which all have memory */
  bool crowded;        /* the ranks on this rank's machine outnumber the processors they may use */
  int neighbours;      /* ranks on this rank's machine, itself included */
  int mate;            /* the one other rank bound to this rank's core; -1: none, or several */
  colli_weights *weights; /* how the hosts' links differ; NULL: they do not */
  int ngroups;            /* as in colli_shape: hosts, or wider groups of several hosts */
  int32_t *group;         /* the one of each rank, numbered in the order of their first ranks. NULL:
                             one host */
  int ninner;             /* as in colli_shape: 0, or hosts come first */
  int32_t *inner[COLLI_INNER_LEVELS];
  int names[COLLI_INNER_LEVELS + 1]; /* of colli_rank_info.levels that ranks share who are in one of
                                      * inner[i], or at `ninner` in one of group; 0: hosts */
} colli_locality;

/* The transports of the table's records: bit and blob number i belong to ops[i]. */
typedef struct colli_transport_list {
  const coll_transport_ops *ops[COLLI_MAX_TRANSPORTS]; /* NULL: this rank does not use it */
  int count;
} colli_transport_list;

/* Frees group, inner and weights. */
void colli_locality_free(colli_locality *locality);

/*
 * Finds where the ranks sit. The model's costs are the largest that any rank has measured, so that
 * all ranks get the same, whatever files they have read. It uses `corrections` (may be NULL; must
 * outlive the result) only if all ranks have read the same ones. The result is freed with
 * colli_locality_free(), or its parts are. Errors: NO_MEMORY, MISMATCH (levels).
 */
coll_status colli_locality_find(const colli_rank_table *table, int rank,
                                const colli_transport_list *transports,
                                const colli_corrections *corrections, colli_locality *out,
                                coll_error *error);

#endif
