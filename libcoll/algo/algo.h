/*
 * algo.h: the interface of algorithms. An algorithm is a pure function from a shape to a schedule,
 * plus a cost formula. Each has a file of its own, in reductions/ if it combines elements and in
 * movement/ if it only moves them; algo.c lists them all.
 */
#ifndef COLLI_ALGO_ALGO_H
#define COLLI_ALGO_ALGO_H

#include "libcoll/cost/model.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

/*
 * Whom ranks talk to, from which follows what links cost on average (distance.h) in formulas that
 * know one kind of links only. A block is 1 rank in the first round, and `radix` times as much in
 * each further one.
 */
typedef enum colli_reach {
  COLLI_REACH_FAR,   /* the root: all links are taken to be the farthest, and share its host's */
  COLLI_REACH_KNOWN, /* the formula looks at each link by itself */
  COLLI_REACH_RING,  /* the next rank, and behind the last the first; with a radix: in each round
                      * the ranks 1 .. radix - 1 blocks further on */
  COLLI_REACH_LINE,  /* the same, but nothing is behind the last */
  COLLI_REACH_PAIRS, /* in each round, ranks whose numbers differ in one digit, the lowest first */
  COLLI_REACH_TREE,  /* the same, but in one direction only */
  COLLI_REACH_ALL,   /* all others at once */
  COLLI_REACH_TURNS  /* all others, one after the other */
} colli_reach;

typedef struct colli_algo {
  const char *name; /* "ring"; unique within a collective */
  int id;           /* travels in tags; unique in the table, from 1 */
  colli_coll coll;
  const char *when;   /* when it wins, in a few words, for coll_explain */
  const char *source; /* the paper or book it comes from */
  bool pipelined;     /* gains from many small chunks, so the choice tries several chunk sizes */
  int ranks_min;      /* below this it must be asked for by name */
  int ranks_remote;   /* the same where ranks share no memory (colli_model.remote); 0: ranks_min */
  int ranks_max;      /* above this it is chosen only by name; 0: no limit */
  unsigned orders;    /* the orders of combination that it supports: bits 1u << COLLI_ORDER_... */
  bool varying;       /* supports blocks of differing lengths (shape->varying) */
  bool exchanges;     /* ranks send each other chunks that they store to next: see by_reference.c */
  bool turns; /* alternates between its schedules for roots 0 and 1; chosen only where ranks share
                 cores in pairs (colli_model.paired), or by name */
  colli_reach reach; /* of algorithms without groups; those with groups know all links */
  int radix;         /* of rounds; 0: there are none */
  int longer;        /* 1: the farther messages go, the longer they are; -1: the shorter; 0: all
                      * are alike */
  int groups_min;    /* with fewer innermost groups it is chosen only by name */
  int groups_max;    /* the same with more; 0: no limit */
  bool groups;       /* only for communicators of several groups (shape->ngroups > 1) */
  bool sites;        /* chosen only where groups are sites (colli_model.sites), or by name */
  bool long_lines;   /* ... and the line between them holds more than the lanes of another one */
  bool levels; /* chosen only where groups have levels inside (shape->ninner > 0), or by name; with
                * `sites`: where they are sites or have levels */
  bool flat;   /* has groups, but only the innermost: all hosts send to hosts of other sites, so it
                * is chosen only by name where there are sites of several hosts */
  bool weighted; /* divides work by shape->share; chosen only where there is one, or by name */
  /* The number of chunks for this shape (1 for a barrier). */
  int (*nchunks)(const colli_shape *shape);
  /* Makes this rank's schedule. Errors: NO_MEMORY, INTERNAL. */
  coll_status (*emit)(const colli_shape *shape, colli_sched **sched);
  /* Predicted ns on an uncongested network, in closed form; `bytes` is the partition's whole vector
   * (all-gather: nranks * count). Independent of shape->rank. Infinite if memory for it ran out. */
  double (*cost)(const colli_shape *shape, const colli_partition *partition, size_t elem_bytes,
                 const colli_model *model);
} colli_algo;

/* All algorithms; ends with NULL. */
extern const colli_algo *const colli_algos[];

/* Values of `orders` for an algorithm that combines all ranks by order.h's tree, from left to
 * right, in another order that keeps ranks in order, or in no guaranteed order. Algorithms that
 * only move data need just COLLI_GIVES_ANY. */
#define COLLI_GIVES_ANY   (1u << COLLI_ORDER_ANY)
#define COLLI_GIVES_RANKS (COLLI_GIVES_ANY | 1u << COLLI_ORDER_RANKS)
#define COLLI_GIVES_TREE  (COLLI_GIVES_RANKS | 1u << COLLI_ORDER_TREE)
#define COLLI_GIVES_LEFT  (COLLI_GIVES_RANKS | 1u << COLLI_ORDER_LEFT)

/* Makes this rank's schedule, sets its `algo`, and marks the steps that may send by reference. */
coll_status colli_algo_emit(const colli_algo *algo, const colli_shape *shape, colli_sched **sched);

/* Whether an algorithm can make a schedule of this shape at all. */
bool colli_algo_can(const colli_algo *algo, const colli_shape *shape);

/* Finds an algorithm by collective and name; NULL if there is none. */
const colli_algo *colli_algo_find(colli_coll coll, const char *name);

#endif
