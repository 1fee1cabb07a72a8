/* order.c: the orders in which contributions are combined. */
#include "libcoll/sched/order.h"

/* The number of seats of TREE. */
int colli_order_seats(int nranks) {
  int seats = 1;
  while (seats <= nranks / 2)
    seats *= 2;
  return seats;
}

/* The seat of a rank. */
int colli_order_seat(int nranks, int rank) {
  int extra = nranks - colli_order_seats(nranks);
  return rank < 2 * extra ? rank / 2 : rank - extra;
}

/* The first rank of a seat. */
int colli_order_seat_rank(int nranks, int seat) {
  int extra = nranks - colli_order_seats(nranks);
  return seat < extra ? 2 * seat : seat + extra;
}

/* left op right, unless one of them failed. */
static int join(const colli_combiner *c, int left, int right) {
  if (left < 0 || right < 0)
    return left < 0 ? left : right;
  return c->combine(c->ctx, left, right);
}

/* Seats first .. first + count - 1 of TREE, as a perfect binary tree. */
static int fold_seats(int nranks, int first, int count, const colli_combiner *c) {
  if (count > 1) {
    int left = fold_seats(nranks, first, count / 2, c);
    return left < 0 ? left : join(c, left, fold_seats(nranks, first + count / 2, count / 2, c));
  }
  int rank = colli_order_seat_rank(nranks, first);
  int value = c->leaf(c->ctx, rank);
  bool two = first < nranks - colli_order_seats(nranks);
  return two && value >= 0 ? join(c, value, c->leaf(c->ctx, rank + 1)) : value;
}

/* Combines ranks 0 .. nranks-1 in an order. */
int colli_order_fold(colli_order order, int nranks, const colli_combiner *combiner) {
  if (order == COLLI_ORDER_TREE)
    return fold_seats(nranks, 0, colli_order_seats(nranks), combiner);
  int value = combiner->leaf(combiner->ctx, 0);
  for (int rank = 1; rank < nranks && value >= 0; rank++)
    value = join(combiner, value, combiner->leaf(combiner->ctx, rank));
  return value;
}
