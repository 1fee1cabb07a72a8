/*
 * verify_order.c: finds unordered accesses of one rank. Only the order of a lane and deps count,
 * not an order that results from other ranks' messages.
 */
#include <stdlib.h>
#include <string.h>

#include "libcoll/verify/verify_state.h"

/* Sets up the records of a rank; none for a single lane, which is always in order. */
bool colli_vorder_make(colli_vorder *order, const colli_sched *sched, int passes, int nplaces) {
  size_t lanes = (size_t)sched->nlanes, all = (size_t)nplaces + 1;
  if (lanes == 1)
    return true;
  order->clock = calloc(lanes * lanes, sizeof(int32_t));
  order->snapshot = calloc(((size_t)passes * (size_t)sched->nsteps + 1) * lanes, sizeof(int32_t));
  order->wrote = calloc(all, sizeof(int32_t));
  order->writer = calloc(all, sizeof(int8_t));
  order->read = calloc(all * lanes, sizeof(int32_t));
  return order->clock && order->snapshot && order->wrote && order->writer && order->read;
}

/* Frees the records of a rank. */
void colli_vorder_free(colli_vorder *order) {
  free(order->clock);
  free(order->snapshot);
  free(order->wrote);
  free(order->writer);
  free(order->read);
}

/* The vector clock of a lane after a step. */
static int32_t *snapshot_of(colli_vrank *rank, int pass, int step) {
  size_t at = (size_t)pass * (size_t)rank->sched->nsteps + (size_t)step;
  return rank->order.snapshot + at * (size_t)rank->sched->nlanes;
}

/* A step begins: its clock includes those of its deps. */
void colli_vorder_begin(colli_vrank *rank, const colli_step *step, int pass) {
  int lanes = rank->sched->nlanes;
  if (lanes == 1)
    return;
  int32_t *clock = rank->order.clock + step->lane * lanes;
  for (int d = 0; d < 2; d++) {
    if (step->dep[d] == COLLI_NO_DEP)
      continue;
    const int32_t *other = snapshot_of(rank, pass, step->dep[d]);
    for (int l = 0; l < lanes; l++)
      clock[l] = other[l] > clock[l] ? other[l] : clock[l];
  }
}

/* A step ends. */
void colli_vorder_end(colli_vrank *rank, int lane, int pass, int step) {
  int lanes = rank->sched->nlanes;
  if (lanes == 1)
    return;
  int32_t *clock = rank->order.clock + lane * lanes;
  clock[lane] = 1 + pass * rank->sched->nsteps + step;
  memcpy(snapshot_of(rank, pass, step), clock, (size_t)lanes * sizeof(*clock));
}

/* An access by a lane's current step. */
int colli_vorder_access(colli_vrank *rank, int lane, int place, bool write) {
  int lanes = rank->sched->nlanes;
  if (lanes == 1)
    return -1;
  colli_vorder *order = &rank->order;
  const int32_t *clock = order->clock + lane * lanes;
  int32_t now = 1 + rank->lane[lane].pass * rank->sched->nsteps + rank->lane[lane].step;
  int32_t *read = order->read + (size_t)place * (size_t)lanes;
  int writer = order->writer[place];
  if (order->wrote[place] && writer != lane && order->wrote[place] > clock[writer])
    return writer;
  if (!write) {
    read[lane] = now;
    return -1;
  }
  for (int l = 0; l < lanes; l++)
    if (l != lane && read[l] > clock[l])
      return l;
  order->wrote[place] = now;
  order->writer[place] = (int8_t)lane;
  return -1;
}
