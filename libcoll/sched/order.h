/*
 * order.h: the order in which the contributions of n ranks are combined when the result must not
 * depend on the algorithm. TREE: let p be the largest power of two that is at most n, and e = n -
 * p. Ranks 2i and 2i + 1, i < e, share a seat, x[2i] op x[2i + 1]; each other rank has a seat of
 * its own. The p seats, in rank order, are combined as a perfect binary tree, left op right, as
 * recursive doubling does. LEFT (and RANKS, ANY): from left to right.
 *
 * Scans have a result for each number of ranks, and combine from left to right under TREE too.
 */
#ifndef COLLI_SCHED_ORDER_H
#define COLLI_SCHED_ORDER_H

#include "libcoll/sched/sched.h"

/* Callbacks that make the values. If one returns a negative number, the combination stops. */
typedef struct colli_combiner {
  int (*leaf)(void *ctx, int rank);               /* the value of a rank's contribution */
  int (*combine)(void *ctx, int left, int right); /* left op right; both are used only this once */
  void *ctx;
} colli_combiner;

/* Combines ranks 0 .. nranks-1 in an order; returns the result, or the negative number. */
int colli_order_fold(colli_order order, int nranks, const colli_combiner *combiner);

/* The number of seats of TREE: the largest power of two that is at most n. */
int colli_order_seats(int nranks);

/* The seat of a rank, and the first rank of a seat. A seat has two ranks if seat < n - seats. */
int colli_order_seat(int nranks, int rank);
int colli_order_seat_rank(int nranks, int seat);

#endif
