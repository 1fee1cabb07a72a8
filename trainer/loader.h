/* loader.h: which samples are in which batch, and the numbers of this rank's part. */
#ifndef TRAINER_LOADER_H
#define TRAINER_LOADER_H

#include "trainer/base.h"
#include "trainer/dataset.h"

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
