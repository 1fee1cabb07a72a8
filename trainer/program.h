/* program.h: a complete training program: coll_train, or one with its own data and model. */
#ifndef TRAINER_PROGRAM_H
#define TRAINER_PROGRAM_H

#include "trainer/train.h"

/* Loads the data of a run, or fills in a dataset that is in memory. */
typedef bool (*data_loader)(dataset *d, const options *o, fail *why);

/* Runs the program: parses the options, loads the data, joins the other ranks, and trains the model
 * on all of them. Returns the exit status. */
int program_run(int argc, char **argv, data_loader load, model_maker make);

#endif
