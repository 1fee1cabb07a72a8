/* dataset.c: training and test samples, whatever files they come from. */
#include "trainer/dataset.h"

#include "trainer/cifar.h"
#include "trainer/hash.h"
#include "trainer/idx.h"
#include "trainer/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define CACHE_LINE 64

/* A number that differs when the contents differ (CRC-32 of each file, hashed together). */
static uint64_t fingerprint(const dataset *d) {
  uint64_t sizes[] = {d->train.count, d->test.count, d->inputs, d->positions, d->classes};
  uint64_t hash = hash_bytes(HASH_START, sizes, sizeof(sizes));
  for (size_t i = 0; i < d->files; i++) {
    uint64_t words[] = {d->file[i].bytes, crc32_z(0, d->file[i].data, d->file[i].bytes)};
    hash = hash_bytes(hash, words, sizeof(words));
  }
  return hash;
}

/* Whether the folder has that file. */
static bool has(const char *folder, const char *name) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
  return length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0;
}

bool dataset_load(dataset *d, const char *path, size_t places, fail *why) {
  struct stat st;
  memset(d, 0, sizeof(*d));
  bool ok;
  if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
    ok = text_load(d, path, places, why);
  else if (has(path, "data_batch_1.bin"))
    ok = cifar_load(d, path, why);
  else
    ok = idx_load(d, path, why);
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

void dataset_prefetch(const dataset *d, const sample_set *set, size_t i) {
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
  else /* files have one channel after the other, models all channels of a place together */
    for (size_t c = 0; c < channels; c++)
      for (size_t j = 0; j < places; j++)
        inputs[j * channels + c] = (float)from[c * places + j] * scale + offset;
}

void dataset_labels(const dataset *d, const sample_set *set, size_t i, uint8_t *labels) {
  const uint8_t *from = set->labels[i / set->per_file] + i % set->per_file * set->label_step;
  for (size_t j = 0; j < d->positions; j++)
    labels[j] = d->text ? d->number_of[from[j]] : from[j];
}
