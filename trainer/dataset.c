/* dataset.c: training and test samples, from files of several formats. */
#include "trainer/dataset.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define CACHE_LINE 64
#define AHEAD      2 /* samples to prefetch: their order is random, so the hardware cannot */

/* ---- CIFAR-10 in its binary form ------------------------------------------------------------ */

#define SIDE     32
#define CHANNELS 3
#define CLASSES  10
#define RECORD   (1 + SIDE * SIDE * CHANNELS)
#define BATCHES  5

/* Maps one file, checks its labels and appends its samples to the set. */
static bool add_file(dataset *d, sample_set *set, const char *folder, const char *name, fail *why) {
  char path[PATH_MAX];
  file_bytes *file = &d->file[d->files];
  if (!file_path(path, folder, name, why) || !file_map(file, path, why))
    return false;
  d->files++;
  size_t count = file->bytes / RECORD, index = set->per_file ? set->count / set->per_file : 0;
  if (file->bytes % RECORD != 0)
    return fail_set(why, "%s: %zu bytes are no whole number of records of %d: truncated or corrupt",
                    path, file->bytes, RECORD);
  if (index > 0 && count != set->per_file)
    return fail_set(why, "%s: %zu records, but the first file has %zu", path, count, set->per_file);
  for (size_t i = 0; i < count; i++)
    if (file->data[i * RECORD] >= CLASSES)
      return fail_set(why, "%s: record %zu has label %u, and labels are below %d: corrupt", path, i,
                      file->data[i * RECORD], CLASSES);
  set->per_file = count;
  set->count += count;
  set->input_step = set->label_step = RECORD;
  set->labels[index] = file->data;
  set->inputs[index] = file->data + 1;
  return true;
}

/*
 * Maps data_batch_1.bin to data_batch_5.bin and test_batch.bin of the folder: records of a label
 * below 10 and 32 x 32 pixels, all red ones first, then green, then blue. The files of the training
 * set must have the same length. On failure d->file still lists what was mapped.
 */
static bool load_cifar(dataset *d, const char *folder, fail *why) {
  char name[32];
  for (int i = 1; i <= BATCHES; i++) {
    snprintf(name, sizeof(name), "data_batch_%d.bin", i);
    if (!add_file(d, &d->train, folder, name, why))
      return false;
  }
  d->inputs = SIDE * SIDE * CHANNELS;
  d->positions = 1;
  d->classes = CLASSES;
  d->side = SIDE;
  d->channels = CHANNELS;
  return add_file(d, &d->test, folder, "test_batch.bin", why);
}

/* ---- any text ------------------------------------------------------------------------------- */

/*
 * Maps a file and cuts it into samples of `places` bytes; the last tenth of them is the test set.
 * The label of a byte is the next byte. Symbols are the distinct bytes of the file, numbered in
 * their order. On failure d->file still lists what was mapped.
 */
static bool load_text(dataset *d, const char *path, size_t places, fail *why) {
  bool there[256] = {false};
  if (!file_map(&d->file[0], path, why))
    return false;
  const file_bytes *file = &d->file[d->files++];
  for (size_t i = 0; i < file->bytes; i++)
    there[file->data[i]] = true;
  for (int b = 0; b < 256; b++)
    if (there[b])
      d->number_of[b] = (uint8_t)d->classes++;
  size_t count = file->bytes > 0 ? (file->bytes - 1) / places : 0, test = count / 10;
  if (test == 0)
    return fail_set(why, "%s: %zu bytes make %zu samples of %zu bytes, but at least 10 are needed",
                    path, file->bytes, count, places);
  d->inputs = d->positions = places;
  d->text = true;
  d->train = (sample_set){.count = count - test,
                          .per_file = count,
                          .inputs = {file->data},
                          .labels = {file->data + 1},
                          .input_step = places,
                          .label_step = places};
  d->test = d->train;
  d->test.count = test;
  d->test.inputs[0] += d->train.count * places;
  d->test.labels[0] += d->train.count * places;
  return true;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* A hash of the contents: the CRC-32 of each file, hashed together. */
static uint64_t fingerprint(const dataset *d) {
  uint64_t sizes[] = {d->train.count, d->test.count, d->inputs, d->positions, d->classes};
  uint64_t hash = hash_bytes(HASH_START, sizes, sizeof(sizes));
  for (size_t i = 0; i < d->files; i++) {
    uint64_t words[] = {d->file[i].bytes, crc32_z(0, d->file[i].data, d->file[i].bytes)};
    hash = hash_bytes(hash, words, sizeof(words));
  }
  return hash;
}

bool dataset_load(dataset *d, const char *path, size_t places, fail *why) {
  struct stat st;
  char cifar[PATH_MAX];
  memset(d, 0, sizeof(*d));
  bool ok = file_path(cifar, path, "data_batch_1.bin", why);
  if (ok && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
    ok = load_text(d, path, places, why);
  else if (ok)
    ok = access(cifar, F_OK) == 0 ? load_cifar(d, path, why) : idx_load(d, path, why);
  if (ok)
    d->fingerprint = fingerprint(d);
  else
    dataset_free(d);
  return ok;
}

void dataset_free(dataset *d) {
  for (size_t i = 0; i < DATASET_FILES; i++)
    file_free(&d->file[i]);
  memset(d, 0, sizeof(*d));
}

/* Where sample i is. */
static const uint8_t *inputs_of(const sample_set *set, size_t i) {
  return set->inputs[i / set->per_file] + i % set->per_file * set->input_step;
}

/* Prefetches the inputs of sample i. */
static void prefetch(const dataset *d, const sample_set *set, size_t i) {
  const uint8_t *from = inputs_of(set, i);
  for (size_t j = 0; j < d->inputs; j += CACHE_LINE)
    __builtin_prefetch(from + j);
}

void dataset_inputs(const dataset *d, const sample_set *set, size_t i, float scale, float offset,
                    float *inputs) {
  const uint8_t *from = inputs_of(set, i);
  size_t channels = d->channels > 1 ? d->channels : 1, places = d->inputs / channels;
  if (d->text)
    for (size_t j = 0; j < d->inputs; j++)
      inputs[j] = (float)d->number_of[from[j]];
  else if (channels == 1)
    for (size_t j = 0; j < d->inputs; j++)
      inputs[j] = (float)from[j] * scale + offset;
  else /* files store channel by channel, models pixel by pixel */
    for (size_t c = 0; c < channels; c++)
      for (size_t j = 0; j < places; j++)
        inputs[j * channels + c] = (float)from[c * places + j] * scale + offset;
}

void dataset_labels(const dataset *d, const sample_set *set, size_t i, uint8_t *labels) {
  const uint8_t *from = set->labels[i / set->per_file] + i % set->per_file * set->label_step;
  for (size_t j = 0; j < d->positions; j++)
    labels[j] = d->text ? d->number_of[from[j]] : from[j];
}

/* ---- batches -------------------------------------------------------------------------------- */

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
    const uint8_t *from = inputs_of(&d->train, s);
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
      prefetch(ld->data, set, ld->order[first + i + AHEAD]);
    load_sample(ld, set, ld->order[first + i], i, inputs, labels);
  }
}

void loader_test(const loader *ld, shard part, float *inputs, uint8_t *labels) {
  for (size_t i = 0; i < part.count; i++)
    load_sample(ld, &ld->data->test, part.first + i, i, inputs, labels);
}
