/* program.h: a whole program that trains: coll_train, or one with data and a model of its own. */
#ifndef TRAINER_PROGRAM_H
#define TRAINER_PROGRAM_H

#include "trainer/train.h"

/* Loads the data of a run, or fills in a dataset that lies in memory. */
typedef bool (*data_loader)(dataset *d, const options *o, fail *why);

/* Does what the command line says: reads the options, loads the data, joins the other ranks, and
 * trains the model on all of them. Returns the program's exit status. */
int program_run(int argc, char **argv, data_loader load, model_maker make);

#endif
