/* train.h: one training run, from the first check of all ranks to the last epoch. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/options.h"

#include <coll/coll.h>

/* Makes the model of a run, if it fits the data. Every rank must make the same. */
typedef bool (*model_maker)(model *m, const options *o, const dataset *d, fail *why);

/*
 * Trains, collectively over the ranks of comm. If ranks are lost and the strategy can do without
 * them, those that are left continue. The caller keeps comm. data: from dataset_load(), or NULL if
 * that failed; then `why` holds the reason, which the other ranks learn here. On failure every
 * rank returns false soon; why->everywhere: all have the same text.
 */
bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why);

#endif
