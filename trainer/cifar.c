/* cifar.c: reads CIFAR-10 in its binary form. */
#include "trainer/cifar.h"

#include <limits.h>
#include <stdio.h>

#define SIDE     32
#define CHANNELS 3
#define CLASSES  10
#define RECORD   (1 + SIDE * SIDE * CHANNELS)
#define BATCHES  5

/* Maps one file and checks its labels; its samples go behind those of the set. */
static bool add_file(dataset *d, sample_set *set, const char *folder, const char *name, fail *why) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof(path))
    return fail_set(why, "%.200s...: the path is too long", folder);
  file_bytes *file = &d->file[d->files];
  if (!file_map(file, path, why))
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

bool cifar_load(dataset *d, const char *folder, fail *why) {
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
