/*
 * dataset.h: training and test samples, from images in IDX files, from CIFAR-10's binary files, or
 * from any text (to predict its next byte).
 */
#ifndef TRAINER_DATASET_H
#define TRAINER_DATASET_H

#include "trainer/base.h"

#define DATASET_FILES 8

/* count samples; sample i is the (i % per_file)-th of file i / per_file. */
typedef struct sample_set {
  size_t count, per_file;
  const uint8_t *inputs[DATASET_FILES], *labels[DATASET_FILES]; /* of each file's first sample */
  size_t input_step, label_step; /* bytes from one sample to the next */
} sample_set;

typedef struct dataset {
  sample_set train, test;
  size_t inputs;          /* numbers per sample */
  size_t positions;       /* labels per sample */
  size_t classes;         /* each label is below this */
  size_t side, channels;  /* of images, which are square; else 0 */
  bool text;              /* inputs are symbols' numbers, else brightness */
  uint8_t number_of[256]; /* text: the symbol's number for each byte */
  uint64_t fingerprint;   /* equal for equal contents */
  file_bytes file[DATASET_FILES];
  size_t files;
} dataset;

/*
 * Loads what is at `path`: a folder with the four IDX files, one with the six of CIFAR-10, or a
 * text file, cut into samples of `places` bytes; the last tenth of them is the test set. Checks
 * sizes, labels and checksums. On failure nothing is left allocated.
 */
bool dataset_load(dataset *d, const char *path, size_t places, fail *why);

/*
 * Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the t10k- files of the folder. A plain
 * file is mapped; if there is none, the file with ".gz" appended is unpacked. Checks kinds, sizes,
 * lengths, checksums, and that there is a label for each image. On failure d->file still lists what
 * was mapped or allocated.
 */
bool idx_load(dataset *d, const char *folder, fail *why);

/* Frees what dataset_load() allocated; does nothing if *d is all zero. */
void dataset_free(dataset *d);

/* Writes the inputs of sample i: brightness * scale + offset, or symbols' numbers. */
void dataset_inputs(const dataset *d, const sample_set *set, size_t i, float scale, float offset,
                    float *inputs);

/* Writes the labels of sample i. */
void dataset_labels(const dataset *d, const sample_set *set, size_t i, uint8_t *labels);

/* ---- batches -------------------------------------------------------------------------------- */

/* The part [first, first + count) of something that rank `rank` of `nranks` works on. */
typedef struct shard {
  size_t first, count;
} shard;

/* Splits `total` into contiguous parts, whose lengths differ by at most one. */
shard shard_of(size_t total, int rank, int nranks);

/* A rank's part of a part. */
static inline shard shard_part(shard whole, int rank, int nranks) {
  shard part = shard_of(whole.count, rank, nranks);
  return (shard){whole.first + part.first, part.count};
}

/*
 * The order of the training samples depends only on the seed and the epoch. So the global batches
 * are the same for any number of ranks, and for a resumed run.
 */
typedef struct loader {
  const dataset *data;
  uint64_t seed;
  size_t batch; /* samples in a full global batch */
  float scale,
      offset; /* brightness * scale + offset has mean 0 and deviation 1 over the training set */
  uint32_t *order; /* of the current epoch */
} loader;

/* `data` must outlive the loader. */
bool loader_create(loader *ld, const dataset *data, uint64_t seed, size_t batch, fail *why);
void loader_destroy(loader *ld);

/* Shuffles for an epoch (from 0). */
void loader_epoch(loader *ld, uint64_t epoch);

/* Steps of an epoch; the last may have fewer samples. */
size_t loader_steps(const loader *ld);

/* Samples of the global batch of a step. */
size_t loader_batch_size(const loader *ld, size_t step);

/* Writes the training samples at positions [first, first + count) of the epoch's order: count rows
 * of inputs and labels. */
void loader_train(const loader *ld, size_t first, size_t count, float *inputs, uint8_t *labels);

/* Writes the test samples `part`, in the order of the file. */
void loader_test(const loader *ld, shard part, float *inputs, uint8_t *labels);

#endif
