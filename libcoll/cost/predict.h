/* predict.h: predicts the time of schedules by simulating events, with a core for each rank. */
#ifndef COLLI_COST_PREDICT_H
#define COLLI_COST_PREDICT_H

#include "libcoll/cost/model.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

/*
 * Replays the schedules of all ranks (scheds[0 .. nranks-1]) with this partition as events: a
 * message leaves when its sender has finished the step's slice and the link is free, and arrives
 * alpha and bytes * beta later; slots limit the messages in flight. Returns the time in ns at which
 * the last rank ends, a negative number if the schedules deadlock, or infinity if memory runs out.
 * Links are those of the groups of scheds[0]->shape, and of the groups inside.
 */
double colli_predict(const colli_sched *const *scheds, int nranks, const colli_partition *partition,
                     size_t elem_bytes, unsigned slot_count, const colli_model *model);

#endif
