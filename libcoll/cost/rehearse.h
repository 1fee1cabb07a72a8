/*
 * rehearse.h: predicts the time of a collective where ranks share cores. Ranks on one core take
 * turns: one runs until it must wait for a message or a slot, and then hands over the core, which
 * costs the model's alpha. A message to another core costs its sender the model's flight time. The
 * predictor, in contrast, assumes that all ranks run at once. Here, few hand-overs and few messages
 * between cores matter, not a short critical path. It does not know that hosts' links are shared.
 */
#ifndef COLLI_COST_REHEARSE_H
#define COLLI_COST_REHEARSE_H

#include "libcoll/cost/model.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

/*
 * Replays the schedules of all ranks on the cores that the model gives them (core_share), one
 * collective after the other. Returns the time in ns of one collective, a negative number if they
 * deadlock, or infinity if memory runs out. Of many passes only the first few are replayed.
 */
double colli_rehearse(const colli_sched *const *scheds, int nranks,
                      const colli_partition *partition, size_t elem_bytes, unsigned slot_count,
                      const colli_model *model);

#endif
