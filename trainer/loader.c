/* loader.c: which samples are in which batch, and the numbers of this rank's part. */
#include "trainer/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 2 /* samples to prefetch: their order is random, so the hardware cannot */

shard shard_of(size_t total, int rank, int nranks) {
  size_t n = (size_t)nranks, r = (size_t)rank;
  size_t base = total / n, extra = total % n;
  shard part = {.first = r * base + (r < extra ? r : extra), .count = base + (r < extra)};
  return part;
}

/* Sets scale and offset from the mean and deviation of the training set. The sums are of integers,
 * so every rank gets the same. */
static void normalise(loader *ld) {
  const dataset *d = ld->data;
  uint64_t count[256] = {0};
  double sum = 0, squares = 0, total = (double)d->train.count * (double)d->inputs;
  for (size_t s = 0; s < d->train.count; s++) {
    const uint8_t *from =
        d->train.inputs[s / d->train.per_file] + s % d->train.per_file * d->train.input_step;
    for (size_t i = 0; i < d->inputs; i++)
      count[from[i]]++;
  }
  for (int v = 0; v < 256; v++) {
    sum += (double)count[v] * v;
    squares += (double)count[v] * v * v;
  }
  double mean = sum / total, variance = squares / total - mean * mean;
  double deviation = variance > 1e-6 ? sqrt(variance) : 1.0;
  ld->scale = (float)(1.0 / deviation);
  ld->offset = (float)(-mean / deviation);
}

bool loader_create(loader *ld, const dataset *data, uint64_t seed, size_t batch, fail *why) {
  memset(ld, 0, sizeof(*ld));
  ld->data = data;
  ld->seed = seed;
  ld->batch = batch;
  ld->order = malloc(data->train.count * sizeof(*ld->order));
  if (!ld->order)
    return fail_memory(why, "the order of the samples");
  normalise(ld);
  loader_epoch(ld, 0);
  return true;
}

void loader_destroy(loader *ld) {
  free(ld->order);
  ld->order = NULL;
}

void loader_epoch(loader *ld, uint64_t epoch) {
  rng g = rng_make(ld->seed, RNG_ORDER, epoch);
  size_t count = ld->data->train.count;
  for (size_t i = 0; i < count; i++)
    ld->order[i] = (uint32_t)i;
  for (size_t i = count; i > 1; i--) {
    size_t j = (size_t)rng_below(&g, i);
    uint32_t swap = ld->order[i - 1];
    ld->order[i - 1] = ld->order[j];
    ld->order[j] = swap;
  }
}

size_t loader_steps(const loader *ld) {
  return (ld->data->train.count - 1) / ld->batch + 1;
}

size_t loader_batch_size(const loader *ld, size_t step) {
  size_t left = ld->data->train.count - step * ld->batch;
  return left < ld->batch ? left : ld->batch;
}

/* Writes sample i of a set as row `row`. */
static void load_sample(const loader *ld, const sample_set *set, size_t i, size_t row,
                        float *inputs, uint8_t *labels) {
  const dataset *d = ld->data;
  dataset_inputs(d, set, i, ld->scale, ld->offset, inputs + row * d->inputs);
  dataset_labels(d, set, i, labels + row * d->positions);
}

void loader_train(const loader *ld, size_t first, size_t count, float *inputs, uint8_t *labels) {
  const sample_set *set = &ld->data->train;
  for (size_t i = 0; i < count; i++) {
    if (i + AHEAD < count)
      dataset_prefetch(ld->data, set, ld->order[first + i + AHEAD]);
    load_sample(ld, set, ld->order[first + i], i, inputs, labels);
  }
}

void loader_test(const loader *ld, shard part, float *inputs, uint8_t *labels) {
  for (size_t i = 0; i < part.count; i++)
    load_sample(ld, &ld->data->test, part.first + i, i, inputs, labels);
}
