/*
 * algo.h: the seam for algorithms. An algorithm is a pure function from a shape to a schedule, and
 * a cost formula. One file an algorithm, in reductions/ if it combines elements and in movement/ if
 * it only moves them; algo.c lists them all.
 */
#ifndef COLLI_ALGO_ALGO_H
#define COLLI_ALGO_ALGO_H

#include "libcoll/cost/model.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

typedef struct colli_algo {
  const char *name; /* "ring"; unique within a collective */
  int id;           /* travels in tags; unique in the table, from 1 */
  colli_coll coll;
  const char *when;   /* when it wins, in a few words, for coll_explain */
  const char *source; /* the paper or book it comes from */
  bool pipelined;     /* gains from many small chunks: the choice tries several chunk sizes */
  int ranks_min;      /* below this it must be asked for by name */
  int ranks_device;   /* the same where a device moves the messages; 0: ranks_min */
  int ranks_max;      /* above this it must be asked for by name; 0: no limit */
  unsigned orders;    /* which orders of combination it can give: bits 1u << COLLI_ORDER_... */
  bool varying;       /* can do blocks of differing lengths (shape->varying) */
  bool exchanges;     /* ranks send each other what they store to next: see by_reference.c */
  bool turns;  /* its schedules for roots 0 and 1 are used in turn, by ranks that share cores two
                  by two (colli_model.paired); others must ask for it by name */
  bool groups; /* only for communicators of several groups (shape->ngroups > 1) */
  /* How many chunks it wants for this shape (1 for a barrier). */
  int (*nchunks)(const colli_shape *shape);
  /* Makes this rank's schedule. Errors: NO_MEMORY, INTERNAL. */
  coll_status (*emit)(const colli_shape *shape, colli_sched **sched);
  /* Predicted ns on an uncongested network, in closed form; `bytes` is the partition's whole vector
   * (all-gather: nranks * count). Independent of shape->rank. */
  double (*cost)(const colli_shape *shape, const colli_partition *partition, size_t elem_bytes,
                 const colli_model *model);
} colli_algo;

/* All algorithms; ends with NULL. */
extern const colli_algo *const colli_algos[];

/* For `orders`: what an algorithm gives that combines all ranks by order.h's tree, from left to
 * right, in some order that keeps ranks in order, or in none that can be relied upon. Moving data
 * needs COLLI_GIVES_ANY only. */
#define COLLI_GIVES_ANY   (1u << COLLI_ORDER_ANY)
#define COLLI_GIVES_RANKS (COLLI_GIVES_ANY | 1u << COLLI_ORDER_RANKS)
#define COLLI_GIVES_TREE  (COLLI_GIVES_RANKS | 1u << COLLI_ORDER_TREE)
#define COLLI_GIVES_LEFT  (COLLI_GIVES_RANKS | 1u << COLLI_ORDER_LEFT)

/* Makes this rank's schedule, complete with `algo` and what it may send by reference. */
coll_status colli_algo_emit(const colli_algo *algo, const colli_shape *shape, colli_sched **sched);

/* Whether an algorithm can make a schedule of this shape at all. */
bool colli_algo_can(const colli_algo *algo, const colli_shape *shape);

/* Finds by collective and name; NULL if there is none. */
const colli_algo *colli_algo_find(colli_coll coll, const char *name);

#endif
