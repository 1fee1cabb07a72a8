/* program.h: a complete training program: coll_train, or one with its own data and model. */
#ifndef TRAINER_PROGRAM_H
#define TRAINER_PROGRAM_H

#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/options.h"

/* Loads the data of a run, or fills in a dataset that is in memory. */
typedef bool (*data_loader)(dataset *d, const options *o, fail *why);

/* Makes the model of a run, if it fits the data. Every rank must make the same. */
typedef bool (*model_maker)(model *m, const options *o, const dataset *d, fail *why);

/* Runs the program: parses the options, loads the data, joins the other ranks, and trains the model
 * on all of them. Returns the exit status. */
int program_run(int argc, char **argv, data_loader load, model_maker make);

/* Joins a run (--join): waits until it lets this process in. False also if the run ends before. */
bool join_run(const options *o, coll_comm **comm, fail *why);

/*
 * Trains, collectively over the ranks of comm. If ranks are lost and the strategy can do without
 * them, those that are left continue. The caller keeps comm. data: from dataset_load(), or NULL if
 * that failed; then `why` holds the reason, which the other ranks learn here. On failure every
 * rank returns false soon; why->everywhere: all have the same text. With --join, comm is from
 * join_run().
 */
bool train(const options *o, model_maker make, coll_comm *comm, const dataset *data, fail *why);

#endif
