/* idx.h: reads image and label files in IDX format, plain or compressed with gzip. */
#ifndef TRAINER_IDX_H
#define TRAINER_IDX_H

#include "trainer/dataset.h"

/*
 * Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the t10k- files of the folder, each
 * as it is (then it is mapped) or with ".gz" behind its name (the plain one wins), and checks all
 * there is to check: kind, sizes, lengths, checksums, that images and labels are equally many. What
 * was taken is in d->file, also on failure.
 */
bool idx_load(dataset *d, const char *folder, fail *why);

#endif
