/* cifar.h: reads CIFAR-10 in its binary form. */
#ifndef TRAINER_CIFAR_H
#define TRAINER_CIFAR_H

#include "trainer/dataset.h"

/*
 * Maps data_batch_1.bin to data_batch_5.bin and test_batch.bin of the folder: records of a label
 * below 10 and 32 x 32 pixels, all red ones first, then green, then blue. The files of the training
 * set must be equally long. What was taken is in d->file, also on failure.
 */
bool cifar_load(dataset *d, const char *folder, fail *why);

#endif
