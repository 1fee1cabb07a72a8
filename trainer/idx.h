/* idx.h: reads image and label files in IDX format, plain or compressed with gzip. */
#ifndef TRAINER_IDX_H
#define TRAINER_IDX_H

#include "trainer/fail.h"

#include <stddef.h>
#include <stdint.h>

/* count samples: images of rows * cols bytes each, one after the other, and one label each. */
typedef struct idx_set {
  size_t count, rows, cols;
  uint8_t *images;
  uint8_t *labels;
} idx_set;

/* Training and test set of one folder. */
typedef struct idx_data {
  idx_set train, test;
  uint64_t fingerprint; /* equal for equal contents */
} idx_data;

/*
 * Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the t10k- files of the folder, each
 * as it is or with ".gz" behind its name (the plain one wins), and checks all there is to check:
 * kind, sizes, lengths, checksums, that images and labels are equally many, and that labels are
 * below `classes`. On failure nothing is left allocated.
 */
bool idx_load(idx_data *data, const char *folder, size_t classes, fail *why);

/* Frees what idx_load() read; harmless on zeroes. */
void idx_free(idx_data *data);

#endif
