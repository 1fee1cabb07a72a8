/* train.h: one run of training, from agreement between the ranks to the last epoch. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/options.h"

#include <coll/coll.h>

/* Makes the model of a run, if it fits the data. Every rank must make the same. */
typedef bool (*model_maker)(model *m, const options *o, const dataset *d, fail *why);

/*
 * Trains, collectively over the ranks of comm; where ranks are lost and the strategy goes on
 * without them, over those that are left. comm stays the caller's. data: what dataset_load() gave,
 * or NULL if it failed; then `why` holds the reason, which the other ranks learn here. On a failure
 * every rank returns false soon: why->everywhere says whether the others have the same text.
 */
bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why);

#endif
