/*
 * replay.h: prices an algorithm by a replay of the events of all ranks (cost/predict.h), where
 * these are few. No message waits for a slot, as in formulas.
 */
#ifndef COLLI_ALGO_REPLAY_H
#define COLLI_ALGO_REPLAY_H

#include "libcoll/cost/model.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

/* Makes a rank's schedule, as colli_algo.emit does. */
typedef coll_status colli_emitter(const colli_shape *shape, colli_sched **sched);

/* The predicted ns; negative if there are more than 64 ranks, or if the schedules deadlock;
 * infinite if out of memory. */
double colli_replay_cost(colli_emitter *emit, const colli_shape *shape,
                         const colli_partition *partition, size_t elem_bytes,
                         const colli_model *model);

#endif
