/* idx.h: reads image and label files in IDX format, plain or compressed with gzip. */
#ifndef TRAINER_IDX_H
#define TRAINER_IDX_H

#include "trainer/dataset.h"

/*
 * Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the t10k- files of the folder. A plain
 * file is mapped; if there is none, the file with ".gz" appended is unpacked. Checks kinds, sizes,
 * lengths, checksums, and that there is a label for each image. On failure d->file still lists what
 * was mapped or allocated.
 */
bool idx_load(dataset *d, const char *folder, fail *why);

#endif
