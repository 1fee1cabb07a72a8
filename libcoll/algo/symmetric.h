/*
 * symmetric.h: all-gathers, reduce-scatters and all-reduces that are symmetric in the ranks: all do
 * the same, relative to their own number. The ranks are the elements of a group (numbers modulo n,
 * or digits each modulo its radix), and an all-gather is a list of *moves*: (distance d, offset o)
 * means that every rank r sends block r + o to rank r - d, which then has one more. Read backwards,
 * the same list is a reduce-scatter: where a copy went to a rank, a partial sum now comes from it.
 * An all-reduce is a reduce-scatter and an all-gather.
 *
 * A rank follows one list of steps. Messages of a round to the same rank are spread over lanes, so
 * that several are in flight even if a connection has little credit. Each step has a dep on the
 * previous one, which keeps the list in order.
 */
#ifndef COLLI_ALGO_SYMMETRIC_H
#define COLLI_ALGO_SYMMETRIC_H

#include "libcoll/algo/emit.h"

#define COLLI_SYMMETRIC_DIGITS 17 /* COLLI_MODEL_RANKS has no more prime factors */

typedef struct colli_move {
  int32_t distance;
  int32_t offset;
  int32_t round; /* moves of one round do not depend on each other */
  int32_t turn;  /* its index among the moves of its round and distance; they are sorted by it */
} colli_move;

/* The moves of an all-gather among n ranks. */
typedef struct colli_symmetric {
  int n;
  int digits;
  int radix[COLLI_SYMMETRIC_DIGITS]; /* lowest first */
  int count;                         /* n - 1: nothing is moved twice */
  colli_move *move;                  /* NULL: out of memory */
} colli_symmetric;

/* Round k, from 0: blocks o < radix^k go to the distances j radix^k, 0 < j < radix. */
colli_symmetric colli_symmetric_dissemination(int n, int radix);

/* Distances that double, and end as near to n / 2 as they can. */
colli_symmetric colli_symmetric_circulant(int n);

/* Distances that halve: the farthest rank first, with one block. */
colli_symmetric colli_symmetric_far_first(int n);

/*
 * Digits: n as a product of its prime factors, with factors of two combined up to `most`. Round k
 * exchanges blocks among ranks that differ in digit k only.
 */
colli_symmetric colli_symmetric_digits(int n, int most);

/* Sets the digits and radices that these have, for symmetric->n. */
void colli_symmetric_factor(colli_symmetric *symmetric, int most);

/* Emits the schedule of shape->coll, which is one of the three, and frees the moves. */
coll_status colli_symmetric_emit(const colli_shape *shape, colli_symmetric *symmetric,
                                 colli_sched **sched);

/* Its cost; frees the moves. */
double colli_symmetric_cost(const colli_shape *shape, colli_symmetric *symmetric,
                            const colli_partition *partition, size_t elem_bytes,
                            const colli_model *model);

#endif
